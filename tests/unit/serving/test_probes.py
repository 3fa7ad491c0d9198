"""The port of probes."""

import httpx
from starlette.testclient import TestClient

from learnloop_common.http_server import ProbesOnly, probes_config
from testing.servers.policy_servers import settings


async def everything(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"answered"})


def test_probes_and_metrics_are_answered_and_nothing_else() -> None:
    client = TestClient(ProbesOnly(everything))
    for path in ("/healthz", "/readyz", "/metrics"):
        assert client.get(path).text == "answered"
        assert client.post(path).status_code == 404
    for path in ("/v1/episodes", "/v2", "/healthz/", "//metrics"):
        assert client.get(path).status_code == 404, path
        assert client.post(path).status_code == 404, path


async def test_probes_have_a_port_of_their_own_and_no_header_changes_who_asks() -> None:
    async def callers(scope, receive, send) -> None:
        assert (scope["client"], scope["scheme"]) == (("127.0.0.1", 9), "http")
        await everything(scope, receive, send)

    probes = probes_config(callers, "127.0.0.1", settings(LEARNLOOP_PROBES_PORT="8081").probes_port, None)
    probes.load()
    transport = httpx.ASGITransport(probes.loaded_app, client=("127.0.0.1", 9))
    forged = {"x-forwarded-for": "10.9.9.9", "x-forwarded-proto": "https"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as client:
        assert (await client.get("/healthz", headers=forged)).text == "answered"
    assert probes.port == 8081
