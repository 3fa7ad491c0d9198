"""The objects of gates, before a real API server: taken strictly, and a restricted namespace lets the pods in."""

from dataclasses import replace

from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.rollout.state.snapshot import Defaults
from testing.simulation.gated_cluster import GatedCluster
from testing.simulation.rollout_cluster import BETTER

SUITES = [
    {"name": "leak", "builtin": "leak"},
    {
        "name": "toxicity",
        "builtin": "toxicity",
        "detector": {"url": "http://judge.ai.svc:8000/v1", "model": "m", "apiKeySecretRef": {"name": "judge"}},
        "egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"port": 8000, "protocol": "TCP"}]}],
    },
    {"name": "red-team", "image": "registry.example/garak:0.17", "data": {"configMap": "prompts"}, "timeout": "20m"},
]


def objects() -> list[dict]:
    """All that the operator makes for a candidate at its gates."""
    cluster = GatedCluster()
    del cluster.spec["gates"]
    cluster.run(4)
    cluster.spec["gates"] = {"suites": SUITES}
    cluster.wish(1, BETTER)
    defaults = Defaults("serving:1", "https://learnloop-data.learnloop-system.svc:8443")
    while True:
        plan = decide(replace(cluster.snapshot(), defaults=defaults))
        gate_objects = [dict(item) for item in plan.apply if "gate" in item["metadata"]["name"]]
        if gate_objects:
            return gate_objects
        cluster.reconcile()
        cluster.tick(1)


def test_the_objects_of_gates_are_taken_as_they_are(kube, namespace: str) -> None:
    made = objects()
    assert [item["kind"] for item in made].count("Job") == 3
    for item in made:
        placed = {**item, "metadata": {**item["metadata"], "namespace": namespace}}
        created = kube.create(placed)
        assert created["metadata"]["name"] == item["metadata"]["name"]
        if item["kind"] == "Job":
            assert created["spec"]["backoffLimit"] == 0
            assert created["spec"]["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
            template = created["spec"]["template"]
            pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
            level = {"pod-security.kubernetes.io/enforce": "restricted"}
            kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": level}})
            kube.create({**pod, "metadata": {"name": item["metadata"]["name"], "namespace": namespace}}, dry=True)
