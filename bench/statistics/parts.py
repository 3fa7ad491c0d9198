"""The parts of `make bench-statistics`, each a table of figures."""

import math
import sys
import time
from collections.abc import Callable

import numpy as np

from bench.statistics.default import figures as default_analysis
from bench.statistics.evidence import Bools, Feared, Floats, feared
from bench.statistics.experiments import false_winners, right_winners
from bench.statistics.goals import EXPERIMENT_ALPHA
from bench.statistics.gross import difference as alarm_difference, false_rollbacks, requests_until_right
from bench.statistics.lengths import figures as lengths
from bench.statistics.pauses import figures as pauses
from bench.statistics.rollouts import PER_SECOND, Draw, Outcome, agreement, simulate, successes
from bench.statistics.simulator import walk_on_all_cores, walk_sabotaged
from bench.statistics.streams import REQUESTS, TOGETHER, prompt_requests, returns
from testing.state_walk.every_walk import graphs

Figures = dict[str, object]
RATES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
BASES = RATES[:-1]
"""Success rates that ten points are taken from."""
A_A_ROLLOUTS = 10_000
OTHERS = 2_000
RECORDED = 40
LENGTH_SEEDS = 40
PAUSED_HALF_HOURS = 60
SIMULATED_SECONDS = 20.0
MAX_DROP = 0.05
SECONDS = 1_800
LANE_SECONDS = 300
EXPERIMENTS = 500
EXPERIMENT_EPISODES = 10_000


def a_a() -> Figures:
    """Identical arms: as the operator runs them, and held at 10 % forever, where alarms have the longest time."""
    rates = np.resize(RATES, A_A_ROLLOUTS)
    real = simulate(rates, rates, max_drop=MAX_DROP, seconds=SECONDS, seed=1, record=RECORDED)
    held = simulate(rates, rates, max_drop=MAX_DROP, seconds=SECONDS, seed=2, climbs=False)
    looks, difference = agreement(real, MAX_DROP)
    assert difference < 1e-6, f"the vectorised evidence is off by {difference}"
    return {
        "a_a_rollouts": A_A_ROLLOUTS,
        "a_a_success_rates": list(RATES),
        "a_a_looks": real.looks,
        "false_rollback_rate": _share(real.rolled_back),
        "false_rollback_rates_by_success_rate": [_share(real.rolled_back[rates == rate]) for rate in RATES],
        "false_rollback_rate_held_at_first_step": _share(held.rolled_back),
        "held_looks_per_rollout": SECONDS,
        "a_a_promoted_rate": _share(real.promoted),
        "peer_false_rollback_rate": _share(np.isfinite(real.ttest_rolled_back_at)),
        "peer_fires_rate": _share(real.ttest_fired),
        "peer_false_rollback_rate_held_at_first_step": _share(np.isfinite(held.ttest_rolled_back_at)),
        "agreement_rollouts": RECORDED,
        "agreement_looks": looks,
        "agreement_max_difference": difference,
    }


