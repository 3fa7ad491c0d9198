"""The queue of what waits for delivery: in memory, or one file per parcel on disk, sealed where a key is given."""

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
from uuid import UUID

from learnloop_common.encryption import KEY_BYTES, DataKey, Unreadable, is_sealed, key_id_of, seal, unseal

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
