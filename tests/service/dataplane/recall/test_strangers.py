"""Questions and memories of somebody who means no good, or has another language: answered, bounded, and never wrong."""

import pytest

from ..conftest import Api
from .test_recall import ask, indexed, store

FILLER = " ".join(f"subject{number:04}" for number in range(700))


def first(answer: dict[str, list[dict[str, dict[str, str]]]]) -> str:
    return answer["memories"][0]["content"]["text"]


@pytest.mark.parametrize("where", ["begin", "end"])
async def test_a_question_of_eight_kilobytes_finds_what_it_is_about(api: Api, where: str) -> None:
    agent = f"reader-{where}"
    await store(api, agent, [f"parcel {number} went to the harbour" for number in range(40)])
    await store(api, agent, ["the violin is in the left cupboard"])
    question = "where is the violin?"
    page = f"{question} {FILLER}" if where == "begin" else f"{FILLER} {question}"
    assert len(page) > 8 * 1024
    answer = await ask(api, agent, page, k=5)
    assert "the violin is in the left cupboard" in [memory["content"]["text"] for memory in answer["memories"]]


async def test_a_thousand_times_the_same_memory_hides_nothing_and_orders_the_same_each_time(api: Api) -> None:
    await store(api, "parrot", ["the lamp is broken"] * 1000)
    await store(api, "parrot", ["the violin is in the left cupboard"])
    await indexed(api, "parrot", 1001)
    assert first(await ask(api, "parrot", "where is the violin")) == "the violin is in the left cupboard"
    answers = [await ask(api, "parrot", "lamp", k=20) for _ in range(3)]
    orders = [[memory["id"] for memory in answer["memories"]] for answer in answers]
    assert orders[0] == orders[1] == orders[2]


HOSTILE = [
    "'; DROP TABLE agent_memories; --",
    '{"$ne": null} %00 \\u0000 \' OR 1=1',
    "\u202eright to left\u202c \u200b\u200d zero width",
    "🙂" * 500,
    "a\u0301" * 2000,
    "\ufeff\ufffe\U0010fffd",
    "<script>alert(1)</script> {{7*7}} ${jndi:ldap://x}",
    "word" * 5000,
    ". , ; : ! ? — … ' \"",
    "the of and to in is",
    "\t\n\r \x00\x1f\x7f",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_text_is_stored_asked_for_and_harms_nobody(api: Api, text: str) -> None:
    agent = "hostile"
    await store(api, agent, ["an honest memory about the harbour", f"{text} stored"])
    for question in (text, f"{text} harbour"):
        answer = await ask(api, agent, question, k=3)
        assert answer["memories"]
        assert all(abs(memory["score"]) < 1e6 for memory in answer["memories"]), "no score that is not a number"
    assert "harbour" in first(await ask(api, agent, "the harbour"))
