"""The objects that an event marks, whether it is news, and how soon they are looked at."""

from learnloop_operator.kube.cached_reads import CACHED
from learnloop_operator.kube.kinds import DEPLOYMENT, LEARNING_AGENT, MODEL_DEPLOYMENT, TRAINING_JOB
from learnloop_operator.kube.object_cache import ObjectCache
from learnloop_operator.reconcile import kopf_handlers
from learnloop_operator.reconcile.kopf_handlers import RelatedObjects, child_handler, own_handler
from learnloop_operator.reconcile.work_queue import ObjectKey

from .scripted_controllers import TRIED, Scripted, runtime


def test_agents_are_marked_when_their_policy_changes_and_policies_when_an_agent_joins() -> None:
    relations = RelatedObjects()
    agent, policy = ObjectKey("LearningAgent", "ns", "la"), ObjectKey("RewardPolicy", "ns", "rp")
    body = {"metadata": {"namespace": "ns"}, "spec": {"rewardPolicyRef": {"name": "rp"}}}
    assert relations.changed(agent, body, deleted=False) == {agent, policy}
    assert relations.changed(agent, body, deleted=False) == {agent}
    assert relations.changed(policy, {"metadata": {"namespace": "ns"}}, deleted=False) == {policy, agent}
    assert relations.changed(agent, body, deleted=True) == {agent, policy}
    assert relations.changed(policy, {"metadata": {"namespace": "ns"}}, deleted=False) == {policy}


def test_a_memory_service_is_marked_when_an_agents_budget_changes_and_by_nothing_else_of_it() -> None:
    relations = RelatedObjects()
    agent, one, other = (ObjectKey(kind, "ns", name) for kind, name in (
        ("LearningAgent", "la"), ("MemoryService", "one"), ("MemoryService", "other")
    ))  # fmt: skip

    def marked(service: str, budget: dict | None = None, deleted: bool = False, **more) -> set[ObjectKey]:
        memory = {"serviceRef": {"name": service}} | ({"budget": budget} if budget else {})
        body = {"metadata": {"namespace": "ns"}, "spec": {"memory": memory}, **more}
        return relations.changed(agent, body, deleted=deleted) - {agent}

    assert marked("one") == {one}
    assert marked("one", status={"trajectories": 1}) == set()
    assert marked("one", {"memories": 5, "size": "1Mi"}) == {one}
    assert marked("one", {"size": "1Mi", "memories": 5}, status={"trajectories": 2}) == set()
    assert marked("one", {"memories": 6}) == {one}
    assert marked("other", {"memories": 6}) == {one, other}
    assert marked("other") == {other}
    assert relations.changed(one, {"metadata": {"namespace": "ns"}}, deleted=False) == {one}
    assert relations.changed(other, {"metadata": {"namespace": "ns"}}, deleted=False) == {other, agent}
    assert marked("other", deleted=True) == {other}


def test_a_model_deployment_is_marked_when_its_agents_model_changes_and_by_no_figure_of_it() -> None:
    relations = RelatedObjects()
    agent, rollout = ObjectKey("LearningAgent", "ns", "la"), ObjectKey("ModelDeployment", "ns", "la")
    owner = {"apiVersion": LEARNING_AGENT.api_version, "kind": agent.kind, "name": "la", "controller": True}
    child = {"metadata": {"namespace": "ns", "ownerReferences": [owner]}}

    def marked(generation: int = 1, deleted: bool = False, **status) -> bool:
        body = {"metadata": {"namespace": "ns", "generation": generation}, "status": status}
        return rollout in relations.changed(agent, body, deleted=deleted)

    assert agent in relations.changed(rollout, child, deleted=False), "an agent follows its rollout"
    assert marked(phase="RollingOut")
    assert not marked(phase="RollingOut", trajectories=2), "else the two would wake one another without end"
    assert marked(phase="RollingOut", trajectories=3, model={"uri": "learnloop://ns/m"})
    assert not marked(phase="RollingOut", trajectories=4, model={"uri": "learnloop://ns/m"})
    assert marked(phase="Suspended", model={"uri": "learnloop://ns/m"})
    assert marked(2, phase="Suspended", model={"uri": "learnloop://ns/m"}), "another spec"
    assert marked(2, deleted=True)
    assert marked(1)


async def test_what_our_own_children_echo_is_one_pass_a_moment_later_and_news_of_a_child_one_at_once(monkeypatch):
    monkeypatch.setattr(kopf_handlers, "GATHER_SECONDS", 0.05)
    made, cache = runtime(Scripted({}, kind=MODEL_DEPLOYMENT)), ObjectCache(CACHED)
    made.tracked.add(TRIED)
    handle = child_handler(DEPLOYMENT, made, cache)

    def event(version: int, name: str) -> dict:
        owner = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": TRIED.kind, "name": TRIED.name, "controller": True}
        metadata = {"namespace": "ns", "name": name, "resourceVersion": str(version), "ownerReferences": [owner]}
        return {"type": "MODIFIED", "object": {"metadata": metadata}}

    for number in (1, 2):
        cache.put(DEPLOYMENT, event(number, f"tried-{number}")["object"])
        await handle(event(number, f"tried-{number}"))
    assert len(made.queue) == 0, "others may follow"
    assert await made.queue.take() == TRIED
    made.queue.done(TRIED)
    assert len(made.queue) == 0
    await handle(event(3, "tried-1"))
    assert len(made.queue) == 1
    made.queue.close()


async def test_a_spec_that_another_controller_or_a_listing_brought_into_the_cache_is_news() -> None:
    made, cache = runtime(Scripted({})), ObjectCache(CACHED)
    handle = own_handler(TRAINING_JOB, made, RelatedObjects(), cache)

    async def written(version: str, **metadata) -> int:
        body = {"metadata": {"namespace": "ns", "name": "a", "resourceVersion": version, **metadata}}
        cache.put(TRAINING_JOB, body)
        await handle({"type": "MODIFIED", "object": body})
        waiting = len(made.queue)
        if waiting:
            made.queue.done(await made.queue.take())
        return waiting

    assert await written("1", generation=1) == 1, "first sight"
    assert await written("2", generation=1) == 0, "its own status"
    assert await written("3", generation=2) == 1, "its owner applied another spec"
    assert await written("4", generation=2, annotations={"learnloop.dev/train": "now"}) == 1, "a person's order"
    assert await written("5", generation=2, annotations={"learnloop.dev/train": "now"}) == 0
    made.queue.close()
