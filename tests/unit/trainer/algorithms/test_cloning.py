"""Behaviour cloning: from recorded trajectories to a policy that does the same."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_api.wire.trajectory import EpisodeSelection, LoggedEpisode, Outcome, Step, Trajectory
from learnloop_environments import make
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import bc
from learnloop_trainer.distributed import Alone
from learnloop_trainer.errors import StoreRefused
from learnloop_trainer.evaluation import play
from learnloop_trainer.export import OnnxPolicy, build
from learnloop_trainer.neural.networks import forward
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.agent_logs import read_file
from learnloop_trainer.training_run.checkpoints import restore, save
from learnloop_trainer.training_run.logged_experience import fitting, load
from learnloop_trainer.training_run.policy_training import PolicyTraining, begin
from testing.training.interrupted_runs import advance, goes_on_exactly

CPU = torch.device("cpu")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DATA = {"environment": "CartPole-v1", "learningAgentRef": {"name": "pole"}}


def trajectory(steps: list[dict]) -> str:
    return Trajectory(
        trajectory_id="t",
        agent="pole",
        episode_id="e",
        policy_revision="3f9a2c81",
        started_at=NOW,
        ended_at=NOW,
        steps=[Step.model_validate(step) for step in steps],
        outcome=Outcome(status="completed", episode_return=0),
    ).model_dump_json()


def episode(steps: list[Step], **others) -> LoggedEpisode:
    return LoggedEpisode(trajectory_id="t", policy_revision="3f9a2c81", episode_return=0, steps=steps, **others)


def balanced(count: int) -> str:
    """A hand-written controller that balances the pole for 500 steps, recorded: one trajectory a line."""
    environment = make("CartPole-v1", Split.TRAINING, 9, range(4))
    observation = environment.reset()
    lines = [[] for _ in range(4)]
    for _ in range(count):
        action = (observation @ np.float32([0.1, 0.3, 3.0, 1.0]) > 0).astype(np.int64)
        for line, row, done in zip(lines, observation.tolist(), action.tolist(), strict=True):
            line.append({"observation": row, "action": done})
        observation = environment.step(action).observation
    return "\n".join(map(trajectory, lines))


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "trajectories" / "pole.jsonl").write_text(balanced(250))
    return DirectoryStore(tmp_path, "small-1")


def test_a_clone_balances_the_pole_as_the_recorded_controller_did(make_order, store):
    order = make_order("bc", steps=100_000, hyperparameters={"hidden": [32], "learningRate": 1e-2}, data=DATA)
    learner = advance(begin(order, Alone(), CPU, store), 13).learner
    policy = OnnxPolicy(build(learner.network.arrays(), "policy", "tanh", {}), 4, 2)
    returns, _ = play("CartPole-v1", policy, 0, 20, lambda done: None)
    assert returns.mean() > 400


def test_an_interrupted_clone_goes_on_with_its_own_recording_whatever_arrived_since(make_order, store, tmp_path):
    order, file = make_order("bc", steps=100_000, hyperparameters={"hidden": [8]}, data=DATA), "trajectories/pole.jsonl"
    goes_on_exactly(order, 2, 2, store, meanwhile=lambda: (tmp_path / file).write_text(""))


def test_a_recorded_file_is_learned_from_too_and_its_bad_line_is_named(make_order, store, tmp_path):
    file = tmp_path / "recording.jsonl"
    file.write_text(balanced(3))
    order = make_order(
        "bc", hyperparameters={"recording": file.as_uri(), "maxRecordedSteps": 10}, data={"environment": "CartPole-v1"}
    )
    state = advance(begin(order, Alone(), CPU, store), 1).learner.shared()
    assert state["recording.observation"].shape == (10, 4)
    file.write_text(f"{trajectory([{'observation': [0], 'action': 0}])}\n{{}}")
    with pytest.raises(
        ConfigError, match=r"spec.hyperparameters.recording: .* line 2 is not a trajectory \(.*; point it to a file"
    ):
        read_file(Trajectory, file.as_uri(), store)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": {"environment": "CartPole-v1"}}, "spec.data.learningAgentRef: '' is missing: bc learns from"),
        ({"data": DATA | {"learningAgentRef": {"name": "idle"}}}, "spec.data: 'CartPole-v1' has no recorded steps"),
        (
            {"hyperparameters": {"recording": "file:///nowhere"}, "data": DATA},
            "spec.hyperparameters.recording: .* cannot be read",
        ),
    ],
)
def test_nothing_to_learn_from_is_refused_with_field_and_fix(make_order, store, changes, words):
    training = begin(make_order("bc", **{"hyperparameters": {}, **changes}), Alone(), CPU, store)
    with pytest.raises(ConfigError, match=rf"^{words}.*; "):
        advance(training, 1)


def test_steps_that_do_not_fit_the_environment_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    pendulum = make("Pendulum-v1", Split.TRAINING, 0, range(1))
    raw = [
        ([1, 2, 3], [1.0]),
        ([1, 2], [1.0]),
        ("text", [1.0]),
        ([1, 2, 3], 1),
        ([1, 2, 3], [1, 2]),
        ([4, 5, 6], [-9.0]),
    ]
    recording = fitting([episode([Step(observation=state, action=done) for state, done in raw])], pendulum, 100)
    assert recording.observation.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert recording.action.tolist() == [[0.5], [-1.0]]  # scaled to [-1, 1], and clipped
    assert "4 recorded steps do not fit" in capsys.readouterr().out
    cart = make("CartPole-v1", Split.TRAINING, 0, range(1))
    assert fitting([episode([Step(observation=[1, 2, 3, 4], action=2)])], cart, 100) is None


LIKED = {
    "components": [{"name": "liked", "type": "feedback", "weight": 1}],
    "credit": {"method": "discounted", "discount": 0.5},
}


@pytest.mark.parametrize(
    ("rewards", "worth"), [(None, [0.0] * 3), ("environment", [0.0] * 3), ("policy", [0.1, 0.2, 0.4])]
)
def test_a_run_from_the_log_learns_from_the_rewards_it_is_told_to(make_order, tmp_path, rewards, worth):
    steps = [{"observation": [0.0, 0.0, 0.0, float(t)], "action": 1, "log_prob": -0.7} for t in range(3)]
    logged = json.loads(trajectory(steps))
    logged["outcome"]["values"] = {"feedback": 0.7}
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "trajectories" / "pole.jsonl").write_text(json.dumps(logged))
    data = DATA | ({"rewards": rewards} if rewards else {})
    order = make_order(algorithm="iql-offline", data=data, hyperparameters={})
    if rewards == "policy":
        with pytest.raises(ConfigError, match=r"spec.data.rewards: 'policy' asks for a RewardPolicy, .* no revision"):
            begin(order, Alone(), CPU, DirectoryStore(tmp_path, "job"))
        policy = {"name": "liking", "revision": "r1"}
        order = Order.model_validate({**order.model_dump(by_alias=True, exclude_none=True), "rewardPolicy": policy})
        with pytest.raises(StoreRefused, match=r"liking/r1.json: is missing; write the spec"):
            begin(order, Alone(), CPU, DirectoryStore(tmp_path, "job"))
        (tmp_path / "reward-policies" / "liking").mkdir(parents=True)
        (tmp_path / "reward-policies" / "liking" / "r1.json").write_text(json.dumps(LIKED))
    training = begin(order, Alone(), CPU, DirectoryStore(tmp_path, "job"))
    recording = training.learner.occasion.recording()
    assert recording.reward.tolist() == pytest.approx(worth)


def test_a_policy_that_finds_nothing_in_the_log_is_refused_and_what_it_lacks_in_part_is_told(
    make_order: Callable[..., Order], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [{"observation": [0.0, 0.0, 0.0, float(t)], "action": 1, "log_prob": -0.7} for t in range(3)]
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "trajectories" / "pole.jsonl").write_text(trajectory(steps))
    (tmp_path / "reward-policies" / "liking").mkdir(parents=True)
    order = make_order(algorithm="iql-offline", data=DATA | {"rewards": "policy"}, hyperparameters={})
    named = {"rewardPolicy": {"name": "liking", "revision": "r1"}}
    order = Order.model_validate(order.model_dump(by_alias=True, exclude_none=True) | named)

    def begun(policy: dict) -> PolicyTraining:
        (tmp_path / "reward-policies" / "liking" / "r1.json").write_text(json.dumps(policy))
        training = begin(order, Alone(), CPU, DirectoryStore(tmp_path, "job"))
        training.learner.occasion.recording()
        return training

    words = r"RewardPolicy liking finds no value of liked \(feedback\) in any of 1 logged episodes"
    with pytest.raises(ConfigError, match=f"spec.data.rewards: 'policy' would reward every step with 0: {words}; log"):
        begun(LIKED)
    half = [{"name": "liked", "type": "feedback", "weight": 0.5}, {"name": "quick", "type": "time", "weight": 0.5}]
    note = begun({"components": half}).read.note
    assert re.match(words, note.message)
    assert note.message in capsys.readouterr().out, "in the log, and in each heartbeat"
    cloning = make_order(algorithm="bc", data=DATA | {"rewards": "policy"}, hyperparameters={})
    order = Order.model_validate(cloning.model_dump(by_alias=True, exclude_none=True) | named)
    begun(LIKED)  # looks at no reward


def test_what_was_read_is_named_and_the_whole_list_is_stored(make_order, store, tmp_path):
    lines = (tmp_path / "trajectories" / "pole.jsonl").read_text().splitlines()
    named = [line.replace('"trajectory_id":"t"', f'"trajectory_id":"t{number}"') for number, line in enumerate(lines)]
    (tmp_path / "trajectories" / "pole.jsonl").write_text("\n".join(named))
    order = make_order("bc", steps=100_000, hyperparameters={"hidden": [8], "maxRecordedSteps": 600}, data=DATA)
    training = advance(begin(order, Alone(), CPU, store), 1)
    note = training.read.note
    assert (note.agent, note.episodes, note.steps) == ("pole", 3, 600)
    assert note.trajectory_ids == ["t3", "t2", "t1"], "the newest first, until they hold enough steps"
    assert note.ids_uri is not None
    assert store.artifact(f"learnloop://default/{note.ids_sha256}") == b"t3\nt2\nt1\n"
    second = begin(order, Alone(), CPU, store)
    restore(second, order, Alone(), save(training, order, Alone()) or b"")
    assert second.read.note == note, "a run that goes on says what it began with"


def test_a_filter_chooses_what_is_read(make_order: Callable[..., Order], store: DirectoryStore) -> None:
    def steps(**chosen) -> int:
        order = make_order("bc", hyperparameters={}, data=DATA | {"filter": chosen})
        return load(order, store, make("CartPole-v1", Split.TRAINING, 0, range(1)))[1].episodes

    assert steps() == steps(until="2026-01-01T00:00:01Z", modelRevisions=["3f9a2c81"]) == 4
    assert steps(since="2026-01-01T00:00:01Z") == steps(maxAgeSeconds=60) == steps(tasks=["other"]) == 0
    assert steps(success=True) == steps(optedIn=True) == steps(modelRevisions=["00000000"]) == 0
    with pytest.raises(ConfigError, match=r"spec.data.filter.since: 'yesterday' is refused: .*; correct it"):
        steps(since="yesterday")
    with pytest.raises(ConfigError, match=r"spec.data.filter.until: '2025-.*is not after 2026-01-01.* selects none"):
        steps(since="2026-01-01T00:00:00Z", until="2025-01-01T00:00:00Z")
    with pytest.raises(StoreRefused, match=r"a directory has no warehouse, .* remove source, minReward"):
        steps(minReward=0.5)


def test_a_damaged_line_in_the_store_is_named(store: DirectoryStore, tmp_path: Path) -> None:
    assert len(store.episodes("pole", EpisodeSelection(), 251)) == 2
    assert store.episodes("nobody", EpisodeSelection(), 1) == []
    (tmp_path / "trajectories" / "pole.jsonl").write_text(json.dumps({"steps": []}))
    with pytest.raises(StoreRefused, match=r"pole.jsonl: .*; remove the damaged line"):
        store.episodes("pole", EpisodeSelection(), 1)


@pytest.mark.parametrize("continuous", [False, True])
def test_the_gradient_is_autograds_of_the_cross_entropy_or_the_squared_error(continuous: bool) -> None:
    random = torch.Generator().manual_seed(0)
    network = bc.init(hyperparameters("bc", hidden=[6]), 3, 2, 0, CPU)
    network.vector.add_(torch.randn(network.vector.shape, generator=random))
    outputs = forward(network.leaves, "policy", "tanh", torch.randn(9, 3, generator=random))
    action = torch.tanh(torch.randn(9, 2, generator=random)) if continuous else torch.arange(9) % 2
    squared, crossed = (torch.tanh(outputs) - action.view(9, -1)).square().sum, torch.nn.functional.cross_entropy
    loss = squared() if continuous else crossed(outputs, action, reduction="sum")
    (expected,) = torch.autograd.grad(loss, outputs)
    gradient = torch.empty(9, 2)
    bc.slope(outputs.detach(), action, gradient)
    assert torch.allclose(gradient, expected, atol=1e-6)
