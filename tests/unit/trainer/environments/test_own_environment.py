"""An environment from a directory, as a ConfigMap is mounted: no vector entry point, no part of the image."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from learnloop_environments import code_digest, user_environment
from learnloop_environments.errors import ConfigError
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.checkpoints import fingerprint
from learnloop_trainer.training_run.rank import run

CODE = """
import gymnasium
import numpy as np


class Guess(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.told, self.age = int(self.np_random.integers(2)), 0
        return np.eye(2, dtype=np.float32)[self.told], {}

    def step(self, action):
        reward, self.told, self.age = float(action == self.told), int(self.np_random.integers(2)), self.age + 1
        return np.eye(2, dtype=np.float32)[self.told], reward, False, self.age == 8, {}
"""
SMALL = {"environments": 4, "horizon": 16, "hidden": [8], "learningRate": 0.02, "epochs": 4, "minibatches": 2}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As the kubelet lays a ConfigMap out: the files are links into a directory that it swaps."""
    real, mounted = tmp_path / "mounted" / "..data", tmp_path / "mounted"
    real.mkdir(parents=True)
    (real / "own_worlds.py").write_text(CODE)
    (real / "broken_worlds.py").write_text("def Guess(:")
    for name in ("own_worlds.py", "broken_worlds.py"):
        (mounted / name).symlink_to(real / name)
    monkeypatch.setenv("LEARNLOOP_ENVIRONMENT_DIRECTORY", str(mounted))
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield mounted
    sys.modules.pop("own_worlds", None)


def test_a_run_learns_an_environment_without_a_vector_entry_point_and_says_which_code_it_was(
    directory: Path, tmp_path: Path, make_order: Callable[..., Order]
) -> None:
    data = {"environment": "own_worlds:Guess", "environmentConfigMap": {"name": "worlds"}}
    order = make_order("ppo", steps=2000, hyperparameters=SMALL, data=data)
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    assert proof.evaluation.mean > 7
    assert proof.baseline.mean < 6
    version = proof.versions["environment"]
    (directory / "own_worlds.py").write_text(CODE + "# changed")
    assert user_environment.fingerprint({"LEARNLOOP_ENVIRONMENT_DIRECTORY": str(directory)}) != version


def test_code_that_cannot_be_imported_ends_the_run_for_good_with_the_reason(directory, make_order):
    order = make_order("ppo", steps=64, hyperparameters=SMALL, data={"environment": "broken_worlds:Guess"})
    with pytest.raises(
        ConfigError, match=r"'broken_worlds:Guess' cannot be imported \(SyntaxError: .*; put the module"
    ):
        run(order, Place(), 1)


def test_no_file_of_the_directory_takes_the_place_of_another_module(directory: Path) -> None:
    user_environment.use({"LEARNLOOP_ENVIRONMENT_DIRECTORY": str(directory)})
    assert sys.path[-1] == str(directory)
    assert user_environment.fingerprint({}) is None


def test_a_checkpoint_of_other_environment_code_is_not_taken_up(directory, make_order, monkeypatch):
    """Weights of a world that has changed would be finished, and proven, in another one."""
    data = {"environment": "own_worlds:Guess", "environmentConfigMap": {"name": "worlds"}}
    order = make_order("ppo", steps=2000, hyperparameters=SMALL, data=data)
    user_environment.use(os.environ)
    before = fingerprint(order)
    assert fingerprint(order) == before
    changed = directory.parent / "changed"
    changed.mkdir()
    for name in ("own_worlds.py", "broken_worlds.py"):
        (changed / name).write_text((directory / name).read_text().replace("self.age == 8", "self.age == 9"))
    monkeypatch.setenv("LEARNLOOP_ENVIRONMENT_DIRECTORY", str(changed))
    assert fingerprint(order) != before


def test_every_environment_says_which_code_it_is() -> None:
    names = ["CartPole-v1", "motion:Navigation", "Acrobot-v1", "learnloop_environments.cartpole_and_pendulum:CartPole"]
    digests = [code_digest(name) for name in names]
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3
    assert "gymnasium" in digests[2]
