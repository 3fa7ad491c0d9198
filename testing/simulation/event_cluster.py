"""The simulated cluster whose episodes make requests and events of the user's own, counted arm by arm."""

from dataclasses import replace
from math import inf
from typing import Any

from learnloop_api.kinds.rollouts.experiment import ExperimentGuardrail
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence import ArmEvidence, Missing
from learnloop_operator.rollout.experiments.arms import check_of
from learnloop_operator.statistics.betting import Counts
from testing.simulation.experiment_cluster import ExperimentCluster
from testing.simulation.rollout_cluster import uri

PER_EPISODE = 10.0


class EventCluster(ExperimentCluster):
    """`prompt`: share of a model's requests within 50 ms; `fine`: share of its own events that are good."""

    def __init__(self, chances: tuple[float, ...], weights: tuple[int, ...] = (25, 25), **more: Any) -> None:
        super().__init__(chances, weights, **more)
        self.prompt = {uri(number): 0.99 for number in range(len(chances))}
        self.fine = {uri(number): 0.9 for number in range(len(chances))}
        self.problems: dict[str, Missing] = {}
        """By model: why its own events have no number."""

    def seen(self, revision: str, seconds: float) -> ArmEvidence:
        """With requests and events in proportion to the episodes."""
        arm, model = super().seen(revision, seconds), self.model_of_any(revision)
        calls = PER_EPISODE * arm.episodes
        within = calls * self.prompt.get(model, 1.0)
        named = [check_of_name(item) for item in self.experiment.get("guardrails", ()) if item["type"] == "promql"]
        problem = self.problems.get(model)
        return replace(
            arm,
            latency={0.01: 0.5 * within, 0.05: within, 1.0: calls, inf: calls},
            events={} if problem else {name: Counts(calls, calls * self.fine.get(model, 1.0)) for name in named},
            problems=dict.fromkeys(named, problem) if problem else {},
        )

    def model_of_any(self, revision: str) -> str:
        """The model of an arm, as long as it lives."""
        return self.model_of(revision) if f"md-{revision}" in self.deployments else ""


def check_of_name(guardrail: dict[str, Any]) -> str:
    """What the evidence calls a guardrail."""
    return check_of(ExperimentGuardrail.model_validate(guardrail)).name


NAN = Missing(reasons.NOT_A_NUMBER, "the query gave nan")
EMPTY = Missing(reasons.EMPTY_RESULT, "the query gave no number, it must give one")
AWAY = Missing(reasons.PROVIDER_DOWN, "no answer")
