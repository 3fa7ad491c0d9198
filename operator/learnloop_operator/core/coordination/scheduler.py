"""Which waiting runs begin now, which running ones make way, and who stands where in the queue.

Among those that wait, the higher priority goes first, and a run's priority rises while it waits: nobody starves. Of
equal priority the namespace with the smaller share of what runs goes first, then the agent with the smaller one, then
who has waited longest. This is weighted fair sharing by the dominant resource (Ghodsi et al., NSDI 2011), over runs
and GPUs. A run that fits goes past one that does not, until that one has waited for RESERVED seconds: from then on what
gets free is kept for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from learnloop_operator.core.coordination.quotas import Quota, Quotas

Key = tuple[str, str]
"""Namespace and name of a TrainingJob."""

AGING_SECONDS = 20.0
"""A waiting run gains one point of priority in this time: 100 points, the whole scale, in 33 minutes."""
RESERVED = 300.0
"""Seconds after which a run that does not fit is no longer passed by smaller ones."""
SETTLED = 120.0
"""Seconds that a run has to itself before another may take its place: no two runs chase each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRun:
    """A run that waits or runs."""

    key: Key
    agent: str
    priority: int = 50
    """0 to 100."""
    gpus: int = 0
    """Of all ranks."""
    waited: float = 0.0
    """Seconds in the queue; of a running one, before it was let in."""
    running: bool = False
    ran: float = 0.0
    """Seconds since it was let in."""
    begun: bool = False
    """It ran before and made way, or was suspended: its day has counted it."""

    @property
    def namespace(self) -> str:
        """Whose quota it takes."""
        return self.key[0]

    @property
    def standing(self) -> float:
        """Its priority, with what it gained by waiting. A running one keeps it: whom a run could not pass in the queue,
        it does not disturb afterwards."""
        return self.priority + self.waited / AGING_SECONDS


@dataclass(frozen=True, slots=True)
class Schedule:
    """What follows from a look at all of them."""

    admitted: frozenset[Key]
    """Begin now."""
    preempted: Mapping[Key, Key]
    """Running ones that make way, by whom they make way for."""
    order: tuple[Key, ...]
    """Those that go on waiting, next one first."""
    why: Mapping[Key, str]
    """What each of them waits for, with figures."""

    def place(self, key: Key) -> int | None:
        """From 1; None: it does not wait."""
        return self.order.index(key) + 1 if key in self.why else None


class _Use:
    """What is taken of all quotas."""

    def __init__(self, quotas: Quotas, running: Iterable[WantedRun], begun: Mapping[str, int]) -> None:
        self.quotas = quotas
        self.runs: Counter[str] = Counter()
        self.gpus: Counter[str] = Counter()
        self.agents: Counter[Key] = Counter()
        self.begun: Counter[str] = Counter(begun)
        for run in running:
            self.take(run, fresh=False)

    def take(self, run: WantedRun, *, fresh: bool = True, sign: int = 1) -> None:
        for scope in (run.namespace, ""):
            self.runs[scope] += sign
            self.gpus[scope] += sign * run.gpus
            self.begun[scope] += sign * (fresh and not run.begun)
        self.agents[run.namespace, run.agent] += sign

    def lacks(self, run: WantedRun, *, day: bool = True) -> str:
        """What keeps it from beginning; "" when nothing does. `day`: whether runs of a day count, too."""
        for scope, quota in ((run.namespace, self.quotas.of(run.namespace)), ("", self.quotas.cluster)):
            whose = f"namespace {scope}" if scope else "the cluster"
            if day and not run.begun and quota.runs_per_day is not None and self.begun[scope] >= quota.runs_per_day:
                return f"{whose} has begun {self.begun[scope]} of {quota.runs_per_day} runs of today (UTC)"
            if quota.runs is not None and self.runs[scope] >= quota.runs:
                return f"{whose} runs {self.runs[scope]} of {quota.runs} trainings"
            if quota.gpus is not None and run.gpus and self.gpus[scope] + run.gpus > quota.gpus:
                return f"{whose} uses {self.gpus[scope]} of {quota.gpus} GPUs, and {run.gpus} more are wanted"
        return ""

    def share(self, run: WantedRun) -> tuple[float, int]:
        """Of the namespace: the larger of its shares of runs and GPUs; and how many runs the agent has."""
        cluster = self.quotas.cluster
        of_runs = self.runs[run.namespace] / (cluster.runs or max(self.runs[""], 1))
        of_gpus = self.gpus[run.namespace] / (cluster.gpus or max(self.gpus[""], 1))
        return max(of_runs, of_gpus), self.agents[run.namespace, run.agent]


