"""200 agents and one cluster: how long runs wait for their turn, whether anybody starves, and whether shares are fair.

`python -m bench.watch.queueing [--days N] [--seed N]` plays the operator's own scheduler over simulated days. The
reference load is that of the specification: one run a day of each agent, two GPUs for four hours. Three situations:
that load; the same with one namespace that asks for 60 runs at once every morning; and twice the load that the cluster
can bear for a day, which then drains. Exit code 1: a goal was missed.
"""

import argparse
import heapq
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

from learnloop_operator.core.coordination.quotas import Quota, Quotas
from learnloop_operator.core.coordination.scheduler import Key, WantedRun, schedule

AGENTS, NAMESPACES = 200, 10
GPUS_OF_RUN, HOURS_OF_RUN = 2, 4.0
SLOTS, OF_NAMESPACE = 56, 12
DAY, LOOK = 86_400.0, 60.0
GOAL_SECONDS = 300.0
PRIORITIES = (10, 50, 50, 50, 90)


@dataclass
class Run:
    """One training run of the simulation."""

    key: Key
    agent: str
    priority: int
    asked: float
    length: float
    queued: float
    began: float | None = None
    left: float = 0.0
    waited: float = 0.0
    preemptions: int = 0


@dataclass
class Outcome:
    """What became of a situation's runs."""

    runs: list[Run]
    preemptions: int = 0
    looks: int = 0
    served: Counter[str] = field(default_factory=Counter)

    def waits(self, namespace: str | None = None, *, but: str | None = None) -> list[float]:
        """Seconds until each began for the first time, sorted."""
        return sorted(
            run.waited for run in self.runs if namespace in (None, run.key[0]) and (but is None or run.key[0] != but)
        )


def arrivals(random: Random, days: int, *, load: float = 1.0, flood: bool = False) -> list[Run]:
    """Each agent asks at random moments, on average `load` times a day."""
    found: list[Run] = []
    for agent in range(AGENTS):
        namespace, moment = f"team-{agent % NAMESPACES}", 0.0
        while (moment := moment + random.expovariate(load / DAY)) < days * DAY:
            found.append(_run(random, namespace, f"agent-{agent}", moment, len(found)))
    if flood:
        for day in range(days):
            for number in range(60):
                found.append(_run(random, "team-0", f"agent-{number % 20}0", day * DAY + 8 * 3600.0, len(found)))
    return sorted(found, key=lambda run: (run.asked, run.key))


def _run(random: Random, namespace: str, agent: str, moment: float, number: int) -> Run:
    length = HOURS_OF_RUN * 3600 * random.uniform(0.5, 1.5)
    return Run((namespace, f"run-{number}"), agent, random.choice(PRIORITIES), moment, length, moment, left=length)


def play(todo: list[Run], quotas: Quotas) -> Outcome:
    """Every run to its end. The scheduler looks at each arrival and end, and each minute while somebody waits."""
    outcome = Outcome(todo)
    coming, waiting, running = list(reversed(todo)), {}, {}  # type: ignore[var-annotated]
    ends: list[tuple[float, Key]] = []
    now = 0.0
    while coming or waiting or running:
        moments = [coming[-1].asked] if coming else []
        moments += [ends[0][0]] if ends else []
        moments += [now + LOOK] if waiting else []
        now = min(moments)
        while coming and coming[-1].asked <= now:
            run = coming.pop()
            waiting[run.key] = run
        while ends and ends[0][0] <= now:
            at, key = heapq.heappop(ends)
            ended = running.get(key)
            if ended is not None and ended.began is not None and abs(ended.began + ended.left - at) < 1e-6:
                del running[key]
                outcome.served[key[0]] += 1
        _look(now, waiting, running, ends, quotas, outcome)
    return outcome


def _look(
    now: float,
    waiting: dict[Key, Run],
    running: dict[Key, Run],
    ends: list[tuple[float, Key]],
    quotas: Quotas,
    outcome: Outcome,
) -> None:
    outcome.looks += 1
    wanted = [
        WantedRun(key=run.key, agent=run.agent, priority=run.priority, gpus=GPUS_OF_RUN, waited=now - run.queued)
        for run in waiting.values()
    ]
    wanted += [
        WantedRun(
            key=run.key,
            agent=run.agent,
            priority=run.priority,
            gpus=GPUS_OF_RUN,
            waited=(run.began or 0.0) - run.queued,
            running=True,
            ran=now - (run.began or 0.0),
        )
        for run in running.values()
    ]
    made = schedule(wanted, quotas, {})
    for key in made.preempted:  # at its newest checkpoint, which is a second old at most
        run = running.pop(key)
        run.left -= now - (run.began or 0.0)
        run.preemptions, run.began, run.queued = run.preemptions + 1, None, now
        outcome.preemptions += 1
        waiting[key] = run
    for key in made.admitted:
        run = waiting.pop(key)
        if not run.preemptions:
            run.waited = now - run.asked
        run.began = now
        running[key] = run
        heapq.heappush(ends, (now + run.left, key))


