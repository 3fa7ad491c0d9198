"""Meeting of the ranks, and collectives among them.

Rank 0 serves a small key-value store at MASTER_ADDR:MASTER_PORT for as long as its process lives; each process of
rank 0 begins a new *generation*. A rank that arrives in a generation where its place is taken tells rank 0 so through
the store: a peer's pod was replaced, the old group is dead. Every rank that sees the group break re-executes itself
(`rejoin`), which drops all half-dead connections, and meets the others in the next generation. No rank waits longer
than LEARNLOOP_REJOIN_SECONDS.
"""

import contextlib
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from learnloop_environments.errors import ConfigError, TrainerError
from learnloop_trainer import errors, progress_reporter, training_order

UNTIL, TIMES, SECONDS = "LEARNLOOP_REJOIN_UNTIL", "LEARNLOOP_REJOIN_TIMES", "LEARNLOOP_REJOIN_SECONDS"
CONNECT_SECONDS, POLL_SECONDS = 5.0, 0.05
STALE = "stale"


def patience() -> float:
    """Seconds the ranks look for one another before they give up."""
    text = os.environ.get(SECONDS, "600")
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(SECONDS, text, "is not a positive number of seconds", "correct it in spec.pod.env")
    return float(text)


def deadline() -> float:
    """The wall-clock moment at which looking for peers ends; survives re-execution."""
    if UNTIL not in os.environ:
        os.environ[UNTIL] = str(time.time() + patience())
    return float(os.environ[UNTIL])


def settled() -> None:
    """The group has worked for a while: the next loss of a peer gets its full time again."""
    os.environ.pop(UNTIL, None)
    os.environ.pop(TIMES, None)


def rejoin(reason: str) -> None:
    """Replace this process by a fresh one that looks for its peers again; returns only by raising TrainerError."""
    times = int(os.environ.get(TIMES, "0"))
    wait = min(5.0, 0.1 * 2**times) * random.uniform(0.5, 1.5)
    if time.time() + wait > deadline():
        raise TrainerError(f"the other ranks did not come back within {patience():.0f} s: {reason}")
    os.environ[TIMES] = str(times + 1)
    progress_reporter.say(f"a peer was lost ({reason}); looking for the others again in {wait:.1f} s")
    time.sleep(wait)
    _execute()


def _execute() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    for name in os.listdir("/proc/self/fd"):  # sockets made by C++ would stay open, and the port with them
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)
    os.execv(sys.executable, [sys.executable, "-m", "learnloop_trainer"])


class Meeting:
    """The store of one generation, joined by all ranks."""

    def __init__(self, place: training_order.Place, store: TCPStore, generation: str) -> None:
        self.place, self.store, self.generation = place, store, generation
        self._closing = threading.Event()

    def scoped(self) -> PrefixStore:
        """The store for the process group of this generation."""
        return PrefixStore(f"group/{self.generation}", self.store)

    def watch(self, on_stale: Callable[[str], None]) -> None:
        """Rank 0: call `on_stale` from a thread when a replaced rank says that this generation is dead."""

        def run() -> None:
            while not self._closing.wait(0.5):
                with contextlib.suppress(RuntimeError):
                    if self.store.check([STALE]):
                        on_stale(self.store.get(STALE).decode())
                        return

        threading.Thread(target=run, name="rendezvous", daemon=True).start()

    def announce(self) -> None:
        """Rank 0: the run is finished and its proof durable. Waits a little for the others to take note."""
        self._closing.set()
        with contextlib.suppress(RuntimeError):
            self.store.set("finished", "1")
            end = time.monotonic() + 5.0
            while self.store.add("noted", 0) < self.place.size - 1 and time.monotonic() < end:
                time.sleep(POLL_SECONDS)

    def await_finish(self, alive: Callable[[], None]) -> None:
        """Other ranks: return when rank 0 has announced; raises PeerLost when rank 0 goes away first."""
        try:
            while not self.store.check(["finished"]):
                alive()
                time.sleep(0.2)
            self.store.add("noted", 1)
        except RuntimeError as error:
            raise errors.PeerLost(f"rank 0 left before the run was finished ({_short(error)})") from None


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


