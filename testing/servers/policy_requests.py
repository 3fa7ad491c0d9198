"""The policy server's application without a socket: one request after another, as bytes."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_serving.policy_loader import load_policy
from learnloop_serving.server import build_app
from testing.servers.policy_servers import STABLE, LiveServer, settings, table


class ServedPolicy:
    """A policy in a file, loaded as a policy server loads it; every action is a request to the whole application.

    Each row of a batch is an episode of its own, as agents play side by side. An evaluation.Policy.
    """

    def __init__(self, body: bytes, directory: Path) -> None:
        file = directory / "served.onnx"
        file.write_bytes(body)
        named = {"LEARNLOOP_MODEL_URI": file.as_uri(), "LEARNLOOP_MODEL_SHA256": hashlib.sha256(body).hexdigest()}
        self._loop = asyncio.new_event_loop()
        self.policy = self._loop.run_until_complete(load_policy(settings(**named)))
        self.server = LiveServer(policy=self.policy)
        self.server.route(table((STABLE, "stable", 100)))
        self._app = build_app(self.server.arm)
        self.begin(0)

    def begin(self, first: int) -> None:
        """The rows of the next batch are episodes that begin."""
        del first
        self._episodes: list[str] = []
        self._memories: list[str] = []

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer to one request; whatever is no 200 fails the test."""
        answers: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json.dumps(body).encode()}

        async def send(message: Any) -> None:
            answers.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        self._loop.run_until_complete(self._app(scope, receive, send))
        assert answers[0]["status"] == 200, answers
        return json.loads(answers[1]["body"])

    def act(self, observation: NDArray[np.float32]) -> NDArray[Any]:
        """Actions [n] or [n, numbers] for observations [n, observations]."""
        while len(self._episodes) < len(observation):
            self._episodes.append(self.post("/v1/episodes", {"agent": "cart", "task": "t"})["episode_id"])
            self._memories.append("")
        answers = [
            self.post(f"/v1/episodes/{episode}/act", {"observation": row.tolist(), "memory": memory})
            for episode, row, memory in zip(self._episodes, observation, self._memories, strict=False)
        ]
        self._memories[: len(answers)] = [answer.get("memory", "") for answer in answers]
        kind = np.float32 if self.policy.continuous else np.int64
        return np.asarray([answer["action"] for answer in answers], dtype=kind)

    def close(self) -> None:
        """Release the loop and the socket."""
        self._loop.close()
        self.server.release()
