"""An envelope opens whole, in its place and by its key, or not at all."""

import os
from uuid import uuid4

import pytest
from hypothesis import given, strategies as st

from learnloop_common import sealed_bytes
from learnloop_common.sealed_bytes import CHUNK_BYTES, HEADER_BYTES, TAG_BYTES, DataKey, Opener, Unreadable

KEY = DataKey(uuid4(), bytes(range(32)))
SIZES = (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 7)


@pytest.mark.parametrize("size", SIZES)
def test_what_was_sealed_opens_whatever_its_size(size: int) -> None:
    data = os.urandom(size)
    assert sealed_bytes.unseal(sealed_bytes.seal(data, KEY, "a/b"), KEY, "a/b") == data


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 97))
def test_it_does_not_matter_in_which_pieces_bytes_come_and_go(chunks: list[bytes], step: int) -> None:
    whole = b"".join(sealed_bytes.sealed(chunks, KEY, "x"))
    opener = Opener(whole[:HEADER_BYTES], KEY, "x")
    rest = whole[HEADER_BYTES:]
    pieces = [opener.update(rest[at : at + step]) for at in range(0, len(rest), step)]
    assert b"".join(pieces) + opener.finish() == b"".join(chunks)


@given(st.binary(min_size=1, max_size=200), st.data())
def test_no_changed_bit_opens(data: bytes, draw: st.DataObject) -> None:
    sealed = bytearray(sealed_bytes.seal(data, KEY, "x"))
    place = draw.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(Unreadable):
        sealed_bytes.unseal(bytes(sealed), KEY, "x")


def test_what_was_cut_off_swapped_repeated_or_appended_does_not_open() -> None:
    sealed = sealed_bytes.seal(os.urandom(2 * CHUNK_BYTES + 5), KEY, "x")
    head, piece = sealed[:HEADER_BYTES], CHUNK_BYTES + TAG_BYTES
    first, second, third = sealed[HEADER_BYTES:][:piece], sealed[HEADER_BYTES:][piece : 2 * piece], sealed[-21:]
    assert head + first + second + third == sealed
    for body in (
        first + second,  # cut off at a border of chunks
        first + second + third[:-1],
        second + first + third,
        first + first + third,
        first + third,
        first + second + third + third,
        first + second + third + b"\0",
        b"",
    ):
        with pytest.raises(Unreadable):
            sealed_bytes.unseal(head + body, KEY, "x")


def test_an_envelope_opens_in_its_place_and_by_its_key_alone() -> None:
    sealed = sealed_bytes.seal(b"secret", KEY, "team-a/artifacts/1")
    with pytest.raises(Unreadable, match="sealed for something else"):
        sealed_bytes.unseal(sealed, KEY, "team-b/artifacts/1")
    with pytest.raises(Unreadable, match="sealed for something else"):
        sealed_bytes.unseal(sealed, DataKey(KEY.key_id, bytes(32)), "team-a/artifacts/1")
    with pytest.raises(Unreadable, match=f"not by {KEY.key_id}"):
        sealed_bytes.unseal(sealed_bytes.seal(b"secret", DataKey(uuid4(), KEY.secret), "x"), KEY, "x")


def test_the_same_bytes_never_look_the_same_twice_and_the_key_is_never_printed() -> None:
    assert sealed_bytes.seal(b"secret", KEY, "x") != sealed_bytes.seal(b"secret", KEY, "x")
    assert repr(KEY) == f"DataKey({KEY.key_id})"
