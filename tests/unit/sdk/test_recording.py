import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from learnloop_api.wire.trajectory import Trajectory
from learnloop_sdk import Learnloop
from learnloop_sdk.outbox import PAGE_BYTES, Parcel, Spool

Make = Callable[..., Learnloop]


async def play(loop: Learnloop, count: int = 1, **metadata: str) -> None:
    for _ in range(count):
        async with loop.episode("t", external=True, metadata=metadata) as episode:
            episode.record(1, 1.0, terminated=True, observation=[0.0, 1.0])


async def test_a_busy_data_plane_is_asked_again(learn: Make, data_plane) -> None:
    data_plane.answers["/api/v1/trajectories"] = (503, b"")
    loop = learn(data_url=data_plane.url)
    await play(loop)
    assert await loop.flush(0.3) == 1
    data_plane.answers.clear()
    assert await loop.flush(60) == 0
    assert loop.counters.trajectories_delivered == 1


async def test_a_refused_trajectory_is_counted_and_not_sent_again(learn: Make, data_plane) -> None:
    data_plane.answers["/api/v1/trajectories"] = (422, b"no such agent")
    loop = learn(data_url=data_plane.url)
    await play(loop)
    assert await loop.flush(60) == 0
    assert loop.counters.trajectories_rejected == 1
    assert len(data_plane.bodies()) == 1


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_full_spool_drops_the_oldest_and_says_how_many(kind: str, tmp_path: Path) -> None:
    spool = Spool(None if kind == "memory" else tmp_path / "spool.sqlite", 30 * PAGE_BYTES)
    dropped = [spool.add(Parcel(f"t{number}", b"x" * 9 * PAGE_BYTES)) for number in range(5)]
    assert dropped == [0, 0, 1, 1, 1]
    assert [parcel.identity for parcel in spool.head(9)] == ["t3", "t4"]
    spool.later(spool.head(1)[0])
    assert [parcel.identity for parcel in spool.head(9)] == ["t4", "t3"]
    spool.done(spool.head(1)[0])
    assert [parcel.identity for parcel in spool.head(9)] == ["t3"]


async def test_the_token_goes_with_every_post_and_is_read_afresh(learn: Make, data_plane, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    loop = learn(data_url=data_plane.url, token_file=token)
    await play(loop)
    await loop.flush(60)
    token.unlink()
    token.write_text("two\n")
    await play(loop)
    await loop.flush(60)
    assert [headers["authorization"] for _, _, headers in data_plane.posts] == ["Bearer one", "Bearer two"]


async def test_secrets_are_gone_before_anything_is_sent(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    async with loop.episode("mail jane.doe@example.com", external=True, metadata={"note": "password=hunter22"}) as ep:
        ep.record({"tool": "login", "api_key": "k-1"}, observation="Bearer abcdefgh12345678")
    await loop.flush(60)
    (body,) = data_plane.bodies()
    for secret in (b"jane.doe", b"hunter22", b"k-1", b"abcdefgh"):
        assert secret not in body


async def test_a_person_whose_id_is_an_address_stays_that_person_and_is_not_named(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    for user in ("anna@example.org", "ben@example.org", "anna@example.org"):
        await play(loop, user_id=user)
    await loop.flush(60)
    bodies = data_plane.bodies()
    assert not [body for body in bodies if b"anna" in body or b"ben@" in body]
    assert len({json.loads(body)["metadata"]["user_id"] for body in bodies}) == 2


async def test_a_full_disk_costs_a_trajectory_and_not_the_agent(learn: Make, data_plane, tmp_path: Path) -> None:
    loop = learn(data_url=data_plane.url, spool_directory=tmp_path / "spool")
    shutil.rmtree(tmp_path / "spool")
    await play(loop)
    assert loop.counters.trajectories_dropped == 1


async def test_an_agent_may_write_into_its_own_lists_and_objects_after_recording_them(learn, data_plane):
    loop = learn(data_url=data_plane.url)
    observation, done = [0.0, 1.0], [0.5]
    async with loop.episode("t", external=True) as episode:
        for number in range(3):
            observation[0] = done[0] = float(number)
            episode.record(done, 1.0, observation=observation)
        episode.outcome(True, errors=1.0)
    state = {"turn": 1}
    async with loop.episode("t", external=True) as other:
        other.record(1, 1.0, observation=state)
    observation[0] = done[0] = 9.0
    state["turn"] = 9
    episode.outcome(False, errors=9.0)
    await loop.flush(60)
    first, second = sorted(map(Trajectory.model_validate_json, data_plane.bodies()), key=lambda one: -len(one.steps))
    assert [(step.observation, step.action) for step in first.steps] == [
        ([float(n), 1.0], [float(n)]) for n in range(3)
    ]
    assert (first.outcome.success, first.outcome.values) == (True, {"errors": 1.0})
    assert second.steps[0].observation == {"turn": 1}


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_what_took_the_place_of_a_parcel_in_flight_stays(kind: str, tmp_path: Path) -> None:
    spool = Spool(None if kind == "memory" else tmp_path / "spool.sqlite")
    spool.add(Parcel("opinion", b"up"))
    (sent,) = spool.head(9)
    spool.add(Parcel("opinion", b"down"))
    spool.done(sent)
    spool.later(sent)
    (waiting,) = spool.head(9)
    assert (waiting.body, spool.pending) == (b"down", 1)
    spool.done(waiting)
    assert (spool.head(9), spool.pending) == ([], 0)


def test_what_took_the_place_of_a_dropped_parcel_in_flight_stays() -> None:
    spool = Spool(None, 30 * PAGE_BYTES)
    spool.add(Parcel("t0", b"x" * 19 * PAGE_BYTES))
    spool.later(spool.head(1)[0])
    (sent,) = spool.head(1)
    assert spool.add(Parcel("t1", b"y" * 19 * PAGE_BYTES)) == 1
    spool.done(sent)
    assert [parcel.identity for parcel in spool.head(9)] == ["t1"]


def test_a_spool_is_for_one_user_and_leaves_room_on_a_small_volume(tmp_path, monkeypatch):
    """A deletion writes what it overwrites first: on a volume that is full, nothing delivered could ever leave."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=4 * 30 * PAGE_BYTES))
    file = tmp_path / "spool.sqlite"
    spool = Spool(file)
    assert [spool.add(Parcel(f"t{number}", b"x" * 9 * PAGE_BYTES)) for number in range(4)] == [0, 0, 1, 1]
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.iterdir()] == [(file.name, 0o600)]


def test_a_spool_that_cannot_be_read_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "spool.sqlite"
    file.write_bytes(b"not a database" * 999)
    spool = Spool(file)
    spool.add(Parcel("t0", b"x"))
    assert (spool.pending, Spool(file).pending) == (1, 1)
    assert (tmp_path / "spool.sqlite.unreadable").read_bytes().startswith(b"not a database")
    assert f"{file} cannot be read" in caplog.text


async def test_a_spool_that_fails_does_not_end_delivery(learn, data_plane, monkeypatch):
    loop = learn(data_url=data_plane.url)
    with monkeypatch.context() as patched:
        patched.setattr(Spool, "head", lambda *_: 1 / 0)
        await play(loop)
        assert await loop.flush(0.3) == 1
    assert await loop.flush(60) == 0
