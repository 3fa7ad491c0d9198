"""Which texts count as shown, and for how long."""

from uuid import UUID

import orjson
from hypothesis import given
from hypothesis import strategies as st

from learnloop_dataplane.recall.echo_gate import AGENTS, MEMORIES, MOST_BYTES, WITHIN_SECONDS, RecentlyShown

TEXT = "one two three four five six seven eight nine ten"


def content(text: str) -> bytes:
    return orjson.dumps({"text": text})


def test_after_an_hour_it_may_be_said_again_unless_it_was_shown_again() -> None:
    now = [0.0]
    shown = RecentlyShown(lambda: now[0])
    shown.add("ns", "a", [(UUID(int=1), content(TEXT))])
    assert shown.source_of("ns", "a", {"text": TEXT}) == UUID(int=1)
    now[0] = WITHIN_SECONDS - 1
    shown.add("ns", "a", [(UUID(int=1), content(TEXT))])
    now[0] = WITHIN_SECONDS + 1
    assert shown.source_of("ns", "a", {"text": TEXT}) == UUID(int=1)
    now[0] = 3 * WITHIN_SECONDS
    assert shown.source_of("ns", "a", {"text": TEXT}) is None


def test_a_new_fact_in_known_words_and_a_short_phrase_are_no_echoes() -> None:
    shown = RecentlyShown()
    shown.add("ns", "a", [(UUID(int=1), content(TEXT))])
    assert shown.source_of("ns", "a", {"text": "ten nine eight seven six five four three two one"}) is None
    assert shown.source_of("ns", "a", {"text": "one two three four five"}) is None
    assert shown.source_of("ns", "b", {"text": TEXT}) is None
    assert shown.source_of("other", "a", {"text": TEXT}) is None


@given(st.lists(st.tuples(st.integers(0, 2 * AGENTS), st.integers(0, 400)), max_size=60))
def test_what_is_kept_is_bounded(recalls: list[tuple[int, int]]) -> None:
    shown = RecentlyShown()
    for agent, first in recalls:
        shown.add("ns", str(agent), [(UUID(int=first + n), content(f"{TEXT} {first + n}")) for n in range(20)])
        shown.source_of("ns", str(agent), {"text": TEXT})
    assert len(shown._agents) <= AGENTS
    assert all(len(seen.shown) <= MEMORIES and len(seen.fresh) <= MEMORIES for seen in shown._agents.values())


def test_long_texts_push_out_the_agents_answered_longest_ago() -> None:
    shown = RecentlyShown()
    long = " ".join(["word"] * (MOST_BYTES // 20))
    shown.add("ns", "early", [(UUID(int=1), content(TEXT))])
    for agent in range(8):
        shown.add("ns", f"agent-{agent}", [(UUID(int=2), content(long))])
    assert shown.source_of("ns", "early", {"text": TEXT}) is None
    assert len(shown._agents) == 3, "a quarter of the bound each, and all are within it"
