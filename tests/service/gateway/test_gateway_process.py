"""Gateways as processes: OpenAI's own client, an agent framework, kill -9, arms that die and a fallback."""

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import httpx
import openai
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from learnloop_api.wire.language import LanguageTurn, turn_of
from learnloop_api.wire.trajectory import Trajectory
from testing.language.gateway_process import GatewayProcess, write_routing
from testing.language.scripted_server import ScriptedServer, log_prob
from testing.language.tiny_chat_folder import write_folder
from testing.servers.policy_servers import CANARY, STABLE
from testing.servers.ports import held_port
from testing.servers.recording_server import DataPlane
from testing.waiting import until

TOOL = {
    "type": "function",
    "function": {"name": "lookup", "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}},
}


def speak(prompt: str) -> str:
    """Calls the tool where one is offered, then says what it answered."""
    parts = prompt.rsplit("<|im_start|>tool\n", 1)
    if len(parts) > 1 and parts[1].endswith("<|im_end|>\n<|im_start|>assistant\n"):
        return f"it is {parts[1].split('<|im_end|>')[0]}"
    if "lookup" in prompt.split("<|im_end|>")[0]:
        return '<tool_call>{"arguments": {"key": "k1"},  "name": "lookup"}</tool_call>'
    return "hello"


class Rig:
    """Two arms with a model server each, a fallback and a data plane."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        write_folder(folder / "base")
        self.data = DataPlane()
        stack.callback(self.data.shutdown)
        self.servers = {
            revision: stack.enter_context(ScriptedServer(folder / "base", speak)) for revision in (STABLE, CANARY)
        }
        self.fallback = stack.enter_context(ScriptedServer(folder / "base"))
        self.ports = {revision: stack.enter_context(held_port()) for revision in (STABLE, CANARY)}
        self.probes = {revision: stack.enter_context(held_port()) for revision in (STABLE, CANARY)}
        self.folder = folder
        self.weigh(50, 1)
        kinds = {STABLE: "llama.cpp", CANARY: "vllm"}
        self.gateways = {
            revision: GatewayProcess(
                folder / revision,
                folder / "base",
                self.ports[revision],
                revision,
                {"kind": kinds[revision], "url": self.servers[revision].url, "model": "base"},
                routing=folder / "routing.json",
                data_url=self.data.url,
                fallback={"kind": "openai", "url": self.fallback.url, "model": "small"},
                LEARNLOOP_PROBES_PORT=str(self.probes[revision]),
            )
            for revision in (STABLE, CANARY)
        }
        for gateway in self.gateways.values():
            stack.callback(gateway.stop)

    def weigh(self, weight: int, generation: int) -> None:
        """One write: the canary's share of new conversations."""
        urls = {revision: f"http://127.0.0.1:{port}" for revision, port in self.ports.items()}
        arms = [(STABLE, "stable", 100 - weight, urls[STABLE]), (CANARY, "canary", weight, urls[CANARY])]
        write_routing(self.folder, *arms, generation=generation)

    def client(self) -> openai.OpenAI:
        """OpenAI's, at the stable arm's gateway."""
        return openai.OpenAI(base_url=f"{self.gateways[STABLE].url}/v1", api_key="none", max_retries=0, timeout=60.0)

    def trajectories(self) -> list[Trajectory]:
        """The trajectories at the data plane, each once."""
        recorded = [Trajectory.model_validate_json(body) for body in self.data.bodies()]
        return list({one.trajectory_id: one for one in recorded}.values())


def turns(trajectory: Trajectory) -> list[LanguageTurn]:
    return [turn for turn in map(turn_of, trajectory.steps) if turn is not None]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with ExitStack() as stack:
        made = Rig(tmp_path_factory.mktemp("gateway"), stack)
        with ThreadPoolExecutor() as both:
            list(both.map(GatewayProcess.start, made.gateways.values()))
        yield made


def test_openais_client_talks_to_both_arms_streams_calls_tools_and_keeps_its_conversation(rig: Rig) -> None:
    client = rig.client()
    assert [model.id for model in client.models.list()] == ["cart"]
    answered = set()
    for number in range(24):
        messages = [{"role": "user", "content": f"k1 ? {number}"}]
        first = client.chat.completions.with_raw_response.create(model="cart", messages=messages, tools=[TOOL])
        headers = {"x-learnloop-episode": first.headers["x-learnloop-episode"]}
        answered.add(first.headers["x-learnloop-revision"])
        message = first.parse().choices[0].message
        call = message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"key": "k1"}
        messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "4"}]
        text = ""
        with client.chat.completions.create(
            model="cart", messages=messages, tools=[TOOL], stream=True, extra_headers=headers
        ) as stream:
            for piece in stream:
                text += piece.choices[0].delta.content or ""
        assert text == "it is 4"
        ending = {"status": "completed", "episode_return": 1.0, "length": 2, "success": True}
        answer = httpx.post(f"{rig.gateways[STABLE].url}/v1/episodes/{headers['x-learnloop-episode']}/end", json=ending)
        assert answer.json()["counted"], answer.text
        if len(answered) == 2 and number > 3:
            break
    assert answered == {STABLE, CANARY}
    until(lambda: len(rig.trajectories()) == number + 1)
    for trajectory in rig.trajectories():
        one, two = turns(trajectory)
        assert two.prompt_ids[: len(one.prompt_ids) + len(one.sampled_ids)] == one.prompt_ids + one.sampled_ids
        assert one.log_probs == [log_prob(place) for place in range(len(one.sampled_ids))]
        assert (one.row, two.row, trajectory.policy_revision) == (0, 0, one.policy_revision)


