"""A preference is kept once, redacted and by pseudonym, read back in pages, and erased with the person."""

from datetime import UTC, datetime, timedelta

from learnloop_api.wire.language import PreferencePage

from ..conftest import Api, trajectory

AT = datetime(2026, 11, 1, tzinfo=UTC)
PATH = "/api/v1/preferences"


def preference(identity: str, agent: str = "speaker", **more) -> dict:
    return {
        "preference_id": identity,
        "agent": agent,
        "messages": [{"role": "user", "content": "Write to mia@example.com, please."}],
        "chosen": {"text": "With pleasure."},
        "rejected": {"text": "No. Ask mia@example.com."},
        "at": datetime.now(UTC).isoformat(),
        **more,
    }


def sampled(session: str) -> dict:
    turn = {"turn_id": f"{session}-0", "session": session, "position": 0, "prompt_ids": [1], "sampled_ids": [2]}
    return {"turns": [{**turn, "log_probs": [-0.5], "policy_revision": "a", "at": AT.isoformat()}]}


async def _all(api: Api, agent: str = "speaker", limit: int = 20) -> list[str]:
    ids: list[str] = []
    after = ""
    while True:
        body = await api.call("GET", f"{PATH}?agent={agent}&limit={limit}{after}")
        page = PreferencePage.model_validate(body)
        ids += [one.preference_id for one in page.preferences]
        if page.next is None:
            return ids
        after = f"&after={page.next}"


async def test_a_preference_is_kept_once_redacted_and_by_pseudonym(api: Api) -> None:
    first = await api.call("POST", PATH, 201, json=preference("r1", "redacted", user_id="zoe"))
    again = await api.call("POST", PATH, 200, json=preference("r1", "redacted", user_id="zoe"))
    assert (first["stored"], first["duplicate"], again["duplicate"]) == (True, False, True)
    (stored,) = (await api.call("GET", f"{PATH}?agent=redacted"))["preferences"]
    assert "mia@example.com" not in str(stored)
    assert stored["user_id"].startswith("user:")
    assert stored["chosen"]["text"] == "With pleasure."


async def test_pages_hold_every_preference_once_newest_first(api: Api) -> None:
    for number in range(5):
        await api.call("POST", PATH, 201, json=preference(f"p{number}", "paged"))
    assert await _all(api, "paged", 2) == ["p4", "p3", "p2", "p1", "p0"]
    assert await _all(api, "nobody") == []


async def test_what_is_no_preference_is_refused_with_its_field(api: Api) -> None:
    same = preference("x", chosen={"text": "a"}, rejected={"text": "a"})
    assert "same answer" in (await api.call("POST", PATH, 422, json=same))["error"]["message"]
    await api.call("POST", PATH, 422, json=preference("x", chosen={"text": "a", "turns": sampled("s")["turns"]}))
    await api.call("GET", f"{PATH}?agent=speaker&limit=21", 422)


async def test_erasing_a_person_takes_their_preferences_and_those_about_their_conversations(api: Api) -> None:
    episode = trajectory("t-mine", "eraser", episode_id="mine", metadata={"user_id": "ann"})
    await api.call("POST", "/api/v1/trajectories", 202, json=episode)
    await api.call("POST", PATH, 201, json=preference("hers", "eraser", user_id="ann"))
    about = {"chosen": sampled("mine"), "rejected": sampled("other"), "messages": []}
    await api.call("POST", PATH, 201, json=preference("about", "eraser", **about))
    await api.call("POST", PATH, 201, json=preference("others", "eraser", user_id="ben"))

    async def stored() -> bool:
        async with api.db.tenant("team-a") as connection:
            return bool(await connection.fetchval("SELECT 1 FROM trajectories WHERE trajectory_id = 't-mine'"))

    from ..conftest import eventually

    await eventually(stored)
    receipt = await api.call("POST", "/api/v1/erasure", json={"user_id": "ann"})
    assert receipt["rows"]["preferences"] == 2
    assert await _all(api, "eraser") == ["others"]
    late = preference("late", "eraser", user_id="ann", at=(datetime.now(UTC) - timedelta(hours=1)).isoformat())
    assert (await api.call("POST", PATH, 200, json=late))["stored"] is False


async def test_who_opted_out_prefers_nothing_here(api: Api) -> None:
    await api.call("PUT", "/api/v1/users/quiet/opt-out", 204)
    answer = await api.call("POST", PATH, 200, json=preference("q", "quieter", user_id="quiet"))
    assert answer["stored"] is False
    assert await _all(api, "quieter") == []


async def test_erasing_an_agent_takes_its_preferences(api: Api) -> None:
    await api.call("POST", PATH, 201, json=preference("gone", "leaver"))
    receipt = await api.call("POST", "/api/v1/erasure", json={"agent_id": "leaver"})
    assert receipt["rows"]["preferences"] == 1
    assert await _all(api, "leaver") == []
