"""Delivery: a spool, a task that empties it, and a service whose failures never stop an agent."""

import asyncio
import atexit
import base64
import binascii
import hashlib
import json
import logging
import os
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from learnloop_common.circuit_breaker import Breaker
from learnloop_common.encryption import KEY_BYTES, DataKey, Unreadable, is_sealed, key_id_of, seal, unseal
from learnloop_sdk.errors import Counters, LearnloopError, NotAsked, Refused, SinkDown
from learnloop_sdk.http_client import EventLoopOwner, Http, Identity

log = logging.getLogger(__name__)
ENV_SPOOL_KEYS = "LEARNLOOP_SPOOL_KEY_FILE"
MEMORY_BYTES = 64 * 1024 * 1024
DISK_BYTES = 512 * 1024 * 1024
MAKE_A_KEY = "make one with: head -c 32 /dev/urandom | base64"
_FILE = re.compile(r"(\d{20})~([A-Za-z0-9][A-Za-z0-9._:-]{0,127})\.json")


class KeyNotGiven(Unreadable):
    """Bytes sealed by another key."""


class SpoolKeys:
    """Keys of 32 random bytes in Base64. The first one seals, all of them open; without any, bytes stay as they are."""

    def __init__(self, lines: Sequence[str] = ()) -> None:
        """Raises ValueError that names the invalid line, and ImportError without learnloop[sdk-encryption]."""
        self._keys = [_key(number, line) for number, line in enumerate(lines, start=1)]
        if self._keys:
            import cryptography  # noqa: F401 - fails now, and not with the first episode

    @classmethod
    def read(cls, file: Path | None = None) -> "SpoolKeys":
        """Read a file, by default the one that $LEARNLOOP_SPOOL_KEY_FILE names; without either nothing is sealed.

        Raises:
            OSError: the file cannot be read. ValueError and ImportError: as above.
        """
        path = file or os.environ.get(ENV_SPOOL_KEYS)
        if not path:
            return cls()
        try:
            keys = cls([line.strip() for line in Path(path).read_text().splitlines() if line.strip()])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if not keys._keys:
            raise ValueError(f"{path}: it has no key; {MAKE_A_KEY}")
        return keys

    def seal(self, body: bytes, name: str) -> bytes:
        """Seal bytes that open under the same `name` only."""
        return seal(body, self._keys[0], name) if self._keys else body

    def open(self, stored: bytes, name: str) -> bytes:
        """Return the bytes that were sealed; raises KeyNotGiven, and Unreadable where they were changed or cut off."""
        if not is_sealed(stored):
            return stored
        key_id = key_id_of(stored)
        key = next((key for key in self._keys if key.key_id == key_id), None)
        if key is None:
            raise KeyNotGiven("it was sealed by a key that is not given; add its line to the key file again")
        return unseal(stored, key, name)


def _key(number: int, line: str) -> DataKey:
    try:
        secret = base64.b64decode(line, validate=True)
    except binascii.Error:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise ValueError(f"line {number} is not 32 random bytes in Base64; {MAKE_A_KEY}")
    return DataKey(UUID(bytes=hashlib.sha256(b"learnloop spool key\0" + secret).digest()[:16]), secret)


@dataclass(frozen=True, slots=True)
class Parcel:
    """One encoded message. The spool gives it a `version`, which grows when a parcel replaces another."""

    identity: str
    body: bytes
    version: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class _Entry:
    version: int
    size: int
    body: bytes | None = None
    path: Path | None = None


