"""Actors play the trainer's environments, of every kind, by the policy that a server answers with."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from as_gymnasium import Parallel
from learnloop_api.kinds.training.environment_conditions import Safety
from learnloop_api.uniform_policy import ENVIRONMENTS
from learnloop_api.wire.trajectory import Trajectory
from learnloop_common.acting.onnx_policy import OnnxPolicy
from learnloop_environments import Conditions, make
from learnloop_environments.interfaces.gymnasium_vectors import TeamVector
from learnloop_environments.randomness import Split
from learnloop_environments.spaces import Bounds
from learnloop_environments.wrappers import innermost
from learnloop_sdk import Learnloop, LearnloopError
from learnloop_sdk.environment_actor import Options, World, play
from learnloop_serving.policy_loader import parse_uniform
from learnloop_trainer.action_shield import Shield
from learnloop_trainer.export import build
from testing.servers.policy_servers import STABLE, LiveServer, table

Make = Callable[..., Learnloop]


def setting(name: str, **more) -> Options:
    return Options(environment=name, agent="cart", **more)


OWN = {
    "motion:Courier": "uniform://hybrid/3/-1..1?observations=9",
    "teams:Cooperative": "uniform://discrete/5?observations=19",
    "teams:RelayHybrid": "uniform://hybrid/3/-1..1?observations=8",
}
PLAYED = ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", *OWN]


@pytest.fixture
def beginning() -> Iterator[Callable[[str], str]]:
    """Starts the server an agent in this environment begins with; returns its address."""
    running: list[LiveServer] = []

    def begin(name: str) -> str:
        server = LiveServer(revision=STABLE, policy=parse_uniform({**ENVIRONMENTS, **OWN}[name])).start()
        server.route(table((STABLE, "stable", 100, server.url)))
        running.append(server)
        return server.url

    yield begin
    for server in running:
        server.stop()


@pytest.mark.parametrize("name", PLAYED)
async def test_an_actor_plays_every_kind_of_environment_with_the_policy_it_begins_with(
    name: str, beginning: Callable[[str], str], learn: Make, data_plane
) -> None:
    loop = learn(endpoint=beginning(name), data_url=data_plane.url)
    world = World(setting(name))
    results = [await play(loop, world, task=name) for _ in range(2)]
    await loop.flush(60)
    recorded = [Trajectory.model_validate_json(body) for body in data_plane.bodies()]
    returns = sorted(one.outcome.episode_return for one in recorded)
    assert returns == pytest.approx(sorted(one.episode_return for one in results))
    for trajectory in recorded:
        steps = trajectory.steps
        assert len(steps) % world.agents == 0
        assert all(step.log_prob is not None and step.exploration for step in steps)
        assert [step.terminated or step.truncated for step in steps] == [False] * (len(steps) - 1) + [True]
        if world.agents > 1:
            assert trajectory.metadata["agents"] == str(world.agents)
            assert sum(step.reward for step in steps) == pytest.approx(trajectory.outcome.episode_return)


def test_a_world_is_played_at_its_level_with_its_physics() -> None:
    world = World(setting("motion:Navigation", level="expert", randomise='[["gain", 2, 2]]'), {})
    twin = make("motion:Navigation", Split.TRAINING, 0, range(1), Conditions("expert", (("gain", 2.0, 2.0),)))
    world.reset()
    inner, twin = innermost(world._inner), innermost(twin)
    assert inner.parameter["size"].tolist() == twin.parameter["size"].tolist() == [15.0]
    assert inner.parameter["gain"].tolist() == [2.0]


def test_an_abandoned_episode_is_followed_by_a_new_one_and_a_finished_one_too() -> None:
    world = World(setting("teams:Relay"), {})
    first = np.asarray(world.reset())
    for _ in range(1000):
        step = world.step([[0.0], [0.0]])
        if step.terminated or step.truncated:
            break
    after = np.asarray(world.reset())
    assert after.shape == first.shape
    assert np.asarray(world.reset()).shape == first.shape


async def test_a_teams_counts_are_outcome_values_of_its_recorded_episode(beginning, learn, data_plane):
    loop = learn(endpoint=beginning("teams:Cooperative"), data_url=data_plane.url)
    result = await play(loop, World(setting("teams:Cooperative"), {}))
    await loop.flush(60)
    values = Trajectory.model_validate_json(data_plane.bodies()[0]).outcome.values
    assert values["joint_attempts"] == result.length / 3
    assert values["collisions"] >= values["collisions.max"] >= values["collisions.last"]
    team = TeamVector("", Split.TRAINING, 0, range(2), lambda: Parallel("teams:Cooperative"))
    team.reset()
    counts = team.step(np.zeros((2, 3), dtype=np.int64)).values
    assert counts["joint_attempts"].tolist() == [1.0, 1.0], "and PettingZoo's infos are read, too"


PUSH = Safety.model_validate({"constraints": [{"name": "push", "forbid": [1]}], "fallback": [0]})
PULL = Safety.model_validate({"constraints": [{"name": "pull", "components": [0], "max": -1}], "fallback": [-1]})
STRONG = Bounds(np.float32([-2]), np.float32([2]))


@pytest.mark.parametrize(("name", "safety", "bounds"), [("CartPole-v1", PUSH, None), ("Pendulum-v1", PULL, STRONG)])
async def test_interventions_of_a_served_shield_are_counted_and_recorded_with_the_episode(
    name: str, safety: Safety, bounds: Bounds | None, learn: Make, data_plane
) -> None:
    inner = make(name, Split.TRAINING, 0, range(1))
    shield = Shield(safety, inner.observations, inner.actions, continuous=bounds is not None)
    weights = {"a.0.weight": np.zeros((inner.observations, 2 if bounds is None else 1), np.float32)}
    weights["a.0.weight"][2] = 9.0 if bounds is not None else (-9.0, 9.0)  # wants to push here and there
    weights["a.0.bias"] = weights["a.0.weight"][0].copy()
    server = LiveServer(revision=STABLE, policy=OnnxPolicy(build(weights, "a", "relu", {}, bounds, shield))).start()
    server.route(table((STABLE, "stable", 100, server.url)))
    loop = learn(endpoint=server.url, data_url=data_plane.url)
    lengths = [(await play(loop, World(setting(name), {}))).length for _ in range(8)]  # by chance one has none
    await loop.flush(60)
    counted = sum(json.loads(body)["outcome"]["values"]["interventions"] for body in data_plane.bodies())
    assert 0 < counted < sum(lengths)
    assert counted == server.metric("learnloop_safety_interventions_total")
    server.stop()


def test_code_of_a_config_map_is_played(tmp_path: Path) -> None:
    (tmp_path / "actors_world.py").write_text(
        "import gymnasium, numpy as np\n"
        "class Two(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)\n"
        "    action_space = gymnasium.spaces.MultiDiscrete([2, 3])\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return np.zeros(2, np.float32), {}\n"
        "    def step(self, action):\n"
        "        info = {'hits': np.int64(1), 'depth': float(action[1]), 'map': {}, 'nan': np.nan}\n"
        "        return np.ones(2, np.float32), float(action[0] * 10 + action[1]), action[0] > 0, False, info\n"
    )
    before = list(sys.path)
    try:
        world = World(setting("actors_world:Two"), {"LEARNLOOP_ENVIRONMENT_DIRECTORY": str(tmp_path)})
        world.reset()
        world.step([2])
        last = world.step([4])
        assert (last.rewards, last.terminated) == ([11.0], True)
        assert last.values == {"hits": 2, "hits.last": 1, "hits.max": 1, "depth": 3, "depth.last": 1, "depth.max": 2}
    finally:
        sys.path[:] = before
        sys.modules.pop("actors_world", None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (setting("Nowhere-v1"), "Nowhere-v1"),
        (
            setting("motion:Navigation", level="godlike"),
            r"spec.data.level: 'godlike' is not a level.*choose one of beginner",
        ),
        (setting("CartPole-v1", randomise='[["gain", 0, 1]]'), "has no levels, credit or randomised parameters"),
    ],
)
def test_what_cannot_be_played_is_said_with_the_field_and_the_fix(options: Options, sentence: str) -> None:
    with pytest.raises(LearnloopError, match=sentence):
        World(options)
