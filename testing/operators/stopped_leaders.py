"""Stops leading operator processes (SIGSTOP) in the middle of one rollout; they go on when another one leads."""

import asyncio
import itertools
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from testing.operators.crash_sweep import difference
from testing.operators.operator_processes import LiveRig, Operator, live_rig
from testing.operators.process_kills import run

SHORT = {
    "kube.leader_lease.LEASE_SECONDS": 6.0,
    "kube.leader_lease.DEADLINE_SECONDS": 3.5,
    "kube.leader_lease.RETRY_SECONDS": 0.5,
}
"""About half of the Lease's own times."""
POINTS = ("write", "answer", "read", "moment")
"""Stopped with a write on its way, with its answer on its way, with a read on its way, and at any moment."""
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Write:
    """One that the API server accepted, at `at` seconds of the monotonic clock."""

    at: float
    process: int
    what: str


@dataclass(slots=True)
class Stops:
    """Stops the writer, `every` so many writes after the last change of leaders, in turns at each of POINTS."""

    rig: LiveRig
    wanted: int
    every: int
    writes: list[Write] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    stopped: asyncio.Queue[tuple[Operator, int]] = field(default_factory=lambda: asyncio.Queue(1))
    armed: bool = False
    _left: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(5))

    def arm(self) -> None:
        """The next one stops after `every` writes."""
        self._left, self.armed = self.every, True

    def follow(self, operator: Operator) -> None:
        """Sees all that this one sends."""

        senders: dict[int, int] = {}

        async def write(number: int, side: str, method: str, path: str) -> None:
            assert operator.process is not None
            if side == "before":
                senders[number] = operator.process.pid
                self._left -= 1
            elif operator.proxy.answers[number] < 300:
                self.writes.append(Write(time.monotonic(), senders[number], f"{method} {path}"))
            await self._perhaps(operator, "write" if side == "before" else "answer", f"{method} {path}")

        async def read(_number: int, _side: str, method: str, path: str) -> None:
            await self._perhaps(operator, "read", f"{method} {path}")

        operator.proxy.on_write, operator.proxy.on_read = write, read

    async def _perhaps(self, operator: Operator, point: str, what: str) -> None:
        wanted = POINTS[len(self.done) % len(POINTS)]
        if not self.armed or self._left > 0 or len(self.done) >= self.wanted or not self._leads(operator):
            return
        if wanted == "moment":
            self.armed = False
            await asyncio.sleep(self._random.uniform(0.0, 0.05))
        elif wanted != point:
            return
        assert operator.process is not None
        process, self.armed = operator.process, False
        if process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            self.done.append(f"{wanted}: {what}")
            self.stopped.put_nowait((operator, process.pid))

    def _leads(self, operator: Operator) -> bool:
        return operator.process is not None and bool(self.writes) and self.writes[-1].process == operator.process.pid

    def next_writer(self, before: int) -> bool:
        """Another process than this one wrote last."""
        return bool(self.writes) and self.writes[-1].process != before

    def returned(self) -> list[str]:
        """Writes of processes that came back after another one had written; none is what must be."""
        versions, led = [], list[int]()
        for process, group in itertools.groupby(self.writes, key=lambda write: write.process):
            if process in led:
                versions += [write.what for write in group]
            led.append(process)
        return versions


@dataclass(frozen=True, slots=True)
class Outcome:
    """`different`: where the end was another than without any stop; "" when it was the same."""

    stops: list[str]
    returned: list[str]
    generations: list[int]
    different: str
    leaders: int
    codes: list[int]


async def _change_hands(stops: Stops) -> None:
    while True:
        stops.arm()
        operator, process = await stops.stopped.get()
        await _until(partial(stops.next_writer, process), "no leader took over")
        # Without evidence the rollout waits until there is a standby again.
        traffic, stops.rig.traffic.per_second = stops.rig.traffic.per_second, 0.0
        assert operator.process is not None
        operator.process.send_signal(signal.SIGCONT)
        await _until(partial(_restarted, operator, process), "it went on")
        await stops.rig.until_answer(operator, "/readyz", "ok")
        stops.rig.traffic.per_second = traffic


def _restarted(operator: Operator, process: int) -> bool:
    return operator.process is not None and operator.process.pid != process


async def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise
        await asyncio.sleep(0.02)


async def stopped_rollout(kubeconfig: Path, folder: Path, stops_wanted: int, *, every: int, mode: str) -> Outcome:
    """One rollout by two processes of one installation, each stopped in turns while it leads."""
    folder.mkdir(exist_ok=True)
    undisturbed = await run(kubeconfig, folder / "undisturbed", 0, 1, mode)
    async with live_rig(kubeconfig, folder, mode) as rig:
        stops = Stops(rig, stops_wanted, every)
        first = await rig.operator(hasty=SHORT)
        stops.follow(first)
        await rig.serves(0)
        second = await rig.operator(hasty=SHORT, peer=first)
        stops.follow(second)
        await rig.until_answer(second, "/readyz", "ok")
        changing = asyncio.create_task(_change_hands(stops))
        try:
            await rig.wish(1)
            await rig.serves(1)
            state = await rig.end_state()
            # The rollout may be over before the last who was stopped has read that it is replaced.
            await _until(lambda: len(first.codes + second.codes) >= len(stops.done), "the stopped process never ends")
            assert not changing.done(), changing.exception()
        finally:
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)
        return Outcome(
            stops.done,
            stops.returned(),
            [table.generation for table in rig.tables],
            "" if state == undisturbed.state else difference(undisturbed.state, state),
            len({write.process for write in stops.writes}),
            first.codes + second.codes,
        )