def schedule(runs: Sequence[WantedRun], quotas: Quotas, begun: Mapping[str, int]) -> Schedule:
    """Decides for all at once. The same runs, in whatever order they are given, give the same schedule.

    Args:
        begun: how many runs each namespace began today; "" is all of them together.
    """
    running = [run for run in runs if run.running]
    use = _Use(quotas, running, begun)

    def turn(run: WantedRun) -> tuple[object, ...]:
        return int(run.standing), *(-part for part in use.share(run)), run.waited, run.key

    waiting = sorted((run for run in runs if not run.running), key=turn)
    admitted: set[Key] = set()
    preempted: dict[Key, Key] = {}
    order: list[Key] = []
    why: dict[Key, str] = {}
    reserved = False
    while waiting:
        run = waiting.pop()
        lacks = use.lacks(run) or ("what gets free is kept for a run that has waited longer" if reserved else "")
        if not lacks:
            admitted.add(run.key)
            use.take(run)
            waiting.sort(key=turn)  # it changed the shares
            continue
        order.append(run.key)
        why[run.key] = lacks
        if reserved or use.lacks(run, day=False) == "":
            continue
        victims = _way(run, running, preempted, use)
        for victim in victims:
            preempted[victim.key] = run.key
            # What it gives up is kept for whom it makes way.
            use.take(victim, fresh=False, sign=-1)
        if victims:
            use.take(run)
            waiting.sort(key=turn)
        elif run.waited >= RESERVED and hopes(run, quotas) and use.lacks(run).startswith("the cluster"):
            reserved = True
    return Schedule(frozenset(admitted), preempted, tuple(order), why)


def _way(run: WantedRun, running: Sequence[WantedRun], taken: Mapping[Key, Key], use: _Use) -> list[WantedRun]:
    """The runs that must make way for this one: of lower priority, least first, and of these the youngest, for least is
    lost. None where that would not be enough."""
    if waits_for_a_day(use.lacks(run)):
        return []
    lower = [
        other for other in running if other.key not in taken and other.standing < run.priority and other.ran >= SETTLED
    ]
    lower.sort(key=lambda other: (other.standing, other.ran, other.key))
    chosen: list[WantedRun] = []
    while lacks := use.lacks(run):
        # Who is of no help with this quota may be with the next one: each is asked again.
        other = next((other for other in lower if _helps(other, run, lacks)), None)
        if other is None:
            break
        lower.remove(other)
        chosen.append(other)
        use.take(other, fresh=False, sign=-1)
    enough = not use.lacks(run)
    for other in chosen:
        use.take(other, fresh=False)
    return chosen if enough else []


def _helps(other: WantedRun, run: WantedRun, lacks: str) -> bool:
    """What it gives up is of the quota that `run` lacks."""
    if lacks.startswith("namespace") and other.namespace != run.namespace:
        return False
    return "GPUs" not in lacks or other.gpus > 0


def waits_for_a_day(why: str) -> bool:
    """What a run waits for is another day, and no end of any run."""
    return why.endswith("(UTC)")


def hopes(run: WantedRun, quotas: Quotas) -> bool:
    """It could begin if nothing else ran: nothing is kept for a run that asks for more than there will ever be."""

    def fits(quota: Quota) -> bool:
        return quota.runs != 0 and (quota.gpus is None or run.gpus <= quota.gpus)

    return fits(quotas.cluster) and fits(quotas.of(run.namespace))