def _open(place: training_order.Place, seconds: float) -> TCPStore:
    serving = place.rank == 0
    return TCPStore(
        "127.0.0.1" if serving else place.master,
        place.port,
        is_master=serving,
        wait_for_workers=False,
        timeout=timedelta(seconds=seconds),
        use_libuv=False,  # Debian's torch is built without it
    )


def meet(place: training_order.Place, waiting: Callable[[str], None]) -> Meeting:
    """Come together with all other ranks. Raises TrainerError when time is up.

    `waiting` is called with a sentence on what is missing.
    """
    meeting = _serve(place, waiting) if place.rank == 0 else _join(place, waiting)
    meeting.store.set_timeout(timedelta(seconds=60))
    return meeting


def _late(text: str) -> TrainerError:
    return TrainerError(f"the ranks did not find one another within {patience():.0f} s: {text}")


def _serve(place: training_order.Place, waiting: Callable[[str], None]) -> Meeting:
    store: TCPStore | None = None
    while store is None:
        try:
            store = _open(place, CONNECT_SECONDS)
        except RuntimeError as error:  # the port may still be held by the process before this one
            if time.time() > deadline():
                raise _late(f"port {place.port} cannot be served ({_short(error)})") from None
            waiting(f"waiting for port {place.port}")
            time.sleep(0.5)
    generation = uuid.uuid4().hex
    meeting = Meeting(place, store, generation)
    store.set("generation", generation)
    others = range(1, place.size)
    while True:
        missing = [rank for rank in others if not store.check([f"here/{rank}"])]
        if not missing:
            store.set("go", generation)
            return meeting
        if store.check([STALE]):
            raise errors.PeerLost(store.get(STALE).decode())
        text = f"waiting for {len(missing)} of {place.size} ranks: {', '.join(map(str, missing[:8]))}"
        if time.time() > deadline():
            raise _late(text)
        waiting(text)
        time.sleep(POLL_SECONDS)


def _join(place: training_order.Place, waiting: Callable[[str], None]) -> Meeting:
    while True:
        try:
            store = _open(place, CONNECT_SECONDS)
            generation = store.get("generation").decode()
            if store.add(f"arrivals/{place.rank}", 1) > 1:
                store.set(STALE, f"rank {place.rank} was started again")
                raise RuntimeError("rank 0 still belongs to the group before")
            store.set(f"here/{place.rank}", "1")
            while not store.check(["go"]):
                waiting("waiting for the other ranks")
                if time.time() > deadline():
                    raise _late("some are still missing")
                time.sleep(POLL_SECONDS)
            return Meeting(place, store, generation)
        except RuntimeError as error:
            if time.time() > deadline():
                raise _late(f"rank 0 at {place.master}:{place.port} does not answer ({_short(error)})") from None
            waiting(f"waiting for rank 0 at {place.master}:{place.port}")
            time.sleep(random.uniform(0.2, 0.8))


SHARED_GPU = "cpu:gloo,cuda:gloo"
"""The transport of ranks of which some share a GPU."""


class Group(Protocol):
    """All ranks. Every method but `close` is a collective: all ranks call it, in the same order."""

    place: training_order.Place

    def add_up(self, tensor: torch.Tensor) -> None:
        """Replace the tensor on every rank by the sum over all ranks."""

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Element-wise sum of a few numbers over all ranks."""

    def gather(self, body: bytes) -> list[bytes]:
        """The bytes of all ranks, in order, on rank 0; an empty list elsewhere."""

    def broadcast(self, body: bytes | None) -> bytes:
        """Rank 0's bytes on all ranks."""

    def close(self) -> None:
        """Leave in good order. Not a collective."""


