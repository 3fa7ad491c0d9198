"""A folder of backups: complete or absent, and compared with its digests."""

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from learnloop_dataplane.backup import (
    ARTIFACTS,
    DUMP,
    BackupError,
    Folder,
    artifacts_of,
    copy_artifacts,
    read_contents,
    restore_artifacts,
)
from learnloop_dataplane.blobs import Blobs
from learnloop_dataplane.erasure.erased_before_restore import LastingRecords, Recorded

CONTENT = b"a model"
DIGEST = sha256(CONTENT).hexdigest()
KEY = f"ns/artifacts/{DIGEST[:2]}/{DIGEST}"


def store_in(folder: Path) -> Blobs:
    return Blobs(f"file://{folder}")


def put(store: Path, key: str, content: bytes) -> None:
    (store / key).parent.mkdir(parents=True, exist_ok=True)
    (store / key).write_bytes(content)


async def made(folder: Folder, store: Blobs) -> Path:
    """A backup, as the steps leave one."""
    folder.root.mkdir(exist_ok=True)
    folder.begin()
    await copy_artifacts(store, folder)
    (folder.part / DUMP).write_bytes(b"dump")
    return folder.finish()


@pytest.fixture
def store(tmp_path: Path) -> Blobs:
    put(tmp_path / "store", KEY, CONTENT)
    return store_in(tmp_path / "store")


def replaced(before: bytes, after: bytes) -> Callable[[Path], object]:
    return lambda at: (at / "contents.json").write_bytes((at / "contents.json").read_bytes().replace(before, after))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda at: (at / DUMP).write_bytes(b"dumb"), "database.dump was changed"),
        (lambda at: (at / ARTIFACTS).unlink(), "artifacts.ndjson is missing"),
        (lambda at: (at / "contents.json").write_text("{"), "cannot be read"),
        (lambda at: (at / "contents.json").write_text('{"no": 1}'), "cannot be read"),
        (replaced(b'"format": 3', b'"format": 2'), "has format 2 .*: install the version that made it"),
        (replaced(b'"schema": "', b'"schema": "9'), "install the version that made it"),
    ],
)
async def test_a_backup_that_was_changed_is_refused(tmp_path, store, spoil, complaint):
    backup = await made(Folder(tmp_path / "backups"), store)
    spoil(backup)
    with pytest.raises(BackupError, match=complaint):
        read_contents(backup)


async def test_blobs_are_compared_on_their_way_back(tmp_path: Path, store: Blobs) -> None:
    folder, other = Folder(tmp_path / "backups"), store_in(tmp_path / "other")
    backup = await made(folder, store)
    assert await restore_artifacts(backup, folder, other) == 1
    assert (tmp_path / "other" / KEY).read_bytes() == CONTENT
    folder.blob(DIGEST).write_bytes(b"another model")
    with pytest.raises(BackupError, match="was changed"):
        await restore_artifacts(backup, folder, other)
    folder.blob(DIGEST).unlink()
    with pytest.raises(BackupError, match="is missing"):
        await restore_artifacts(backup, folder, other)


async def test_two_copies_hold_all_that_lay_there_around_the_dump(tmp_path: Path, store: Blobs) -> None:
    folder = Folder(tmp_path / "backups")
    folder.root.mkdir()
    folder.begin()
    assert await copy_artifacts(store, folder) == 1
    (tmp_path / "store" / KEY).unlink()
    put(tmp_path / "store", "ns/checkpoints/job/1", b"newer")
    assert await copy_artifacts(store, folder) == 2, "the deleted one stays"
    assert artifacts_of(folder.part)[KEY] == DIGEST
    with pytest.raises(BackupError, match=r"database\.dump is missing"):
        folder.finish()


async def test_later_erasures_and_the_newest_opt_outs_are_restored_with_an_older_backup(tmp_path: Path) -> None:
    folder, first, second = Folder(tmp_path / "backups"), store_in(tmp_path / "first"), store_in(tmp_path / "second")
    records, at = LastingRecords(first), datetime(2026, 11, 24, tzinfo=UTC)
    await records.opted_out("ns", "carl")
    backups = []
    for subject in ("user/anna", "user/ben"):
        await records.erased("ns", subject, at)
        backups.append(await made(folder, first))
        await records.opted_in("ns", "carl")
    assert await restore_artifacts(backups[0], folder, second) == 2
    assert await LastingRecords(second).all() == {"ns": Recorded({"user/anna": at, "user/ben": at}, set())}


async def test_only_so_many_are_kept_and_blobs_while_one_of_them_names_them(tmp_path: Path, store: Blobs) -> None:
    folder, old = Folder(tmp_path / "backups"), "ns/checkpoints/job/1"
    put(tmp_path / "store", old, b"old")
    first = await made(folder, store)
    (tmp_path / "store" / old).unlink()
    second, third = await made(folder, store), await made(folder, store)
    assert folder.finished() == [first, second, third]
    assert folder.prune(2) == 1
    assert folder.finished() == [second, third]
    assert [path.name for path in folder.root.glob("blobs/??/*")] == [DIGEST]
    assert folder.chosen("") == third
    assert folder.chosen(second.name) == second
    with pytest.raises(BackupError, match="has no backup 'learnloop-1999'"):
        folder.chosen("learnloop-1999")


def test_an_unfinished_backup_has_no_name(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (folder.begin() / DUMP).write_bytes(b"cut short")
    assert folder.finished() == []
    assert list(folder.begin().iterdir()) == [], "the next one begins empty"
