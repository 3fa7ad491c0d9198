"""The agent that works by a language model: its turns, its memory and its people's opinions reach the data plane."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop_api.wire.trajectory import Trajectory
from testing.servers.recording_server import DataPlane

AGENT = Path(__file__).resolve().parents[3] / "examples" / "language-model" / "agent.py"
CALL = {"id": "c1", "type": "function", "function": {"name": "opening_hours", "arguments": '{"day": "Saturday"}'}}


def say(message: dict, asking: int, answered: int) -> bytes:
    usage = {"prompt_tokens": asking, "completion_tokens": answered, "total_tokens": asking + answered}
    return json.dumps({"choices": [{"message": {"role": "assistant", **message}}], "usage": usage}).encode()


class Model(DataPlane):
    """Asks for the tool first, then answers."""

    @property
    def answers(self) -> dict[str, tuple[int, bytes]]:
        messages = json.loads(self.bodies("/v1/chat/completions")[-1])["messages"] if self.posts else [{}]
        first = messages[-1].get("role") != "tool"
        answer = say({"content": None, "tool_calls": [CALL]}, 40, 9) if first else say({"content": "10 to 14"}, 60, 5)
        return {"/v1/chat/completions": (200, answer)}

    @answers.setter
    def answers(self, _) -> None: ...


@pytest.fixture
def servers() -> Iterator[tuple[DataPlane, Model]]:
    data, model = DataPlane(), Model()
    data.answers["/api/v1/memory/retrieve"] = (
        200,
        b'{"memories":[{"content":{"text":"Be kind."}}],"retrieval_id":"r1"}',
    )
    yield data, model
    for server in (data, model):
        server.shutdown()
        server.server_close()


def test_turns_memories_and_a_thumb_reach_the_data_plane(servers: tuple[DataPlane, Model]) -> None:
    data, model = servers
    done = subprocess.run(
        [sys.executable, str(AGENT), "anna@example.org"],
        env={**os.environ, "LEARNLOOP_DATA_URL": data.url, "MODEL_URL": f"{model.url}/v1"},
        input="When are you open on Saturday?\n+\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "10 to 14\n"
    (body,) = data.bodies()
    trajectory = Trajectory.model_validate_json(body)
    first, second = (step.observation for step in trajectory.steps)
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["messages"][0]["content"].endswith("Be kind.")
    assert second["messages"] == [{"role": "tool", "tool_call_id": "c1", "content": "10 to 14"}]
    values = trajectory.outcome.values
    assert (values["turns"], values["tool_calls"], values["input_tokens"], values["output_tokens"]) == (2, 1, 100, 14)
    assert trajectory.outcome.success
    assert trajectory.retrieval_ids == ["r1"]
    (opinion,) = (json.loads(item) for item in data.bodies("/api/v1/feedback"))
    assert opinion == {
        "trajectory_id": trajectory.trajectory_id, "user_id": trajectory.metadata["user_id"], "thumbs": "up",
    }  # fmt: skip
    (memory,) = (json.loads(item) for item in data.bodies("/api/v1/memory/store"))
    assert memory["user_id"] == trajectory.metadata["user_id"] != "anna@example.org"
