"""What waits on disk is sealed, opens for whoever has a key, and is never thrown away for want of one."""

import base64
import os
from pathlib import Path

import pytest

from learnloop_common.encryption import Unreadable
from learnloop_sdk.outbox import ENV_SPOOL_KEYS, Parcel, Spool, SpoolKeys

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
PARCEL = Parcel("e-1", b'{"said": "the blue folder"}')


def test_what_waits_is_sealed_and_the_next_process_sends_it(tmp_path: Path) -> None:
    Spool(tmp_path, keys=SpoolKeys([OLD])).add(PARCEL)
    (file,) = tmp_path.iterdir()
    assert b"blue" not in file.read_bytes()
    assert Spool(tmp_path, keys=SpoolKeys([OLD])).head(9) == [PARCEL]
    assert Spool(tmp_path, keys=SpoolKeys([NEW, OLD])).head(9) == [PARCEL], "after a rotation"


def test_what_lay_in_the_open_is_sent_too(tmp_path: Path) -> None:
    Spool(tmp_path).add(PARCEL)
    assert Spool(tmp_path, keys=SpoolKeys([OLD])).head(9) == [PARCEL]


@pytest.mark.parametrize("keys", [SpoolKeys(), SpoolKeys([NEW])])
def test_without_its_key_it_waits_and_others_go_first(
    tmp_path: Path, keys: SpoolKeys, caplog: pytest.LogCaptureFixture
) -> None:
    Spool(tmp_path, keys=SpoolKeys([OLD])).add(PARCEL)
    spool = Spool(tmp_path, keys=keys)
    spool.add(Parcel("e-2", b"{}"))
    assert [parcel.identity for parcel in spool.head(9)] == ["e-2"]
    assert "add its line to the key file again" in caplog.text
    assert len(spool) == 2
    assert PARCEL in Spool(tmp_path, keys=SpoolKeys([NEW, OLD])).head(9)


def test_a_file_that_was_changed_or_renamed_does_not_open(tmp_path: Path) -> None:
    keys = SpoolKeys([OLD])
    with pytest.raises(Unreadable):
        keys.open(keys.seal(PARCEL.body, "e-1"), "e-2")
    with pytest.raises(Unreadable):
        keys.open(keys.seal(PARCEL.body, "e-1")[:-1] + b"\0", "e-1")


def test_the_bound_of_the_spool_counts_what_lies_on_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 250, SpoolKeys([OLD]))
    assert [spool.add(Parcel(f"e-{number}", os.urandom(100))) for number in range(3)] == [0, 1, 1]


def test_the_key_file_is_checked_when_the_agent_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    monkeypatch.setenv(ENV_SPOOL_KEYS, str(file))
    with pytest.raises(OSError, match="keys"):
        SpoolKeys.read()
    for text, problem in (("", "it has no key"), (f"{OLD}\nshort\n", "line 2 is not 32 random bytes")):
        file.write_text(text)
        with pytest.raises(ValueError, match=problem) as found:
            SpoolKeys.read()
        assert OLD not in str(found.value)
    file.write_text(f"{NEW}\n{OLD}\n")
    assert SpoolKeys.read().open(SpoolKeys([OLD]).seal(b"x", "e"), "e") == b"x"
