"""A policy that has served is never overwritten: an arm keeps its model, and another model is another arm."""

import random

from learnloop_api import names
from testing.simulation.rollout_cluster import BAD, BETTER, Cluster, digest


class Witness(Cluster):
    """Remembers by which model, pods and all, each arm's Deployment was made."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.made: dict[str, tuple[str, str]] = {}
        self.overwritten: list[str] = []

    def _apply(self, manifest: dict) -> None:
        if manifest["kind"] == "Deployment":
            name = manifest["metadata"]["name"]
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            env = {item["name"]: item.get("value", "") for item in container["env"]}
            runs = env["LEARNLOOP_MODEL_URI"], env["LEARNLOOP_MODEL_SHA256"]
            assert name.endswith(manifest["metadata"]["labels"][names.LABEL_REVISION])
            if self.made.setdefault(name, runs) != runs:
                self.overwritten.append(name)
        super()._apply(manifest)


def test_no_write_of_any_rollout_gives_an_arm_another_model() -> None:
    draw = random.Random(11)
    cluster = Witness()
    cluster.run(4)
    for number in range(1, 9):
        cluster.wish(number, draw.choice((BETTER, BAD)))
        cluster.run(draw.choice((3, 30, 90)))
        stable = cluster.status["stable"]["revision"]
        if draw.random() < 0.4:
            cluster.annotations["learnloop.dev/undo"] = f"{stable} at {number} by me"
            cluster.run(10)
    cluster.settle()
    assert cluster.overwritten == []
    assert len(cluster.made) >= 6
    assert len({sha256 for _, sha256 in cluster.made.values()}) == len(cluster.made), "one model, one arm"


def test_the_same_address_with_other_bytes_is_another_arm_and_passes_its_steps_again() -> None:
    cluster = Witness()
    cluster.run(4)
    before = cluster.status["stable"]["revision"]
    cluster.spec["model"] = {**cluster.spec["model"], "sha256": digest(77)}
    cluster.run(6)
    assert cluster.status["canary"]["revision"] != before
    assert cluster.status["stable"]["revision"] == before
    assert cluster.overwritten == []
