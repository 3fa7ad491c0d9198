"""An episode of text becomes a few lines, whatever shape its steps have; one of numbers is not."""

from hypothesis import given, strategies as st

from learnloop_dataplane.memories.episode_summaries import MOST, transcript_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
STEPS = st.lists(JSON | st.fixed_dictionaries({"observation": JSON, "action": JSON}), max_size=6)


def spoken(*pairs: tuple) -> list[dict]:
    return [{"observation": observation, "action": done} for observation, done in pairs]


def test_numbers_say_nothing() -> None:
    assert transcript_of(spoken(([0.1, 0.2], 1), ([0.3, 0.4], [0.5]))) == ""


def test_plain_texts_are_what_was_seen_and_what_was_done() -> None:
    assert transcript_of(spoken(("a locked\n door", "use the key"))) == "saw: a locked door\ndid: use the key"


def test_what_the_system_told_is_left_out_for_it_holds_recalled_memories() -> None:
    messages = [{"role": "system", "content": "You remember the lamp."}, {"role": "user", "content": "Hello"}]
    assert transcript_of(spoken(({"messages": messages}, {"content": "Hi"}))) == "user: Hello\nassistant: Hi"


def test_a_message_in_parts_is_one_line() -> None:
    parts = [{"type": "text", "text": "Look at"}, {"type": "image_url"}, {"type": "text", "text": "this"}]
    assert transcript_of(spoken(({"messages": [{"role": "user", "content": parts}]}, 1))) == "user: Look at this"


def test_of_a_long_episode_the_beginning_and_the_end_are_told() -> None:
    lines = transcript_of(spoken(*((f"question {n} " + "x" * 300, f"answer {n}") for n in range(40)))).splitlines()
    assert lines[0].startswith("saw: question 0")
    assert "…" in lines
    assert lines[-1] == "did: answer 39"


@given(STEPS)
def test_any_steps_are_told_within_bounds(steps: list) -> None:
    assert len(transcript_of(steps)) <= MOST
