"""No metric of the data plane grows with agents, namespaces, versions or runs that users choose."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from learnloop_api.wire.training import Heartbeat
from learnloop_common.bounded_labels import IDLE_SECONDS, MOST_SETS, OTHER
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.telemetry.agent_metrics import Recent

AGENTS = 10_000
FROM_USERS = {"namespace", "agent", "model_version", "training_job"}
FIGURES = {"samples_to_convergence": 100.0, "convergence": 0.5, "entropy": 0.1, "gpu_utilization": 0.5}
MOST_OF_ONE = 3
"""Series that one set of names has of a metric, buckets of histograms apart."""


def tell_all(metrics: Metrics, space: str, agent: str) -> None:
    """Everything that the data plane tells of an agent, a namespace, or a run."""
    for version in ("a", "b"):
        metrics.agents.trajectory(space, agent, version)
        metrics.agents.reward(space, agent, version, 1.0)
    metrics.agents.recent(space, agent, [Recent(None, 1.0, 1.0, 0.0), Recent("a", 1.0, 1.0, 0.0)])
    metrics.agents.opinion(space, agent, 1.0)
    metrics.agents.judged(space, agent, 1, True)
    beat = {"job": f"{agent}-1", "attempt": 0, "phase": "training", "step": 1, "total_steps": 2, "world_size": 1}
    figures = {"steps_per_second": 1.0, "figures": FIGURES, "agent": agent, "at": datetime(2026, 1, 1, tzinfo=UTC)}
    metrics.runs.beat(space, Heartbeat.model_validate(beat | figures))
    metrics.count("attempts", space)
    metrics.not_collected(space, "invalid")
    metrics.budget(space, agent, 5, 50, 1)
    metrics.consolidations_due(space, 1)
    metrics.consolidated(space, 1, 1)
    metrics.count("no_room", space)
    metrics.count("warehoused", space, by=1)
    metrics.count("quota_refusals", space, "memories")
    metrics.quota(space, "memories", 1, 2)
    metrics.count("opted_out", space)
    metrics.count("relay_refusals", space, "reply")
    metrics.count("refused", space, "invalid")


@pytest.fixture(scope="module")
def filled() -> Metrics:
    metrics = Metrics()
    for index in range(AGENTS):
        tell_all(metrics, f"team-{index}", f"agent-{index}")
    return metrics


def test_ten_thousand_agents_leave_a_bounded_number_of_series_of_every_metric(filled: Metrics) -> None:
    names_, unfilled = set[str](), set[str]()
    for family in text_string_to_metric_families(filled.render().decode()):
        counts: Counter[str] = Counter()
        for sample in family.samples:
            if FROM_USERS & set(sample.labels):
                names_.add(family.name)
                counts[f"{sample.name} {sample.labels.get('le')}"] += 1
        assert max(counts.values(), default=0) <= MOST_OF_ONE * (MOST_SETS + 1), family.name
    for collector in filled.registry._collector_to_names:
        name, labels = getattr(collector, "_name", ""), set(getattr(collector, "_labelnames", ()))
        if FROM_USERS & labels and name not in names_:
            unfilled.add(name)
    assert {name for name in unfilled if not name.startswith("learnloop_training_")} == set(), "without a source here"


def test_nothing_that_was_counted_is_lost_and_no_gauge_speaks_for_many(filled: Metrics) -> None:
    families = list(text_string_to_metric_families(filled.render().decode()))
    counted = {
        family.name: sum(sample.value for sample in family.samples) for family in families if family.type == "counter"
    }
    assert counted["agent_rl_trajectories_collected"] == 2 * AGENTS
    assert counted["learnloop_warehouse_episodes"] == AGENTS
    assert counted["learnloop_memory_forgotten"] == AGENTS
    strangers = {
        family.name
        for family in families
        for sample in family.samples
        if family.type == "gauge" and OTHER in sample.labels.values()
    }
    assert strangers == set(), "the newest one's value is not that of all others"


def test_a_namespace_that_was_silent_for_an_hour_makes_room_and_those_with_budgets_take_none() -> None:
    now, metrics = [0.0], Metrics()
    metrics._namespaces._clock = metrics._budgets._clock = lambda: now[0]
    for index in range(MOST_SETS):
        metrics.count("attempts", f"team-{index}")
        metrics.budget("team-0", f"agent-{index}", 1, 1, 0)
    now[0] = IDLE_SECONDS + 1
    metrics.count("warehoused", "new", by=7)
    metrics.budget("new", "agent", 3, 30, 0)
    read = metrics.registry.get_sample_value
    assert read("learnloop_warehouse_episodes_total", {"namespace": "new"}) == 7
    assert read("learnloop_memory_held", {"namespace": "new", "agent": "agent"}) == 3
    assert read("agent_rl_trajectory_collection_attempts_total", {"namespace": "team-0"}) is None
    assert read("agent_rl_trajectory_collection_attempts_total", {"namespace": "team-1"}) == 1
