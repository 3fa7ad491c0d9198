"""Whole rollouts and experiments whose episodes last as long as their outcome makes them."""

from collections.abc import Sequence
from datetime import timedelta
from statistics import median
from typing import Any

from testing.simulation.episode_lengths import (
    ALIKE,
    BOUND,
    LENGTHS,
    RATIO,
    SEQUENTIAL,
    LengthsExperiment,
    ended,
    rollout,
)
from testing.simulation.rollout_cluster import MODES, uri

METRICS = (SEQUENTIAL, RATIO, BOUND)
EXPERIMENT_SECONDS = 900
DEADLINE = 60


def rolled_back(metric: dict[str, Any], lengths: str, seeds: Sequence[int]) -> list[bool]:
    """Of identical models, by seed; two Prometheus servers see every second rollout in turn, and every fourth has
    overrides."""
    times = []
    for seed in seeds:
        cluster = rollout(metric, LENGTHS[lengths], seed, mode=MODES[seed % 2])
        cluster.replicas, cluster.ordered_every = seed % 4 < 2, 0 if seed % 4 else 600
        times.append(ended(cluster) == "RolledBack")
    return times


def beaten(lengths: str, seeds: Sequence[int]) -> list[bool]:
    """Whether an arm of an experiment of two identical models loses, by seed."""
    times = []
    for seed in seeds:
        cluster = LengthsExperiment((0.9, 0.9), (50,)).by(MODES[seed % 2])
        cluster.lengths, cluster.per_second = LENGTHS[lengths], 10
        cluster.random.seed(seed)
        cluster.run(190)
        cluster.start().run(EXPERIMENT_SECONDS)
        times.append(any(arm["standing"] == "beaten" for arm in cluster.status["experiment"]["arms"]))
    return times


def episodes_until_hang_detected(mode: str, seeds: Sequence[int]) -> float:
    """Episodes that were due when a canary of which a fifth hangs was rolled back; the median."""
    due = []
    for seed in seeds:
        cluster = rollout(SEQUENTIAL, ALIKE, seed, mode=mode)
        cluster.spec["analysis"] |= {"episodeDeadlineSeconds": DEADLINE}
        cluster.spec["rollout"] |= {"steps": [{"weight": 10, "minEpisodes": 5_000}, {"weight": 100}]}
        cluster.hangs = {uri(1): 0.2}
        while cluster.status["phase"] != "RolledBack":
            cluster.run(5)
        revision = cluster.status["blockedRevision"]["revision"]
        due.append(cluster.opened.since(revision, cluster.now - timedelta(days=1), cluster.now, DEADLINE).due)
    return median(due)


def figures(seeds: int) -> dict[str, object]:
    """`seeds` rollouts of each metric and length, as many experiments of each length, and half as many hangs."""
    source = range(seeds)
    rollouts = {(m["name"], length): rolled_back(m, length, source) for m in METRICS for length in LENGTHS}
    experiments = {length: beaten(length, source) for length in LENGTHS}
    return {
        "lengths_rollouts": sum(map(len, rollouts.values())),
        "lengths_false_rollback_rate": _share([one for case in rollouts.values() for one in case]),
        "lengths_false_rollback_rate_worst_case": max(map(_share, rollouts.values())),
        "lengths_experiments": sum(map(len, experiments.values())),
        "lengths_beaten_rate": max(map(_share, experiments.values())),
        **{
            f"hang_of_a_fifth_episodes_p50_{mode}": episodes_until_hang_detected(mode, source[: 1 + seeds // 2])
            for mode in MODES
        },
    }


def _share(which: Sequence[bool]) -> float:
    return round(sum(which) / len(which), 5)
