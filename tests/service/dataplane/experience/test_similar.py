"""The nearest recorded steps of a state: exact, of one agent and one namespace, and gone with the episode."""

import base64
from pathlib import Path

import numpy as np
import pytest

from ..conftest import Api, running, settings, trajectory

PATH = "/api/v1/experience/similar"


async def record(api: Api, identity: str, states: list, agent: str = "walker", last=None, **steps) -> None:
    made = [{"observation": state, "action": 1, "reward": 0.5, **steps} for state in states]
    await api.call(
        "POST", "/api/v1/trajectories", 202, json=trajectory(identity, agent, steps=made, last_observation=last)
    )


async def ask(api: Api, state: list[float], agent: str = "walker", k: int = 5, **kwargs) -> dict:
    return await api.call("POST", PATH, json={"agent_id": agent, "state": state, "k": k}, **kwargs)


async def test_the_nearest_are_those_of_an_exhaustive_search_on_normalised_states(api: Api) -> None:
    random = np.random.default_rng(3)
    states = random.normal(size=(120, 4)) * [1.0, 100.0, 0.01, 0.0] + [0.0, 0.0, 0.0, 0.1]
    for part in range(4):
        await record(api, f"e{part}", states[30 * part : 30 * part + 30].tolist())
    state = states[17] + [0.1, -5.0, 0.001, 1.0]
    scale = [*states[:, :3].std(axis=0), 1.0]
    distances = np.linalg.norm((states - state) / scale, axis=1)
    answer = await ask(api, state.tolist(), k=7)
    assert answer["looked_at"] == 120
    assert [item["distance"] for item in answer["experiences"]] == pytest.approx(sorted(distances)[:7])
    assert [item["state"] for item in answer["experiences"]] == states[np.argsort(distances)[:7]].tolist()


async def test_the_farthest_state_has_an_answer(api: Api) -> None:
    await record(api, "near", [[0.001], [0.002]], agent="far")
    assert [item["distance"] for item in (await ask(api, [3.4e38], agent="far"))["experiences"]] == [3.4e38] * 2


async def test_an_experience_says_what_was_done_and_what_came_of_it(api: Api) -> None:
    await record(api, "whole", [[0.0, 0.0], [1.0, 1.0]], last=[2.0, 2.0])
    first, last = sorted((await ask(api, [0.0, 0.0]))["experiences"], key=lambda item: item["step"])
    assert first == {
        "trajectory_id": "whole",
        "step": 0,
        "state": [0.0, 0.0],
        "action": 1,
        "reward": 0.5,
        "next_state": [1.0, 1.0],
        "terminated": False,
        "episode_return": trajectory("whole", "walker")["outcome"]["episode_return"],
        "success": trajectory("whole", "walker")["outcome"].get("success"),
        "distance": 0.0,
    }
    assert (last["step"], last["next_state"]) == (1, [2.0, 2.0])


async def test_others_episodes_and_other_kinds_of_states_are_not_seen(api: Api) -> None:
    await record(api, "own", [[0.5]])
    await record(api, "anothers", [[0.5]], agent="runner")
    await record(api, "wide", [[0.5, 0.5]])
    await record(api, "spoken", ["0.5"])
    answer = await ask(api, [0.5])
    assert [item["trajectory_id"] for item in answer["experiences"]] == ["own"]
    assert (await ask(api, [0.5], namespace="team-b"))["experiences"] == []
    await api.call("POST", PATH, 422, json={"agent_id": "walker", "state": []})
    await api.call("POST", PATH, 422, json={"agent_id": "walker", "state": [0.5], "k": 101})


async def test_erased_episodes_are_no_experience_any_more(api: Api) -> None:
    await record(api, "soon-gone", [[0.25]], agent="leaver")
    assert len((await ask(api, [0.0], agent="leaver"))["experiences"]) == 1
    async with api.db.tenant("team-a") as connection:
        await connection.execute("DELETE FROM trajectories WHERE trajectory_id = 'soon-gone'")
    assert (await ask(api, [0.0], agent="leaver")) == {"looked_at": 0, "experiences": []}


async def test_to_delete_an_episode_of_a_young_database_reads_its_own_steps(api: Api) -> None:
    read = """SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
        WHERE relname = 'training_transitions'"""
    grow = """INSERT INTO training_transitions SELECT namespace, 'copy-' || n, steps, last_observation
        FROM training_transitions, generate_series(1, 2000) n WHERE trajectory_id = 'second'"""
    for name in ("first", "second"):
        await record(api, name, [[0.5]])
    async with api.db.tenant("team-a") as connection:
        await connection.execute("DELETE FROM trajectories WHERE trajectory_id = 'first'")
        await connection.execute(grow)
        before = await connection.fetchval(read)  # what the connection read earlier may not be reported yet
        await connection.execute("DELETE FROM trajectories WHERE trajectory_id = 'second'")
        assert await connection.fetchval(read) - before < 100


async def test_sealed_steps_are_opened_for_who_may_read_them(dsn: str, tmp_path: Path) -> None:
    key = f"k1 {base64.b64encode(bytes(32)).decode()}"
    async with running(**settings(dsn, tmp_path, encryption_keys=key)) as api:
        await record(api, "sealed", [[0.125]], agent="safe", last=[1.0])
        [nearest] = (await ask(api, [0.0], agent="safe"))["experiences"]
        assert (nearest["state"], nearest["next_state"]) == ([0.125], [1.0])