class Spool:
    """A bounded queue that drops the oldest parcel when it is full.

    Args:
        directory: one file per parcel, written whole or not at all, so that parcels outlive the process; one process to
            a directory. None: parcels end with the process.
        limit: bytes.
        keys: seal the files; without any, only file permissions protect them.
    """

    def __init__(self, directory: Path | None = None, limit: int | None = None, keys: SpoolKeys | None = None) -> None:
        self.directory = directory
        self._limit = limit or (DISK_BYTES if directory else MEMORY_BYTES)
        self._keys = keys or SpoolKeys()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._size = self._version = 0
        self._lock = threading.Lock()  # `add` runs in threads
        if directory is None:
            return
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in sorted(directory.iterdir()):
            if match := _FILE.fullmatch(path.name):
                self._remember(match[2], _Entry(int(match[1]), path.stat().st_size, path=path))
            elif path.suffix == ".tmp":
                path.unlink(missing_ok=True)  # a write that was cut off, and so never acknowledged

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, parcel: Parcel) -> int:
        """Keep `parcel` in place of an older one of its identity; returns how many others were dropped for it.

        On disk it is durable on return: write, fsync, rename; only then the older one is deleted. Raises OSError.
        """
        with self._lock:
            version = self._version = max(time.time_ns(), self._version + 1)
        if self.directory is None:
            entry = _Entry(version, len(parcel.body), parcel.body)
        else:
            path = self.directory / f"{version:020d}~{parcel.identity}.json"
            temporary, stored = path.with_suffix(".tmp"), self._keys.seal(parcel.body, parcel.identity)
            with temporary.open("wb") as file:
                file.write(stored)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            entry = _Entry(version, len(stored), path=path)
        dropped = 0
        with self._lock:
            self._remember(parcel.identity, entry)
            while self._size > self._limit and len(self._entries) > 1:
                self._drop(next(iter(self._entries)))
                dropped += 1
        return dropped

    def head(self, count: int) -> list[Parcel]:
        """Return the next parcels to send. A deleted file is forgotten; one that cannot be read is tried again."""
        with self._lock:
            first = list(islice(self._entries.items(), count))
        parcels = []
        for identity, entry in first:
            parcel = Parcel(identity, entry.body or b"", entry.version)
            try:
                if entry.path is not None:
                    parcel = Parcel(identity, self._keys.open(entry.path.read_bytes(), identity), entry.version)
                parcels.append(parcel)
            except FileNotFoundError:
                if self._holds(parcel):
                    log.error("spooled %s is lost: %s was deleted by another process", identity, entry.path)
                    self.done(parcel)
            # Too many open files, a disk that does not answer, a key file without its older line: it may pass.
            except (OSError, Unreadable) as error:
                log.warning("spooled %s waits: %s", identity, error)
                self.later(parcel)
        return parcels

    def done(self, parcel: Parcel) -> None:
        """Forget a parcel that was acknowledged or refused for good. A newer one of its identity stays."""
        with self._lock:
            if self._holds(parcel):
                self._drop(parcel.identity)

    def later(self, parcel: Parcel) -> None:
        """Move a parcel that failed behind the others."""
        with self._lock:
            if self._holds(parcel):
                self._entries.move_to_end(parcel.identity)

    def _holds(self, parcel: Parcel) -> bool:
        entry = self._entries.get(parcel.identity)
        return entry is not None and entry.version == parcel.version

    def _remember(self, identity: str, entry: _Entry) -> None:
        self._drop(identity)
        self._version = max(self._version, entry.version)
        self._entries[identity] = entry
        self._size += entry.size

    def _drop(self, identity: str) -> None:
        if entry := self._entries.pop(identity, None):
            self._size -= entry.size
            if entry.path is not None:
                entry.path.unlink(missing_ok=True)


BATCH = 16
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
TIMEOUT = 2.0  # of a whole request, however slowly the server sends
TRAJECTORIES = "/api/v1/trajectories"
TRAJECTORY_SECONDS = 10.0
REFUSALS = frozenset((400, 404, 409, 410, 413, 422))
Send = Callable[[Parcel], Awaitable[object]]
"""Delivers a parcel; raises SinkDown: try later; Refused: never."""


