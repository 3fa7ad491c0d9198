"""`kubectl learnloop audit`: what it asks the data plane, and what it refuses before it asks."""

import io
import json
from collections.abc import Mapping

import pytest

from learnloop_operator.cli.objects import CommandError
from testing.command_line import typed

RECEIPT = {"rows": {"agent_memories": 2}, "audit_seq": 7}


class Proxy:
    """A cluster whose data plane gives the answers it was given."""

    namespace = "team-a"

    def __init__(self, *answers, status: int = 200) -> None:
        self.answers, self.status = list(answers), status
        self.requests = []
        self.services: list[str] = []
        self.tokens = 0

    def token(self, account: str, audience: str) -> str:
        self.tokens += 1
        return f"{account}/{audience}"

    def forward(self, service: str):
        self.services.append(service)

        def send(
            method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body, seconds: float
        ) -> tuple[int, str]:
            token = "default/memory.learnloop.dev/team-a/mem" if "/mem-memory" in service else "default/learnloop"
            assert headers == {"x-learnloop-token": token, "x-learnloop-namespace": "team-a"}
            self.requests.append((method, path, dict(query), body))
            return self.status, json.dumps(self.answers.pop(0))

        return send


def audited(cluster: Proxy, *arguments: str) -> str:
    return typed(cluster, "audit", *arguments)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_memory_service_has_a_chain_of_its_own() -> None:
    report = {"records": 0, "pending": 2, "head": "", "problem": None}
    cluster = Proxy(report)
    output = audited(cluster, "verify", "--memory-service", "mem")
    assert cluster.services == ["team-a/mem-memory:http"]
    assert "2 records are committed and not in the chain yet" in output


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (("verify", "--user", "anna"), "--user belongs to `audit erase`"),
        (("erase", "--user", "anna", "--action", "x"), "--action belongs to `audit export`"),
        (("erase", "--yes"), "exactly one of --user and --agent"),
        (("erase", "--yes", "--user", "anna", "--agent", "walker"), "exactly one of --user and --agent"),
        (("verify", "--agent", "cart"), "--agent belongs to `audit erase`"),
        (("verify", "-o", "x"), "--output belongs to"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(arguments: tuple[str, ...], fix: str) -> None:
    cluster = Proxy()
    with pytest.raises(CommandError, match=fix):
        audited(cluster, *arguments)
    assert cluster.requests == []


def test_an_erasure_wants_the_name_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for answer in ("y\n", ""):
        cluster = Proxy(RECEIPT)
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        with pytest.raises(CommandError, match="nothing was erased"):
            audited(cluster, "erase", "--user", "anna")
        assert cluster.requests == []
    monkeypatch.setattr("sys.stdin", Terminal("anna\n"))
    audited(cluster, "erase", "--user", "anna")
    assert cluster.requests == [("POST", "/api/v1/erasure", {}, {"user_id": "anna"})]
    assert json.loads(capsys.readouterr().out) == RECEIPT
