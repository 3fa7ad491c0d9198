"""Shadow mode on real servers and real policies: the arm sees every copy, users see nothing of it."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from learnloop_api import names
from learnloop_api.wire.routing import RoutingTable
from learnloop_common.acting.onnx_policy import OnnxPolicy
from learnloop_serving.episode_ids import Seal
from learnloop_serving.shadow import PURPOSE
from testing.servers.policy_servers import CANARY, KEY, STABLE, LiveServer, linear_policy, table, write_policy
from testing.waiting import until

Start = Callable[..., LiveServer]
OBSERVATIONS = [[x, 0.0, 0.0, 0.0] for x in (1.0, -1.0, 0.4, -0.3)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a receiver takes longer than a second, and a copy given up is not what is tested here."""
    monkeypatch.setattr("learnloop_serving.shadow.TIMEOUT_SECONDS", 3600.0)


def pair(
    start: Start, tmp_path: Path, weights: tuple[tuple[float, float], ...] | None = None
) -> tuple[LiveServer, ...]:
    """Stable, and an arm in shadow with other weights (left out: the same)."""
    path = tmp_path / "shadow.onnx"
    write_policy(path, **({"weights": weights} if weights else {}))
    stable = start(policy=linear_policy(tmp_path))
    return stable, start(revision=CANARY, policy=OnnxPolicy(path))


def mirroring(stable: LiveServer, url: str, **mirror: object) -> str:
    arms = (STABLE, "stable", 100, stable.url), (CANARY, "canary", 0, url)
    return table(*arms, mirror={"revision": CANARY, **mirror})


def shadow(server: LiveServer, name: str, **labels: str) -> float:
    return server.metric(name, **({"revision": CANARY} | labels))


def play(server: LiveServer, episode_return: float, explore: bool = True, episode: str = "") -> None:
    """One episode of four steps."""
    episode = episode or server.opened()
    for observation in OBSERVATIONS:
        answer = server.post(f"/v1/episodes/{episode}/act", {"observation": observation, "explore": explore})
        assert answer.status_code == 200
    end = {"status": "completed", "episode_return": episode_return, "length": len(OBSERVATIONS), "success": True}
    assert server.post(f"/v1/episodes/{episode}/end", end).status_code == 200


def test_an_equal_policy_in_shadow_agrees_on_every_request(start: Start, tmp_path: Path) -> None:
    stable, canary = pair(start, tmp_path)
    for server in (stable, canary):
        server.route(mirroring(stable, canary.url))
    for _ in range(6):
        play(stable, 10.0)
    until(lambda: shadow(canary, names.METRIC_SHADOW_COMPARED) == 24)
    assert shadow(canary, names.METRIC_SHADOW_AGREED) == 24
    assert shadow(canary, names.METRIC_SHADOW_SECONDS + "_count") == 24
    assert canary.metric(names.METRIC_EPISODES_ENDED, outcome="success") == 0, "the arm in shadow played nothing itself"


def test_an_opposite_policy_never_agrees_and_fails_on_what_it_cannot_take(start: Start, tmp_path: Path) -> None:
    stable, canary = pair(start, tmp_path, ((-1.0, 1.0),) + ((0.0, 0.0),) * 3)
    for server in (stable, canary):
        server.route(mirroring(stable, canary.url))
    play(stable, 1.0, explore=False)
    until(lambda: shadow(canary, names.METRIC_SHADOW_COMPARED) == 4)
    assert shadow(canary, names.METRIC_SHADOW_AGREED) == 0
    wide = start(revision=CANARY, policy=OnnxPolicy(_wide(tmp_path)))
    for server in (stable, wide):
        server.route(mirroring(stable, wide.url))
    play(stable, 1.0)
    until(lambda: shadow(wide, names.METRIC_SHADOW_ERRORS) == 4)
    assert shadow(wide, names.METRIC_SHADOW_COMPARED) == 0


def _wide(directory: Path) -> Path:
    write_policy(directory / "wide.onnx", weights=((1.0, -1.0),) * 5)
    return directory / "wide.onnx"


def test_requests_that_know_no_episodes_are_copied_too(start: Start, tmp_path: Path) -> None:
    stable, canary = pair(start, tmp_path)
    for server in (stable, canary):
        server.route(mirroring(stable, canary.url))
    tensor = {"name": "observation", "datatype": "FP32", "shape": [2, 4], "data": [1, 0, 0, 0, -1, 0, 0, 0]}
    assert stable.post("/v2/models/cart/infer", {"inputs": [tensor]}).status_code == 200
    until(lambda: shadow(canary, names.METRIC_SHADOW_AGREED) == 2)


def test_nobody_gets_an_answer_of_the_arm_in_shadow(start: Start, tmp_path: Path) -> None:
    stable, canary = pair(start, tmp_path)
    for server in (stable, canary):
        server.route(mirroring(stable, canary.url))
    opened = {canary.post("/v1/episodes", {}).json()["revision"] for _ in range(50)}
    assert opened == {STABLE}
    acted = canary.post(f"/v1/episodes/{canary.opened()}/act", {"observation": OBSERVATIONS[0]})
    assert (acted.status_code, acted.json()["reason"]) == (410, "ArmWithdrawn")
    tensor = {"name": "observation", "datatype": "FP32", "shape": [1, 4], "data": OBSERVATIONS[0]}
    assert canary.post("/v2/models/cart/infer", {"inputs": [tensor]}).json()["model_version"] == STABLE