class Alone:
    """A group of one."""

    def __init__(self) -> None:
        self.place = training_order.Place()

    def add_up(self, tensor: torch.Tensor) -> None:
        """See Group."""

    def sum(self, numbers: Sequence[float]) -> list[float]:
        return list(numbers)

    def gather(self, body: bytes) -> list[bytes]:
        return [body]

    def broadcast(self, body: bytes | None) -> bytes:
        return body or b""

    def close(self) -> None:
        """See Group."""


VARIABLE = "LEARNLOOP_COLLECTIVE_SECONDS"
T = TypeVar("T")


def _timeout() -> timedelta:
    text = os.environ.get(VARIABLE, "60")
    if not text.isdecimal() or not 1 <= int(text) <= 86400:
        raise ConfigError(VARIABLE, text, "is not a number of seconds from 1 to 86400", "correct it in spec.pod.env")
    return timedelta(seconds=int(text))


def _guarded(action: Callable[[], T]) -> T:
    """Run a collective; whatever breaks it is the loss of a peer."""
    try:
        return action()
    except RuntimeError as error:
        raise errors.PeerLost(" ".join(str(error).split())[:200]) from None


def transport(devices: Sequence[str], *, nccl: bool) -> str:
    """torch.distributed's backend for ranks on these devices, "" for the CPU and else a GPU's own number.

    NCCL refuses two ranks on one GPU, as a device plugin that shares GPUs in time gives them; gloo takes them.
    """
    if not all(devices):
        return "gloo"
    alone = len(set(devices)) == len(devices)
    return "cpu:gloo,cuda:nccl" if nccl and alone else SHARED_GPU


def identity(device: torch.device) -> str:
    """The number that a GPU has in the whole world; "" for the CPU."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""


def _everybodys(meeting: Meeting, own: str) -> list[str]:
    """The message of each rank, by rank; waits until all have."""
    meeting.store.set(f"device/{meeting.generation}/{meeting.place.rank}", own)
    keys = [f"device/{meeting.generation}/{rank}" for rank in range(meeting.place.size)]
    return [meeting.store.get(key).decode() for key in keys]


class Peers:
    """A broken or overdue collective raises PeerLost on every surviving rank."""

    def __init__(self, meeting: Meeting, device: torch.device) -> None:
        """Collective: connect all ranks of the meeting."""
        self.place, self._meeting = meeting.place, meeting
        devices = _guarded(lambda: _everybodys(meeting, identity(device)))
        self.transport = transport(devices, nccl=dist.is_nccl_available())
        _guarded(
            lambda: dist.init_process_group(
                backend=self.transport,
                store=meeting.scoped(),
                rank=self.place.rank,
                world_size=self.place.size,
                timeout=_timeout(),
            )
        )

    def add_up(self, tensor: torch.Tensor) -> None:
        _guarded(lambda: dist.all_reduce(tensor))

    def sum(self, numbers: Sequence[float]) -> list[float]:
        tensor = torch.tensor(numbers, dtype=torch.float64)
        self.add_up(tensor)
        return [float(number) for number in tensor.tolist()]

    def gather(self, body: bytes) -> list[bytes]:
        """Sizes first, then each body point to point."""
        sizes = torch.zeros(self.place.size, dtype=torch.int64)
        sizes[self.place.rank] = len(body)
        self.add_up(sizes)
        if self.place.rank:
            _guarded(lambda: dist.send(_tensor(body), dst=0))
            return []
        bodies = [body]
        for rank in range(1, self.place.size):
            buffer = torch.empty(int(sizes[rank]), dtype=torch.uint8)
            _guarded(lambda b=buffer, r=rank: dist.recv(b, src=r))  # type: ignore[misc]
            bodies.append(buffer.numpy().tobytes())
        return bodies

    def broadcast(self, body: bytes | None) -> bytes:
        (size,) = self.sum([float(len(body or b"")) if self.place.rank == 0 else 0.0])
        if not size:
            return b""
        buffer = _tensor(body or b"") if self.place.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
        _guarded(lambda: dist.broadcast(buffer, src=0))
        return buffer.numpy().tobytes()

    def close(self) -> None:
        dist.destroy_process_group()


def _tensor(body: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(body, dtype=np.uint8).copy())
