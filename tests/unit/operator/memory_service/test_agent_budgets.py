"""The budgets of a MemoryService's agents: all in one ConfigMap, none in the pods' template."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.wire.memory import BUDGETS_KEY, BUDGETS_ROOM, AgentBudgets, ToldAgent
from learnloop_operator.core.plan import Plan
from learnloop_operator.memory_services.decide import decide
from learnloop_operator.memory_services.snapshot import DeliveredBudgets, budgets_of, tell

from .test_memory_service import deployment, world

NAMES = st.from_regex(r"\A[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?\Z")
BUDGETS = st.builds(
    ToldAgent,
    group=st.none() | st.just("support"),
    memories=st.none() | st.integers(0, 10_000_000),
    bytes=st.none() | st.integers(1, 2**40),
    per_type=st.dictionaries(st.sampled_from(["episodic", "semantic"]), st.integers(0, 9), max_size=2),
)
LONGEST = ToldAgent(
    memories=10_000_000,
    bytes=999_999 * 2**30,
    per_type=dict.fromkeys(("episodic", "semantic", "procedural", "working"), 10_000_000),
)


def agent(name: str, service: str | None = "mem", group: str | None = None, **budget: Any) -> dict[str, Any]:
    memory: dict[str, Any] = {"serviceRef": {"name": service}} if service else {}
    memory |= {"group": group} if group else {}
    return {"metadata": {"name": name}, "spec": {"memory": memory | ({"budget": budget} if budget else {})}}


def config_map(plan: Plan) -> dict[str, Any]:
    [made] = [dict(item) for item in plan.apply if item["kind"] == "ConfigMap"]
    return made


def condition(plan: Plan) -> dict[str, Any]:
    return next((item for item in plan.status["conditions"] if item["type"] == "AgentBudgets"), {})


def test_of_all_agents_those_count_that_name_it_and_have_a_budget_or_a_group() -> None:
    agents = [
        agent("b", memories=20, size="1Mi", perType={"episodic": 4}),
        agent("a", memories=10),
        agent("elsewhere", "other", memories=1),
        agent("at-home", None, memories=1),
        agent("unlimited"),
        agent("together", group="support"),
        agent("unreadable", memories="many"),
        {"metadata": {"name": "bare"}},
    ]
    assert budgets_of("mem", agents) == {
        "a": ToldAgent(memories=10),
        "b": ToldAgent(memories=20, bytes=2**20, per_type={"episodic": 4}),
        "together": ToldAgent(group="support"),
    }


@given(st.dictionaries(NAMES, BUDGETS, max_size=12), st.randoms(use_true_random=False), st.integers(60, 1000))
def test_the_same_agents_give_the_same_text_within_the_room_whatever_their_order(
    budgets: dict[str, ToldAgent], random: Any, room: int
) -> None:
    shuffled = list(budgets.items())
    random.shuffle(shuffled)
    told = tell("ns", budgets, room)
    assert told == tell("ns", dict(shuffled), room)
    assert len(told.text.encode()) <= room
    read = AgentBudgets.model_validate_json(told.text)
    inside = sorted(budgets)[: told.agents]
    assert read == AgentBudgets(namespace="ns", agents={name: budgets[name] for name in inside})
    assert told.left_out_from == next(iter(sorted(budgets)[told.agents :]), None)


def test_there_is_room_for_2000_agents_of_the_longest_names_and_budgets_and_for_20000_usual_ones() -> None:
    longest = {f"{index:05}" + "x" * 248: LONGEST for index in range(2000)}
    usual = {f"support-agent-{index}": ToldAgent(memories=10_000) for index in range(20_000)}
    for budgets in (longest, usual):
        assert tell("n" * 63, budgets).left_out_from is None


def test_another_budget_is_another_config_map_and_the_same_pods() -> None:
    plans = [decide(world(budgets=tell("ns", budgets))) for budgets in ({}, {"a": LONGEST})]
    first, second = (config_map(plan) for plan in plans)
    assert first["metadata"] == second["metadata"]
    assert json.loads(first["data"][BUDGETS_KEY]) == {"namespace": "ns", "agents": {}}
    assert json.loads(second["data"][BUDGETS_KEY])["agents"]["a"]["memories"] == 10_000_000
    assert [item for item in plans[0].apply if item != first] == [item for item in plans[1].apply if item != second]
    assert plans[0].apply[0] == first, "it is there before the pods are"


def test_the_pods_read_a_directory_that_the_kubelet_keeps_up_to_date() -> None:
    [made] = [item for item in decide(world()).apply if item["kind"] == "Deployment"]
    pod = made["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [path] = [item["value"] for item in container["env"] if item["name"] == "LEARNLOOP_AGENT_BUDGETS_FILE"]
    [mount] = [item for item in container["volumeMounts"] if path == f"{item['mountPath']}/{BUDGETS_KEY}"]
    assert "subPath" not in mount
    assert {"name": mount["name"], "configMap": {"name": "mem-budgets", "optional": True}} in pod["volumes"]


def test_agents_without_room_are_named_once_and_the_service_stays_ready() -> None:
    full = DeliveredBudgets(tell("ns", {"a": LONGEST}).text, 1, "b")
    status: dict[str, Any] = {}
    told = []
    for budgets in (tell("ns", {"a": LONGEST}), full, full, tell("ns", {"a": LONGEST}), tell("ns", {})):
        plan = decide(world(database={"metadata": {}}, server=deployment(), status=status, budgets=budgets))
        status = plan.status
        events = [notice.message for notice in plan.events if notice.reason == "NoRoomForBudgets"]
        told.append((condition(plan).get("status"), status.get("budgetsLeftOutFrom"), len(events)))
        assert next(item for item in status["conditions"] if item["type"] == "Ready")["status"] == "True"
    assert told == [("True", None, 0), ("False", "b", 1), ("False", "b", 0), ("True", None, 0), (None, None, 0)]
    said = condition(decide(world(budgets=full)))["message"]
    assert said.startswith(f"ConfigMap mem-budgets is full ({BUDGETS_ROOM} bytes): LearningAgent b and those after it")


def test_whatever_holds_the_service_up_its_pods_go_on_hearing_of_budgets() -> None:
    plan = decide(
        world(
            complaint='secret "mem-postgres" not found',
            database={"metadata": {}},
            budgets=tell("ns", {"a": ToldAgent(memories=3)}),
        )
    )
    assert json.loads(config_map(plan)["data"][BUDGETS_KEY])["agents"] == {"a": {"memories": 3}}
    assert condition(plan)["status"] == "True"
