"""What is done to a chain is found; what was signed is what holds."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.audit.chain import GENESIS, Entry, Sealed, canonical, seal
from learnloop_dataplane.audit.signing import Checkpoint, Signer
from learnloop_dataplane.audit.verification import Chain
from learnloop_dataplane.config_values import seed_from

SIGNER = Signer(KeyLines.parse(base64.b64encode(bytes(range(32))).decode()))
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def _chain(length: int) -> list[Sealed]:
    links: list[Sealed] = []
    for seq in range(1, length + 1):
        entry = Entry("a", seq, NOON, "who", "what", f"s/{seq}", "done", {"n": seq})
        links.append(seal(links[-1].hash if links else GENESIS, entry))
    return links


@given(st.integers(2, 12), st.data())
def test_whatever_is_done_to_a_signed_chain_is_found_no_later_than_there(length: int, data: st.DataObject) -> None:
    links, place = _chain(length), data.draw(st.integers(0, length - 1))
    signed = Checkpoint.signed(SIGNER, "a", length, NOON, links[-1].hash)
    harm = data.draw(st.sampled_from(["drop", "change", "swap", "cut", "none"]))
    harmed = list(links)
    if harm == "drop":
        del harmed[place]
    elif harm == "change":
        harmed[place] = replace(links[place], entry=replace(links[place].entry, actor="other"))
    elif harm == "swap":
        other = (place + 1) % length
        for here, there in ((place, other), (other, place)):
            moved = links[there]
            harmed[here] = replace(moved, entry=replace(moved.entry, seq=here + 1))
        place = min(place, other)
    elif harm == "cut":
        del harmed[place:]
    chain = Chain({length: signed})
    problem = chain.check(harmed) or chain.end()
    if harm == "none":
        assert problem is None
    else:
        assert problem is not None
        assert problem.seq == place + 1


def test_a_signature_holds_for_what_was_signed_and_for_nothing_else() -> None:
    signed = Checkpoint.signed(SIGNER, "a", 3, NOON, b"h" * 32)
    assert Checkpoint.from_json(json.loads(json.dumps(signed.to_json(), default=str))) == signed
    assert signed.holds()
    for changed in ({"seq": 4}, {"namespace": "b"}, {"hash": b"i" * 32}, {"public_key": bytes(32)}):
        assert not replace(signed, **changed).holds()
    for key in ("", "short", "=" * 44, base64.b64encode(bytes(31)).decode()):
        with pytest.raises(ValueError, match="32 random bytes"):
            seed_from(key)


def test_canonical_json_does_not_depend_on_order_or_zone() -> None:
    assert canonical({"b": 1, "a": {"z": "ü", "y": []}}) == '{"a":{"y":[],"z":"ü"},"b":1}'.encode()
