"""Trajectories that wait for delivery: in memory, or on disk, sealed where a key is given."""

import base64
import binascii
import hashlib
import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol
from uuid import UUID

from learnloop_common.encryption import KEY_BYTES, DataKey, Unreadable, is_sealed, key_id_of, seal, unseal

ENV_SPOOL_KEYS = "LEARNLOOP_SPOOL_KEY_FILE"


class KeyNotGiven(Unreadable):
    """Bytes that are whole, for all that is known, and sealed by another key."""


class SpoolKeys:
    """The first one seals; all open. Without any, what is written is left as it is.

    Raises:
        ValueError: a line is no key; says which.
        RuntimeError: the package that encrypts is not installed.
    """

    def __init__(self, lines: Sequence[str] = ()) -> None:
        self._keys = [_key(number, line) for number, line in enumerate(lines, start=1)]
        if self._keys:
            try:
                import cryptography  # noqa: F401
            except ImportError as error:
                fix = "install learnloop[sdk-encryption], or leave the key file out"
                raise RuntimeError(f"a spool with a key needs the package cryptography; {fix}") from error

    @classmethod
    def read(cls, file: Path | None = None) -> "SpoolKeys":
        """From a file; None: from that of $LEARNLOOP_SPOOL_KEY_FILE, and without it there are no keys.

        Raises:
            OSError: the file cannot be read. ValueError and RuntimeError: as above.
        """
        named = file or os.environ.get(ENV_SPOOL_KEYS)
        if not named:
            return cls()
        try:
            keys = cls([line.strip() for line in Path(named).read_text().splitlines() if line.strip()])
        except ValueError as error:
            raise ValueError(f"{named}: {error}") from None
        if not keys._keys:
            raise ValueError(f"{named}: there is no key; make one with: head -c 32 /dev/urandom | base64")
        return keys

    def seal(self, body: bytes, name: str) -> bytes:
        """As it is written. `name` is what the bytes are: they open under no other name."""
        return seal(body, self._keys[0], name) if self._keys else body

    def open(self, stored: bytes, name: str) -> bytes:
        """As it was before.

        Raises:
            KeyNotGiven: none of these keys has sealed it. Unreadable: it was changed or cut off.
        """
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
        fix = "make one with: head -c 32 /dev/urandom | base64"
        raise ValueError(f"line {number} is not 32 random bytes in Base64; {fix}")
    return DataKey(UUID(bytes=hashlib.sha256(b"learnloop spool key\0" + secret).digest()[:16]), secret)


log = logging.getLogger(__name__)
MEMORY_BYTES = 64 * 1024 * 1024
DISK_BYTES = 512 * 1024 * 1024
_FILE = re.compile(r"(\d{20})~([A-Za-z0-9][A-Za-z0-9._:-]{0,127})\.json")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One encoded message. `version`: given by the spool, and higher for what took the place of another."""

    identity: str
    body: bytes
    version: int = field(default=0, compare=False)


class Spool(Protocol):
    """A bounded queue; the oldest goes first when it is full."""

    def add(self, parcel: Parcel) -> int:
        """Keep `parcel`, in place of an older one of its identity; returns how many others had to be dropped for it."""
        ...

    def head(self, count: int) -> list[Parcel]:
        """The next ones to send."""
        ...

    def done(self, parcel: Parcel) -> None:
        """It was acknowledged or will never be. A newer one of its identity stays."""
        ...

    def later(self, parcel: Parcel) -> None:
        """It failed: let others go first."""
        ...

    def has(self, identity: str) -> bool:
        """Does a parcel of this identity wait?"""
        ...

    def __len__(self) -> int: ...


class MemorySpool:
    """At most `limit` bytes of trajectories; gone with the process."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._version = 0
        self._parcels: OrderedDict[str, Parcel] = OrderedDict()

    def __len__(self) -> int:
        return len(self._parcels)

    def add(self, parcel: Parcel) -> int:
        """See Spool.add."""
        self._drop(parcel.identity)
        self._version += 1
        self._parcels[parcel.identity] = Parcel(parcel.identity, parcel.body, self._version)
        self._size += len(parcel.body)
        dropped = 0
        while self._size > self._limit and len(self._parcels) > 1:
            self._drop(next(iter(self._parcels)))
            dropped += 1
        return dropped

    def head(self, count: int) -> list[Parcel]:
        """See Spool.head."""
        return list(islice(self._parcels.values(), count))

    def done(self, parcel: Parcel) -> None:
        """See Spool.done."""
        if self._holds(parcel):
            self._drop(parcel.identity)

    def later(self, parcel: Parcel) -> None:
        """See Spool.later."""
        if self._holds(parcel):
            self._parcels.move_to_end(parcel.identity)

    def has(self, identity: str) -> bool:
        """See Spool.has."""
        return identity in self._parcels

    def _holds(self, parcel: Parcel) -> bool:
        waiting = self._parcels.get(parcel.identity)
        return waiting is not None and waiting.version == parcel.version

    def _drop(self, identity: str) -> None:
        if parcel := self._parcels.pop(identity, None):
            self._size -= len(parcel.body)


