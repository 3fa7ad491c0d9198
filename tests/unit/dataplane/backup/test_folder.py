"""A folder of backups: whole or not at all, compared with its digests, and signed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from learnloop_common.sealed_box import PREFIX, NotOpened, new_identity, seal, unseal
from learnloop_dataplane.audit.signing import Signer
from learnloop_dataplane.backup.folder import (
    ARTIFACTS,
    CHECKPOINTS,
    DUMP,
    MESSAGES,
    BackupError,
    BackupManifest,
    Blob,
    Folder,
    read_manifest,
    write_lines,
)
from learnloop_dataplane.backup.making import copy_artifacts, copy_erasures, finish, restore_artifacts, restore_erasures
from learnloop_dataplane.blobs.blob_store import FileBlobs
from learnloop_dataplane.erasure.requests import LastingRecords, Recorded
from learnloop_dataplane.registry.artifacts import artifact_key

MINE, OTHER = Signer(b"1" * 32), Signer(b"2" * 32)
CONTENT = b"a model"
DIGEST = sha256(CONTENT).hexdigest()


def made(folder: Folder, signer: Signer | None = MINE, blobs: tuple[bytes, ...] = (CONTENT,)) -> Path:
    """A backup, as the steps leave one."""
    part = folder.begin()
    (part / DUMP).write_bytes(b"dump")
    write_lines(part / MESSAGES, [{"seq": 1}])
    write_lines(part / CHECKPOINTS, [{"key": "ns/audit/checkpoint.json", "content": {"seq": 1}}])
    named = [Blob(f"ns/artifacts/{sha256(item).hexdigest()}", sha256(item).hexdigest(), len(item)) for item in blobs]
    write_lines(part / ARTIFACTS, map(asdict, named))
    for blob, item in zip(named, blobs, strict=True):
        folder.blob(blob.sha256).parent.mkdir(parents=True, exist_ok=True)
        folder.blob(blob.sha256).write_bytes(item)
    return folder.finish(BackupManifest("2026-11-24T00:00:00+00:00", "0028", streams={"RL": {"kept": 1}}), signer)


def read(backup: Path, *keys: bytes) -> bool:
    return read_manifest(backup, keys)[1]


def test_a_signed_backup_says_whose_it_is(tmp_path: Path) -> None:
    backup = made(Folder(tmp_path))
    assert read(backup, MINE.public_key) is True
    assert read(backup, OTHER.public_key, MINE.public_key) is True, "an earlier key that is trusted"
    assert read(backup) is False, "nobody is trusted: digests alone speak"
    unsigned = made(Folder(tmp_path), signer=None)
    assert read(unsigned) is False, "an installation without a key signs nothing"
    with pytest.raises(BackupError, match=r"manifest\.sig is missing"):
        read(unsigned, MINE.public_key)
    assert read_manifest(unsigned, [MINE.public_key], unsigned=True)[1] is False
    with pytest.raises(BackupError, match="not by the installation's audit key"):
        read(backup, OTHER.public_key)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda at: (at / DUMP).write_bytes(b"dumb"), "database.dump is not what was written"),
        (lambda at: (at / MESSAGES).unlink(), "streams.ndjson is missing"),
        (lambda at: (at / "manifest.json").write_text("{"), "cannot be read"),
        (lambda at: (at / "manifest.json").write_text('{"no": 1}'), "cannot be read"),
        (
            lambda at: (at / "manifest.json").write_bytes(
                (at / "manifest.json").read_bytes().replace(b'"kept": 1', b'"kept": 2')
            ),
            "manifest.sig is not by",
        ),
        (
            lambda at: (at / "manifest.json").write_bytes(
                (at / "manifest.json").read_bytes().replace(b'"format": 1', b'"format": 9')
            ),
            "has format 9, and this version reads 1",
        ),
    ],
)
def test_a_backup_that_was_changed_is_refused(tmp_path: Path, spoil: Callable[[Path], object], complaint: str) -> None:
    backup = made(Folder(tmp_path))
    spoil(backup)
    with pytest.raises(BackupError, match=complaint):
        read(backup, MINE.public_key)


async def test_blobs_are_compared_on_their_way_back(tmp_path: Path) -> None:
    folder, store = Folder(tmp_path / "backups"), FileBlobs(tmp_path / "store")
    folder.root.mkdir()
    backup = made(folder)
    assert await restore_artifacts(backup, folder, store) == 1
    assert (tmp_path / "store/ns/artifacts" / DIGEST).read_bytes() == CONTENT
    assert not list(store.spool.iterdir())
    folder.blob(DIGEST).write_bytes(b"another model")
    with pytest.raises(BackupError, match="its SHA-256 is another one"):
        await restore_artifacts(backup, folder, store)
    folder.blob(DIGEST).unlink()
    with pytest.raises(BackupError, match="is missing"):
        await restore_artifacts(backup, folder, store)


class Rows:
    """A database that names one artifact."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row

    async def namespaces(self) -> list[str]:
        return ["ns"]

    @asynccontextmanager
    async def tenant(self, _: str) -> AsyncIterator["Rows"]:
        yield self

    async def fetch(self, statement: str, _: str) -> list[dict[str, Any]]:
        return [self.row] if "FROM artifacts" in statement else []


