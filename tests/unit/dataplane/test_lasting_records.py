"""Erasures on record in a store: records are found by namespace, and other files are skipped."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import obstore
from obstore.store import LocalStore

from learnloop_dataplane.blobs import Blobs
from learnloop_dataplane.erasure.erased_before_restore import LastingRecords, Recorded

LONGEST = "a" * 253
AT = datetime(2026, 1, 31, 12, 0, 0, 123457, tzinfo=UTC)


async def test_the_newest_erasure_of_each_subject_is_known_and_an_opt_in_ends_an_opt_out(tmp_path: Path) -> None:
    records = LastingRecords(Blobs(f"file://{tmp_path}"))
    assert await records.all() == {}
    for days in (3, 0, 1):
        await records.erased("team-a", f"agent/{LONGEST}", AT + timedelta(days=days))
    await records.erased("team-b", "user/user:00ff", AT)
    await records.opted_out("team-b", "user:00ff")
    await records.opted_out("team-b", "user:11ff")
    await records.opted_in("team-b", "user:11ff")
    await records.opted_in("team-b", "user:absent")
    assert await LastingRecords(Blobs(f"file://{tmp_path}")).all() == {
        "team-a": Recorded({f"agent/{LONGEST}": AT + timedelta(days=3)}, set()),
        "team-b": Recorded({"user/user:00ff": AT}, {"user:00ff"}),
    }


async def test_what_is_no_record_is_none_and_no_subject_leaves_its_folder(tmp_path: Path) -> None:
    records = LastingRecords(Blobs(f"file://{tmp_path}"))
    await records.erased("team-a", "agent/../../x", AT)
    folder = tmp_path / ".erasures" / "team-a" / "agent"
    assert [path.parent.parent for path in tmp_path.rglob("*") if path.is_file()] == [folder]
    for name in ("b/later", "b/-5", "b/" + "9" * 30, "b/deeper/2", "note"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    assert set((await records.all())["team-a"].erased) == {"agent/../../x"}


async def test_what_a_killed_process_left_half_written_is_deleted_once_nobody_writes_it(tmp_path: Path) -> None:
    def content() -> Iterator[bytes]:
        yield b"half"
        for unfinished in tmp_path.glob("b*"):
            for name, age in (("8", 3600), ("9", 0)):
                (left := Path(f"{unfinished}{name}")).touch()
                os.utime(left, (AT.timestamp(), left.stat().st_mtime - age))

    obstore.put(LocalStore(tmp_path), "blob", content())
    assert len(list(tmp_path.iterdir())) == 3
    await Blobs(f"file://{tmp_path}").sweep()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["blob", "blob#19"]
