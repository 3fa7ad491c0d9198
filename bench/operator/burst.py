"""A burst over a platform of all kinds (see mix.py), twice: as fast as the API server takes it, then the same number
of the same sorts of changes paced evenly, 10,000 over 115 s.

Reconciled: the status has observed the object's generation; for a deletion, the pass that finds the object gone is
done. The *longest wait* is of any object, from the event that shows its change to the event of its status. A
*neighbour* is a namespace of its own in which one object changes each second while the burst comes from the others:
with a plain queue it would wait for everything that came before it. Its *longest wait* is how long its object was
behind at a stretch, its *longest edit wait* how long a single one of its changes was: the two differ when changes come
faster than they are looked at.

A burst that arrives sooner than any operator could work it off makes somebody wait whatever the order: `least_wait_s`
is what is left to do when the last change arrives, for a bare client that makes the same number of writes. What our own
order adds to that is told by the neighbour, and by the paced burst, which a machine of this size can follow. `starved`
counts the objects that waited for more than five seconds.
"""

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.operator import world
from bench.operator.api import Api, many
from bench.operator.data_plane import data_plane
from bench.operator.mix import QUIET, TEAMS, Changes, Mix
from bench.operator.observer import Name, Observer
from bench.operator.process import Running, control_plane_cpu_seconds, running
from bench.operator.thousand import say, spread
from bench.operator.waits import Span, Trace, longest
from learnloop_operator.kube.kinds import OWN_KINDS, REWARD_POLICY

PARALLEL = 32
PACE = 10_000 / 115.0
"""Changes a second in the paced burst: whoever waits no longer than STARVED_SECONDS is done within the 120 s that all
10,000 may take."""
SMALLEST, LARGEST = 20, 50_000
FLOOR_WRITES = 2000
STARVED_SECONDS = 5.0
"""Who waits longer is counted in `starved`."""
RESTED_SECONDS = 5
"""Without a write between two rounds, so that nobody pays for what the round before has left."""
PATIENCE = 240.0
"""Seconds after the last change was sent; whoever is behind then stays so."""
PASSES = "learnloop_reconcile_total"
GONE = r'learnloop_reconcile_total\{kind="[^"]*",result="gone"\}'
DEPTH = "learnloop_queue_depth"


@dataclass(frozen=True, slots=True)
class Flood:
    """What one round showed."""

    figures: dict[str, Any]
    others: dict[Name, Span]
    neighbour: dict[Name, Span]
    neighbours_edits: dict[Name, Span]

    def waits(self, trace: Trace | None) -> dict[str, float]:
        """The waits that count, and their shares where the operator was traced."""
        return {
            **longest(self.others, trace, "longest_wait"),
            **longest(self.neighbour, trace, "neighbour_longest_wait"),
            **longest(self.neighbours_edits, trace, "neighbour_longest_edit_wait"),
        }


async def measure(side: str, kubeconfig: Path, objects: int) -> dict[str, Any]:
    """All figures of `side` (ours, peer) for a burst of `objects` on an empty API server."""
    mix, trace_file = Mix(objects), kubeconfig.parent / "trace"
    program = {"ours": "traced", "peer": "peer_of_all_kinds"}[side]
    async with Api(kubeconfig) as api, data_plane() as url:
        await many(api.create, world.namespaces(TEAMS + 1))
        before = mix.before()
        await many(api.create, before, PARALLEL)
        async with Observer(api, OWN_KINDS) as observer:
            with running(program, kubeconfig, url, {"LEARNLOOP_BENCH_TRACE": str(trace_file)}) as operator:
                settled = await observer.all_current(len(before), operator.alive) - operator.started
                say(f"{side}: {len(before)} objects of all kinds from nothing: {settled:.1f} s")
                round_ = _Round(side, kubeconfig, api, observer, operator)
                await round_.rest()
                first, known = mix.changes(api, 0), len(before)
                flood = await round_.run(first, known, 0.0)
                await round_.rest()
                known += first.created - first.deleted
                paced, left = await _paced(side, round_, mix.changes(api, 1), known, objects / PACE)
                memory = operator.memory_mib()
        trace = Trace(trace_file) if side == "ours" else None
        figures = flood.figures | flood.waits(trace) | {"rss_mib": memory[0], "rss_peak_mib": memory[1]}
        if paced:
            figures |= {f"paced_{name}": value for name, value in (paced.figures | paced.waits(trace)).items()}
        figures["paced_never_reconciled"] = left
        figures["before_from_nothing_s"] = settled
        figures["observer_watches_begun_anew"] = observer.relists
        if side == "ours":
            writes = len(first.changes) + flood.figures["writes"]
            figures |= await _floor(api, mix, writes, flood.figures["sending_s"])
        say(f"{side}: burst: {json.dumps(figures)}")
        return figures