@pytest.mark.parametrize(("stored", "taken"), [(CONTENT, True), (b"LLE1 sealed", True), (b"another", False)])
async def test_a_blob_is_taken_as_it_lies_there_sealed_or_as_its_row_says(
    tmp_path: Path, stored: bytes, taken: bool
) -> None:
    folder, store = Folder(tmp_path / "backups"), FileBlobs(tmp_path / "store")
    folder.root.mkdir()
    folder.begin()
    lies = tmp_path / "store" / artifact_key("ns", DIGEST)
    lies.parent.mkdir(parents=True)
    lies.write_bytes(stored)
    database: Any = Rows({"sha256": DIGEST, "size_bytes": len(CONTENT)})
    if not taken:
        with pytest.raises(BackupError, match="is not what was stored"):
            await copy_artifacts(database, store, folder)
        return
    assert await copy_artifacts(database, store, folder) == 1
    assert folder.blob(sha256(stored).hexdigest()).read_bytes() == stored
    lies.unlink()
    assert await copy_artifacts(database, store, folder) == 1, "what was there before the dump is kept"


async def test_who_was_erased_after_an_older_backup_is_on_record_when_it_is_restored(tmp_path: Path) -> None:
    folder, first, second = Folder(tmp_path / "backups"), FileBlobs(tmp_path / "first"), FileBlobs(tmp_path / "second")
    folder.root.mkdir()
    records, at = LastingRecords(first), datetime(2026, 11, 24, tzinfo=UTC)
    await records.opted_out("ns", "carl")
    for subject in ("user/anna", "user/ben"):
        await records.erased("ns", subject, at)
        folder.begin()
        await copy_erasures(first, folder)
        folder.finish(BackupManifest("2026-11-24T00:00:00+00:00", "0028"), None)
        await records.opted_in("ns", "carl")
    assert await restore_erasures(folder, second) == 2
    assert await LastingRecords(second).all() == {"ns": Recorded({"user/anna": at, "user/ben": at}, set())}
    assert not list(second.spool.iterdir())


def test_only_so_many_are_kept_and_blobs_while_one_of_them_names_them(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    first, second, third = made(folder, blobs=(b"old", CONTENT)), made(folder), made(folder)
    assert folder.names() == [first, second, third]
    assert folder.prune(2) == 1
    assert folder.names() == [second, third]
    assert [path.name for path in tmp_path.glob("blobs/??/*")] == [DIGEST]
    assert folder.chosen("") == third
    assert folder.chosen(second.name) == second
    with pytest.raises(BackupError, match="there is no backup 'learnloop-1999'"):
        folder.chosen("learnloop-1999")


def test_what_is_not_finished_has_no_name(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (folder.begin() / DUMP).write_bytes(b"cut short")
    assert folder.names() == []
    assert list(folder.begin().iterdir()) == [], "the next one begins anew"
    with pytest.raises(BackupError, match="was not begun"):
        asyncio.run(finish(None, None, folder, signer=None, recipient="", keys={}))  # type: ignore[arg-type]


def test_who_seals_cannot_read_and_nothing_else_opens() -> None:
    private, recipient = new_identity()
    sealed = seal(b"secret", recipient)
    assert unseal(sealed, private) == b"secret"
    assert b"secret" not in sealed
    assert seal(b"secret", recipient) != sealed
    for wrong in (sealed[:-1], sealed[:40], b"", PREFIX, b"x" + sealed, sealed[:-1] + bytes([sealed[-1] ^ 1])):
        with pytest.raises(NotOpened):
            unseal(wrong, private)
    with pytest.raises(NotOpened, match="sealed for another key"):
        unseal(sealed, new_identity()[0])
    for key in ("", "ab", "zz" * 32):
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            seal(b"x", key)
