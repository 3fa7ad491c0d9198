"""The API server's handling of good objects: defaults, idempotence, ownership, immutability."""

import copy
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
GOOD = {item["kind"]: item for item in yaml.safe_load_all((HERE / "objects.yaml").read_text())}
GROUP = "learnloop.dev/"


def placed(kind: str, namespace: str, **spec) -> dict:
    """The good object of the kind in that namespace, with some fields of its spec replaced."""
    item = copy.deepcopy(GOOD[kind])
    item["metadata"]["namespace"] = namespace
    item["spec"] |= spec
    return item


def test_what_is_left_out_takes_the_documented_defaults(kube, namespace: str) -> None:
    item = placed("ModelDeployment", namespace)
    item["spec"] = {"model": {"uri": "uniform://discrete/2?observations=4"}}
    spec = kube.apply(item)["spec"]
    assert [step["weight"] for step in spec["rollout"]["steps"]] == [10, 25, 50, 100]
    assert spec["rollout"]["steps"][0] == {"weight": 10, "minEpisodes": 20, "minSeconds": 0, "pause": False}
    metric = {"name": "success", "type": "success", "minRatio": 0.8, "minEpisodes": 5}
    assert spec["analysis"]["metrics"][0] == {**metric, "test": "threshold"}
    assert spec["routing"] == {"mode": "service"}
    assert spec["serving"] == {"replicas": 1, "canaryReplicas": 1, "pod": {}}
    assert spec["suspend"] is False


def test_defaults_reach_into_the_templates_of_an_agent(kube, namespace: str) -> None:
    spec = kube.apply(placed("LearningAgent", namespace))["spec"]
    template = spec["deployment"]["template"]
    assert template["rollout"]["keepForSeconds"] == 60
    assert [step["weight"] for step in template["rollout"]["steps"]] == [10, 25, 50, 100]
    assert spec["training"]["template"]["workers"] == 2
    assert spec["training"]["triggers"]["minIntervalSeconds"] == 60
    assert spec["memory"] == {"recall": 0}


@pytest.mark.parametrize("kind", GOOD)
def test_applying_an_object_twice_writes_once(kind: str, kube, namespace: str) -> None:
    first = kube.apply(placed(kind, namespace))
    second = kube.apply(placed(kind, namespace))
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.parametrize("kind", GOOD)
def test_applying_what_was_read_back_writes_nothing(kind: str, kube, namespace: str) -> None:
    """Defaults are in the schema, so a tool that writes the live spec back sees no difference."""
    first = kube.apply(placed(kind, namespace))
    again = kube.apply({**placed(kind, namespace), "spec": first["spec"]}, manager="another")
    assert again["metadata"]["generation"] == first["metadata"]["generation"]


def test_status_and_spec_are_written_apart(kube, namespace: str) -> None:
    item = placed("RewardPolicy", namespace)
    stored = kube.apply({**item, "status": {"revision": "mine"}})
    assert "status" not in stored
    kube.apply({**named(item), "status": {"revision": "3f9a2c81"}}, manager="operator", subresource="status")
    kube.merge(item, {"spec": {"normalisation": {"method": "none"}}}, subresource="status")
    stored = kube.get(item)
    assert stored["status"] == {"revision": "3f9a2c81"}
    assert stored["spec"]["normalisation"]["method"] == "zscore"
    assert stored["metadata"]["generation"] == 1


def test_an_impossible_status_is_refused(kube, namespace: str) -> None:
    item = placed("ModelDeployment", namespace)
    kube.apply(item)
    status = {"weight": 200}
    message = kube.refusal(lambda: kube.apply({**named(item), "status": status}, subresource="status"))
    assert "status.weight" in message


def test_a_conflict_names_the_other_manager_and_the_field(kube, namespace: str) -> None:
    item = placed("ModelDeployment", namespace)
    kube.apply(item, manager="argocd-controller")
    other = {**named(item), "spec": {"model": item["spec"]["model"], "rollout": {"keepForSeconds": 5, "steps": []}}}
    other["spec"]["rollout"]["steps"] = [{"weight": 100}]
    message = kube.refusal(lambda: kube.apply(other, manager="a-person"))
    assert 'conflict with "argocd-controller"' in message
    assert ".spec.rollout.steps" in message


