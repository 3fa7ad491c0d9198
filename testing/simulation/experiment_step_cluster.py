"""The simulated cluster with an experiment as a step of every rollout: canary, stable and guests side by side."""

from datetime import datetime
from typing import Any

from learnloop_operator.rollout.checks.experiment_evidence import bar
from testing.simulation.experiment_cluster import FLOOR, ExperimentCluster, arms_of
from testing.simulation.rollout_cluster import digest, uri

GUESTS = 5
"""Models 5, 6… are guests; 1, 2… are rolled out."""


def guests_of(*weights: int) -> list[dict[str, Any]]:
    """Guests a, b… of models 5, 6…"""
    named = zip(arms_of(*weights), range(GUESTS, GUESTS + len(weights)), strict=True)
    return [{**arm, "uri": uri(number), "sha256": digest(number)} for arm, number in named]


class StepCluster(ExperimentCluster):
    """`chances`: success of stable's model 0, of the canary's model 1, then of each guest's."""

    def __init__(
        self, chances: tuple[float, ...], weights: tuple[int, ...] = (), pause: bool = False, **more: Any
    ) -> None:
        super().__init__((0.5,), (1,))
        numbers = (0, 1, *range(GUESTS, GUESTS + len(weights)))
        self.quality = {uri(number): chance for number, chance in zip(numbers, chances, strict=True)}
        del self.experiment["onWinner"]
        self.experiment |= {"arms": guests_of(*weights), "maxEpisodes": 6_000} | more
        # The arms are compared by the experiment alone.
        self.spec["analysis"]["metrics"] = [{"name": "errors", "type": "errors", "max": 0.05}]
        self.spec["rollout"]["steps"] = [
            {"weight": 10, "minEpisodes": 6},
            {"weight": 30, "minEpisodes": 6, "pause": pause, "experiment": self.experiment},
            {"weight": 50, "minEpisodes": 6},
            {"weight": 100, "minEpisodes": 6},
        ]

    def start(self) -> "StepCluster":
        """Serve model 0, then ask for model 1."""
        self.run(10)
        assert self.status["phase"] == "Healthy"
        self.spec["model"] = {"uri": uri(1), "sha256": digest(1)}
        return self

    @property
    def found(self) -> dict[str, Any]:
        """What the status says of the experiment."""
        return dict(self.status.get("experiment") or {})

    def until(self, phase: str, seconds: int = 4_000) -> None:
        """Run until the experiment is there."""
        for _ in range(seconds // 5):
            if self.found.get("phase") == phase:
                return
            self.run(5)
        raise AssertionError(f"never {phase}: {self.status['verdict']}")

    def end(self, seconds: int = 4_000) -> dict[str, Any]:
        """Run until the rollout is over and its guard, too."""
        for _ in range(seconds // 25):
            self.run(25)
            if self.status["phase"] in ("Healthy", "RolledBack") and not self.status.get("canary"):
                break
        return self.status

    def check(self) -> None:
        table = self.routing().table
        if table is None or not table.arms:
            return
        shares = {arm["revision"]: arm["weight"] for arm in self.found.get("arms", ())[1:]}
        steps = self.spec["rollout"]["steps"]
        step = self.status.get("step")
        drawn = self.shares()
        for arm in table.arms:
            self.check_pods(arm)
            share = drawn.get(arm.revision, 0)
            if arm.role == "stable":
                assert step in (None, len(steps) - 1) or share >= FLOOR, "stable is below its floor"
            elif share and arm.revision == (self.status.get("canary") or {}).get("revision"):
                assert step is not None
                assert share <= steps[step]["weight"], "the canary's share ran ahead of the step"
            elif share and not self.status.get("promotedAt"):
                assert share <= shares[arm.revision], "a guest got more than its share"

    def check_step(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """No step with an experiment is passed but by its winner, or by a person's choice; others by their episodes."""
        if before.get("step") is None or after.get("step") != before["step"] + 1:
            return
        same = before["canary"]["revision"] == after["canary"]["revision"]
        step = self.spec["rollout"]["steps"][before["step"]]
        if not step.get("experiment"):
            assert same
            super().check_step(before, after)
            return
        verbs = {item["value"]: item["verb"] for item in after.get("decisions", ()) if item["outcome"] == "obeyed"}
        if "skip" in verbs.values():
            return
        found = after["experiment"]
        arms = found["arms"]
        best = next(arm for arm in arms if arm["revision"] == after["canary"]["revision"])
        assert found["winner"] == best["name"]
        if any(verb == "approve" and best["revision"] in value for value, verb in verbs.items()):
            return
        assert all(arm["standing"] != "playing" for arm in arms if arm is not best), arms
        alpha = self.experiment.get("alpha", 0.05) / (2 if self.experiment.get("guardrails") else 1)
        assert max(arm["logBetter"][0] for arm in arms[1:]) >= bar(len(arms), alpha), "stable was never beaten"
        assert best["episodes"] >= self.experiment["minEpisodes"]
        assert all(item["standing"] == "holds" for item in best.get("guardrails", ())), "a guardrail was not proven"

    def check_promotion(self, revision: str) -> None:
        """What is promoted has played at every step that was left, beside a Prometheus that answered."""
        assert self.prometheus
        began = datetime.fromisoformat(self.status["rolloutStartedAt"])
        count = sum(1 for at, arm, _ in self.episodes if arm == revision and at > began)
        assert count >= 12, f"promoted on {count} episodes"
        self.promotions.append(revision)