class Service:
    """One service behind a breaker.

    Args:
        address: base URL; "": the service does not exist.
    """

    def __init__(self, http: Http, address: str, identity: Identity) -> None:
        self._http, self.address, self._identity = http, address.rstrip("/"), identity
        self._breaker = Breaker(longest_rest=LONGEST_PAUSE)

    async def post(self, path: str, body: bytes) -> dict[str, Any]:
        """Try once, unless the breaker is open; returns the answer. Raises SinkDown and Refused."""
        if not self.address:
            raise NotAsked("the service has no address")
        if not self._breaker.allows():
            raise NotAsked(f"{self.address} did not answer lately")
        recording = path == TRAJECTORIES
        seconds = TRAJECTORY_SECONDS if recording else TIMEOUT
        try:
            answer = await self._http.post(f"{self.address}{path}", body, self._identity.headers(), seconds)
        except (OSError, TimeoutError, LearnloopError) as error:
            self._breaker.failed()
            raise SinkDown(f"{self.address}: {str(error) or type(error).__name__}") from error
        except BaseException:
            self._breaker.gave_up()
            raise
        if answer.status > 500:  # a 500 may be about this request alone
            self._breaker.failed()
        else:
            self._breaker.worked()
        # An address that leads elsewhere for a while answers 404, which must not cost an episode.
        if answer.status in REFUSALS and not (recording and answer.status == 404):
            raise Refused(f"{self.address}: {answer.summary}")
        try:
            value = json.loads(answer.body) if answer.status < 300 else None
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise SinkDown(f"{self.address}: {answer.summary}")
        return value

    async def deliver(self, parcel: Parcel) -> None:
        """Post a parcel: a trajectory, or a path and a body in two lines."""
        path, _, body = parcel.body.rpartition(b"\n")
        await self.post(path.decode() or TRAJECTORIES, body)


class Recorder:
    """Owns a spool and one delivery task; use from one event loop at a time.

    Args:
        batch: parcels sent at the same time.
    """

    def __init__(self, spool: Spool, send: Send, counters: Counters, *, batch: int = BATCH) -> None:
        self._spool, self._send, self._counters, self._batch = spool, send, counters, batch
        self._owner = EventLoopOwner()
        self._wake, self._progress = asyncio.Event(), asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""
        atexit.register(_warn_of_loss, weakref.ref(self))

    @property
    def pending(self) -> int:
        """Parcels not yet acknowledged."""
        return len(self._spool)

    @property
    def at_risk(self) -> int:
        """Parcels that end with this process."""
        return 0 if self._spool.directory else self.pending

    async def put(self, identity: str, body: bytes) -> None:
        """Keep a parcel and deliver it. On disk it is durable on return, or counted as dropped."""
        parcel = Parcel(identity, body)
        try:
            on_disk = self._spool.directory is not None
            dropped = await asyncio.to_thread(self._spool.add, parcel) if on_disk else self._spool.add(parcel)
        except OSError as error:  # a full disk must not stop an agent
            self._counters.trajectories_dropped += 1
            log.error("%s is lost, it cannot be written to the spool: %s", identity, error)
            return
        self._counters.trajectories_recorded += 1
        if dropped:
            self._counters.trajectories_dropped += dropped
            log.error("spool is full: %d oldest dropped; %s", dropped, self._trouble or "the service is slow")
        self.start()

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
                progress = any(await asyncio.gather(*map(self._deliver, self._spool.head(self._batch))))
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
        except SinkDown as error:
            if str(error) != self._trouble:
                log.warning("%d wait to be delivered: %s", self.pending, error)
            self._trouble = str(error)
            self._counters.delivery_failures += 1
            self._spool.later(parcel)
            return False
        except Refused as error:
            self._counters.trajectories_rejected += 1
            log.error("%s was refused for good: %s", parcel.identity, error)
        self._spool.done(parcel)
        return True


def _warn_of_loss(reference: "weakref.ref[Recorder]") -> None:
    recorder = reference()
    if recorder is not None and recorder.at_risk:
        log.error(
            "%d were not delivered and are lost: use `async with Learnloop(…)`, or give it a spool_directory",
            recorder.at_risk,
        )
