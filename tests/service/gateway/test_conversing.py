"""The actor of a world, as its pod runs it, against a real gateway before a server that knows the answers."""

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx

from learnloop_api.wire.language import turn_of
from learnloop_api.wire.trajectory import Trajectory
from learnloop_environments.conversations.tool_lookup import REFUSAL
from testing.language.gateway_process import GatewayProcess, write_routing
from testing.language.scripted_server import ScriptedServer
from testing.language.tiny_chat_folder import write_folder
from testing.servers.policy_servers import STABLE, clean_environment
from testing.servers.ports import held_port
from testing.servers.recording_server import DataPlane
from testing.waiting import until

QUESTION = re.compile(r"user\n(\w\d) (plus|minus) (\w\d) \?")
ANSWER = re.compile(r"tool\n(-?\d+)")
EPISODES = 24


def solve(prompt: str) -> str:
    """The right conversation, in a form of calls that no template would write."""
    match = QUESTION.search(prompt)
    assert match, prompt
    first, operation, second = match.groups()
    results = ANSWER.findall(prompt)
    if "p" in first + second:
        return REFUSAL
    if len(results) < 2:
        key = (first, second)[len(results)]
        return f'<tool_call>{{"arguments": {{"key":   "{key}"}}, "name": "lookup"}}</tool_call>'
    if len(results) == 2:
        named = "add" if operation == "plus" else "subtract"
        arguments = f'{{"b": {results[1]}, "a": {results[0]}, "operation": "{named}"}}'
        return f'<tool_call>{{"name": "calculate", "arguments": {arguments}}}</tool_call>'
    return f"answer {results[2]}"


def test_it_holds_the_worlds_conversations_and_every_one_is_a_single_row_of_tokens(tmp_path: Path) -> None:
    write_folder(tmp_path / "base")
    data = DataPlane()
    with ScriptedServer(tmp_path / "base", solve) as server, held_port() as port, held_port() as probes:
        routing = write_routing(tmp_path, (STABLE, "stable", 100, f"http://127.0.0.1:{port}"))
        upstream = {"kind": "llama.cpp", "url": server.url, "model": "base"}
        gateway = GatewayProcess(
            tmp_path / "gateway",
            tmp_path / "base",
            port,
            STABLE,
            upstream,
            routing=routing,
            data_url=data.url,
            LEARNLOOP_PROBES_PORT=str(probes),
        ).start()
        try:
            done = conversing(gateway.url, "ToolLookupGuarded-v1")
            report = json.loads(done.stdout.splitlines()[-1])
            assert (done.returncode, report["episodes"], report["errors"]) == (0, EPISODES, 0), done.stderr
            assert report["return_mean_100"] == 1.0
            metrics = httpx.get(f"{gateway.url}/metrics").text
            until(lambda: len(data.bodies()) == EPISODES)
        finally:
            gateway.stop()
            data.shutdown()
    trajectories = [Trajectory.model_validate_json(body) for body in data.bodies()]
    assert all(one.outcome.success and one.outcome.episode_return == 1.0 for one in trajectories)
    rows = [{turn.row for step in one.steps if (turn := turn_of(step))} for one in trajectories]
    assert rows == [{0}] * EPISODES, "no history is encoded again"
    assert {len(one.steps) for one in trajectories} <= {1, 4}
    assert re.search(rf'episodes_ended_total{{[^}}]*outcome="success"[^}}]*}} {EPISODES}\.0', metrics)


def test_a_world_that_is_not_there_is_named_and_ends_the_actor() -> None:
    done = conversing("http://127.0.0.1:9", "NoSuchWorld-v1")
    assert done.returncode == 1
    assert "NoSuchWorld-v1" in done.stderr
    assert "ToolLookupGuarded-v1" in done.stderr, "and what there is"


def conversing(url: str, world: str) -> "subprocess.CompletedProcess[str]":
    options = {"ENVIRONMENT": world, "AGENT": "cart", "EPISODES": str(EPISODES), "CONCURRENCY": "4"}
    command = [sys.executable, "-m", "learnloop_sdk.conversation_actor"]
    variables = {f"LEARNLOOP_ACTOR_{name}": value for name, value in options.items()}
    environment = clean_environment(LEARNLOOP_ENDPOINT=url, **variables)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
