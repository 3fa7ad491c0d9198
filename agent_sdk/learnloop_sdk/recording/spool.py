"""Where trajectories wait until they are acknowledged: in memory, or on disk to outlive the process."""

import logging
import os
import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from learnloop_api.encryption.envelope import Unreadable
from learnloop_sdk.recording.spool_keys import SpoolKeys

log = logging.getLogger(__name__)
MEMORY_BYTES = 64 * 1024 * 1024
DISK_BYTES = 512 * 1024 * 1024
_FILE = re.compile(r"(\d{20})~([A-Za-z0-9][A-Za-z0-9._:-]{0,127})\.json")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One encoded trajectory."""

    trajectory_id: str
    body: bytes


class Spool(Protocol):
    """A bounded queue; the oldest goes first when it is full."""

    def add(self, parcel: Parcel) -> int:
        """Keep `parcel`; returns how many older ones had to be dropped for it."""
        ...

    def head(self, count: int) -> list[Parcel]:
        """The next ones to send."""
        ...

    def done(self, trajectory_id: str) -> None:
        """It was acknowledged or will never be."""
        ...

    def later(self, trajectory_id: str) -> None:
        """It failed: let others go first."""
        ...

    def __len__(self) -> int: ...


class MemorySpool:
    """At most `limit` bytes of trajectories; gone with the process."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._parcels: OrderedDict[str, Parcel] = OrderedDict()

    def __len__(self) -> int:
        return len(self._parcels)

    def add(self, parcel: Parcel) -> int:
        """See Spool.add."""
        self.done(parcel.trajectory_id)
        self._parcels[parcel.trajectory_id] = parcel
        self._size += len(parcel.body)
        dropped = 0
        while self._size > self._limit and len(self._parcels) > 1:
            self.done(next(iter(self._parcels)))
            dropped += 1
        return dropped

    def head(self, count: int) -> list[Parcel]:
        """See Spool.head."""
        return [parcel for parcel, _ in zip(self._parcels.values(), range(count), strict=False)]

    def done(self, trajectory_id: str) -> None:
        """See Spool.done."""
        if parcel := self._parcels.pop(trajectory_id, None):
            self._size -= len(parcel.body)

    def later(self, trajectory_id: str) -> None:
        """See Spool.later."""
        if trajectory_id in self._parcels:
            self._parcels.move_to_end(trajectory_id)


class DiskSpool:
    """One file per trajectory, written whole or not at all; what a former process left is sent first.

    Args:
        limit: bytes on disk.
        keys: seal the files; without any they lie in the open, for the process's user alone.
    """

    def __init__(self, directory: Path, limit: int = DISK_BYTES, keys: SpoolKeys | None = None) -> None:
        self._keys = keys or SpoolKeys()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._limit = limit
        self._files: OrderedDict[str, tuple[Path, int]] = OrderedDict()
        self._size = 0
        for path in sorted(directory.iterdir()):
            if match := _FILE.fullmatch(path.name):
                self._remember(match[2], path, path.stat().st_size)
            elif path.suffix == ".tmp":
                path.unlink(missing_ok=True)  # cut off in the middle of a write: never acknowledged to anyone

    def __len__(self) -> int:
        return len(self._files)

    def add(self, parcel: Parcel) -> int:
        """See Spool.add. Durable on return: tmp → fsync → rename."""
        self.done(parcel.trajectory_id)
        path = self._directory / f"{time.time_ns():020d}~{parcel.trajectory_id}.json"
        temporary = path.with_suffix(".tmp")
        stored = self._keys.seal(parcel.body, parcel.trajectory_id)
        with temporary.open("wb") as file:
            file.write(stored)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        self._remember(parcel.trajectory_id, path, len(stored))
        dropped = 0
        while self._size > self._limit and len(self._files) > 1:
            self.done(next(iter(self._files)))
            dropped += 1
        return dropped

    def head(self, count: int) -> list[Parcel]:
        """See Spool.head. A file that is gone is forgotten; one that cannot be read now is tried again."""
        parcels = []
        for trajectory_id, (path, _) in list(self._files.items())[:count]:
            try:
                parcels.append(Parcel(trajectory_id, self._keys.open(path.read_bytes(), trajectory_id)))
            except FileNotFoundError:
                log.error("spooled trajectory %s is lost: somebody has deleted %s", trajectory_id, path)
                self.done(trajectory_id)
            # Too many open files, a disk that does not answer, a key file without its older line: it may pass.
            except (OSError, Unreadable) as error:
                log.warning("spooled trajectory %s waits: %s", trajectory_id, error)
                self.later(trajectory_id)
        return parcels

    def done(self, trajectory_id: str) -> None:
        """See Spool.done."""
        if entry := self._files.pop(trajectory_id, None):
            self._size -= entry[1]
            entry[0].unlink(missing_ok=True)

    def later(self, trajectory_id: str) -> None:
        """See Spool.later."""
        if trajectory_id in self._files:
            self._files.move_to_end(trajectory_id)

    def _remember(self, trajectory_id: str, path: Path, size: int) -> None:
        self._files[trajectory_id] = (path, size)
        self._size += size
