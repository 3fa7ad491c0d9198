"""The simulated cluster with several models side by side; an episode returns 1 or 0, by the model's own chance."""

from bisect import bisect_right
from datetime import datetime, timedelta
from typing import Any

from learnloop_operator.rollout.evidence import ArmEvidence
from learnloop_operator.statistics.several_arms import bar
from testing.simulation.rollout_cluster import Cluster, digest, uri

FLOOR = 5


def arms_of(*weights: int) -> list[dict[str, Any]]:
    """Arms a, b, c… of models 1, 2, 3…"""
    return [
        {"name": "abcdefg"[index], "uri": uri(index + 1), "sha256": digest(index + 1), "weight": weight}
        for index, weight in enumerate(weights)
    ]


class ExperimentCluster(Cluster):
    """`chances`: success of stable's model, then of each arm's."""

    def __init__(self, chances: tuple[float, ...], weights: tuple[int, ...] = (25, 25), **more: Any) -> None:
        super().__init__()
        self.quality = {uri(index): chance for index, chance in enumerate(chances)}
        self.experiment: dict[str, Any] = {
            "arms": arms_of(*weights),
            "metric": {"type": "return", "returnRange": {"lowest": 0.0, "highest": 1.0}},
            "minEpisodes": 40,
            "maxEpisodes": 20_000,
            "onWinner": "promote",
        } | more
        self.errors: dict[str, float] = {}
        self.success: dict[str, float] = {}
        self.per_second, self.indexed = 20, 0
        self.counted: dict[str, tuple[list[datetime], list[float]]] = {}

    def start(self) -> "ExperimentCluster":
        """Serve, then ask for the experiment."""
        self.run(10)
        assert self.status["phase"] == "Healthy"
        self.spec["experiment"] = self.experiment
        return self

    def outcome(self, revision: str) -> float:
        return float(self.random.random() < self.quality[self.model_of(revision)])

    def scraped(self, revision: str, seconds: float) -> ArmEvidence:
        """By a running count for each arm: an experiment has thousands of episodes."""
        for at, arm, value in self.episodes[self.indexed :]:
            times, sums = self.counted.setdefault(arm, ([], [0.0]))
            times.append(at)
            sums.append(sums[-1] + value)
        self.indexed = len(self.episodes)
        times, sums = self.counted.get(revision, ([], [0.0]))
        first, last = bisect_right(times, self.now - timedelta(seconds=seconds)), bisect_right(times, self.now)
        if first == last or f"md-{revision}" not in self.deployments:
            return ArmEvidence(scraped_at=self.now)
        errors = self.errors.get(self.model_of(revision), 0.0)
        mean = (sums[last] - sums[first]) / (last - first)
        success = self.success.get(self.model_of(revision), 1.0)
        since, deadline = (
            self.now - timedelta(seconds=seconds),
            self.spec["analysis"].get("episodeDeadlineSeconds", 600),
        )
        openings = self.opened.since(revision, since, self.now, deadline)
        return ArmEvidence(last - first, mean, success, errors, scraped_at=self.now, openings=openings)

    def run(self, seconds: int) -> None:
        """Look every five seconds."""
        for _ in range(max(1, seconds // 5)):
            for _ in range(8):
                if self.reconcile().requeue_after != 0.0:
                    break
            self.tick(5)

    def weights(self) -> dict[str, int]:
        """Percent of new episodes by model."""
        return {self.model_of(revision): share for revision, share in self.shares().items()}

    def arm(self, name: str) -> dict[str, Any]:
        """The status of an arm."""
        result: dict[str, Any] = next(arm for arm in self.status["experiment"]["arms"] if arm["name"] == name)
        return result

    def finish(self, seconds: int = 3_000) -> dict[str, Any]:
        """Run until the experiment is over and its guard, too."""
        for _ in range(seconds // 25):
            self.run(25)
            ended = self.status.get("experiment", {}).get("phase") == "Finished"
            if ended and self.status["phase"] in ("Healthy", "RolledBack"):
                break
        return self.status

    def check(self) -> None:
        table = self.routing().table
        if table is None or not table.arms:
            return
        shares = self.shares()
        for arm in table.arms:
            self.check_pods(arm)
            if self.status.get("experiment", {}).get("phase") == "Finished":
                continue  # on record before the shares move: who serves changes in the route, and in the table then
            share = shares.get(arm.revision, 0)
            # A promotion is on record first; by a gateway the route follows it, and then the table.
            serves = self.status.get("stable", {}).get("revision")
            if arm.role == "stable":
                assert share >= FLOOR or serves != arm.revision, "stable is below its floor"
            if arm.role == "stable" or serves == arm.revision:
                continue
            children = self.status.get("experiment", {}).get("arms", [])
            weight = max((item["weight"] for item in children if item["revision"] == arm.revision), default=100)
            assert share <= weight, "an arm got more than its share"

    def _status(self, status: dict[str, Any]) -> None:
        self.coming = status
        super()._status(status)

    def check_promotion(self, revision: str) -> None:
        """No arm is promoted that is not proven better than somebody, with every other one out."""
        experiment = self.coming["experiment"]
        arms = experiment["arms"]
        winner = next(arm for arm in arms if arm["revision"] == revision)
        assert experiment["winner"] == winner["name"]
        others = [arm for arm in arms if arm["name"] != winner["name"]]
        assert all(arm["standing"] != "playing" for arm in others)
        assert arms[0]["standing"] == "beaten", "stable was never beaten"
        alpha = self.experiment.get("alpha", 0.05)
        assert max(arm["logBetter"][0] for arm in arms[1:]) >= bar(len(arms), alpha)
        assert winner["episodes"] >= self.experiment["minEpisodes"]
        self.promotions.append(revision)
