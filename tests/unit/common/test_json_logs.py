"""Logs: one a line, whole, and with what they are about."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from learnloop_common.http_server import LogThrottle, uvicorn_config
from learnloop_common.telemetry import about, set_up, style_of, tell, trace_id, trace_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level, text = list(root.handlers), root.level, io.StringIO()
    monkeypatch.setenv("LEARNLOOP_LOG_FORMAT", "json")
    set_up(stream=text)
    yield text
    root.handlers, root.level = before, level


def lines(stream: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_what_it_is_about_and_no_line_after_it_does(stream: io.StringIO) -> None:
    log = logging.getLogger("learnloop.test")
    with about(object="ModelDeployment team/pole"):
        tell(revision="3f9a2c81", trace_id=trace_id("uid"))
        log.info("rolled %s\nback", "it")
    log.warning("later")
    first, second = lines(stream)
    assert first["message"] == "rolled it\nback"
    assert (first["object"], first["revision"]) == ("ModelDeployment team/pole", "3f9a2c81")
    assert first["trace_id"] == trace_id("uid")
    assert (first["level"], first["logger"]) == ("info", "learnloop.test")
    assert first["at"].endswith("Z")
    assert set(second) == {"at", "level", "logger", "message"}


def test_an_error_is_in_its_line(stream: io.StringIO) -> None:
    with pytest.raises(ValueError, match="LEARNLOOP_LOG_FORMAT='xml': set it to text or json"):
        style_of({"LEARNLOOP_LOG_FORMAT": "xml"})
    try:
        raise ValueError("of the reward")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = lines(stream)
    assert line["error"].endswith("ValueError: of the reward")


def test_no_text_of_a_caller_forges_a_line_for_people_and_its_time_is_utc(stream: io.StringIO) -> None:
    set_up("INFO", "text", stream=stream)
    try:
        raise ValueError("broken\n2026-01-01T00:00:00.000Z INFO x forged\u2028\x1b[2K\rforged")
    except ValueError:
        logging.getLogger("x").exception("GET %s", "/a\r\n2026-01-01T00:00:00.000Z INFO x forged\x1b[2K")
    first, *error = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z ERROR x GET /a\\u000d\\n2026.*forged\\u001b\[2K", first)
    assert all(line.startswith("  ") and line.isprintable() for line in error)
    assert uvicorn_config(lambda *_: None, "::1", 1, connections=1, tls=None).log_config is None


def test_a_subject_has_one_line_in_ten_seconds_with_the_count_left_out() -> None:
    throttle = LogThrottle(iter([0.0, 1.0, 2.0, 3.0, 10.0, 20.0]).__next__)
    subjects = [("a", 401), ("a", 401), ("a", 401), ("b", 401), ("a", 401), ("a", 401)]
    assert [throttle.due(*each) for each in subjects] == ["", None, None, "", " (2 more like it before)", ""]


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        ("nonsense", ""),
    ],
)
def test_a_callers_trace_is_read_from_its_header(header: str, trace: str) -> None:
    assert trace_of(header) == trace
