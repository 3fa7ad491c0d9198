"""A comparison in a process of its own: the same answer, and nothing left behind, whatever becomes of the process."""

import asyncio
import math
import os
import sys
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.lifecycle import compared_apart
from learnloop_dataplane.lifecycle.compared_apart import compared
from learnloop_dataplane.lifecycle.comparison import HELD, SHOWN, Compared, compare, page, rows_of

TEXTS = (
    "the harbour lamp\nis lit at dusk “always”",
    "the harbour lamp\nis lit at dusk “always”",
    "nobody has seen the kettle since the storm of last week",
)


def held() -> list[bytes]:
    rows = [
        {"id": UUID(int=place + 1), "memory_type": "semantic", "text": text, "content": '{"text": "x"}'}
        | {"importance": 0.5, "pinned": False, "source": "agent", "origin": "", "created": 100.0 + place}
        | {"earned": 0.0, "begins": 0.0, "ends": math.inf, "about": ""}
        for place, text in enumerate(TEXTS)
    ]
    return [page(rows[:1], HELD), page(rows[1:], HELD)]


def shown() -> list[bytes]:
    row = {"id": UUID(int=99), "text": TEXTS[2], "content": '{"text": "x"}', "times": [50.0], "about": ""}
    return [page([row | {"ends": math.inf}], SHOWN)]


async def test_a_process_of_its_own_says_what_a_thread_says(monkeypatch: pytest.MonkeyPatch) -> None:
    here = compare(held(), shown())
    assert [(entry.id.int, entry.by.int, entry.kind) for entry in here.junk] == [(3, 99, "echo"), (2, 1, "duplicate")]
    assert await compared(held(), shown(), compared_apart.MANY + 1, rests=False) == here
    assert await compared(held(), shown(), compared_apart.MANY + 1, rests=True) == here
    assert Compared.decode(here.encode()) == here
    monkeypatch.setattr(sys, "executable", "/none")
    assert await compared(held(), shown(), compared_apart.MANY, rests=True) == here, "few are compared by a thread"


async def test_where_no_process_can_be_started_a_thread_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/none")
    assert await compared(held(), shown(), compared_apart.MANY + 1, rests=False) == compare(held(), shown())


async def test_a_process_that_ends_without_an_answer_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared_apart, "PROGRAM", "learnloop_dataplane.lifecycle")
    with pytest.raises(Unavailable, match="compares memories"):
        await compared(held(), shown(), compared_apart.MANY + 1, rests=False)


async def test_a_pass_that_is_given_up_takes_its_process_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    sleeper = tmp_path / "sleeps_for_this_test.py"
    sleeper.write_text(f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(compared_apart, "PROGRAM", sleeper.stem)
    comparing = asyncio.create_task(compared(held(), shown(), compared_apart.MANY + 1, rests=False))
    await asyncio.to_thread(_written, told)
    comparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await comparing
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


def _written(told: Path) -> None:
    while not (told.exists() and told.read_text()):
        time.sleep(0.02)


def test_a_page_gives_back_what_it_was_made_of_and_takes_no_other_kind_of_value() -> None:
    row: dict[str, Any] = {"id": UUID(int=1), "text": "a\r\nb", "ends": math.inf}
    [back] = rows_of([page([row], ("id", "text", "ends"))], ("id", "text", "ends"))
    assert back == {"id": str(UUID(int=1)), "text": "a\r\nb", "ends": None}
    with pytest.raises(TypeError):
        page([{"id": object()}], ("id",))