def quantile(sorted_values: list[float], share: float) -> float:
    """The value below which this share lies."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))] if sorted_values else 0.0


def fairness(outcome: Outcome) -> float:
    """Jain's index of the namespaces' mean waits under overload: 1 where all wait alike (Jain et al., DEC-TR-301)."""
    by_namespace: defaultdict[str, list[float]] = defaultdict(list)
    for run in outcome.runs:
        by_namespace[run.key[0]].append(run.waited + 1.0)
    means = [sum(waits) / len(waits) for waits in by_namespace.values()]
    return sum(means) ** 2 / (len(means) * sum(mean * mean for mean in means))


def measured(days: int, seed: int) -> dict[str, Any]:
    """Figures of the three situations, printed for people as well; `missed` names the goals that were."""
    quotas = Quotas(Quota(runs=SLOTS, gpus=SLOTS * GPUS_OF_RUN))
    random = Random(seed)
    missed: list[str] = []
    found: dict[str, Any] = {"agents": AGENTS, "days": days, "seed": seed}
    print(f"{AGENTS} agents in {NAMESPACES} namespaces, {SLOTS} runs at once, {days} days, seed {seed}")

    usual = play(arrivals(random, days), quotas)
    waits = usual.waits()
    told = f"p50 {quantile(waits, 0.5):.0f} s, p99 {quantile(waits, 0.99):.0f} s, max {waits[-1]:.0f} s"
    print(f"reference load: {len(waits)} runs waited {told}; goal p99 < {GOAL_SECONDS:.0f} s")
    found["wait_p50_s"], found["wait_p99_s"] = quantile(waits, 0.5), round(quantile(waits, 0.99), 1)
    missed += [] if quantile(waits, 0.99) < GOAL_SECONDS else ["reference load"]

    bounded = Quotas(quotas.cluster, Quota(runs=OF_NAMESPACE))
    flooded = play(arrivals(random, days, flood=True), bounded)
    others, own = flooded.waits(but="team-0"), flooded.waits("team-0")
    print(
        f"one namespace asks for 60 runs at once, each may have {OF_NAMESPACE}: "
        f"the others waited p99 {quantile(others, 0.99):.0f} s, "
        f"it itself p99 {quantile(own, 0.99):.0f} s"
    )
    found["flooded_others_wait_p99_s"] = round(quantile(others, 0.99), 1)
    missed += [] if quantile(others, 0.99) < GOAL_SECONDS else ["a flood of one namespace holds up the others"]

    heavy = play(arrivals(random, 1, load=2.0 * SLOTS * 24 / HOURS_OF_RUN / AGENTS), quotas)
    waits = heavy.waits()
    low = max(run.waited for run in heavy.runs if run.priority == min(PRIORITIES))
    print(
        f"twice what the cluster bears, for a day: {len(waits)} runs; the longest wait {waits[-1] / 3600:.1f} h, "
        f"of the lowest priority {low / 3600:.1f} h; {heavy.preemptions} preemptions; fairness {fairness(heavy):.3f}"
    )
    found |= {"overload_longest_wait_h": round(waits[-1] / 3600, 2), "overload_fairness": round(fairness(heavy), 4)}
    bearable = len(waits) * HOURS_OF_RUN / SLOTS
    missed += [] if sum(heavy.served.values()) == len(waits) else ["somebody was never served"]
    missed += [] if waits[-1] / 3600 <= bearable else ["somebody waited longer than the whole backlog takes"]
    missed += [] if fairness(heavy) >= 0.95 else ["shares are not fair"]
    return found | {"missed": missed}


def main() -> int:
    """Plays the situations; returns 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.watch.queueing", description=__doc__)
    parser.add_argument("--days", type=int, default=3, help="simulated days (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    missed = measured(options.days, options.seed)["missed"]
    print("goals: " + ("all met" if not missed else f"missed: {'; '.join(missed)}"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