def drifting_a_a() -> Figures:
    """Identical arms in a world that falls to half after 30 s, and in one that goes up and down every two minutes."""
    rates = np.resize(RATES, A_A_ROLLOUTS // 2)
    worlds = (lambda second: 1.0 if second < 30 else 0.5, lambda second: 0.7 + 0.3 * math.sin(second / 19.0))
    results = [
        simulate(rates, rates, max_drop=MAX_DROP, seconds=SECONDS, seed=3, world=world).rolled_back for world in worlds
    ]
    return {
        "drifting_a_a_rollouts": sum(one.size for one in results),
        "drifting_false_rollback_rate": _share(np.concatenate(results)),
    }


def drops() -> Figures:
    """Ten points at six base rates, each with its floor: a bet that knows both rates and has nothing to learn.
    Twenty points; two where five are tolerated, and where one is."""
    figures: Figures = {"drop_rollouts_each": OTHERS}
    tens = {f"drop10_from_{base * 100:.0f}": base for base in BASES}
    for name, stable, canary, tolerated, seconds in (
        *((name, base, base - 0.1, MAX_DROP, SECONDS) for name, base in tens.items()),
        ("drop20_from_80", 0.80, 0.60, MAX_DROP, SECONDS),
        ("drop2_from_95", 0.95, 0.93, MAX_DROP, SECONDS),
        ("drop2_from_95_max_drop_1", 0.95, 0.93, 0.01, 3 * SECONDS),
    ):
        outcome = _arms(canary, stable, tolerated, seconds)
        figures |= {
            f"{name}_rolled_back_rate": _share(outcome.rolled_back),
            f"{name}_episodes_p50": _quantile(outcome.rolled_back_at, 0.5),
            f"{name}_episodes_p95": _quantile(outcome.rolled_back_at, 0.95),
            f"{name}_promoted_rate": _share(outcome.promoted),
            f"peer_{name}_rolled_back_rate": _share(np.isfinite(outcome.ttest_rolled_back_at)),
            f"peer_{name}_episodes_p50": _quantile(outcome.ttest_rolled_back_at, 0.5),
        }
    for name, base in tens.items():
        outcome = _arms(base - 0.1, base, MAX_DROP, SECONDS, fear=_knowing(base - 0.1, base))
        figures[f"{name}_episodes_p50_floor"] = _quantile(outcome.rolled_back_at, 0.5)
    edge = _arms(0.85, 0.90, MAX_DROP, SECONDS)
    return figures | {
        "drop_median_episodes": figures["drop10_from_80_episodes_p50"],
        "drop_power": figures["drop10_from_80_rolled_back_rate"],
        "drop_median_episodes_worst": _worst([figures[f"{name}_episodes_p50"] for name in tens]),
        "drop_power_worst": min(float(str(figures[f"{name}_rolled_back_rate"])) for name in tens),
        "promoted_rate_at_exactly_max_drop": _share(edge.promoted),
    }


def other_streams() -> Figures:
    """Returns between 0 and 1, and requests of which half come in episodes that are wholly prompt or wholly slow."""
    figures: Figures = {"latency_requests_per_episode": REQUESTS, "latency_share_of_dependent_episodes": TOGETHER}
    for name, stable, worse, tolerated, draw in (
        ("return", 0.6, 0.5, MAX_DROP, returns),
        ("latency_p90", 0.9, 0.8, MAX_DROP, prompt_requests(REQUESTS)),
        ("latency_p99", 0.99, 0.95, 0.03, prompt_requests(REQUESTS)),
    ):
        same = _arms(stable, stable, tolerated, SECONDS, draw)
        outcome = _arms(worse, stable, tolerated, SECONDS, draw)
        figures |= {
            f"{name}_false_rollback_rate": _share(same.rolled_back),
            f"{name}_promoted_rate": _share(same.promoted),
            f"{name}_drop_to_{worse:g}_power": _share(outcome.rolled_back),
            f"{name}_drop_to_{worse:g}_median_episodes": _quantile(outcome.rolled_back_at, 0.5),
        }
    return figures


def simulation() -> Figures:
    """Long histories of rollouts through every decision, on all cores."""
    blind = walk_sabotaged(1.0)
    assert blind.wrong, "the oracle does not notice a judge that says yes to everything"
    walks, processes = walk_on_all_cores(SIMULATED_SECONDS)
    for sentence in walks.wrong[:5]:
        print(sentence, file=sys.stderr)
    return {
        "simulated_decisions": walks.steps,
        "simulated_tables": walks.tables,
        "simulated_rollouts": walks.rollouts,
        "simulated_ends": dict(walks.ends),
        "simulated_broken_promises": len(walks.wrong),
        "simulator_processes": processes,
        "decisions_per_minute": round(walks.steps * 60.0 / SIMULATED_SECONDS),
        "decisions_per_minute_of_one_core": round(walks.steps * 60.0 / walks.cpu_seconds),
    }


def fast_lane() -> Figures:
    """Gross breaches: arms exactly at both default bounds, and arms whose requests begin to fail after five minutes."""
    assert alarm_difference(500, seed=1) < 1e-9, "the vectorised alarm is not the operator's"
    figures: Figures = {
        "fast_lane_rollouts": A_A_ROLLOUTS,
        "fast_lane_looks_per_rollout": LANE_SECONDS,
        "fast_lane_false_rollback_rate_at_the_bar": false_rollbacks(A_A_ROLLOUTS, LANE_SECONDS, PER_SECOND, seed=5),
    }
    for name, share in (("half", 0.5), ("all", 1.0)):
        needed = requests_until_right(OTHERS, LANE_SECONDS, PER_SECOND, share, seed=6)
        figures |= {
            f"fast_lane_{name}_failing_requests_p50": _quantile(needed, 0.5),
            f"fast_lane_{name}_failing_requests_p99": _quantile(needed, 0.99),
        }
    return figures


def experiments() -> Figures:
    """Identical arms, and one that is ten points better, in experiments of two and four arms."""
    figures: Figures = {"experiment_alpha": EXPERIMENT_ALPHA, "experiment_runs_each": EXPERIMENTS}
    for arms in (2, 4):
        chances = [0.7] * (arms - 1) + [0.8]
        share, median = right_winners(chances, EXPERIMENT_ALPHA, EXPERIMENTS // 5, EXPERIMENT_EPISODES)
        figures |= {
            f"experiment_{arms}_arms_false_winner_rate": round(
                false_winners(arms, EXPERIMENT_ALPHA, EXPERIMENTS, EXPERIMENT_EPISODES), 5
            ),
            f"experiment_{arms}_arms_right_winner_rate": round(share, 5),
            f"experiment_{arms}_arms_median_episodes": median,
        }
    return figures


def _arms(
    canary: float, stable: float, max_drop: float, seconds: int, draw: Draw = successes, fear: Feared = feared
) -> Outcome:
    arms = np.full(OTHERS, canary), np.full(OTHERS, stable)
    return simulate(*arms, max_drop=max_drop, seconds=seconds, seed=round(canary * 1000), draw=draw, fear=fear)


def _knowing(canary: float, stable: float) -> Feared:
    """The bet of somebody who knows what both arms are worth."""
    return lambda judged, _: (np.full(judged.shape[1], canary), np.full(judged.shape[1], stable))


def _share(which: Bools) -> float:
    return round(float(which.mean()), 5)


def _worst(medians: list[object]) -> object:
    """The largest; None where one was never reached."""
    return None if None in medians else max(float(str(median)) for median in medians)


def _quantile(values: Floats, share: float) -> float | None:
    value = float(np.quantile(values, share, method="higher"))
    return value if np.isfinite(value) else None


def default_part() -> Figures:
    """The default analysis."""
    return default_analysis(A_A_ROLLOUTS, OTHERS)


def episode_lengths() -> Figures:
    """Episodes whose length depends on their outcome."""
    return lengths(LENGTH_SEEDS)


def pods_that_pause() -> Figures:
    """A pause of half a second every two minutes, for half an hour."""
    return pauses(PAUSED_HALF_HOURS)


SIDE_BY_SIDE: tuple[Callable[[], Figures], ...] = (
    episode_lengths,
    default_part,
    drops,
    a_a,
    drifting_a_a,
    other_streams,
    experiments,
    fast_lane,
    pods_that_pause,
)
"""A process each, the longest first."""
ALONE: tuple[Callable[[], Figures], ...] = (simulation, graphs)
"""They use all cores by themselves."""


def timed(part: Callable[[], Figures]) -> tuple[str, Figures, float]:
    """A part's name, its figures, and the seconds that they took."""
    began = time.perf_counter()
    new = part()
    return part.__name__, new, time.perf_counter() - began
