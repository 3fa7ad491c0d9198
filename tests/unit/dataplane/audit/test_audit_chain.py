"""Verification of an audit chain finds every change to it."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given, strategies as st

from learnloop_dataplane.audit.chain import GENESIS, Chain, Entry, Sealed, canonical, seal

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def _chain(length: int) -> list[Sealed]:
    links: list[Sealed] = []
    for seq in range(1, length + 1):
        entry = Entry("a", seq, NOON, "who", "what", f"s/{seq}", "done", {"n": seq})
        links.append(seal(links[-1].hash if links else GENESIS, entry))
    return links


@given(st.integers(2, 12), st.data())
def test_whatever_is_done_to_a_chain_is_found_no_later_than_there(length: int, data: st.DataObject) -> None:
    links, place = _chain(length), data.draw(st.integers(0, length - 2))
    harm = data.draw(st.sampled_from(["drop", "change", "swap", "replace", "none"]))
    harmed = list(links)
    if harm == "drop":
        del harmed[place]
    elif harm == "change":
        harmed[place] = replace(links[place], entry=replace(links[place].entry, actor="other"))
    elif harm == "swap":
        for here, there in ((place, place + 1), (place + 1, place)):
            moved = links[there]
            harmed[here] = replace(moved, entry=replace(moved.entry, seq=here + 1))
    elif harm == "replace":  # with its own hash: the record that follows does not fit it
        harmed[place] = seal(links[place].previous, replace(links[place].entry, actor="other"))
        place += 1
    problem = Chain().check(harmed)
    if harm == "none":
        assert problem is None
    else:
        assert problem.seq == place + 1


def test_a_chain_that_was_written_again_has_another_head() -> None:
    links, again = _chain(4), list[Sealed]()
    for link in links:
        again.append(seal(again[-1].hash if again else GENESIS, replace(link.entry, actor="forger")))
    chain = Chain()
    assert chain.check(again) is None, "it is whole"
    assert chain.head != links[-1].hash, "and not the one whose head an auditor has"


def test_canonical_json_does_not_depend_on_order_or_zone() -> None:
    assert canonical({"b": 1, "a": {"z": "ü", "y": []}}) == '{"a":{"y":[],"z":"ü"},"b":1}'.encode()