class DiskSpool:
    """One file per parcel, written whole or not at all; what a former process left is sent first.

    Args:
        limit: bytes on disk.
        keys: seal the files; without any they lie in the open, for the process's user alone.
    """

    def __init__(self, directory: Path, limit: int = DISK_BYTES, keys: SpoolKeys | None = None) -> None:
        self._keys = keys or SpoolKeys()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._limit = limit
        self._files: OrderedDict[str, tuple[int, Path, int]] = OrderedDict()
        self._size = 0
        self._version = 0
        self._lock = threading.Lock()  # `add` runs in threads
        for path in sorted(directory.iterdir()):
            if match := _FILE.fullmatch(path.name):
                self._remember(match[2], int(match[1]), path, path.stat().st_size)
            elif path.suffix == ".tmp":
                path.unlink(missing_ok=True)  # cut off in the middle of a write: never acknowledged to anyone

    def __len__(self) -> int:
        return len(self._files)

    def add(self, parcel: Parcel) -> int:
        """See Spool.add. Durable on return: tmp → fsync → rename; only then an older one goes."""
        with self._lock:
            version = self._version = max(time.time_ns(), self._version + 1)
        path = self._directory / f"{version:020d}~{parcel.identity}.json"
        temporary = path.with_suffix(".tmp")
        stored = self._keys.seal(parcel.body, parcel.identity)
        with temporary.open("wb") as file:
            file.write(stored)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        dropped = 0
        with self._lock:
            self._remember(parcel.identity, version, path, len(stored))
            while self._size > self._limit and len(self._files) > 1:
                self._drop(next(iter(self._files)))
                dropped += 1
        return dropped

    def head(self, count: int) -> list[Parcel]:
        """See Spool.head. A file that is gone is forgotten; one that cannot be read now is tried again."""
        parcels = []
        with self._lock:
            first = list(islice(self._files.items(), count))
        for identity, (version, path, _) in first:
            try:
                parcels.append(Parcel(identity, self._keys.open(path.read_bytes(), identity), version))
            except FileNotFoundError:
                if self._holds(parcel := Parcel(identity, b"", version)):
                    log.error("spooled %s is lost: somebody has deleted %s", identity, path)
                    self.done(parcel)
            # Too many open files, a disk that does not answer, a key file without its older line: it may pass.
            except (OSError, Unreadable) as error:
                log.warning("spooled %s waits: %s", identity, error)
                self.later(Parcel(identity, b"", version))
        return parcels

    def done(self, parcel: Parcel) -> None:
        """See Spool.done."""
        with self._lock:
            if self._holds(parcel):
                self._drop(parcel.identity)

    def later(self, parcel: Parcel) -> None:
        """See Spool.later."""
        with self._lock:
            if self._holds(parcel):
                self._files.move_to_end(parcel.identity)

    def has(self, identity: str) -> bool:
        """See Spool.has."""
        return identity in self._files

    def _holds(self, parcel: Parcel) -> bool:
        waiting = self._files.get(parcel.identity)
        return waiting is not None and waiting[0] == parcel.version

    def _drop(self, identity: str) -> None:
        if entry := self._files.pop(identity, None):
            self._size -= entry[2]
            entry[1].unlink(missing_ok=True)

    def _remember(self, identity: str, version: int, path: Path, size: int) -> None:
        self._drop(identity)
        self._version = max(self._version, version)
        self._files[identity] = (version, path, size)
        self._size += size
