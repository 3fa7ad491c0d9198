"""Whether a Service speaks TLS the first answer through the API server says."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from learnloop_operator.cli.cluster import through
from learnloop_operator.cli.objects import CommandError

PLAIN = "/api/v1/namespaces/system/services/data:http/proxy"
BY_TLS = "/api/v1/namespaces/system/services/https:data:http/proxy"
HUNG_UP = json.dumps({"kind": "Status", "message": "error trying to reach service: EOF"})


class Api:
    """The API server's proxy in front of a Service that speaks one of the two."""

    def __init__(self, speaks: str, refusal: tuple[int, str] = (502, HUNG_UP)) -> None:
        self.speaks, self.refusal, self.requests = speaks, refusal, list[str]()

    def send(self, method: str, path: str, *_) -> tuple[int, str]:
        self.requests.append(path)
        return (200, "{}") if path.startswith(self.speaks) else self.refusal


def ask(api: Api, service: str = "system/data:http", times: int = 1) -> None:
    send = through(api.send, service)
    for _ in range(times):
        assert send("GET", "/readyz", {}, {}, None, 1.0) == (200, "{}")


def test_a_plain_service_is_asked_plainly() -> None:
    api = Api(PLAIN)
    ask(api, times=2)
    assert api.requests == [f"{PLAIN}/readyz"] * 2


@pytest.mark.parametrize("refusal", [(502, HUNG_UP), (400, "Client sent an HTTP request to an HTTPS server.\n")])
def test_a_service_of_tls_is_found_out_once(refusal: tuple[int, str]) -> None:
    api = Api(BY_TLS, refusal)
    ask(api, times=3)
    assert api.requests == [f"{PLAIN}/readyz", *[f"{BY_TLS}/readyz"] * 3]


def test_who_names_the_scheme_is_taken_at_his_word() -> None:
    api = Api("nothing")
    with pytest.raises(CommandError, match="EOF"):
        ask(api, "system/https:data:http")
    assert api.requests == [f"{BY_TLS}/readyz"]


def test_a_refusal_of_the_service_itself_is_not_asked_again() -> None:
    api = Api("nothing", (403, '{"error": {"message": "no"}}'))
    send = through(api.send, "system/data:http")
    assert send("GET", "/x", {}, {}, None, 1.0)[0] == 403
    assert len(api.requests) == 1


def test_first_requests_at_the_same_time_each_find_out() -> None:
    both = threading.Barrier(2, timeout=20.0)

    class Slow(Api):
        def send(self, method: str, path: str, *more) -> tuple[int, str]:
            if path.startswith(PLAIN):
                both.wait()
            return super().send(method, path, *more)

    send = through(Slow(BY_TLS).send, "system/data:http")
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda _: send("GET", "/readyz", {}, {}, None, 1.0), range(2)))
    assert answers == [(200, "{}")] * 2
