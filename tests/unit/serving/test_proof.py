"""Evidence: endings and actions of episodes that a server of this ModelDeployment opened for this arm."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from learnloop_api import names
from learnloop_api.wire.base import Identifier
from learnloop_common.cluster_clock import ClusterClock
from learnloop_common.redaction.redactor import Redaction
from learnloop_serving import episode_ids as sealing
from learnloop_serving.episode_ids import EpisodeIds, Seal, follow_key
from learnloop_serving.episodes import LONGEST_SECONDS
from testing.servers.policy_servers import CANARY, KEY, STABLE, LiveServer, table

INPUTS = {"observation": [1.0, 0.0, 0.0, 0.0]}
FAILED = {"status": "completed", "episode_return": -1.0, "length": 1, "success": False}
SERIES = (
    (names.METRIC_EPISODES_ENDED, {"outcome": "failure"}),
    (names.METRIC_EPISODE_RETURN_LOSS, {}),
    (names.METRIC_REQUEST_SECONDS + "_count", {"verb": "act"}),
    (names.METRIC_REQUEST_SECONDS + "_count", {"verb": "end"}),
    (names.METRIC_REQUEST_ERRORS, {"verb": "act"}),
)


def evidence(server: LiveServer) -> list[float]:
    """All that a caller can move."""
    return [server.metric(name, **labels) for name, labels in SERIES]


def tampered(episode: str) -> list[str]:
    """The id with another arm, a later time, another mark, and without one."""
    revision, at, drawn, mark = episode.split(".")
    later = f"t{int(at[1:], 16) + 1:08x}"
    wrong = "m" + ("0" if mark[1] != "0" else "1") + mark[2:]
    other = CANARY if revision == STABLE else STABLE
    return [
        ".".join(parts)
        for parts in (
            (other, at, drawn, mark),
            (revision, later, drawn, mark),
            (revision, at, drawn, wrong),
            (revision, at, drawn),
            (revision, at, drawn, mark, mark),
            (revision.upper(), at, drawn, mark),
        )
    ]


@pytest.fixture
def proving(start: Callable[..., LiveServer]) -> LiveServer:
    server = start()
    server.route(table((STABLE, "stable", 90), (CANARY, "canary", 10)))
    return server


def test_who_never_opened_an_episode_moves_no_evidence(proving: LiveServer) -> None:
    of_another = EpisodeIds("cart", Seal(b"the key of another ModelDeployment!!")).make(STABLE)
    of_another_name = EpisodeIds("other", Seal(KEY)).make(STABLE)
    made_up = ["anything", "x" * 5000, "%00", "é", of_another, of_another_name, *tampered(proving.opened())]
    before = evidence(proving)
    for episode in made_up:
        for verb, body in (("act", INPUTS), ("act", {"observation": [1.0]}), ("end", FAILED)):
            refused = proving.post(f"/v1/episodes/{episode}/{verb}", body, **{names.HEADER_ARM: STABLE})
            assert (refused.status_code, refused.json()["reason"]) == (404, "UnknownEpisode"), episode
            assert "open an episode first" in refused.json()["message"]
    assert evidence(proving) == before
    assert proving.metric(names.METRIC_UNPROVEN, verb="act") == 2 * len(made_up)
    assert proving.metric(names.METRIC_UNPROVEN, verb="end") == len(made_up)


def test_an_episode_of_another_arm_is_no_evidence_here(proving: LiveServer) -> None:
    before = evidence(proving)[:2]
    ended = proving.post(f"/v1/episodes/{proving.opened(CANARY)}/end", FAILED)
    assert (ended.status_code, ended.json()["reason"]) == (421, "UnknownEpisode")
    assert evidence(proving)[:2] == before


def test_what_one_server_opened_every_server_of_the_arm_counts(start: Callable[..., LiveServer]) -> None:
    stable, canary = start(), start(revision=CANARY)
    for server in (stable, canary):
        server.route(table((STABLE, "stable", 0, stable.url), (CANARY, "canary", 100, canary.url)))
    episode = stable.post("/v1/episodes", {}).json()
    at = f"/v1/episodes/{episode['episode_id']}"
    assert canary.post(f"{at}/act", INPUTS).json()["revision"] == CANARY
    assert canary.post(f"{at}/end", FAILED).json() == {"counted": True}
    assert canary.metric(names.METRIC_UNPROVEN, verb="act") == 0
    assert canary.metric(names.METRIC_EPISODES_ENDED, outcome="failure") == 1


def test_an_ending_a_day_after_the_opening_and_a_second_one_are_not_counted(proving, monkeypatch):
    in_time, late = proving.opened(), proving.opened()
    now = time.time()
    assert proving.post(f"/v1/episodes/{in_time}/end", FAILED).json() == {"counted": True}
    assert proving.post(f"/v1/episodes/{in_time}/end", FAILED).json() == {"counted": False}
    monkeypatch.setattr(ClusterClock, "now", lambda _: now + LONGEST_SECONDS + 2)
    assert proving.post(f"/v1/episodes/{late}/act", INPUTS).status_code == 200
    assert proving.post(f"/v1/episodes/{late}/end", FAILED).json() == {"counted": False}
    assert proving.metric(names.METRIC_EPISODES_ENDED, outcome="failure") == 1
    for reason in ("again", "late"):
        assert proving.metric(names.METRIC_ENDINGS_UNCOUNTED, reason=reason) == 1


def test_a_key_made_anew_is_taken_over_while_ids_of_the_one_before_it_still_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(sealing, "POLL_SECONDS", 0.001)
    file = tmp_path / "key"
    file.write_bytes(KEY)
    seal = Seal.read(file)
    ids = EpisodeIds("cart", seal)
    before = ids.make(STABLE)

    async def follow_for_a_moment() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await follow_key(file, seal)

    other = Seal(b"n" * 32)
    foreign = EpisodeIds("cart", other).make(STABLE)
    assert ids.read(foreign) is None
    for broken in (b"", b"short"):
        file.write_bytes(broken)
        asyncio.run(follow_for_a_moment())
    assert ids.read(ids.make(STABLE)), "the last good key stays in force"
    file.write_bytes(b"n" * 32)
    deadline = time.monotonic() + 60
    while ids.read(foreign) is None:
        assert time.monotonic() < deadline, "the new key is never read"
        asyncio.run(follow_for_a_moment())
    assert ids.read(before) is not None
    assert other.holds(b"p", b"m", seal.mark(b"p", b"m")), "new marks are the new key's"


def test_a_key_that_is_gone_or_too_short_is_refused_with_the_path_and_the_fix(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing cannot be read: No such file"):
        Seal.read(tmp_path / "missing")
    (tmp_path / "short").write_text("secret\n")
    with pytest.raises(ValueError, match=r"short has a key of 6 characters: must be 32 random ones or more"):
        Seal.read(tmp_path / "short")


def test_without_a_file_each_process_has_a_key_of_its_own() -> None:
    assert EpisodeIds("cart", Seal()).read(EpisodeIds("cart", Seal()).make(STABLE)) is None


def test_an_id_is_an_identifier_and_redaction_sees_nothing_private_in_it() -> None:
    ids, check, redacted = EpisodeIds("cart", Seal(KEY)), TypeAdapter(Identifier), Redaction()
    for number in range(3000):
        episode = ids.make(f"{number % 100:08d}")
        assert check.validate_python(episode) == redacted(episode) == episode


def test_a_mark_holds_for_its_purpose_alone() -> None:
    seal = Seal(KEY)
    assert seal.holds(b"shadow", b"body", seal.mark(b"shadow", b"body"))
    assert not seal.holds(b"episode", b"body", seal.mark(b"shadow", b"body"))
    assert not seal.holds(b"shadow", b"body", "\udcff")