def test_two_managers_share_a_keyed_list(kube, namespace: str) -> None:
    agent = placed("LearningAgent", namespace)
    agent["spec"]["training"]["template"]["pod"]["env"] = [{"name": "A", "value": "1"}]
    kube.apply(agent, manager="one")
    agent["spec"]["training"]["template"]["pod"]["env"] = [{"name": "B", "value": "2"}]
    stored = kube.apply(agent, manager="two")
    env = stored["spec"]["training"]["template"]["pod"]["env"]
    assert sorted(entry["name"] for entry in env) == ["A", "B"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"totalSteps": 5}, "spec.totalSteps"),
        ({"seed": 1}, "spec.seed"),
        ({"hyperparameters": {"batchSize": 64}}, "spec.hyperparameters"),
        ({"deadlineSeconds": 60}, "spec.deadlineSeconds"),
        ({"data": {"environment": "Acrobot-v1"}}, "spec.data"),
        ({"gates": {"minReturn": 1}}, "spec.gates"),
        ({"pod": {"tolerations": [{"key": "gpu"}]}}, "spec.pod"),
        ({"algorithm": "ppo", "hyperparameters": {}}, "spec.algorithm"),
    ],
)
def test_the_recipe_of_a_training_job_never_changes(change, field, kube, namespace):
    item = kube.apply(placed("TrainingJob", namespace))
    message = kube.refusal(lambda: kube.merge(item, {"spec": change}))
    assert f"{field}: Invalid value" in message
    assert "is immutable: create a new TrainingJob" in message


def test_a_rank_stays_only_where_it_can_and_its_updates_are_numbered(kube, namespace: str) -> None:
    job = placed("TrainingJob", namespace)
    job["spec"] |= {"workers": 0, "continuous": {"steps": 64}}
    stored = kube.apply(job)
    assert stored["spec"]["continuous"] == {"steps": 64, "maxKl": 0.1, "update": 0}
    assert kube.merge(stored, {"spec": {"continuous": {"update": 3}}})["spec"]["continuous"]["update"] == 3
    assert "one rank of engine own stays" in kube.refusal(lambda: kube.merge(stored, {"spec": {"workers": 1}}))
    agent = placed("LearningAgent", namespace)
    agent["spec"]["training"] |= {"continuous": {"steps": 64}}
    agent["spec"]["training"]["template"]["workers"] = 2
    assert "spec.training.continuous" in kube.refusal(lambda: kube.apply(agent))


def test_a_training_job_is_suspended_resized_and_given_a_time_to_live(kube, namespace: str) -> None:
    item = kube.apply(placed("TrainingJob", namespace))
    stored = kube.merge(item, {"spec": {"suspend": True, "workers": 3, "ttlSecondsAfterFinished": 60}})["spec"]
    assert (stored["suspend"], stored["workers"], stored["ttlSecondsAfterFinished"]) == (True, 3, 60)


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ({"storage": {"size": "1Ti"}}, "size is immutable: resize the claim"),
        ({"storage": {"storageClassName": "fast"}}, "storageClassName is immutable"),
        ({"storage": None, "dsnSecretRef": {"name": "db", "key": "dsn"}}, "the data would stay behind"),
    ],
)
def test_a_memory_service_keeps_its_data(change: dict, fix: str, kube, namespace: str) -> None:
    item = kube.apply(placed("MemoryService", namespace))
    assert fix in kube.refusal(lambda: kube.merge(item, {"spec": change}))


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"learningAgentRef": {"name": "walker"}}},
        {"model": {"uri": "uniform://discrete/2?observations=4"}},
        {"model": {"uri": f"learnloop://team/{'a' * 64}", "sha256": "a" * 64}},
        {"routing": {"mode": "gateway", "gateway": {"name": "edge", "namespace": "infra"}, "hostnames": ["a.example"]}},
        {"rollout": {"steps": [{"weight": 100}]}},
        {"analysis": {"metrics": [{"name": "m", "type": "latency", "min": 0.1, "max": 0.1}]}},
    ],
)
def test_a_rule_lets_the_good_form_pass(spec: dict, kube, namespace: str) -> None:
    kube.create(placed("ModelDeployment", namespace, **spec), dry=True)


@pytest.mark.parametrize("weights", [(0.1,) * 10, (1 / 3, 1 / 3, 1 / 3), (1, 0), (0.9999995, 0)])
def test_weights_may_miss_one_by_a_millionth(weights: tuple[float, ...], kube, namespace: str) -> None:
    components = [{"name": f"c{at}", "type": "success", "weight": weight} for at, weight in enumerate(weights)]
    kube.create(placed("RewardPolicy", namespace, components=components), dry=True)


def named(item: dict) -> dict:
    """Only what addresses the object."""
    metadata = {key: item["metadata"][key] for key in ("name", "namespace")}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": metadata}
