"""A sampled token is never encoded again, and turns share a row only where the ids continue."""

import json
from typing import Any

import numpy as np
import pytest

from learnloop_environments.conversations.conversation_world import Message, ToolCall
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_environments.errors import ConfigError
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.rows import Episode, Sampled, of_arrays, rows_of, to_arrays

FIRST = Sampled([1, 2, 3], [4, 5], [-0.1, -0.2])


def test_turns_that_continue_the_ids_share_a_row_and_only_sampled_ones_are_learned() -> None:
    rows, broken = rows_of([FIRST, Sampled([1, 2, 3, 4, 5, 6, 7], [8], [-0.3], temperature=0.5)])
    assert broken == 0
    (row,) = rows
    assert row.ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert row.sampled.tolist() == [False, False, False, True, True, False, False, True]
    assert row.log_prob.tolist() == pytest.approx([0, 0, 0, -0.1, -0.2, 0, 0, -0.3])
    assert row.temperature.tolist() == [1, 1, 1, 1, 1, 1, 1, 0.5]


@pytest.mark.parametrize("prompt", [[1, 2, 3, 4, 9, 6], [1, 2, 3, 4, 5], [1, 2], [9]])
def test_a_turn_whose_prompt_does_not_continue_the_ids_is_a_new_row_and_counted(prompt: list[int]) -> None:
    rows, broken = rows_of([FIRST, Sampled(prompt, [8], [-0.3])])
    assert broken == 1
    assert [row.ids.tolist() for row in rows] == [[1, 2, 3, 4, 5], [*prompt, 8]]


@pytest.mark.parametrize(
    ("prompt", "drawn", "chances", "heat"),
    [([], [1], [-1.0], 1.0), ([1], [], [], 1.0), ([1], [1, 2], [-1.0], 1.0), ([1], [1], [-1.0], 0.0)],
)
def test_a_turn_that_cannot_be_learned_from_is_refused(prompt, drawn, chances, heat):
    with pytest.raises(ValueError, match=r"id|log-prob|temperature"):
        Sampled(prompt, drawn, chances, heat)


def test_episodes_come_back_from_a_checkpoint_as_they_were() -> None:
    rows, _ = rows_of([FIRST, Sampled([9], [8], [-0.3])])
    episodes = [Episode(rows, 1.5, 7, None, True, 1, 2), Episode(rows[:1], -1.0, 2**40, True)]
    restored = of_arrays(to_arrays(episodes))
    for was, now in zip(episodes, restored, strict=True):
        assert (was.reward, was.group, was.success, was.truncated, was.broken, was.age) == (
            now.reward,
            now.group,
            now.success,
            now.truncated,
            now.broken,
            now.age,
        )
        for one, other in zip(was.rows, now.rows, strict=True):
            assert all(
                np.array_equal(getattr(one, name), getattr(other, name))
                for name in ("ids", "sampled", "log_prob", "temperature")
            )
    assert of_arrays(to_arrays([])) == []


def test_a_later_prompt_continues_the_ids_although_the_template_would_write_the_call_anew(chat, words):
    opening = chat.opening([Message("user", "k1 plus k2 ?")])
    # The model writes its JSON without spaces: as good a call, but other ids than the template's own.
    text = '<tool_call>{"name":"lookup","arguments":{"key":"k1"}}</tool_call><|im_end|>'
    drawn = words.encode(text, add_special_tokens=False)
    message = chat.message(drawn)
    assert message.tool_calls == (ToolCall("lookup", {"key": "k1"}),)
    assert not message.malformed
    prompt = [*opening, *drawn, *chat.continuation([Message("tool", "7")])]
    rows, broken = rows_of([Sampled(opening, drawn, [-1.0] * len(drawn)), Sampled(prompt, [5], [-1.0])])
    assert (len(rows), broken) == (1, 0)
    again = chat.opening([Message("user", "k1 plus k2 ?"), message, Message("tool", "7")])
    assert again[: len(opening) + len(drawn)] != [*opening, *drawn]  # what a chat API would have sent
    assert rows_of([Sampled(opening, drawn, [-1.0] * len(drawn)), Sampled(again, [5], [-1.0])])[1] == 1


@pytest.mark.parametrize("text", ["learnloop-answer", "I say learnloop-answer", "learnloop-answer-"])
def test_what_the_world_says_is_never_taken_for_the_place_of_an_answer(text: str, chat: Chat, words) -> None:
    assert text in words.decode(chat.continuation([Message("tool", text)]))


def test_a_demonstration_is_one_row_in_which_the_assistants_words_alone_are_learned(chat: Chat, words) -> None:
    world = ToolLookup()
    messages = world.demonstration(0, 0, 0.0)
    ids, learned = chat.demonstration(messages)
    whole = chat._rendered(messages, prompt=False)
    assert words.decode(ids) + "\n" == whole
    text = words.decode([word for word, is_learned in zip(ids, learned, strict=True) if is_learned])
    assert text.count("<|im_end|>") == sum(message.role == "assistant" for message in messages)
    assert "tool\n" not in text
    assert "user" not in text


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{not json}</tool_call>",
        "<tool_call>[1]</tool_call>",
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
        '<tool_call>{"name": "lookup", "arguments": 3}</tool_call>',
        '<tool_call>{"name": "lookup"}',
        "</tool_call>",
    ],
)
def test_a_call_that_is_no_call_is_malformed(chat: Chat, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat._tokeniser, "decode", lambda ids, **rest: text)
    assert chat.message([5]).malformed


def test_a_template_that_hides_the_end_of_an_answer_is_refused(words) -> None:
    class Odd:
        added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012
        chat_template, eos_token, eos_token_id, name_or_path = "x", "<end>", 2, "odd"

        def apply_chat_template(self, messages: list[dict], **rest) -> str:
            return json.dumps(messages)

        def encode(self, text: str, **rest) -> list[int]:
            return [1]

    with pytest.raises(ConfigError, match="does not end an answer with <end>"):
        Chat(Odd(), ()).continuation([Message("tool", "7")])


def test_the_tiny_world_rewards_the_right_number_found_by_the_tools_and_nothing_else() -> None:
    world = ToolLookup()
    for number in range(40):
        right, wrong = (world.demonstration(0, number, mistakes) for mistakes in (0.0, 1.0))
        for messages, reward in ((right, 1.0), (wrong, 0.0)):
            from learnloop_environments.randomness import Split

            task = world.begin(Split.TRAINING, 0, number)
            for message in messages:
                if message.role == "assistant":
                    task.reply(message)
            assert task.done
            if reward:
                assert task.reward == 1.0
        guess = world.begin(Split.TRAINING, 0, number)
        guess.reply(Message("assistant", f"answer {guess.answer}"))
        assert guess.success is False
