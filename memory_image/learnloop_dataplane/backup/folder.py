"""The folder of backups: one in progress, finished ones by time, and the blobs that they share.

in-progress/            what is being made; its name changes when it is whole
learnloop-TIME/         manifest.json, manifest.sig, database.dump, streams.ndjson, artifacts.ndjson,
                        checkpoints.ndjson, keys.sealed
blobs/ab/abcd…          artifacts and checkpoints by their SHA-256, kept while a backup names them
"""

import base64
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NoMessage
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from learnloop_dataplane.audit.signing import Signer, verifies
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.nats.streams import STREAMS

FORMAT = 1
MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
DUMP, MESSAGES, ARTIFACTS, KEYS = "database.dump", "streams.ndjson", "artifacts.ndjson", "keys.sealed"
CHECKPOINTS, ERASURES = "checkpoints.ndjson", "erasures.ndjson"
IN_PROGRESS, BLOBS = "in-progress", "blobs"
CHUNK = 2**20


class BackupError(Exception):
    """A backup cannot be made, or is not what it says; the sentence names the file and the fix."""


@dataclass(frozen=True)
class Blob:
    """An artifact or a checkpoint: where the store has it, and the digest of the bytes that lie there."""

    key: str
    sha256: str
    size: int


@dataclass
class BackupManifest:
    """What a backup consists of."""

    created_at: str
    schema: str
    """The newest migration of the database."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name → sha256 and bytes of each file beside the manifest."""
    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    """Stream → its position and how many waiting messages are kept."""
    chains: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Namespace → records and head of its audit chain before the dump began."""
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """As it is written."""
        return json.dumps(self.__dict__, indent=1, sort_keys=True).encode() + b"\n"


class Folder:
    """One volume of backups."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.part = root / IN_PROGRESS

    def begin(self) -> Path:
        """An empty folder for what is being made; what a killed backup left goes."""
        shutil.rmtree(self.part, ignore_errors=True)
        self.part.mkdir(mode=0o700)
        return self.part

    def finish(self, manifest: BackupManifest, signer: Signer | None) -> Path:
        """Gives the backup its name. Whole or not at all: the manifest is written last, the name after it."""
        for path in sorted(self.part.iterdir()):
            manifest.files[path.name] = {"sha256": digest(path), "bytes": path.stat().st_size}
        (self.part / MANIFEST).write_bytes(manifest.to_bytes())
        if signer is not None:
            (self.part / SIGNATURE).write_bytes(signer.sign(manifest.__dict__))
        name = self.root / f"learnloop-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
        self.part.rename(name)
        return name

    def names(self) -> list[Path]:
        """Finished ones, oldest first: names are in order of time."""
        return sorted(path for path in self.root.glob("learnloop-*") if (path / MANIFEST).is_file())

    def chosen(self, name: str) -> Path:
        """The backup of this name, or the newest where it is empty. Raises BackupError."""
        there = self.names()
        found = [path for path in there if path.name == name] if name else there[-1:]
        if not found:
            known = ", ".join(path.name for path in there[-5:]) or "none"
            raise BackupError(f"there is no backup {name!r} in {self.root}; there are: {known}")
        return found[0]

    def blob(self, sha256: str) -> Path:
        """Where a blob lies."""
        return self.root / BLOBS / sha256[:2] / sha256

    def prune(self, keep: int) -> int:
        """Only the newest `keep` backups stay, and the blobs that they name. Returns how many backups went."""
        old = self.names()[:-keep]
        for path in old:
            shutil.rmtree(path)
        named = {blob.sha256 for path in self.names() for blob in read_blobs(path / ARTIFACTS)}
        for path in (self.root / BLOBS).glob("??/*"):
            if path.name not in named:
                path.unlink()
        return len(old)


