"""Servers that read a new key at different times go on knowing one another's episodes."""

import time
from pathlib import Path

import pytest

from learnloop_serving.episode_ids import EpisodeIds, Seal

OLD, NEW = "o" * 40, "n" * 40


def ids(text: str) -> EpisodeIds:
    return EpisodeIds("cart", Seal(text.encode()))


def test_until_the_new_key_is_used_every_server_reads_every_id() -> None:
    announced = f"{NEW} from={int(time.time()) + 300}\n{OLD}"
    early, late = ids(announced), ids(OLD)
    assert late.read(early.make("aaaaaaaa"))
    assert early.read(late.make("aaaaaaaa"))


def test_afterwards_old_ids_hold_until_the_old_key_is_taken_away() -> None:
    opened = ids(OLD).make("aaaaaaaa")
    used = ids(f"{NEW} from={int(time.time()) - 1}\n{OLD}")
    assert used.read(opened)
    assert used.read(ids(NEW).make("aaaaaaaa"))
    assert ids(NEW).read(opened) is None


def test_a_key_that_is_not_text_is_refused_with_the_fix(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(bytes(range(128, 168)))
    with pytest.raises(ValueError, match="write the key as hexadecimal digits"):
        Seal.read(file)


def test_a_short_line_of_text_beside_a_key_is_refused_and_no_key_with_it(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"short\n{OLD}\n")
    with pytest.raises(ValueError, match="has a key of 5 characters"):
        Seal.read(file)