@pytest.fixture
def black_hole() -> Iterator[str]:
    """A receiver that takes connections and bytes and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        held: list[socket.socket] = []

        def hold() -> None:
            try:
                while True:
                    held.append(listener.accept()[0])
            except OSError:
                return

        threading.Thread(target=hold, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        for connection in held:
            connection.close()
        listener.shutdown(socket.SHUT_RDWR)


def test_a_receiver_that_never_answers_costs_copies_and_no_answer(start, tmp_path, black_hole, monkeypatch):
    monkeypatch.setattr("learnloop_serving.shadow.QUEUE_ITEMS", 8)
    stable = start(policy=linear_policy(tmp_path))
    stable.route(mirroring(stable, black_hole))
    episode = stable.opened()
    for _ in range(40):  # one that waited for the receiver would have no end
        assert stable.post(f"/v1/episodes/{episode}/act", {"observation": OBSERVATIONS[0]}).status_code == 200
    lost = shadow(stable, names.METRIC_SHADOW_LOST, reason="full")
    assert 40 - 8 - 8 <= lost <= 40 - 8, "but for one batch under way and a full queue"
    assert stable.metric(names.METRIC_REQUEST_ERRORS, verb="act") == 0


def test_a_receiver_that_refuses_or_is_gone_is_counted_and_users_are_served(start: Start, tmp_path: Path) -> None:
    stable, canary = pair(start, tmp_path)
    stable.route(mirroring(stable, canary.url))
    canary.route(table((STABLE, "stable", 100)))
    play(stable, 1.0)
    until(lambda: shadow(stable, names.METRIC_SHADOW_LOST, reason="refused") == 4)
    stable.route(mirroring(stable, "http://127.0.0.1:9"))
    play(stable, 1.0)
    until(lambda: shadow(stable, names.METRIC_SHADOW_LOST, reason="unreachable") == 4)


def test_mirroring_ends_with_the_table_that_names_it_and_with_its_dead_mans_switch(start, tmp_path):
    stable, canary = pair(start, tmp_path)
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    expired = json.loads(mirroring(stable, canary.url)) | {"expires_at": past}
    canary.route(json.dumps(expired))
    for text in (json.dumps(expired), table((STABLE, "stable", 100))):
        stable.route(text)
        play(stable, 1.0)
        assert stable.arm.episodes.mirror.target(stable.opened()) is None
    time.sleep(0.3)
    assert shadow(canary, names.METRIC_SHADOW_COMPARED) == 0


def test_a_share_of_the_episodes_is_copied_whole(start: Start, tmp_path: Path) -> None:
    stable, canary = pair(start, tmp_path)
    for server in (stable, canary):
        server.route(mirroring(stable, canary.url, percent=30))
    mirror = stable.arm.episodes.mirror
    opened = [stable.opened() for _ in range(1000)]
    chosen = {name for name in opened if mirror.target(name)}
    assert 230 < len(chosen) < 370
    copied = [name for name in opened if name in chosen][:4]
    for name in [name for name in opened if name not in chosen][:8] + copied:  # copies arrive in the order of requests
        play(stable, 1.0, episode=name)
    expected = len(OBSERVATIONS) * len(copied)
    until(lambda: shadow(canary, names.METRIC_SHADOW_COMPARED) == expected)


def test_a_mirror_must_be_an_arm_without_weight() -> None:
    with pytest.raises(ValueError, match="mirror: cccccccc is not an arm of weight 0"):
        RoutingTable.model_validate_json(table((STABLE, "stable", 100), mirror={"revision": "cccccccc"}))


def test_a_table_without_a_mirror_is_one_that_older_servers_read() -> None:
    text = RoutingTable.model_validate_json(table((STABLE, "stable", 100))).to_json()
    assert "mirror" not in text
    assert RoutingTable.model_validate_json(text).arms


def test_malformed_copies_are_refused_with_the_field(start: Start, tmp_path: Path) -> None:
    _, canary = pair(start, tmp_path)
    canary.route(mirroring(canary, canary.url))
    wrong = send(canary, {"revision": CANARY, "decisions": [{"greedy": 1}]})
    assert (wrong.status_code, "observation" in wrong.json()["message"]) == (400, True)
    assert send(canary, {"revision": STABLE}).status_code == 410


def send(server: LiveServer, batch: dict[str, object], key: bytes = KEY) -> httpx.Response:
    """Copies, as a server that holds `key` sends them."""
    body = json.dumps(batch).encode()
    return server.post("/v1/shadow", body, **{names.HEADER_MARK: Seal(key).mark(PURPOSE, body)})


def test_copies_that_no_server_of_the_deployment_sent_are_refused_and_counted_apart(start, tmp_path):
    _, canary = pair(start, tmp_path)
    canary.route(mirroring(canary, canary.url))
    batch = {"revision": CANARY, "decisions": [{"observation": OBSERVATIONS[0], "greedy": 1}]}
    mark = Seal(KEY).mark(PURPOSE, b"another body")
    for refused in (
        canary.post("/v1/shadow", batch),
        canary.post("/v1/shadow", batch, **{names.HEADER_MARK: mark}),
        canary.post("/v1/shadow", batch, **{names.HEADER_MARK: "x" * 5000}),
        send(canary, batch, b"the key of another ModelDeployment"),
    ):
        assert (refused.status_code, refused.json()["reason"]) == (403, "Unproven")
    assert canary.metric(names.METRIC_UNPROVEN, verb="shadow") == 4
    assert shadow(canary, names.METRIC_SHADOW_COMPARED) == 0
    assert send(canary, batch).status_code == 202
    assert shadow(canary, names.METRIC_SHADOW_COMPARED) == 1
