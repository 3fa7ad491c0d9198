"""Agents that work by a language model: their turns are steps."""

import json
from collections.abc import Callable

from learnloop_api.wire.trajectory import Trajectory
from learnloop_sdk import Conversation, Learnloop

Make = Callable[..., Learnloop]
QUESTION = {"role": "user", "content": "What is the weather in Rome?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"}


class Reply:
    """A message as a provider's package has it."""

    def __init__(self, **fields) -> None:
        self._fields = fields

    def model_dump(self, **_) -> dict:
        return self._fields


async def recorded(loop: Learnloop, data_plane) -> Trajectory:
    await loop.flush(60)
    (body,) = data_plane.bodies()
    return Trajectory.model_validate_json(body)


async def test_messages_tool_calls_and_tokens_of_each_turn_are_kept_once(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    async with loop.episode("weather", external=True, revision="model-4") as episode:
        conversation = Conversation(episode)
        conversation.turn([QUESTION], ASKS, usage={"prompt_tokens": 20, "completion_tokens": 9})
        answer = Reply(role="assistant", content="18 degrees, mail anna@example.org")
        usage = Reply(input_tokens=40, output_tokens=6)
        conversation.turn([QUESTION, ASKS, RESULT], answer, usage=usage, terminated=True)
        episode.outcome(True)
    trajectory = await recorded(loop, data_plane)
    assert [step.observation for step in trajectory.steps] == [{"messages": [QUESTION]}, {"messages": [RESULT]}]
    assert trajectory.steps[0].action == ASKS
    assert trajectory.steps[1].action == {"role": "assistant", "content": "18 degrees, mail <EMAIL>"}
    assert trajectory.steps[1].terminated
    assert trajectory.outcome.values == {
        "turns": 2, "tool_calls": 1, "tool_errors": 0, "input_tokens": 60, "output_tokens": 15,
    }  # fmt: skip
    assert trajectory.policy_revision == "model-4"


async def test_content_blocks_count_as_tool_calls_and_their_errors(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    use = {
        "role": "assistant",
        "content": [{"type": "text", "text": "."}, {"type": "tool_use", "id": "u", "name": "n"}],
    }
    failed = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u", "is_error": True}]}
    async with loop.episode(external=True) as episode:
        conversation = Conversation(episode)
        conversation.turn([QUESTION], use)
        conversation.turn([QUESTION, use, failed], "I could not")
    values = (await recorded(loop, data_plane)).outcome.values
    assert (values["tool_calls"], values["tool_errors"], values["input_tokens"]) == (1, 1, 0)


async def test_a_history_that_was_cut_down_is_told_anew_from_where_it_differs(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    summary = {"role": "system", "content": "Rome was asked about."}
    async with loop.episode(external=True) as episode:
        conversation = Conversation(episode)
        conversation.turn([QUESTION], ASKS)
        conversation.turn([summary, RESULT], {"role": "assistant", "content": "18"})
    steps = json.loads(await _body(loop, data_plane))["steps"]
    assert steps[1]["observation"] == {"messages": [summary, RESULT]}


async def _body(loop: Learnloop, data_plane) -> bytes:
    await loop.flush(60)
    body: bytes = data_plane.bodies()[0]
    return body