async def _paced(side: str, round_: "_Round", changes: Changes, known: int, over: float) -> tuple[Flood | None, int]:
    """The paced round, and how many objects are behind for good. The peer may leave some so, which is a figure of its
    own; ours may not.

    Raises:
        TimeoutError: ours did.
    """
    try:
        return await round_.run(changes, known, over), 0
    except TimeoutError as error:
        if side == "ours":
            raise
        say(f"{side}: {error}")
        return None, round_.behind


class _Round:
    """One operator at work on one API server."""

    def __init__(self, side: str, kubeconfig: Path, api: Api, observer: Observer, operator: Running) -> None:
        self._side, self._kubeconfig, self._api = side, kubeconfig, api
        self._observer, self._operator = observer, operator

    async def run(self, round_: Changes, known: int, over: float) -> Flood:
        """Make all changes over so many seconds (0: at once) and wait for the operator."""
        api, observer, operator = self._api, self._observer, self._operator
        gone, passes = await self._metric(GONE), await self._metric(PASSES)
        writes, cpu = await api.writes(), operator.cpu_seconds()
        starved, server = operator.cpu_wait_seconds(), control_plane_cpu_seconds(self._kubeconfig)
        observer.forget_waits()
        neighbour = asyncio.create_task(_neighbour(api))
        started = time.monotonic()
        sending = await many(lambda change: change(), round_.changes, PARALLEL, over)
        behind = len(observer.behind)
        say(f"{self._side}: {len(round_.changes)} changes sent in {sending:.1f} s, {behind} objects are behind")
        neighbour.cancel()
        with suppress(asyncio.CancelledError):
            await neighbour
        ended = await observer.all_current(known + round_.created - round_.deleted, operator.alive, PATIENCE)
        while self._side == "ours" and await self._metric(GONE) - gone < round_.deleted:
            operator.alive()
            await asyncio.sleep(0.1)
            ended = time.monotonic()
        spans = dict(observer.spans)
        others = {name: span for name, span in spans.items() if name[1] != QUIET}
        waits = [end - begin for begin, end in others.values()]
        figures = {
            "s": round(ended - started, 2),
            "sending_s": round(sending, 2),
            "behind_when_sent": behind,
            **spread("wait", waits),
            "starved": sum(wait > STARVED_SECONDS for wait in waits),
            "changes": len(round_.changes),
            "writes": await api.writes() - writes - len(round_.changes),
            "operator_cpu_s": round(operator.cpu_seconds() - cpu, 2),
            "operator_waited_for_a_core_s": round(operator.cpu_wait_seconds() - starved, 2),
            "control_plane_cpu_s": round(control_plane_cpu_seconds(self._kubeconfig) - server, 2),
        }
        figures["writes_per_change"] = round(figures["writes"] / len(round_.changes), 3)
        if self._side == "ours":
            figures["passes"] = round(await self._metric(PASSES) - passes)
            figures["passes_per_change"] = round(figures["passes"] / len(round_.changes), 3)
        beside = {name: span for name, span in spans.items() if name[1] == QUIET}
        edits = {name: span for name, span in observer.edit_spans.items() if name[1] == QUIET}
        flood = Flood(figures, others, beside, edits)
        say(f"{self._side}: {json.dumps(figures | flood.waits(None))}")
        return flood

    @property
    def behind(self) -> int:
        """Objects whose status has not seen their last change."""
        return len(self._observer.behind)

    async def rest(self) -> None:
        """Wait until the operator has nothing in its queue and has written nothing for a while. It is not idle then:
        objects whose pods never start, as none does here, are looked at for ever."""
        quiet, before = 0, await self._api.writes()
        while quiet < RESTED_SECONDS:
            await asyncio.sleep(1.0)
            self._operator.alive()
            now, depth = await self._api.writes(), await self._metric(DEPTH)
            quiet = quiet + 1 if now == before and depth == 0 else 0
            before = now

    async def _metric(self, pattern: str) -> float:
        """Of our operator; the peer tells nothing of itself."""
        return await self._operator.metric(pattern) if self._side == "ours" else 0.0


async def _neighbour(api: Api) -> None:
    number = 0
    while True:
        number += 1
        await api.merge(REWARD_POLICY, QUIET, "reward", world.reward_edit(number))
        await asyncio.sleep(1.0)


async def _floor(api: Api, mix: Mix, writes: int, sending: float) -> dict[str, float]:
    """The same number of writes by a bare client with nobody else there, extrapolated from a part of them."""
    some = mix.share(REWARD_POLICY)
    few = [some[i % len(some)] for i in range(min(FLOOR_WRITES, writes))]

    async def edit(numbered: tuple[int, dict[str, Any]]) -> None:
        number, item = numbered
        metadata = item["metadata"]
        await api.merge(REWARD_POLICY, metadata["namespace"], metadata["name"], world.reward_edit(number + 7))

    seconds = await many(edit, list(enumerate(few)), PARALLEL)
    say(f"floor: {len(few)} bare writes in {seconds:.1f} s")
    floor = seconds / len(few) * writes
    return {
        "floor_s": round(floor, 2),
        "floor_writes_measured": len(few),
        "least_wait_s": round(max(0.0, floor - sending), 2),
    }