def test_an_agent_framework_works_by_changing_its_base_url(rig: Rig) -> None:
    before = len(rig.trajectories())
    provider = OpenAIProvider(base_url=f"{rig.gateways[STABLE].url}/v1", api_key="none")
    # The gateway constrains no decoding, and refuses a tool that asks for it.
    profile = OpenAIModelProfile(openai_supports_strict_tool_definition=False)
    agent = Agent(OpenAIChatModel("cart", provider=provider, profile=profile))

    @agent.tool_plain
    def lookup(key: str) -> str:
        return {"k1": "4"}[key]

    assert asyncio.run(agent.run("k1 ?")).output == "it is 4"
    assert len(rig.trajectories()) == before, "it has not ended yet"


def test_kill_minus_nine_at_any_moment_loses_no_turn_whose_answer_ended(rig: Rig) -> None:
    gateway, chance = rig.gateways[STABLE], random.Random(7)
    rig.servers[STABLE].pause = 0.002
    rig.weigh(0, 2)
    until(lambda: _generation(gateway.url) == 2)
    rig.data.answers["/api/v1/trajectories"] = (503, b"{}")  # the data plane is away all the while
    ended: list[str] = []
    stop = threading.Event()

    def recorded() -> set[str]:
        return {turn.turn_id for trajectory in rig.trajectories() for turn in turns(trajectory)}

    def talk() -> None:
        while not stop.is_set():
            try:
                with httpx.stream(
                    "POST",
                    f"{gateway.url}/v1/chat/completions",
                    json={"model": "cart", "messages": [{"role": "user", "content": "hi"}], "stream": True},
                    timeout=20.0,
                    verify=False,
                ) as answer:
                    lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
                if lines and lines[-1] == "[DONE]":
                    ended.append(json.loads(lines[0])["id"].removeprefix("chatcmpl-"))
            except (httpx.HTTPError, ValueError):
                stop.wait(0.05)

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        stop.wait(0.5 + chance.random())
        gateway.kill()
        gateway.start()
    gateway.kill()  # as soon as it is back, with what the others left still to be delivered
    gateway.start()
    stop.wait(0.5)
    stop.set()
    for thread in threads:
        thread.join(30)
    rig.data.posts.clear()  # nothing of it was taken
    del rig.data.answers["/api/v1/trajectories"]
    assert gateway.stop() == 0, gateway.log
    gateway.start()
    until(lambda: set(ended) <= recorded())
    assert len(ended) > 20
    rig.servers[STABLE].pause = 0.0


def test_with_both_arms_dead_the_fallback_answers_everything_and_none_of_it_is_learned_from_or_evidence(rig):
    gateway = rig.gateways[STABLE]
    rig.weigh(50, 3)
    until(lambda: _generation(gateway.url) == 3)
    client = rig.client()
    begun = client.chat.completions.with_raw_response.create(model="cart", messages=[{"role": "user", "content": "hi"}])
    since, before = datetime.now(UTC), _ended(rig)
    rig.servers[STABLE].broken = 503
    rig.servers[CANARY].stop()
    rig.fallback.script = lambda _: "I stand in"
    episodes = []
    for number in range(30):
        answer = client.chat.completions.with_raw_response.create(
            model="cart", messages=[{"role": "user", "content": "hi"}], stream=False
        )
        assert answer.parse().choices[0].message.content == "I stand in", number
        if answer.headers["x-learnloop-revision"] != "fallback":
            assert answer.headers["x-learnloop-revision"] == CANARY, "another gateway's fallback answered"
        episodes.append(answer.headers["x-learnloop-episode"])
    with client.chat.completions.create(
        model="cart", messages=[{"role": "user", "content": "hi"}], stream=True
    ) as stream:
        assert "".join(piece.choices[0].delta.content or "" for piece in stream) == "I stand in"
    mixed = begun.headers["x-learnloop-episode"]
    further = [{"role": "user", "content": "hi"}, begun.parse().choices[0].message]
    later = client.chat.completions.create(
        model="cart",
        messages=[*further, {"role": "user", "content": "and now ?"}],
        extra_headers={"x-learnloop-episode": mixed},
    )
    assert later.choices[0].message.content == "I stand in"
    for episode in [*episodes, mixed]:
        ending = {"status": "completed", "episode_return": 1.0, "length": 1, "success": True}
        ended = httpx.post(f"{gateway.url}/v1/episodes/{episode}/end", json=ending)
        assert (ended.status_code, ended.json()["counted"]) == (200, False), ended.text
    assert _ended(rig) == before, "no arm is credited with what the fallback said"
    probes = f"http://127.0.0.1:{rig.probes[STABLE]}"
    assert "learnloop_language_fallbacks_total" in httpx.get(f"{probes}/metrics").text
    assert [httpx.get(probes + path).status_code for path in ("/healthz", "/readyz", "/v1/models")] == [200, 200, 404]
    assert gateway.stop() == 0
    assert rig.gateways[CANARY].stop() == 0
    assert [one for one in rig.trajectories() if one.started_at > since] == []
    entries = [turn for one in rig.trajectories() if one.episode_id == mixed for turn in turns(one)]
    assert len(entries) == 1, "of a conversation that an arm began, its own turn alone is kept"
    gateway.process = rig.gateways[CANARY].process = None


def _ended(rig: Rig) -> list[str]:
    """Both gateways' counts of ended conversations."""
    texts = [httpx.get(f"{gateway.url}/metrics", timeout=10.0, verify=False).text for gateway in rig.gateways.values()]
    return [line for text in texts for line in text.split("\n") if "episodes_ended_total{" in line]


def _generation(url: str) -> int:
    text = httpx.get(f"{url}/metrics", timeout=10.0, verify=False).text
    line = next(line for line in text.split("\n") if line.startswith("learnloop_routing_generation{"))
    return int(float(line.rsplit(" ", 1)[1]))
