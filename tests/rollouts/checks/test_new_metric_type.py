"""A type of metric that nobody knew before: one object, registered once, and rollouts decide by it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.prometheus.client import Prometheus, Sample
from learnloop_operator.prometheus.evidence_source import PrometheusEvidence
from learnloop_operator.rollout.evidence import ArmEvidence, EvidenceRequest, Window
from learnloop_operator.rollout.metrics.all_types import METRIC_TYPES
from learnloop_operator.rollout.metrics.metric_type import Measure, MetricType
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.statistics.betting import Counts
from testing.simulation.two_arm_world import World

WITHIN = 'episode_steps_bucket{revision="%s", le="100"}'
ALL = 'episode_steps_count{revision="%s"}'


class ShortEpisodes(MetricType):
    """The share of episodes that end within 100 steps: everything that a rollout has to know of a new type."""

    name = "short-episodes"

    def noun(self, metric: MetricThreshold) -> str:
        return "share of short episodes"

    def queries(self, metric: MetricThreshold, namespace: str, revision: str, seconds: int) -> tuple[str, ...]:
        return tuple(f"sum(increase({series % revision}[{seconds}s]))" for series in (WITHIN, ALL))

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        return arm.custom.get(metric.name)

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        return arm.events.get(metric.name)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    METRIC_TYPES[ShortEpisodes.name] = ShortEpisodes()
    yield
    del METRIC_TYPES[ShortEpisodes.name]


def short_episodes(**bounds: Any) -> MetricThreshold:
    """As the API would make it with one more word in its Literal."""
    body = {"name": "own", "type": "success", "test": "threshold", **bounds}
    return MetricThreshold.model_validate(body).model_copy(update={"type": ShortEpisodes.name})


class NewWorld(World):
    """Rollouts judged by a metric of the new type; `own` is the name under which the world tells good events."""

    def __init__(self, canary: float, metric: MetricThreshold) -> None:
        self.metric = metric
        super().__init__(1, canary, {"name": "own", "type": "success", "min": 0.5})

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        analysis = seen.spec.analysis.model_copy(update={"metrics": [self.metric]})
        return replace(seen, spec=seen.spec.model_copy(update={"analysis": analysis}))


def test_a_canary_below_a_bound_of_the_new_type_is_rolled_back_and_the_sentence_names_it() -> None:
    world = NewWorld(0.3, short_episodes(min=0.7))
    assert world.run(300) == "RolledBack"
    assert "share of short episodes of the canary 0." in world.status["blockedRevision"]["message"]
    assert "certainly at most 0." in world.status["blockedRevision"]["message"]


def test_a_canary_within_a_bound_of_the_new_type_is_promoted() -> None:
    assert NewWorld(0.9, short_episodes(min=0.7)).run(300) == "Guarding"


def test_a_ratio_and_a_sequential_test_of_the_new_type_roll_back_a_worse_canary() -> None:
    for bounds, said in (
        ({"minRatio": 0.8}, "below the bar at the same time"),
        ({"test": "sequential", "maxDrop": 0.05}, "P(worse)"),
    ):
        world = NewWorld(0.3, short_episodes(**bounds))
        assert world.run(300) == "RolledBack"
        assert said in world.status["blockedRevision"]["message"]
        assert world.events.count("RolledBack") == 1


class Answers(Prometheus):
    """Two arms, and 80 short episodes of 100."""

    def __init__(self) -> None:
        super().__init__("http://nowhere.invalid")
        self.asked: list[str] = []

    async def query(self, promql: str, namespace: str = "") -> list[Sample]:
        self.asked.append(promql if not namespace else f'{promql} in namespace="{namespace}"')
        if "episode_steps" in promql:
            return [Sample({}, 80.0 if "le=" in promql else 100.0)]
        labels = {"learnloop_signal": "ended", "revision": "aaaaaaaa", "outcome": "success"}
        return [Sample(labels, 100.0)]


async def test_the_source_of_evidence_asks_what_the_new_type_asks_for() -> None:
    prometheus = Answers()
    asked = EvidenceRequest("ns", "md", (Window("aaaaaaaa", 30),), (short_episodes(min=0.7),))
    arm = (await PrometheusEvidence(prometheus, prometheus).of_episodes(asked)).arms["aaaaaaaa"]
    assert arm.events == {"own": Counts(100.0, 80.0)}
    assert arm.custom == {"own": 0.8}
    assert all('namespace="ns"' in query for query in prometheus.asked)


def test_every_type_that_the_api_server_accepts_is_registered_under_its_name() -> None:
    accepted = set(get_args(MetricThreshold.model_fields["type"].annotation))
    assert accepted | {ShortEpisodes.name} == set(METRIC_TYPES)
    assert all(name == kind.name for name, kind in METRIC_TYPES.items())
