"""Recalled text that comes back to be stored is not stored again."""

import unicodedata
from typing import Any

from ..conftest import Api

SAID = "the deploy of the billing service failed because the database migration ran out of time on friday"


async def store(api: Api, text: str, status: int = 201, **more: Any) -> Any:
    body = {"agent_id": "parrot", "memory_type": "semantic", "content": {"text": text}, **more}
    return await api.call("POST", "/api/v1/memory/store", status, json=body)


async def recall(api: Api, context: str) -> Any:
    return await api.call("POST", "/api/v1/memory/retrieve", json={"agent_id": "parrot", "context": context})


async def test_an_echo_is_answered_with_the_memory_it_came_from(api: Api) -> None:
    original = await store(api, SAID)
    twin = await store(api, SAID)
    assert twin["id"] != original["id"], "what was not recalled is no echo"
    await recall(api, "billing deploy failed")
    echo = await store(api, f"I remember: {SAID}", 200)
    assert echo["echo"] is True
    assert echo["id"] in {original["id"], twin["id"]}
    news = await store(api, "the billing service runs in three zones now, says the new plan of the platform team")
    assert news["echo"] is False
    assert (await store(api, SAID, pinned=True))["echo"] is False, "who pins a text wants it kept"
    body = {"agent_id": "other", "memory_type": "semantic", "content": {"text": SAID}}
    await api.call("POST", "/api/v1/memory/store", 201, json=body)
    await api.call("POST", "/api/v1/memory/store", 201, json=body | {"agent_id": "parrot"}, namespace="team-b")


async def test_of_a_batch_the_echoes_are_left_out_and_the_ids_stay_in_order(api: Api) -> None:
    found = (await recall(api, "billing deploy failed"))["memories"]
    new = "a third sentence that nobody has ever heard of before in this place"
    memories = [
        {"agent_id": "parrot", "memory_type": "semantic", "content": {"text": text}} for text in (SAID, new, SAID)
    ]
    done = await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": memories})
    assert done["echoes"] == 2
    assert done["ids"][0] == done["ids"][2] != done["ids"][1]
    assert done["ids"][0] in {hit["id"] for hit in found}


async def test_an_echo_of_what_is_gone_is_stored(api: Api) -> None:
    text = "the lift in the north wing is out of order until the spare part arrives from the factory"
    original = await store(api, text)
    await recall(api, "lift in the north wing")
    gone = {"agent_id": "parrot", "ids": [original["id"]]}
    await api.call("POST", "/api/v1/memory/delete", json=gone)
    assert (await store(api, text))["echo"] is False


async def test_an_echo_that_names_nobody_is_of_the_person_of_the_memory_that_was_shown(api: Api) -> None:
    text = "the guest of room seven asked for a quiet table by the window and for oat milk with the coffee"
    await store(api, text, user_id="anna")
    await recall(api, "guest of room seven")
    assert (await store(api, text, 200))["echo"] is True
    assert (await store(api, text, user_id="ben"))["echo"] is False


FACTS = {
    "English": ("the north depot opens at noon on weekdays", "the north depot opens at noon on weekdays is outdated"),
    "German": ("das Lager Nord öffnet werktags um zwölf", "das Lager Nord öffnet werktags nicht mehr um zwölf"),
    "Dutch": ("magazijn noord gaat elke werkdag om twaalf open", "magazijn noord gaat niet meer elke werkdag open"),
    "Turkish": ("kuzey deposu İzmir'de her gün öğlen açık", "kuzey deposu İzmir'de her gün öğlen açık değil"),
    "Hindi": ("उत्तरी गोदाम हर दिन दोपहर में खुलता है", "उत्तरी गोदाम हर दिन दोपहर में नहीं खुलता है"),
    "French": ("le dépôt nord est ouvert à midi", "le dépôt nord n'est jamais ouvert à midi"),
    "Spanish": ("el depósito norte abre los lunes a mediodía", "el depósito norte nunca abre los lunes a mediodía"),
    "Russian": ("северный склад открыт в полдень по будням", "северный склад не открыт в полдень по будням"),
    "Chinese": ("北方仓库工作日中午十二点开门", "北方仓库工作日中午十二点不开门"),
    "Arabic": ("المستودع الشمالي يفتح في الظهر كل يوم", "المستودع الشمالي لا يفتح في الظهر كل يوم"),
    "Korean": ("북쪽 창고 는 평일 정오 에 문을 연다", "북쪽 창고 는 평일 정오 에 문을 안 연다"),
    "Polish": (
        "magazyn północny jest otwarty w południe co dzień",
        "magazyn północny nie jest otwarty w południe co dzień",
    ),
}


async def test_a_correction_in_any_language_is_stored_and_recalled_and_outlives_consolidation(api: Api) -> None:
    for fact, correction in FACTS.values():
        await store(api, fact)
        await recall(api, fact)
        assert (await store(api, correction))["echo"] is False, correction
    await api.memory.recall_log.flush()
    await api.call("POST", "/api/v1/memory/consolidate", json={"agent_id": "parrot"})
    for pair in FACTS.values():
        for question in (pair[0].upper(), unicodedata.normalize("NFD", pair[1])):
            found = [hit["content"]["text"] for hit in (await recall(api, question))["memories"]]
            assert set(pair) == set(found[:2]), question
