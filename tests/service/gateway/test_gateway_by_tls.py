"""Gateways of two arms by TLS: callers, the other arm and the data plane, each leg verified by authority and name."""

import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from learnloop_api.wire.trajectory import Trajectory
from testing.certificates import authority, folder
from testing.language.gateway_process import GatewayProcess, write_routing
from testing.language.scripted_server import ScriptedServer
from testing.language.tiny_chat_folder import write_folder
from testing.servers.policy_servers import CANARY, STABLE
from testing.servers.ports import held_port
from testing.servers.recording_server import DataPlane
from testing.waiting import until

SPEAKING = {"model": "cart", "messages": [{"role": "user", "content": "hi"}]}
ENDING = {"status": "completed", "episode_return": 1.0, "length": 1, "success": True}


class Rig:
    """The data plane, two arms' gateways, and a model server behind each."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        write_folder(root / "base")
        ours = authority("ours")
        self.hub = folder(root / "hub", ours)
        self.shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.shown.load_cert_chain(self.hub.certificate, self.hub.key)
        self.data = DataPlane(tls=self.shown)
        stack.callback(self.data.shutdown)
        self.verify = ssl.create_default_context(cafile=str(self.hub.bundle))
        self.root, self.token = root, root / "token"
        self.token.write_text("a token")
        self.servers = {arm: stack.enter_context(ScriptedServer(root / "base")) for arm in (STABLE, CANARY)}
        self.ports = {arm: stack.enter_context(held_port()) for arm in (STABLE, CANARY)}
        urls = {arm: f"https://localhost:{port}" for arm, port in self.ports.items()}
        self.routing = write_routing(
            root, (STABLE, "stable", 50, urls[STABLE]), (CANARY, "canary", 50, urls[CANARY]), generation=1
        )
        self.gateways = {
            arm: self.gateway(arm, self.ports[arm], arm, **folder(root / f"{arm}-tls", ours).environment())
            for arm in (STABLE, CANARY)
        }
        with ThreadPoolExecutor() as both:
            for started in both.map(GatewayProcess.start, self.gateways.values()):
                stack.callback(started.kill)

    def gateway(self, name: str, port: int, arm: str, data: DataPlane | None = None, **tls: str) -> GatewayProcess:
        """One arm's gateway, with a folder of its own; it tells `data`, or the rig's data plane without one."""
        return GatewayProcess(
            self.root / name,
            self.root / "base",
            port,
            arm,
            {"kind": "vllm", "url": self.servers[arm].url, "model": "base"},
            routing=self.routing,
            data_url=(data or self.data).url,
            tls=self.verify,
            LEARNLOOP_TOKEN_FILE=str(self.token),
            **tls,
        )

    def recorded(self) -> set[str]:
        """Arms of the conversations that the data plane got."""
        got = [Trajectory.model_validate_json(body) for body in self.data.bodies()]
        return {str(one.policy_revision) for one in got}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(tmp_path_factory.mktemp("gateway-tls"), stack)


def talk(client: httpx.Client, url: str, conversations: int = 24) -> set[str]:
    """Whole conversations; the arms that answered."""
    answered: set[str] = set()
    for _ in range(conversations):
        response = client.post(f"{url}/v1/chat/completions", json=SPEAKING)
        assert response.status_code == 200, response.text
        answered.add(response.headers["x-learnloop-revision"])
        ended = client.post(f"{url}/v1/episodes/{response.headers['x-learnloop-episode']}/end", json=ENDING)
        assert ended.status_code == 200, ended.text
        if len(answered) == 2:
            break
    return answered


def test_a_conversation_reaches_either_arm_and_the_data_plane_without_a_plain_byte(rig: Rig) -> None:
    url = rig.gateways[STABLE].url
    with httpx.Client(verify=rig.verify, trust_env=False, timeout=30) as client:
        assert talk(client, url) == {STABLE, CANARY}
        until(lambda: rig.recorded() == {STABLE, CANARY})


def test_a_gateway_that_trusts_another_authority_hands_no_word_to_the_data_plane_or_the_other_arm(rig: Rig) -> None:
    strange = folder(rig.root / "strange-tls", authority("stranger"))
    before = len(rig.servers[CANARY].requests)
    with ExitStack() as stack:
        # A data plane of its own: the rig's still receives the conversations of the tests before.
        data = DataPlane(tls=rig.shown)
        stack.callback(data.shutdown)
        port = stack.enter_context(held_port())
        gateway = rig.gateway(
            "strange",
            port,
            STABLE,
            data,
            LEARNLOOP_TLS_CA=str(strange.bundle),
            LEARNLOOP_TLS_CERTIFICATE=str(rig.hub.certificate),
            LEARNLOOP_TLS_KEY=str(rig.hub.key),
        )
        gateway.start()
        stack.callback(gateway.kill)
        with httpx.Client(verify=rig.verify, trust_env=False, timeout=30) as client:
            for _ in range(12):
                response = client.post(f"{gateway.url}/v1/chat/completions", json=SPEAKING)
                assert response.status_code == 200, response.text
                assert response.headers["x-learnloop-revision"] == STABLE, "its own arm: the other one is not reached"
                client.post(f"{gateway.url}/v1/episodes/{response.headers['x-learnloop-episode']}/end", json=ENDING)
            until(lambda: "CERTIFICATE_VERIFY_FAILED" in gateway.log)
        assert data.posts == []
    assert len(rig.servers[CANARY].requests) == before
