"""Simulated clusters whose episodes return 1 or 0, and last as long as their outcome makes them."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from learnloop_api.names import ANNOTATION_OVERRIDE
from learnloop_operator.rollout.evidence import ArmEvidence
from testing.simulation.experiment_cluster import ExperimentCluster
from testing.simulation.rollout_cluster import Cluster, uri

Lengths = tuple[tuple[float, float], tuple[float, float]]
"""Least and most seconds of a success, and of a failure."""
LENGTHS: dict[str, Lengths] = {
    "failures are short": ((60.0, 180.0), (1.0, 5.0)),
    "successes are short": ((1.0, 5.0), (60.0, 180.0)),
}
ALIKE: Lengths = ((1.0, 5.0), (1.0, 5.0))
SEQUENTIAL = {
    "name": "return",
    "type": "return",
    "test": "sequential",
    "maxDrop": 0.1,
    "returnRange": {"lowest": 0.0, "highest": 1.0},
}
RATIO = {"name": "success", "type": "success", "minRatio": 0.9}
BOUND = {"name": "bound", "type": "success", "min": 0.8}
PROMETHEUS_SECONDS = 15
"""How far the second of two Prometheus servers behind one address is behind the first."""


class LengthsCluster(Cluster):
    """A look every five seconds. `replicas`: two Prometheus servers answer in turn."""

    lengths = LENGTHS["failures are short"]
    replicas = False
    ordered_every = 0
    """Seconds between two overrides of a minute, by turns fixed answers and a stop; 0: none is ordered."""

    def seconds_of(self, value: float) -> float:
        return self.random.uniform(*self.lengths[0 if value else 1])

    def outcome(self, revision: str) -> float:
        return float(self.random.random() < self.quality[self.model_of(revision)])

    def scraped(self, revision: str, seconds: float) -> ArmEvidence:
        self.lag = PROMETHEUS_SECONDS * (self.passes % 2) if self.replicas else 0
        since, scraped = self.now - timedelta(seconds=seconds), self.now - timedelta(seconds=self.lag)
        returns = self.episodes.returns(revision, since, scraped)
        mean = sum(returns) / len(returns) if returns else None
        openings, lately = self.openings(revision, since, scraped), len(returns)
        return ArmEvidence(
            len(returns), mean, mean, 0.0 if returns else None, scraped_at=scraped, lately=lately, openings=openings
        )

    def run(self, seconds: int) -> None:
        for _ in range(max(1, seconds // 5)):
            if self.ordered_every and int(self.now.timestamp()) % self.ordered_every < 5:
                self._order()
            for _ in range(8):
                if self.reconcile().requeue_after != 0.0:
                    break
            self.tick(5)

    def _order(self) -> None:
        number = int(self.now.timestamp()) // self.ordered_every
        what = {"choice": "0", "instead": "fixed"} if number % 2 else {"instead": "stop"}
        query = urlencode(what | {"for": "60", "reason": "a person decides"})
        self.annotations[ANNOTATION_OVERRIDE] = f"{query} at {self.now.isoformat()} by alice"

    def check_promotion(self, revision: str) -> None:
        self.promotions.append(revision)


def rollout(
    metric: dict[str, Any],
    lengths: Lengths,
    seed: int,
    chances: tuple[float, float] = (0.9, 0.9),
    mode: str = "service",
    ordered_every: int = 0,
) -> LengthsCluster:
    """Model 0 serves with full pipelines, and model 1 is asked for; 10 episodes a second."""
    cluster = LengthsCluster().by(mode)
    cluster.lengths, cluster.quality, cluster.per_second = lengths, {uri(0): chances[0]}, 10
    cluster.ordered_every = ordered_every
    cluster.random.seed(seed)
    cluster.spec["rollout"] |= {"steps": [{"weight": weight, "minEpisodes": 20} for weight in (10, 25, 50, 100)]}
    cluster.spec["analysis"] |= {"metrics": [metric], "intervalSeconds": 5}
    cluster.run(200)
    cluster.wish(1, chances[1])
    return cluster


def ended(cluster: LengthsCluster, seconds: int = 6_000) -> str:
    """The phase that a rollout ends in; the last one, where it does not end."""
    for _ in range(seconds // 25):
        cluster.run(25)
        if cluster.status["phase"] in ("Healthy", "RolledBack") and not cluster.status.get("canary"):
            break
    return str(cluster.status["phase"])


class LengthsExperiment(LengthsCluster, ExperimentCluster):
    """Arms side by side."""
