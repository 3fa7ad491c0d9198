"""Logs as JSON lines: whole, one a line, and with what they are about."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from learnloop_common.telemetry import about, set_up, style_of, tell, trace_id, trace_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level, text = list(root.handlers), root.level, io.StringIO()
    set_up("INFO", "json", "", text)
    yield text
    root.handlers, root.level = before, level


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
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
    try:
        raise ValueError("of the reward")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = lines(stream)
    assert line["error"].endswith("ValueError: of the reward")


def test_the_same_thing_always_has_the_same_trace() -> None:
    assert trace_id("uid", "3") == trace_id("uid", "3") != trace_id("uid", "4")
    assert len(trace_id("uid")) == 32


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


def test_another_style_is_refused_by_name() -> None:
    assert style_of({}) == "text"
    with pytest.raises(ValueError, match=r"LEARNLOOP_LOG_FORMAT='xml': set it to text or json"):
        style_of({"LEARNLOOP_LOG_FORMAT": "xml"})
