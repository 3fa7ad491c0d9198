"""Servers that read a new key at different times go on knowing one another's episodes."""

import time

from learnloop_api.key_lines import KeyLines
from learnloop_serving.arms.server_seal import Seal
from learnloop_serving.episode_ids import EpisodeIds

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
