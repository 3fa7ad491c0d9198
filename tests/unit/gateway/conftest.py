"""A gateway in this process, before a server that says what the test tells it to."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from learnloop_api.kinds.language_model import LanguageModel
from learnloop_api.wire.language import LanguageTurn, TokenSampling, turn_of
from learnloop_api.wire.trajectory import Trajectory
from learnloop_gateway.arms import Arms
from learnloop_gateway.chat_tokens import ChatTokens
from learnloop_gateway.conversation_routing import Gateway
from learnloop_gateway.model_servers import Drawn, UpstreamDown
from learnloop_gateway.recording import LanguageMetrics, OpenSessions, Recording
from learnloop_gateway.server import build_app
from learnloop_gateway.settings import GatewaySettings, ServerSettings
from learnloop_gateway.text_answers import Relaying
from learnloop_gateway.token_answers import Answering
from learnloop_sdk.outbox import Parcel
from learnloop_serving.episode_ids import Seal
from learnloop_serving.episodes import Episodes
from learnloop_serving.routing_table_in_force import RoutingState
from learnloop_serving.server_metrics import Metrics
from testing.language.tiny_chat_folder import END, write_folder
from testing.servers.policy_servers import CANARY, STABLE, settings, table

BASE = "b" * 64


class Says:
    """A server of tokens: each answer is the next text of `texts`, or the error that stands there."""

    def __init__(self, tokens: ChatTokens) -> None:
        self.tokens = tokens
        self.texts: list[str | Exception] = []
        self.prompts: list[list[int]] = []
        self.samplings: list[TokenSampling] = []
        self.ends = True
        self.log_probs = True

    async def draw(
        self, prompt: Sequence[int], sampling: TokenSampling, *, stream: bool
    ) -> AsyncGenerator[Drawn, None]:
        self.prompts.append(list(prompt))
        self.samplings.append(sampling)
        reply = self.texts.pop(0) if self.texts else "hello"
        if isinstance(reply, Exception):
            raise reply
        text, _, broken = reply.partition("!!")
        ids = self.tokens.encode(text + (END if self.ends and not broken else ""))
        if len(ids) > (sampling.max_tokens or 0):
            ids = ids[: sampling.max_tokens]
        for one in ids:
            yield Drawn([one], [-0.5] if self.log_probs else None)
        if broken:
            raise UpstreamDown(broken)
        yield Drawn([], [], "stop" if ids[-1] in self.tokens.stops else "length", len(ids))

    async def prepare(self) -> None:
        return None

    async def close(self) -> None:
        return None


class Delivered:
    """Keeps what is delivered."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, parcel: Parcel) -> None:
        self.bodies.append(parcel.body)


@dataclass
class Bench:
    """A gateway, its parts, and a client of it."""

    folder: Path
    says: Says
    gateway: Gateway
    sessions: OpenSessions
    recording: Recording
    sink: Delivered
    routing: RoutingState
    metrics: Metrics
    client: httpx.AsyncClient
    episode: str = ""
    history: list[dict[str, Any]] = field(default_factory=list)

    async def ask(self, *messages: dict, **fields) -> httpx.Response:
        """One request that goes on with the conversation."""
        self.history += [dict(message) for message in messages]
        headers = {"x-learnloop-episode": self.episode} if self.episode else {}
        body = {"model": "cart", "messages": self.history} | fields
        answer = await self.client.post("/v1/chat/completions", json=body, headers=headers)
        if answer.status_code == 200 and not fields.get("stream"):
            self.episode = answer.headers["x-learnloop-episode"]
            self.history.append(answer.json()["choices"][0]["message"])
        return answer

    async def ended(self, **fields) -> Trajectory:
        """End the conversation; what was recorded of it."""
        body = {"status": "completed", "episode_return": 1.0, "length": 1, "success": True} | fields
        answer = await self.client.post(f"/v1/episodes/{self.episode}/end", json=body)
        assert answer.status_code == 200, answer.text
        return (await self.delivered())[-1]

    async def delivered(self) -> list[Trajectory]:
        """All trajectories so far."""
        assert await self.recording._delivery.flush(10) == 0
        return [Trajectory.model_validate_json(body) for body in self.sink.bodies]

    def count(self, name: str, **labels: str) -> float:
        own = {"model_deployment": "cart", "revision": STABLE}
        return self.metrics.registry.get_sample_value(name, own | labels) or 0.0


def turns(trajectory: Trajectory) -> list[LanguageTurn]:
    """The turns of a trajectory that have tokens."""
    return [turn for turn in map(turn_of, trajectory.steps) if turn is not None]


def build(
    tmp_path: Path,
    *,
    fallback=None,
    chat=None,
    model: dict | None = None,
    context: int = 4096,
    arms: str | None = None,
    **more,
) -> Bench:
    """A gateway of arm STABLE."""
    folder = tmp_path / "base"
    write_folder(folder, context=context)
    tokens = ChatTokens(folder)
    says = Says(tokens)
    spoken = LanguageModel.model_validate({"base": {"uri": "file:///base", "sha256": BASE}} | (model or {}))
    own = GatewaySettings(
        serving=settings(LEARNLOOP_MODEL_URI=f"base://{BASE}", LEARNLOOP_MODEL_SHA256="a" * 64),
        model=spoken,
        server=ServerSettings(kind="vllm", url="http://x"),
        agent="cart",
        tokeniser=folder,
        **more,
    )
    metrics = Metrics("cart", STABLE)
    language = LanguageMetrics(metrics.of)
    routing = RoutingState("cart", metrics)
    assert routing.offer(arms or table((STABLE, "stable", 100), (CANARY, "canary", 0)), "test")
    seal = Seal()
    episodes = Episodes("cart", STABLE, "service", routing, metrics, seal)
    sink = Delivered()
    recording = Recording(tmp_path / "turns", "cart", "cart", sink)
    served_arms = Arms("cart", STABLE, episodes, routing, seal, own.agent)
    sessions = OpenSessions(recording, touched=served_arms.touched)
    answering: Answering | Relaying = Answering(own, tokens, says, recording, language)
    if chat is not None:
        answering = Relaying(chat, recording, language)
    stand_in = Relaying(fallback, recording, language) if fallback else None
    gateway = Gateway(own, served_arms, episodes, says, answering, stand_in, sessions, metrics, language)
    gateway.loaded = True
    client = httpx.AsyncClient(transport=httpx.ASGITransport(build_app(gateway)), base_url="http://gateway")
    return Bench(folder, says, gateway, sessions, recording, sink, routing, metrics, client)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = build(tmp_path)
    yield made
    await made.client.aclose()
    await made.recording.flush(5)
