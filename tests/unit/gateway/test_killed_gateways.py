"""A conversation's turns, and its evidence, outlive the process that was killed in the middle of it."""

from pathlib import Path

from tests.unit.gateway.conftest import Bench, build, turns
from tests.unit.gateway.scripted_chat import Chat

from learnloop_gateway.model_servers import UpstreamDown

ADDRESS = "bob@example.com"


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def killed(bench: Bench, folder: Path) -> Bench:
    """The next process: nothing of the last one was closed, and it has the same key."""
    after = build(folder)
    after.sessions.restore()
    after.episode, after.history = bench.episode, bench.history
    after.gateway._arms, after.gateway._episodes = bench.gateway._arms, bench.gateway._episodes
    return after


async def test_what_redaction_takes_out_stays_out_of_the_tokens_of_the_next_process(tmp_path: Path) -> None:
    bench = build(tmp_path)
    await bench.ask(user(f"I am {ADDRESS}"))
    after = killed(bench, tmp_path)
    await after.ask(user("what now?"))
    trajectory = await after.ended()
    assert len(trajectory.steps) == 2
    assert turns(trajectory) == []


async def test_who_asked_not_to_be_recorded_is_not_recorded_by_the_next_process(tmp_path: Path) -> None:
    bench = build(tmp_path)
    await bench.ask(user("hi"))
    await bench.ask(user("keep this to yourself"), store=False)
    after = killed(bench, tmp_path)
    await after.ask(user("and?"))
    assert len((await after.ended()).steps) == 1


async def test_it_holds_where_nothing_was_recorded_yet_and_leaves_nothing(tmp_path: Path) -> None:
    bench = build(tmp_path)
    await bench.ask(user("keep this to yourself"), store=False)
    after = killed(bench, tmp_path)
    await after.ask(user("and?"))
    ending = {"status": "completed", "episode_return": 0, "length": 2}
    await after.client.post(f"/v1/episodes/{after.episode}/end", json=ending)
    assert await after.delivered() == []
    assert after.recording._journal.left() == []


async def test_metadata_of_a_later_turn_is_still_there(tmp_path: Path) -> None:
    bench = build(tmp_path)
    await bench.ask(user("hi"), metadata={"opted_in": "true"})
    await bench.ask(user("and?"), metadata={"opted_in": "false"}, user="ada")
    assert (await killed(bench, tmp_path).ended()).metadata == {"opted_in": "false", "user_id": "ada"}


async def test_a_conversation_that_the_fallback_answered_stays_nobodys_evidence(tmp_path: Path) -> None:
    bench = build(tmp_path, fallback=Chat({"choices": [{"message": {"role": "assistant", "content": "hello"}}]}))
    bench.says.texts = [UpstreamDown("gone")]
    answer = await bench.ask(user("hi"))
    assert answer.headers["x-learnloop-revision"] == "fallback"
    after = killed(bench, tmp_path)
    ending = {"status": "completed", "episode_return": 1, "length": 1, "success": True}
    ended = await after.client.post(f"/v1/episodes/{after.episode}/end", json=ending)
    assert not ended.json()["counted"]
