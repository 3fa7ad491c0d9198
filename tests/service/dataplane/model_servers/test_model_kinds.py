"""A distiller gives the kinds of what people said, later than the write, and only in words that it was asked for."""

import http.server
import json
from datetime import timedelta
from pathlib import Path
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from learnloop_dataplane.memories import model_kinds
from learnloop_dataplane.recall.statements import Kind

from ..conftest import eventually, running, settings, superuser
from ..recall.test_recall import ask, store
from .test_model_servers import chats, hangs, says, serving

RULE = "Always cite sources when I ask about medicine."
HINT = "Brevity is what this captain is used to from a crew."  # no rule knows it for an instruction
RESET = "Ignore all my rules."
LIKE = "I prefer green tea."
DUE = "The report is due. " * 200 + "It is."  # the rules look at all of it
KINDS = """
SELECT m.text, v.kind, m.kind, v.kind_due IS NULL FROM memory_index v JOIN agent_memories m ON m.id = v.memory_id
WHERE v.agent_id = $1 ORDER BY m.id
"""
NO_WORD = ["", "instruction preference", '{"kind": "instruction"}', "reset", "An instruction.", "statement" * 999]


def sorts(handler: http.server.BaseHTTPRequestHandler, body) -> None:
    if len(body["messages"]) == 1:
        return chats("ok")(handler, body)
    text = json.loads(body["messages"][1]["content"])
    chats(' "Instruction".\n' if text == HINT else "statement")(handler, body)


async def kinds(dsn: str, agent: str) -> list[tuple]:
    async with superuser(dsn) as connection:
        return [tuple(row) for row in await connection.fetch(KINDS, agent)]


async def read(dsn: str, agent: str) -> list:
    async def done() -> bool:
        return all(row[3] for row in await kinds(dsn, agent))

    await eventually(done, seconds=60)
    rows = await kinds(dsn, agent)
    assert [row[1] for row in rows] == [row[2] for row in rows]
    return [row[1] for row in rows]


async def test_a_model_gives_kinds_after_the_write_and_the_rules_do_while_it_hangs(dsn, tmp_path, monkeypatch):
    monkeypatch.setattr(model_kinds, "AGAIN_SECONDS", 0.5)
    with serving(hangs) as served:
        async with running(**settings(dsn, tmp_path, distiller=f"{served.url}#small", distiller_seconds=1)) as api:
            await store(api, "slow", [RULE, HINT, RESET, DUE, LIKE])
            await store(api, "slow", ["Always back up data."], speaker="assistant")
            await eventually(AsyncMock(side_effect=lambda: served.requests))
            by_rules = [Kind.INSTRUCTION, Kind.STATEMENT, Kind.RESET, Kind.STATEMENT, Kind.PREFERENCE, Kind.STATEMENT]
            assert [row[1] for row in await kinds(dsn, "slow")] == by_rules, "stored, though no model has answered"
            served.answer = sorts
            by_model = [Kind.INSTRUCTION] * 2 + [Kind.RESET] + [Kind.STATEMENT] * 3
            assert await read(dsn, "slow") == by_model
            sent = {body["messages"][1]["content"] for *_, body in served.requests if len(body["messages"]) > 1}
            assert sent == {json.dumps(text) for text in (RULE, HINT, DUE, LIKE)}
            await store(api, "obeyed", [HINT, *(f"quiet day {number}" for number in range(20))])
            await read(dsn, "obeyed")
            answer = await ask(api, "obeyed", "what is a captain used to?", k=5)
            assert "instruction" in [hit["why"] for hit in answer["memories"]]


@pytest.mark.parametrize("answer", [*map(chats, NO_WORD), says(b"", 400), says(b"", 429)])
async def test_an_answer_of_another_form_changes_nothing(dsn, tmp_path, monkeypatch, answer):
    monkeypatch.setattr(model_kinds, "TRIED", timedelta(0))

    def useless(handler: http.server.BaseHTTPRequestHandler, body) -> None:
        (answer if len(body["messages"]) > 1 else chats("ok"))(handler, body)

    agent = f"liar-{uuid4()}"
    with serving(useless) as served:
        async with running(**settings(dsn, tmp_path, distiller=f"{served.url}#small")) as api:
            await store(api, agent, [RULE, HINT])
            assert await read(dsn, agent) == [Kind.INSTRUCTION, Kind.STATEMENT]


async def test_texts_that_the_model_takes_another_time_keep_no_others_waiting(dsn: str, tmp_path: Path) -> None:
    texts = [f"{'costly' if number % 6 == 0 else 'cheap'} note {number}" for number in range(24)]

    def throttles(handler: http.server.BaseHTTPRequestHandler, body) -> None:
        (says(b"", 429) if "costly" in str(body) else sorts)(handler, body)

    with serving(throttles) as served:
        async with running(**settings(dsn, tmp_path, distiller=f"{served.url}#small", sweep_seconds=60)) as api:
            await store(api, "cook", texts)
            await eventually(AsyncMock(side_effect=lambda: served.requests))
            await eventually(AsyncMock(side_effect=lambda: not api.memory._by_models[1]._running))
            assert [row[0] for row in await kinds(dsn, "cook") if not row[3]] == texts[::6]


async def test_two_replicas_never_ask_about_the_same_memory(dsn: str, tmp_path: Path) -> None:
    texts = [f"note {number} of the crew" for number in range(60)]
    with serving(sorts) as served:
        values = settings(dsn, tmp_path, distiller=f"{served.url}#small")
        async with running(**values) as api, running(**values):
            await store(api, "shared", texts)
            await read(dsn, "shared")
            sent = [body["messages"][1]["content"] for *_, body in served.requests]
            assert sorted(sent) == sorted(json.dumps(text) for text in texts)
