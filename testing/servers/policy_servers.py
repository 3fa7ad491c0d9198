"""Real policies and real policy servers on loopback, for the tests of both sides of the wire."""

import asyncio
import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import numpy as np
import onnx
import uvicorn
from onnx import TensorProto, helper, numpy_helper

from learnloop_common.acting.onnx_policy import OnnxPolicy
from learnloop_common.acting.policy import Policy
from learnloop_serving.arm import Arm
from learnloop_serving.episode_ids import Seal
from learnloop_serving.episodes import Episodes
from learnloop_serving.policy_loader import UniformPolicy
from learnloop_serving.routing_table_in_force import RoutingState
from learnloop_serving.server import build_app
from learnloop_serving.server_metrics import Metrics
from learnloop_serving.settings import Settings

STABLE, CANARY, OTHER = "aaaaaaaa", "bbbbbbbb", "cccccccc"
KEY = b"shared by all servers of ModelDeployment cart"


def write_policy(
    path: Path,
    *,
    weights: Sequence[Sequence[float]] = ((1.0, -1.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
    input_name: str = "observation",
    input_type: int = TensorProto.FLOAT,
    batch: str | int = "batch",
    with_action: bool = True,
    metadata: dict[str, str] | None = None,
) -> str:
    """A linear policy, logits = observation · weights; returns the file's SHA-256."""
    matrix = np.array(weights, dtype=np.float32)
    kind = np.float64 if input_type == TensorProto.DOUBLE else np.float32
    nodes = [
        helper.make_node("MatMul", [input_name, "w"], ["raw"]),
        helper.make_node("Cast", ["raw"], ["logits"], to=TensorProto.FLOAT),
        helper.make_node("ArgMax", ["logits"], ["action"], axis=1, keepdims=0),
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, matrix.shape[1]])]
    if with_action:
        outputs.insert(0, helper.make_tensor_value_info("action", TensorProto.INT64, [batch]))
    graph = helper.make_graph(
        nodes if with_action else nodes[:2],
        "policy",
        [helper.make_tensor_value_info(input_name, input_type, [batch, matrix.shape[0]])],
        outputs,
        [numpy_helper.from_array(matrix.astype(kind), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def table(*arms: tuple[str, str, int] | tuple[str, str, int, str], **fields: Any) -> str:
    """A routing table as JSON from (revision, role, weight[, url])."""
    listed = [
        {"revision": arm[0], "role": arm[1], "weight": arm[2], "url": arm[3] if len(arm) > 3 else "http://x"}
        for arm in arms
    ]
    return json.dumps({"model_deployment": "cart", "generation": 1, "arms": listed} | fields)


def settings(**env: str) -> Settings:
    """Settings of a policy server of ModelDeployment cart."""
    own = {
        "LEARNLOOP_MODEL_DEPLOYMENT": "cart",
        "LEARNLOOP_REVISION": STABLE,
        "LEARNLOOP_MODEL_URI": "uniform://discrete/2?observations=4",
        "LEARNLOOP_ROUTING_FILE": "/nonexistent/routing.json",
        "LEARNLOOP_NAMESPACE": "default",
    }
    with mock.patch.dict(os.environ, own | env, clear=True):
        return Settings.read()


class _WithMirror(uvicorn.Server):
    """The server and, in its event loop, the task that sends copies to an arm in shadow."""

    def __init__(self, arm: Arm, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._arm = arm

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._mirroring = asyncio.create_task(self._arm.episodes.mirror.run())
        await super().startup(sockets)

    async def main_loop(self) -> None:
        """Until the stop signal, without delay: uvicorn itself looks ten times a second whether it is."""
        await self.on_tick(0)
        await self._over.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Waits for no request: the pod is gone."""
        self._mirroring.cancel()
        for server in self.servers:
            server.close()
        for connection in self.server_state.connections:
            connection.transport.close()
        for task in self.server_state.tasks:
            task.cancel()

    def leave(self) -> None:
        """From another thread."""
        self._loop.call_soon_threadsafe(self._over.set)


@dataclass
class LiveServer:
    """A policy server in a thread: the real application on a real socket."""

    revision: str = STABLE
    mode: str = "service"
    policy: Policy | None = field(default_factory=lambda: UniformPolicy(2, 4))
    port: int = 0
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        config = settings(LEARNLOOP_REVISION=self.revision, LEARNLOOP_ROUTING_MODE=self.mode)
        self.metrics = Metrics("cart", self.revision)
        self.routing = RoutingState("cart", self.metrics)
        episodes = Episodes("cart", self.revision, self.mode, self.routing, self.metrics, Seal(KEY))
        self.arm = Arm(config, episodes, self.metrics)
        if self.policy is not None:
            self.arm.install(self.policy, 0.0)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((self.host, self.port))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://{self.host}:{self.port}"
        self._http = httpx.Client(timeout=60, trust_env=False, verify=False)

    def start(self) -> "LiveServer":
        """Serve from now on."""
        self._server = _WithMirror(
            self.arm,
            uvicorn.Config(build_app(self.arm), log_level="error", lifespan="off", timeout_graceful_shutdown=0),
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 90
        while not self._server.started:
            assert time.monotonic() < deadline, "the policy server does not start"
            time.sleep(0.005)
        return self

    def stop(self) -> None:
        """The pod is gone, if it is not yet; its connections too."""
        if self._thread.is_alive():
            self._server.leave()
            self._thread.join(90)
        self.release()

    def release(self) -> None:
        """Close what a server holds that was never started, too."""
        self._http.close()
        self._socket.close()

    def route(self, text: str) -> None:
        """A new routing table arrives, and all of its arms answer at their addresses."""
        assert self.routing.offer(text, "test")
        for arm in self.routing.table.arms if self.routing.table else ():
            self.arm.episodes.reach.answered(arm)

    def opened(self, revision: str | None = None) -> str:
        """The id of an episode that a server has just given to `revision`, this one's own where it is left out."""
        return self.arm.episodes.ids.make(revision or self.revision)

    def metric(self, name: str, **labels: str) -> float:
        """One sample of /metrics."""
        value = self.metrics.registry.get_sample_value(
            name, {"model_deployment": "cart", "revision": self.revision} | labels
        )
        return -1.0 if value is None else value

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """POST JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._http.post(self.url + path, content=content, headers=headers)

    def get(self, path: str) -> httpx.Response:
        """GET."""
        return self._http.get(self.url + path)


def linear_policy(directory: Path) -> OnnxPolicy:
    """Action 0 when the first number is positive, action 1 when it is negative."""
    path = directory / "linear.onnx"
    write_policy(path)
    return OnnxPolicy(path)


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without learnloop's own variables, for child processes."""
    return {key: value for key, value in os.environ.items() if not key.startswith("LEARNLOOP_")} | extra