def read_manifest(backup: Path, trusted: Iterable[bytes], *, unsigned: bool = False) -> tuple[BackupManifest, bool]:
    """The manifest, and whether a trusted key has signed it. Every file is compared with its digest.

    Args:
        trusted: public keys; None given: nobody here signs backups.
        unsigned: a missing signature is fine.

    Raises:
        BackupError: a file is missing or another one, the format is a newer one, or the signature does not hold or is
            not there.
    """
    try:
        manifest = BackupManifest(**json.loads((backup / MANIFEST).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise BackupError(f"{backup / MANIFEST} cannot be read: {error}") from None
    if manifest.format != FORMAT:
        raise BackupError(
            f"{backup.name} has format {manifest.format}, and this version reads {FORMAT}: use a newer one"
        )
    signed = _signed(backup, manifest, list(trusted), unsigned)
    for name, said in manifest.files.items():
        path = backup / name
        if not path.is_file():
            raise BackupError(f"{path} is missing: copy the whole folder again")
        if digest(path) != said["sha256"]:
            raise BackupError(f"{path} is not what was written: its SHA-256 is another one; take an older backup")
    return manifest, signed


def _signed(backup: Path, manifest: BackupManifest, trusted: list[bytes], unsigned: bool) -> bool:
    path = backup / SIGNATURE
    if not trusted or (unsigned and not path.exists()):
        return False
    if not path.exists():
        raise BackupError(
            f"{path} is missing, and this installation signs its backups: copy the folder again; where it never had a "
            "signature, and you trust who could write to it, give the step --unsigned"
        )
    signature = path.read_bytes()
    if not any(verifies(key, manifest.__dict__, signature) for key in trusted):
        raise BackupError(
            f"{path} is not by the installation's audit key, nor by one that it trusts: somebody else wrote it"
        )
    return True


def digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def write_lines(path: Path, lines: Iterable[Any]) -> int:
    """NDJSON, on the disk when this returns. Returns how many lines."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    return count


def read_blobs(path: Path) -> list[Blob]:
    """The blobs that a backup names."""
    if not path.exists():
        return []
    return [Blob(**json.loads(line)) for line in path.read_text().splitlines()]


BATCH = 256
IDLE_SECONDS = 60.0
FETCH_SECONDS = 2.0
MESSAGE_ID = "Nats-Msg-Id"
EXPECTATIONS = "Nats-Expected-"


async def copy_messages(bus: Bus, folder: Path) -> dict[str, dict[str, int]]:
    """Writes what waits in every stream. Returns each one's position.

    Raises:
        BackupError: NATS stopped answering on the way.
    """
    positions = {}
    with (folder / MESSAGES).open("w", encoding="utf-8") as file:
        for stream in STREAMS:
            try:
                kept, position = 0, await _position(bus.js, stream)
                async for message in _waiting(bus.js, stream, position["acknowledged"] + 1, position["last"]):
                    file.write(json.dumps(_line(stream, message)) + "\n")
                    kept += 1
            except (NatsError, TimeoutError, OSError) as error:
                raise BackupError(
                    f"stream {stream}: NATS does not answer ({type(error).__name__}); try again"
                ) from None
            positions[stream] = {**position, "kept": kept}
    return positions


async def publish_messages(bus: Bus, backup: Path) -> dict[str, int]:
    """Publishes the messages again, each under its own id. Returns how many of each stream.

    Raises:
        Unavailable, ApiError: NATS did not take one; to begin again is safe.
    """
    counts = dict.fromkeys(STREAMS, 0)
    with (backup / MESSAGES).open(encoding="utf-8") as file:
        for line in file:
            item = json.loads(line)
            headers = {key: val for key, val in item["headers"].items() if not key.startswith(EXPECTATIONS)}
            identity = headers.pop(MESSAGE_ID, f"restored/{item['stream']}/{item['seq']}")
            await bus.publish(item["subject"], base64.b64decode(item["data"]), identity, headers)
            counts[item["stream"]] += 1
    return counts


async def _position(js: JetStreamContext, stream: str) -> dict[str, int]:
    state = (await js.stream_info(stream)).state
    readers = [reader for reader in await js.consumers_info(stream) if reader.config.durable_name]
    floors = [reader.ack_floor.stream_seq for reader in readers if reader.ack_floor is not None]
    return {"first": state.first_seq, "last": state.last_seq, "acknowledged": min(floors, default=0)}


async def _waiting(js: JetStreamContext, stream: str, start: int, last: int) -> AsyncIterator[Msg]:
    """Messages from `start` to `last`, by a reader that nobody else sees and that takes nothing away."""
    if last < start:
        return
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=max(start, 1),
        ack_policy=AckPolicy.NONE,
        inactive_threshold=IDLE_SECONDS,
        mem_storage=True,
    )
    reader: Any = await js.pull_subscribe(">", stream=stream, config=config)
    try:
        while (await reader.consumer_info()).num_pending:
            try:
                messages = await reader.fetch(BATCH, timeout=FETCH_SECONDS)
            except NoMessage:
                continue
            for message in messages:
                if message.metadata.sequence.stream > last:
                    return
                yield message
    finally:
        await reader.unsubscribe()


def _line(stream: str, message: Msg) -> dict[str, Any]:
    return {
        "stream": stream,
        "seq": message.metadata.sequence.stream,
        "subject": message.subject,
        "headers": dict(message.headers or {}),
        "data": base64.b64encode(message.data).decode(),
    }
