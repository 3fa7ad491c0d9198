"""DQN and SAC mix their own transitions with logged ones; without any they learn as ever, and say so."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from grids import RIGHT
from learnloop_api.kinds.training.evaluation import EpisodeFilter
from learnloop_api.wire.trajectory import EpisodeSelection, LoggedEpisode, Outcome, Step, Trajectory
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms.base import Occasion
from learnloop_trainer.algorithms.logged_batches import LoggedTransitions
from learnloop_trainer.distributed import Alone
from learnloop_trainer.errors import StoreUnavailable
from learnloop_trainer.neural.networks import forward
from learnloop_trainer.progress_reporter import Reporter
from learnloop_trainer.recordings import Recording, successors
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.checkpoints import restore, save
from learnloop_trainer.training_run.policy_training import begin
from testing.training.interrupted_runs import advance, goes_on_exactly

CPU = torch.device("cpu")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SMALL = {
    "dqn": {"environments": 4, "bufferSize": 1000, "learningStarts": 64, "hidden": [16]},
    "sac": {"environments": 4, "bufferSize": 1000, "learningStarts": 64, "hidden": [16], "stepsPerUpdate": 32},
}
WORLD = {"dqn": "CartPole-v1", "sac": "motion:PointGoals"}


def log(root: Path, name: str, episodes: int, choose: Callable | None = None) -> None:
    """Episodes of agent `la`, at random or by a controller."""
    world, random = make(name, Split.TRAINING, 1, range(1)), np.random.default_rng(1)
    observation, lines, steps = world.reset(), list[str](), list[Step]()
    while len(lines) < episodes:
        action = random.integers(0, world.actions, 1)
        if world.bounds is not None:
            action = world.bounds.scale(random.uniform(-1, 1, (1, world.actions)).astype(np.float32))
        if choose is not None:
            action = choose(observation)
        step = world.step(action)
        ended, cut = bool(step.terminated[0]), bool(step.truncated[0])
        facts = {"observation": observation[0].tolist(), "action": action[0].tolist(), "reward": float(step.reward[0])}
        steps.append(Step.model_validate(facts | {"terminated": ended, "truncated": cut}))
        observation = step.observation
        if ended or cut:
            one = Trajectory(
                trajectory_id=f"t{len(lines)}",
                agent="la",
                episode_id=f"e{len(lines)}",
                policy_revision="3f9a2c81",
                started_at=NOW,
                ended_at=NOW,
                steps=steps,
                last_observation=step.successor[0].tolist(),
                outcome=Outcome(status="completed", episode_return=sum(each.reward for each in steps)),
            )
            lines.append(one.model_dump_json())
            steps = []
    (root / "trajectories").mkdir(exist_ok=True)
    (root / "trajectories" / "la.jsonl").write_text("\n".join(lines))


def of_agent(make_order: Callable[..., Order], algorithm: str, *, agent: bool = True, **more) -> Order:
    data = {"environment": WORLD[algorithm]} | ({"learningAgentRef": {"name": "la"}} if agent else {})
    return make_order(algorithm, steps=20_000, **{"hyperparameters": SMALL[algorithm] | more, "data": data})


@given(st.integers(0, 10_000))
def test_a_step_is_followed_by_the_next_one_or_by_what_was_seen_after_its_episode(seed: int) -> None:
    random, count = np.random.default_rng(seed), 15
    last = random.random(count) < 0.3
    last[-1] = True
    terminated = last & (random.random(count) < 0.5)
    has_last = random.random(int(last.sum())) < 0.5
    observations = np.arange(count, dtype=np.float32)[:, None]
    reward = random.normal(size=count).astype(np.float32)
    beyond = 100 + observations[last]
    recording = Recording(observations, np.zeros(count, np.int64), reward, reward, last, terminated, beyond, has_last)
    following = successors(recording)
    number = np.cumsum(last) - last
    expected = [t for t in range(count) if not last[t] or terminated[t] or has_last[number[t]]]
    assert following.rows.tolist() == expected
    assert following.observation[:, 0].tolist() == [100.0 + t if last[t] else t + 1.0 for t in expected]
    assert following.alive.tolist() == [float(not terminated[t]) for t in expected]


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_a_batch_is_of_both_kinds_and_the_losses_of_each_are_told(make_order, tmp_path, algorithm):
    log(tmp_path, WORLD[algorithm], 8)
    training = begin(of_agent(make_order, algorithm), Alone(), CPU, DirectoryStore(tmp_path, "small-1"))
    learner = training.learner
    training.observation, [experience] = learner.iterate(training.observation)
    assert (learner.memory.local, learner.memory.logged) == (32, 32)
    losses = experience.losses
    assert set(losses) == {"total", "local", "memory"}
    assert losses["total"] == pytest.approx((losses["local"] + losses["memory"]) / 2)
    assert training.read.note.episodes == 8
    more = begin(
        of_agent(make_order, algorithm, localBatchSize=48, memoryBatchSize=16),
        Alone(),
        CPU,
        DirectoryStore(tmp_path, "small-1"),
    )
    losses = more.learner.iterate(more.observation)[1][0].losses
    assert losses["total"] == pytest.approx(0.75 * losses["local"] + 0.25 * losses["memory"])


VARIANTS = [("dqn", {}), ("dqn", {"prioritized": True}), ("dqn", {"curiosity": {}}), ("sac", {})]


@pytest.mark.parametrize(("algorithm", "more"), VARIANTS)
def test_an_interrupted_run_goes_on_exactly_whatever_was_logged_since(make_order, tmp_path, algorithm, more):
    log(tmp_path, WORLD[algorithm], 8)
    order, store = of_agent(make_order, algorithm, **more), DirectoryStore(tmp_path, "small-1")
    ids = advance(begin(order, Alone(), CPU, store), 1).read.note.trajectory_ids
    resumed = goes_on_exactly(order, 2, 2, store, meanwhile=lambda: log(tmp_path, WORLD[algorithm], 2))
    assert resumed.read.note.trajectory_ids == ids


class Away(DirectoryStore):
    """A data plane that does not answer when it is asked for episodes."""

    def episodes(
        self, agent: str, selection: EpisodeSelection, limit: int, patience: float | None = None
    ) -> list[LoggedEpisode]:
        raise StoreUnavailable("http://data: ConnectError: gave up")


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_with_the_data_plane_away_it_learns_from_its_own_steps_and_every_heartbeat_says_so(
    make_order: Callable[..., Order], tmp_path: Path, algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    order, plain = of_agent(make_order, algorithm), of_agent(make_order, algorithm, agent=False)
    away = advance(begin(order, Alone(), CPU, Away(tmp_path, "small-1")), 3)
    alone = advance(begin(plain, Alone(), CPU, DirectoryStore(tmp_path, "small-1")), 3)
    assert away.learner.network.digest() == alone.learner.network.digest()
    note = away.read.note
    assert note.message.startswith("no logged experience, the run learns from its own steps alone: http://data")
    assert "no logged experience" in capsys.readouterr().out
    reporter = Reporter(order, Place(), DirectoryStore(tmp_path, "small-1"))
    reporter.phase("training", "dqn")
    reporter.caution(note.message)
    assert reporter._beat().message == note.message
    resumed = begin(order, Alone(), CPU, Away(tmp_path, "small-1"))
    restore(resumed, order, Alone(), save(away, order, Alone()) or b"")
    log(tmp_path, WORLD[algorithm], 2)
    assert advance(resumed, 1).learner.network.digest() == advance(alone, 1).learner.network.digest()


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_a_log_that_teaches_nothing_is_told(make_order, tmp_path, algorithm, capsys):
    order, store = of_agent(make_order, algorithm), DirectoryStore(tmp_path, "small-1")

    def message(order: Order) -> str:
        note = advance(begin(order, Alone(), CPU, store), 1).read.note
        assert note.message in capsys.readouterr().out
        return note.message

    assert message(order) == "no episode in the log of la"
    log(tmp_path, WORLD[algorithm], 2)
    assert message(order) == ""
    chosen = EpisodeFilter(tasks=["climb"])
    data = order.spec.data.model_copy(update={"filter": chosen})
    filtered = order.model_copy(update={"spec": order.spec.model_copy(update={"data": data})})
    selection = 'the log of la that spec.data.filter selects: {"tasks": ["climb"]}'
    assert message(filtered) == f"no episode in {selection}"
    log(tmp_path, "grids:KeyDoor", 2)
    assert message(order) == "no step of the 2 episodes in the log of la has the environment's observations and actions"


def test_no_log_is_read_where_the_batch_has_no_room_for_it(make_order: Callable[..., Order], tmp_path: Path) -> None:
    log(tmp_path, "CartPole-v1", 2)
    training = advance(
        begin(of_agent(make_order, "dqn", memoryBatchSize=0), Alone(), CPU, Away(tmp_path, "small-1")), 1
    )
    assert training.read.note is None


def test_ranks_have_the_parts_of_one_batch() -> None:
    world = make("CartPole-v1", Split.TRAINING, 0, range(1))
    count = 30
    observations = np.random.default_rng(0).normal(size=(count, world.observations)).astype(np.float32)
    last = np.zeros(count, dtype=np.bool_)
    last[[9, 29]] = True
    reward = np.arange(count, dtype=np.float32)
    recording = Recording(observations, np.zeros(count, np.int64), reward, reward, last, last)

    class Ranks(Alone):
        def __init__(self, rank: int, size: int) -> None:
            super().__init__()
            self.place = Place(rank, size)

    def part(rank: int, size: int) -> torch.Tensor:
        one = LoggedTransitions(Occasion(0, 100, 4, Ranks(rank, size)), 7)
        one.take(recording, CPU)
        return one.batch(3).reward

    assert torch.cat([part(rank, 3) for rank in range(3)]).tolist() == part(0, 1).tolist()


def test_the_second_run_of_an_agent_learns_from_what_the_first_one_logged(make_order, tmp_path):
    """Chance does not find the treasure of the deep sea in so few steps: 1 dive in 16,384 does."""
    way = RIGHT

    def find(observation):
        row, column = np.unravel_index(int(observation[0].argmax()), way.shape)
        return np.array([way[row, column]])

    log(tmp_path, "grids:DeepSea", 20, find)
    parameters = {"environments": 4, "learningStarts": 64, "hidden": [64], "stepsPerUpdate": 4, "targetUpdate": 16}
    parameters |= {"learningRate": 3e-3}

    def matches(agent: str) -> bool:
        data = {"environment": "grids:DeepSea", "learningAgentRef": {"name": agent}}
        order = make_order("dqn", steps=6_000, hyperparameters=parameters, data=data)
        training = begin(order, Alone(), CPU, DirectoryStore(tmp_path, "small-1"))
        while training.learner.step < 6_000:
            advance(training, 1)
        world = make("grids:DeepSea", Split.HELD_OUT, 0, range(1))
        observation, total = world.reset(), 0.0
        for _ in range(way.shape[0]):
            with torch.no_grad():
                values = forward(training.learner.network.leaves, "q", "relu", torch.from_numpy(observation))
            step = world.step(values.argmax(dim=1).numpy())
            total, observation = total + float(step.reward[0]), step.observation
        return total > 0.9

    assert matches("la")
    assert not matches("nobody")


def test_logged_rewards_are_by_the_same_policy_as_the_played_ones(make_order, tmp_path):
    log(tmp_path, "CartPole-v1", 3)
    directory = tmp_path / "reward-policies" / "far"
    directory.mkdir(parents=True)
    spec = {"components": [{"name": "far", "type": "environment", "weight": 1, "scale": 10}]}
    (directory / "r1.json").write_text(json.dumps(spec))
    order = of_agent(make_order, "dqn")
    body = order.model_dump(by_alias=True, exclude_none=True) | {"rewardPolicy": {"name": "far", "revision": "r1"}}
    body["spec"]["data"]["rewards"] = "policy"
    training = begin(Order.model_validate(body), Alone(), CPU, DirectoryStore(tmp_path, "small-1"))
    learner = advance(training, 1).learner
    recording = learner.memory._log.recording
    assert recording.reward == pytest.approx(0.1)


def test_a_log_without_what_its_policy_measures_is_left_out_and_that_is_told(make_order, tmp_path):
    """Zeros among the run's own rewards would teach that what was logged was poor."""
    log(tmp_path, "grids:KeyDoor", 2)
    directory = tmp_path / "reward-policies" / "won"
    directory.mkdir(parents=True)
    spec = {"components": [{"name": "won", "type": "success", "weight": 1}]}
    (directory / "r1.json").write_text(json.dumps(spec))
    order = of_agent(make_order, "dqn")
    body = order.model_dump(by_alias=True, exclude_none=True) | {"rewardPolicy": {"name": "won", "revision": "r1"}}
    body["spec"]["data"] |= {"rewards": "policy", "environment": "grids:KeyDoor"}
    training = advance(begin(Order.model_validate(body), Alone(), CPU, DirectoryStore(tmp_path, "small-1")), 1)
    note = training.read.note
    assert (note.episodes, note.steps) == (2, 0)
    message = "RewardPolicy won finds no value of won (success) in any of 2 logged episodes"
    assert note.message == f"the log is left out: {message}"
