"""What the demos count of arms: of pods that run, and of the agent that is asked for."""

from typing import Any

from demo.counters import episode_counters

METRICS = 'learnloop_episodes_ended_total{model_deployment="tiny",outcome="success",revision="r1"} 3.0\n'


class Cluster:
    """Two pods with the label: an arm that runs, and a gate's that has ended."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        self.asked.append(selector)
        return [
            {"metadata": {"name": name}, "spec": {"containers": [{}]}, "status": {"phase": phase}}
            for name, phase in (("tiny-gate-1", "Succeeded"), ("tiny-r1", "Running"))
        ]

    def pod_metrics(self, pod: dict[str, Any]) -> str:
        self.asked.append(pod["metadata"]["name"])
        return METRICS


def test_pods_that_have_ended_are_not_asked() -> None:
    cluster = Cluster()
    (found,) = episode_counters(cluster, "demo", "tiny")  # type: ignore[arg-type]
    assert (found.pod, found.metric, found.value) == ("tiny-r1", "learnloop_episodes_ended_total", 3.0)
    assert cluster.asked[0] == "learnloop.dev/model-deployment=tiny"
    assert cluster.asked[1:] == ["tiny-r1"]
