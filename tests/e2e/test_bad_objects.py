"""Objects that the API server cannot refuse get a condition that explains; everybody else goes on."""

from collections.abc import Iterator

import pytest

from demo.api import Api
from testing.real_cluster.cluster_actions import Json, Rig, learnloop, own_namespace

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


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """One whose name an address can name."""
    yield from own_namespace(api, NAMESPACE)


def test_each_bad_object_is_explained_by_a_condition_and_a_good_one_beside_them_serves(rig, namespace):
    restarts = rig.operator_restarts()
    bad = {case: f"bad-{number}" for number, case in enumerate(CASES)}
    objects = [learnloop(CASES[case][0], name, CASES[case][2]) for case, name in bad.items()]
    rig.apply(namespace, *objects, learnloop("ModelDeployment", "fine", {"model": UNIFORM}))
    for case, name in bad.items():
        _explained(rig, namespace, case, name)
    rig.phase(namespace, "modeldeployments", "fine", "Healthy", "Guarding", seconds=90)
    assert all(count <= restarts.get(pod, 0) for pod, count in rig.operator_restarts().items())


def _explained(rig: Rig, namespace: str, case: str, name: str) -> None:
    _, plural, _, words = CASES[case]

    def explained() -> str | None:
        conditions = rig.status(namespace, plural, name).get("conditions", [])
        messages = [item["message"] for item in conditions if item["type"] in ("Ready", "Stalled")]
        return next((message for message in messages if all(word in message for word in words)), None)

    rig.until(f"{case}: a condition naming {' and '.join(words)}", explained, 120)
