"""What the API server cannot refuse, a condition must explain; everybody else goes on."""

from collections.abc import Iterator

import pytest

from demo.api import Api
from testing.real_cluster.cluster_actions import Json, World, learnloop, own_namespace

NAMESPACE = "e2e-bad-objects"
NOWHERE = f"learnloop://{NAMESPACE}/" + "0" * 64
UNIFORM = {"uri": "uniform://discrete/2?observations=4"}


def _serving(model: Json) -> Json:
    return {"model": model, "rollout": {"progressDeadlineSeconds": 20}}


CASES: dict[str, tuple[str, str, Json, tuple[str, ...]]] = {
    "a model at an address that leads nowhere": (
        "ModelDeployment", "modeldeployments",
        _serving({"uri": NOWHERE, "sha256": "0" * 64}), ("404", "uri"),
    ),
    "a model with another digest than promised": (
        "ModelDeployment", "modeldeployments",
        _serving({"uri": "file:///etc/hostname", "sha256": "1" * 64}), ("sha256",),
    ),
    "a reference to a LearningAgent that is not there": (
        "ModelDeployment", "modeldeployments",
        _serving({"learningAgentRef": {"name": "nobody"}}), ("learningAgentRef", "nobody"),
    ),
    "a reference to a RewardPolicy that is not there": (
        "LearningAgent", "learningagents",
        {"task": {"external": {}, "observations": 4, "actions": 2}, "rewardPolicyRef": {"name": "nobody"}},
        ("rewardPolicyRef", "nobody"),
    ),
    "a secret that is not there": (
        "MemoryService", "memoryservices",
        {"dsnSecretRef": {"name": "nobody", "key": "dsn"}}, ("dsnSecretRef", "nobody"),
    ),
    "an environment that the trainer does not know": (
        "TrainingJob", "trainingjobs",
        {"algorithm": "ppo", "totalSteps": 1000, "data": {"environment": "NoSuchEnvironment-v7"}},
        ("environment", "NoSuchEnvironment-v7"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def namespace(api: Api) -> Iterator[str]:
    """One for all of them: each bad object has the others beside it."""
    yield from own_namespace(api, NAMESPACE)


@pytest.mark.parametrize("case", CASES)
def test_a_bad_object_is_explained_by_a_condition(world: World, namespace: str, case: str) -> None:
    kind, plural, spec, words = CASES[case]
    name = "bad-" + str(list(CASES).index(case))
    restarts = world.operator_restarts()
    world.apply(namespace, learnloop(kind, name, spec))

    def explained() -> str | None:
        conditions = world.status(namespace, plural, name).get("conditions", [])
        messages = [item["message"] for item in conditions if item["type"] in ("Ready", "Stalled")]
        return next((message for message in messages if all(word in message for word in words)), None)

    world.until(f"a condition naming {' and '.join(words)}", explained, 120)
    assert all(count <= restarts.get(pod, 0) for pod, count in world.operator_restarts().items())
    world.apply(namespace, learnloop("ModelDeployment", "fine", {"model": UNIFORM}))
    world.phase(namespace, "modeldeployments", "fine", "Healthy", "Guarding", seconds=90)
