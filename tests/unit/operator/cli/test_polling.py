"""A pipeline that waits for hours is not failed by an API server that is away for a minute."""

import pytest
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import ProtocolError

from learnloop_operator.cli import pipelines
from learnloop_operator.cli.cluster import refusal, unreachable
from learnloop_operator.cli.objects import CommandError


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pipelines, "time", made)
    return made


def away(status: int | None) -> CommandError:
    return unreachable(ProtocolError("cut off")) if status is None else refusal(ApiException(status, "no"))


@pytest.mark.parametrize("status", [None, 429, 500, 503, 504])
def test_what_an_api_server_does_not_answer_for_a_while_is_asked_again(
    clock: Clock, capsys: pytest.CaptureFixture[str], status: int | None
) -> None:
    def look() -> tuple[str | None, str]:
        if 100 <= clock.now < 250:
            raise away(status)
        return ("the end" if clock.now > 400 else None), "la-1 Training"

    assert pipelines.poll(look, 3600) == "the end"
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith("the API server") for line in said] == [False, True, False], "each is said once"


@pytest.mark.parametrize("status", [None, 503])
def test_one_that_stays_away_is_told_before_the_time_is_over(clock: Clock, status: int | None) -> None:
    with pytest.raises(CommandError, match="API server"):
        pipelines.poll(lambda: (_ for _ in ()).throw(away(status)), 3600)
    assert pipelines.AWAY_SECONDS <= clock.now < pipelines.AWAY_SECONDS + 2 * pipelines.POLL_SECONDS


def test_a_refusal_ends_the_wait_at_once(clock: Clock) -> None:
    with pytest.raises(CommandError, match="403"):
        pipelines.poll(lambda: (_ for _ in ()).throw(away(403)), 3600)
    assert clock.now == 0.0
