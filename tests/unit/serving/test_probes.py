"""The port of probes."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from learnloop_common.http_server import ProbesOnly, probes_config
from learnloop_common.settings import ConfigurationError
from testing.servers.policy_servers import settings


async def everything(scope: Any, receive: Any, send: Any) -> None:
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


@pytest.mark.parametrize("said", ["0", "65536", "many"])
def test_a_port_that_cannot_be_is_refused_by_its_name(said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"LEARNLOOP_PROBES_PORT: '{said}' is not valid"):
        settings(LEARNLOOP_PROBES_PORT=said)


def test_probes_have_a_port_of_their_own_where_one_is_set() -> None:
    probes = probes_config(everything, "127.0.0.1", settings(LEARNLOOP_PROBES_PORT="8081").probes_port, None)
    assert probes is not None
    assert probes.port == 8081
    assert probes_config(everything, "127.0.0.1", settings().probes_port, None) is None
