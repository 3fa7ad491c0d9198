"""Servers that read a new key at different times go on knowing one another's episodes."""

import hmac
import time
from pathlib import Path

import pytest

from learnloop_common.key_lines import KeyLines
from learnloop_serving.server_seal import MARK_DIGITS, EpisodeIds, Seal

OLD, NEW = "o" * 40, "n" * 40


def ids(text: str) -> EpisodeIds:
    return EpisodeIds("cart", Seal(text.encode()))


def test_until_the_new_key_is_used_every_server_reads_every_id() -> None:
    announced = KeyLines.parse(OLD).followed_by(NEW, time.time() + 300)
    early, late = ids(announced), ids(OLD)
    assert late.read(early.make("aaaaaaaa"))
    assert early.read(late.make("aaaaaaaa"))


def test_afterwards_old_ids_hold_until_the_old_key_is_taken_away() -> None:
    opened = ids(OLD).make("aaaaaaaa")
    used = ids(KeyLines.parse(OLD).followed_by(NEW, time.time() - 1))
    assert used.read(opened)
    assert used.read(ids(NEW).make("aaaaaaaa"))
    assert ids(NEW).read(opened) is None


RAW = bytes(range(128, 160)) + b"\n\x0b\x0c\x1c\x85" + bytes(range(32)) + b"\xa0 "


@pytest.mark.parametrize(
    "key",
    [RAW, RAW[::-1], b"\xff" * 20 + b"\n" * 30 + b"\xfe", b"\xff\n" * 20],
    ids=["every-blank", "backwards", "many-feeds", "short-lines"],
)
def test_raw_bytes_are_one_key_whatever_stands_in_them(key: bytes, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(key)
    seal = Seal.read(file)
    assert seal.mark(b"episode", b"1") == hmac.digest(key, b"episode\x001", "sha256").hex()[:MARK_DIGITS]


def test_a_byte_that_only_unicode_takes_for_an_end_of_line_ends_no_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\x85" + b"a" * 40 + b"\x85" + b"b" * 40 + b"\xa0")
    Seal.read(file)
    assert Seal.read(file).mark(b"p", b"m") != Seal(b"a" * 40).mark(b"p", b"m")


def test_a_short_line_of_text_beside_a_key_is_refused_and_no_key_with_it(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"short\n{OLD}\n")
    with pytest.raises(ValueError, match="holds 5 bytes"):
        Seal.read(file)
