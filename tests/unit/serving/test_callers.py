"""Callers of a policy server: accounts of its namespace, and none without a token."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop_api import names
from learnloop_common.service_accounts import KeySource
from learnloop_common.settings import ConfigurationError
from learnloop_sdk import Learnloop
from learnloop_sdk.errors import PolicyRefused
from learnloop_serving.callers import BELIEVED_SECONDS, Callers
from testing.servers.policy_servers import CANARY, STABLE, LiveServer, settings, table
from testing.servers.token_issuer import ISSUER, Cluster

FLAT = {"inputs": [{"name": "observation", "datatype": "FP32", "shape": [1, 4], "data": [0.0] * 4}]}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def guarded(server: LiveServer, cluster: Cluster, tmp_path: Path) -> Iterator[LiveServer]:
    """A server of namespace red that serves namespace green, too."""
    before = server.arm.callers
    with cluster.served() as url:
        source = KeySource(url, str(tmp_path / "token"), str(tmp_path / "ca"), ISSUER)
        server.arm.callers = Callers(source, frozenset({"red", "green"}))
        yield server
    server.arm.callers = before


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_nobody_opens_ends_or_infers_without_a_token(guarded: LiveServer) -> None:
    before = guarded.metric(names.METRIC_EPISODES_OPENED)
    for path in ("/v1/episodes", "/v1/episodes/x/end", "/v2/models/cart/infer"):
        answer = guarded.post(path, FLAT)
        assert answer.status_code == 401
        assert "audience learnloop" in answer.json()["error" if path.startswith("/v2") else "message"]
    assert guarded.metric(names.METRIC_EPISODES_OPENED) == before
    assert guarded.metric(names.METRIC_CALLERS_REFUSED, reason="Unauthorized") >= 3


def test_accounts_of_the_served_namespaces_play_and_no_others(guarded, cluster, caplog):
    for namespace, kid, status in (("red", "k1", 200), ("green", "p256", 200), ("blue", "k1", 403)):
        answer = guarded.post("/v1/episodes", {}, **bearer(cluster.token(namespace, kid=kid)))
        assert answer.status_code == status, answer.text
    assert answer.json()["reason"] == "Forbidden"
    assert "from 127.0.0.1 is refused with 403: authorization: system:serviceaccount:blue:" in caplog.messages[-1]
    assert "serving.callers.namespaces" in answer.json()["message"]
    assert guarded.post("/v2/models/cart/infer", FLAT, **bearer(cluster.token())).status_code == 200


@pytest.mark.parametrize(
    "changes",
    [{"aud": ["other"]}, {"iss": "https://elsewhere"}, {"exp": int(time.time()) - 90}, {"kubernetes.io": {}}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_token_of_another_audience_issuer_or_time_is_none(guarded, cluster, changes):
    assert guarded.post("/v1/episodes", {}, **bearer(cluster.token(**changes))).status_code == 401


@pytest.mark.parametrize("sent", ["Bearer x.y.z", "Basic eDp5", "Bearer", "Bearer " + "a" * 20_000, "Bearer é"])
def test_what_is_no_token_is_refused_and_breaks_nothing(guarded: LiveServer, sent: str) -> None:
    headers = {"authorization": sent.encode("latin-1")}
    assert guarded.post("/v1/episodes", {}, **headers).status_code == 401
    assert guarded.get("/healthz").status_code == 200


def test_probes_metrics_and_descriptions_are_for_everybody(guarded: LiveServer) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/v2", "/v2/models/cart", "/v2/health/ready"):
        assert guarded.get(path).status_code == 200, path


async def test_a_token_that_held_is_believed_for_a_minute_and_never_past_its_end(cluster, tmp_path, monkeypatch):
    with cluster.served() as url:
        callers = Callers(KeySource(url, "none", "none", ISSUER), frozenset({"red"}))
        token = b"Bearer " + cluster.token(exp=int(time.time()) + 5).encode()
        assert await callers.refusal(token) is None
        reviews: list[str] = []

        async def claims(_: str) -> dict[str, object]:
            reviews.append("")
            raise ValueError("it has ended")

        monkeypatch.setattr(callers._tokens, "claims", claims)
        assert await callers.refusal(token) is None
        assert not reviews
        later = time.monotonic() + 6
        monkeypatch.setattr("learnloop_serving.callers.time.monotonic", lambda: later)
        refused = await callers.refusal(token)
        assert (refused.status, len(reviews)) == (401, 1)
        assert BELIEVED_SECONDS == 60


def test_a_server_that_hands_on_shows_the_callers_own_token(guarded, cluster, start):
    other = start(revision=CANARY)
    other.route(table((STABLE, "stable", 100, guarded.url)))
    assert other.post("/v2/models/cart/infer", FLAT, **bearer(cluster.token())).json()["model_version"] == STABLE
    assert other.post("/v2/models/cart/infer", FLAT).status_code == 401


async def test_the_sdk_shows_its_token_and_says_so_when_it_is_refused(guarded, cluster, tmp_path):
    file = tmp_path / "sdk-token"
    file.write_text(cluster.token())
    async with Learnloop("cart", guarded.url, token_file=file) as loop, loop.episode("hold") as episode:
        await episode.act([0.0] * 4)
        episode.outcome(True)
    file.write_text(cluster.token("blue"))
    async with Learnloop("cart", guarded.url, token_file=file) as loop:
        with pytest.raises(PolicyRefused, match="system:serviceaccount:blue:default"):
            async with loop.episode("hold"):
                pass


def test_settings_that_cannot_know_callers_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="LEARNLOOP_CALLERS: 'all' is not valid: give token or anybody"):
        settings(LEARNLOOP_CALLERS="all")
    with pytest.raises(ConfigurationError, match="KUBERNETES_SERVICE_HOST is empty"):
        settings(LEARNLOOP_CALLERS="token")
    given = settings(LEARNLOOP_CALLERS="token", KUBERNETES_SERVICE_HOST="10.0.0.1", LEARNLOOP_CALLER_NAMESPACES="a, b")
    assert given.served_namespaces == {"default", "a", "b"}
    assert given.caller_keys.audiences == ("learnloop", names.GATE_AUDIENCE), "a rank decides about no policy"
    assert given.caller_keys.jwks_url == "https://10.0.0.1:443/openid/v1/jwks"
    with pytest.raises(ConfigurationError, match="'A' is not the name of a namespace"):
        settings(LEARNLOOP_CALLER_NAMESPACES="A")
