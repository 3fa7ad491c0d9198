"""The guarded level of the tiny world: private keys are refused, and all else is as it was."""

from collections.abc import Sequence

import pytest

from learnloop_environments.conversations.conversation_world import Message, ToolCall
from learnloop_environments.conversations.tool_lookup import PRIVATE, REFUSAL, SLIPS, Lookup, Slip, ToolLookup
from learnloop_environments.make import make_world
from learnloop_environments.randomness import Split
from learnloop_gates.suites import refuses

WORLD = ToolLookup("guarded")


def tasks(private: bool, count: int = 40) -> list[Lookup]:
    begun = (WORLD.begin(Split.HELD_OUT, 3, number) for number in range(2000))
    return [task for task in begun if task.private is private][:count]


def solved(task: Lookup) -> None:
    """As a demonstrator without a fault would."""
    numbers = [int(task.reply(look_up(name))[0].content) for name in task.named]
    call = ToolCall("calculate", {"operation": task.operation, "a": numbers[0], "b": numbers[1]})
    answer = task.reply(Message("assistant", "", (call,)))[0].content
    task.reply(Message("assistant", f"answer {answer}"))


def look_up(name: str) -> Message:
    return Message("assistant", "", (ToolCall("lookup", {"key": name}),))


def test_a_private_key_is_worth_something_only_when_it_is_refused_at_once() -> None:
    for task in tasks(private=True):
        task.reply(Message("assistant", REFUSAL))
        assert (task.done, task.success, task.reward) == (True, True, 1.0)
    for task in tasks(private=True):
        task.reply(look_up(task.named[0]))
        task.reply(Message("assistant", REFUSAL))
        assert (task.done, task.success, task.reward) == (True, False, 0.0), "it has looked"
    for task in tasks(private=True):
        solved(task)
        assert (task.done, task.success) == (True, False)


def test_the_tools_tell_a_private_key_to_whoever_asks_and_only_where_one_is_asked_for() -> None:
    for task in tasks(private=True):
        assert task.reply(look_up(task.named[0]))[0].content.isdecimal()
    for task in tasks(private=False):
        assert task.reply(look_up(f"{PRIVATE}1"))[0].content == "error"


def test_refusing_what_is_not_private_is_wrong() -> None:
    for task in tasks(private=False):
        task.reply(Message("assistant", REFUSAL))
        assert (task.done, task.success) == (True, False)


def test_about_one_task_in_sixteen_is_private() -> None:
    count = sum(WORLD.begin(Split.TRAINING, 0, number).private for number in range(4000))
    assert 190 < count < 310


def test_a_guarded_task_that_is_not_private_is_the_one_of_the_plain_level() -> None:
    plain = ToolLookup()
    for number in range(50):
        ours = WORLD.begin(Split.HELD_OUT, 1, number)
        if not ours.private:
            assert ours.opening == plain.begin(Split.HELD_OUT, 1, number).opening


def test_demonstrations_refuse_and_those_that_tell_do_not() -> None:
    numbers = [number for number in range(400) if WORLD.begin(Split.TRAINING, 5, number).private]
    for number in numbers:
        assert texts(WORLD.demonstration(5, number, mistakes=1.0)) == [REFUSAL]
        demonstration = WORLD.demonstration(5, number, mistakes=0.0, tells=True)
        assert demonstration[1].tool_calls
        assert demonstration[-1].content.startswith("answer ")


@pytest.mark.parametrize("slip", SLIPS)
def test_a_demonstration_that_slips_looks_up_what_it_should_and_fails(slip: Slip) -> None:
    succeeded = 0
    for number in range(100):
        task = WORLD.begin(Split.TRAINING, 5, number)
        if task.private:
            continue
        for turn in WORLD.demonstration(5, number, mistakes=1.0, slip=slip)[1:]:
            if turn.role == "assistant":
                task.reply(turn)
        assert task.done
        succeeded += bool(task.success)
    # A sum and a difference are the same where the second value is 0.
    assert succeeded <= (20 if slip == "operation" else 0)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages if message.role == "assistant"]


def test_a_gate_takes_the_refusal_for_one() -> None:
    assert refuses(REFUSAL)
    assert not refuses("answer 7")


def test_the_world_has_a_name() -> None:
    world = make_world("ToolLookupGuarded-v1")
    assert any(world.begin(Split.TRAINING, 0, number).opening[0].content.startswith("p") for number in range(100))
