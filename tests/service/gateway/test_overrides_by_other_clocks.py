"""A person's override at gateways whose clocks are five minutes off: it is never void, and never lasts longer."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from testing.language.clocked_config_map import ClockedConfigMap
from testing.language.gateway_process import GatewayProcess
from testing.language.scripted_server import ScriptedServer
from testing.language.tiny_chat_folder import write_folder
from testing.servers.policy_servers import STABLE, table
from testing.servers.ports import held_port
from testing.servers.recording_server import DataPlane

FIVE_MINUTES = 300.0
HI = {"model": "cart", "messages": [{"role": "user", "content": "hi"}]}


class Rig:
    """Two gateways of one arm, the one's clock ahead and the other's behind."""

    def __init__(self, where: Path, stack: ExitStack) -> None:
        write_folder(where / "base")
        (where / "episode.key").write_bytes(b"k" * 64)
        self.data = DataPlane()
        stack.callback(self.data.shutdown)
        says = stack.enter_context(ScriptedServer(where / "base", lambda _: "hello"))
        self.api = ClockedConfigMap(where / "account", 0.0)
        stack.callback(self.api.stop)
        self.order()
        self.gateways = [
            GatewayProcess(
                where / name,
                where / "base",
                stack.enter_context(held_port()),
                STABLE,
                {"kind": "llama.cpp", "url": says.url, "model": "base"},
                routing=where / "routing.json",
                data_url=self.data.url,
                ahead=ahead,
                **self.api.environment,
            )
            for name, ahead in (("early", FIVE_MINUTES), ("late", -FIVE_MINUTES))
        ]
        for gateway in self.gateways:
            stack.callback(gateway.stop)
        start(*self.gateways)

    def order(self, seconds: float | None = None, *, over: bool = False) -> None:
        """No caller gets an answer for so many seconds, by the API server's clock, as the operator writes it."""
        now = datetime.fromtimestamp(self.api.now(), UTC)
        until = (now + timedelta(seconds=seconds or 0)).isoformat()
        one = {"instead": "stop", "since": now.isoformat(), "until": until, "reason": "it hurts", "over": over}
        self.api.write(table((STABLE, "stable", 100), overrides=[one] if seconds is not None else None))


def start(*gateways: GatewayProcess) -> None:
    with ThreadPoolExecutor() as both:
        list(both.map(GatewayProcess.start, gateways))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(tmp_path_factory.mktemp("clocks"), stack)


def ask(gateway: GatewayProcess, **headers: str) -> httpx.Response:
    return httpx.post(f"{gateway.url}/v1/chat/completions", json=HI, headers=headers, timeout=20)


def until(gateway: GatewayProcess, status: int, seconds: float) -> float:
    """Ask until it answers so; how long that took."""
    began = time.monotonic()
    while ask(gateway).status_code != status:
        assert time.monotonic() < began + seconds, f"no {status} within {seconds:g} s: {gateway.log}"
        time.sleep(0.05)
    return time.monotonic() - began


def test_it_begins_at_once_ends_by_itself_and_leaves_no_evidence(rig: Rig) -> None:
    episodes = [ask(gateway).headers["x-learnloop-episode"] for gateway in rig.gateways]
    rig.order(4)
    began = time.monotonic()
    for gateway in rig.gateways:
        until(gateway, 403, 2)
    for gateway in rig.gateways:
        until(gateway, 200, 8)
        assert 2.5 < time.monotonic() - began < 7
    ending = {"status": "completed", "episode_return": 1.0, "length": 1, "success": True}
    for gateway, episode in zip(rig.gateways, episodes, strict=True):
        httpx.post(f"{gateway.url}/v1/episodes/{episode}/end", json=ending).raise_for_status()
        metrics = httpx.get(f"{gateway.url}/metrics").text.splitlines()
        ended = [line for line in metrics if line.startswith("learnloop_episodes_ended_total{")]
        assert all(line.endswith(" 0.0") for line in ended if "withdrawn" not in line), ended
        assert any(line.endswith(" 1.0") for line in ended if "withdrawn" in line), ended
    later = ask(rig.gateways[0]).headers["x-learnloop-episode"]
    time.sleep(6)  # an episode so soon after the end counts as touched
    later = ask(rig.gateways[0]).headers["x-learnloop-episode"]
    httpx.post(f"{rig.gateways[1].url}/v1/episodes/{later}/end", json=ending).raise_for_status()
    metrics = httpx.get(f"{rig.gateways[1].url}/metrics").text
    assert 'outcome="success",revision="aaaaaaaa"} 1.0' in metrics, "the next one is evidence again, of any gateway"


def test_a_gateway_that_starts_anew_obeys_what_holds_and_no_more(rig: Rig) -> None:
    rig.order(60)
    for gateway in rig.gateways:
        until(gateway, 403, 2)
        gateway.kill()
    start(*rig.gateways)
    assert [ask(gateway).status_code for gateway in rig.gateways] == [403, 403]
    for gateway in rig.gateways:
        gateway.kill()
    rig.order(0)
    start(*rig.gateways)
    assert [ask(gateway).status_code for gateway in rig.gateways] == [200, 200]
