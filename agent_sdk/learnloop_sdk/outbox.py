"""Delivery: a spool, a task that empties it, and a service whose failures never stop an agent."""

import asyncio
import atexit
import json
import logging
import shutil
import sqlite3
import threading
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from learnloop_common.circuit_breaker import Breaker
from learnloop_sdk import errors, http_client

log = logging.getLogger(__name__)
MEMORY_BYTES = 64 * 1024 * 1024
DISK_BYTES = 512 * 1024 * 1024
PAGE_BYTES = 4096
A = TypeVar("A")
T = TypeVar("T")
TRAJECTORIES = "/api/v1/trajectories"


@dataclass(frozen=True, slots=True)
class Parcel:
    """One encoded message to a `path` of the service. The spool gives it a `place`, which another parcel never has."""

    identity: str
    body: bytes
    path: str = TRAJECTORIES
    place: int = field(default=0, compare=False)


def opened(file: Path | None, limit: int, script: str) -> sqlite3.Connection:
    """A database for this user alone, of at most `limit` bytes and a quarter of its volume; None: in memory.

    A change needs room for a copy of what it overwrites. A file that SQLite cannot read is put aside. Raises OSError
    and sqlite3.Error.
    """
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(0o600)  # SQLite gives the files of its changes the same mode
        limit = min(limit, shutil.disk_usage(file).total // 4)
    rows = sqlite3.connect(file or ":memory:", isolation_level=None, check_same_thread=False)
    try:
        rows.executescript(
            f"PRAGMA page_size = {PAGE_BYTES}; PRAGMA max_page_count = {limit // PAGE_BYTES};"
            "PRAGMA temp_store = MEMORY; PRAGMA secure_delete = ON;" + script
        )
    except sqlite3.DatabaseError as error:
        rows.close()
        if file is None or error.sqlite_errorcode not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
        aside = file.replace(file.with_name(f"{file.name}.unreadable"))
        for ending in ("-journal", "-wal", "-shm"):
            file.with_name(file.name + ending).unlink(missing_ok=True)
        log.error("%s cannot be read (%s) and is now %s", file, error, aside)
        return opened(file, limit, script)
    return rows


_PUT = "REPLACE INTO parcels (identity, body, path)"


class Spool:
    """A bounded queue in SQLite that drops the oldest parcel when it is full.

    Args:
        file: parcels in it outlive the process; one process to a file. None: parcels end with the process.
        limit: bytes.

    Attributes:
        pending: how many parcels there are.
    """

    def __init__(self, file: Path | None = None, limit: int | None = None) -> None:
        """Raises OSError and sqlite3.Error."""
        self.on_disk = file is not None
        self._lock = threading.Lock()  # on disk each call has a thread
        self._rows = opened(
            file,
            limit or (DISK_BYTES if file else MEMORY_BYTES),
            "CREATE TABLE IF NOT EXISTS parcels (place INTEGER PRIMARY KEY AUTOINCREMENT,"
            " identity TEXT UNIQUE NOT NULL, body BLOB NOT NULL, path TEXT NOT NULL)",
        )
        self.pending = 0
        self.head(0)

    def _run(self, statement: str, *values: object) -> list[Any]:
        with self._lock:
            rows = self._rows.execute(statement, values).fetchall()
            (self.pending,) = self._rows.execute("SELECT count(*) FROM parcels").fetchone()
            return rows

    def add(self, parcel: Parcel) -> int:
        """Keep `parcel` in place of an older one of its identity; returns how many others were dropped for it.

        On disk it is durable on return. Raises sqlite3.Error.
        """
        dropped = 0
        while True:
            try:
                self._run(f"{_PUT} VALUES (?, ?, ?)", parcel.identity, parcel.body, parcel.path)
                return dropped
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL or not self.pending:
                    raise
            self._run("DELETE FROM parcels WHERE place = (SELECT min(place) FROM parcels)")
            dropped += 1

    def head(self, count: int) -> list[Parcel]:
        """Return the next parcels to send."""
        rows = self._run("SELECT identity, body, path, place FROM parcels ORDER BY place LIMIT ?", count)
        return [Parcel(*row) for row in rows]

    def done(self, parcel: Parcel) -> None:
        """Forget a parcel that was acknowledged or refused for good. A newer one of its identity stays."""
        self._run("DELETE FROM parcels WHERE place = ?", parcel.place)

    def later(self, parcel: Parcel) -> None:
        """Move a parcel that failed behind the others."""
        # A place of its own again: UPDATE would take one that AUTOINCREMENT gives to another parcel.
        self._run(f"{_PUT} SELECT identity, body, path FROM parcels WHERE place = ?", parcel.place)


BATCH = 16
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
TIMEOUT = 2.0  # of a whole request, however slowly the server sends
TRAJECTORY_SECONDS = 10.0
REFUSALS = frozenset((400, 404, 409, 410, 413, 422))
Send = Callable[[Parcel], Awaitable[object]]
"""Delivers a parcel; raises SinkDown: try later; Refused: never."""


class Service:
    """One service behind a breaker.

    Args:
        address: base URL; "": the service does not exist.
    """

    def __init__(self, http: http_client.Http, address: str, identity: http_client.Identity) -> None:
        self._http, self.address, self._identity = http, address.rstrip("/"), identity
        self._breaker = Breaker(longest_rest=LONGEST_PAUSE)

    async def post(
        self, path: str, body: bytes, seconds: float = TIMEOUT, refusals: frozenset[int] = REFUSALS
    ) -> dict[str, Any]:
        """Try once, unless the breaker is open; returns the answer. Raises SinkDown and Refused."""
        if not self.address:
            raise errors.NotSent("the service has no address")
        if not self._breaker.allows():
            raise errors.NotSent(f"{self.address} did not answer lately")
        try:
            answer = await self._http.post(f"{self.address}{path}", body, self._identity.headers(), seconds)
        except (OSError, TimeoutError, errors.LearnloopError) as error:
            self._breaker.failed()
            raise errors.SinkDown(f"{self.address}: {str(error) or type(error).__name__}") from error
        except BaseException:
            self._breaker.gave_up()
            raise
        if answer.status > 500:  # a 500 may be about this request alone
            self._breaker.failed()
        else:
            self._breaker.worked()
        if answer.status in refusals:
            raise errors.Refused(f"{self.address}: {answer.summary}")
        try:
            value = json.loads(answer.body) if answer.status < 300 else None
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise errors.SinkDown(f"{self.address}: {answer.summary}")
        return value

    async def deliver(self, parcel: Parcel) -> None:
        # An address that leads elsewhere for a while answers 404, which must not cost an episode.
        limits = (TRAJECTORY_SECONDS, REFUSALS - {404}) if parcel.path == TRAJECTORIES else (TIMEOUT, REFUSALS)
        await self.post(parcel.path, parcel.body, *limits)


class Delivery:
    """Owns a spool and one delivery task; use from one event loop at a time.

    Args:
        counters: their `trajectories_*` count parcels of every kind.
        batch: parcels sent at the same time.
    """

    def __init__(self, spool: Spool, send: Send, counters: errors.Counters, *, batch: int = BATCH) -> None:
        self._spool, self._send, self._counters, self._batch = spool, send, counters, batch
        self._owner = http_client.EventLoopOwner()
        self._wake, self._progress = asyncio.Event(), asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""
        atexit.register(_warn_of_loss, weakref.ref(self))

    @property
    def pending(self) -> int:
        """Parcels not yet acknowledged."""
        return self._spool.pending

    async def put(self, parcel: Parcel) -> None:
        """Keep a parcel and deliver it. On disk it is durable on return, or counted as dropped."""
        try:
            dropped = await self._spooled(self._spool.add, parcel)
        except sqlite3.Error as error:  # a full disk must not stop an agent
            self._counters.trajectories_dropped += 1
            log.error("%s is lost, it cannot be written to the spool: %s", parcel.identity, error)
            return
        self._counters.trajectories_recorded += 1
        if dropped:
            self._counters.trajectories_dropped += dropped
            log.error("spool is full: %d oldest dropped; %s", dropped, self._trouble or "the service is slow")
        self.start()

    async def _spooled(self, work: Callable[[A], T], argument: A) -> T:
        """Call the spool, on a thread where it waits for a disk."""
        return await asyncio.to_thread(work, argument) if self._spool.on_disk else work(argument)

    def start(self) -> None:
        """Begin to deliver, also what an earlier process left on disk."""
        if not self.pending:
            return
        if self._owner.is_new():
            self._wake, self._progress, self._task = asyncio.Event(), asyncio.Condition(), None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._deliver_forever())
        self._wake.set()

    async def flush(self, patience: float) -> int:
        """Wait at most `patience` seconds until all is delivered; returns how many are still pending."""
        if self.pending:
            self.start()
            try:
                async with asyncio.timeout(patience), self._progress:
                    await self._progress.wait_for(lambda: not self.pending)
            except TimeoutError:
                pass
        return self.pending

    async def close(self, patience: float) -> int:
        """Flush, then stop; returns how many were not delivered."""
        left = await self.flush(patience)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if left:
            log.warning("%d were not delivered: %s", left, self._trouble)
        return left

    async def _deliver_forever(self) -> None:
        pause = FIRST_PAUSE
        while True:
            while not self.pending:
                self._wake.clear()
                await self._wake.wait()
            try:
                parcels = await self._spooled(self._spool.head, self._batch)
                progress = any(await asyncio.gather(*map(self._deliver, parcels)))
            except Exception:  # a task that ends would deliver nothing more
                log.exception("delivery failed")
                progress = False
            async with self._progress:
                self._progress.notify_all()
            if progress or not self.pending:
                pause = FIRST_PAUSE
                continue
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _deliver(self, parcel: Parcel) -> bool:
        """Try one parcel; returns whether it left the spool."""
        try:
            await self._send(parcel)
            self._counters.trajectories_delivered += 1
        except errors.SinkDown as error:
            if str(error) != self._trouble:
                log.warning("%d wait to be delivered: %s", self.pending, error)
            self._trouble = str(error)
            self._counters.delivery_failures += 1
            await self._spooled(self._spool.later, parcel)
            return False
        except errors.Refused as error:
            self._counters.trajectories_rejected += 1
            log.error("%s was refused for good: %s", parcel.identity, error)
        await self._spooled(self._spool.done, parcel)
        return True


def _warn_of_loss(reference: "weakref.ref[Delivery]") -> None:
    delivery = reference()
    if delivery is not None and delivery.pending and not delivery._spool.on_disk:
        log.error(
            "%d were not delivered and are lost: use `async with Learnloop(…)`, or give it a spool_directory",
            delivery.pending,
        )
