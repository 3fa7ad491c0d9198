"""PPO with learned multipliers keeps a mean outcome value below its limit, and earns what that leaves to earn."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from learnloop_environments import make
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_trainer import export
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run

ROAD = """
import numpy as np
from learnloop_environments.simulation import Outcome, Simulation

class Road(Simulation):
    '''Eight stretches: fast earns 1, slow .5. Half of them are narrow, where who is fast collides.'''

    observations, actions, PARAMETERS = 1, 2, {"max_steps": 8.0}

    def _blank(self, count):
        return {}

    def _begin(self, which, seeds):
        pass

    def _narrow(self):
        return self._chance(1)[:, 0] < 0.5

    def _advance(self, actions):
        fast = np.asarray(actions) == 1
        return Outcome.going_on(np.where(fast, 1.0, 0.5), collisions=(fast & self._narrow()).astype(float))

    def _observe(self):
        return self._narrow().astype(np.float32)[:, None]
"""
POLICY = {"components": [{"name": "progress", "type": "environment", "weight": 1, "scale": 10}]}
LIMIT = 1.0


@pytest.fixture
def road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "roads.py").write_text(ROAD)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    folder = tmp_path / "store" / "reward-policies" / "road"
    folder.mkdir(parents=True)
    limited = {"constraints": [{"name": "collisions", "key": "collisions", "maximum": LIMIT}]}
    (folder / "limited.json").write_text(json.dumps(POLICY | limited))
    (folder / "free.json").write_text(json.dumps(POLICY))
    return tmp_path


def driven(road: Path, rate: float | None, revision: str) -> tuple[float, float]:
    """Mean return and collisions of 500 held-out episodes of the exported policy."""
    parameters = {"environments": 32, "hidden": [16], "entropyCoefficient": 0, "normaliseObservations": False}
    spec = {
        "algorithm": "ppo",
        "totalSteps": 150_000,
        "hyperparameters": parameters | ({} if rate is None else {"lagrangianLearningRate": rate}),
        "evaluation": {"episodes": 500},
        "data": {"environment": "roads:Road", "rewards": "policy", "learningAgentRef": {"name": "car"}},
    }
    policy = {"name": "road", "revision": revision}
    order = Order.model_validate({"job": "road-1" if rate is None else "road-2", "spec": spec, "rewardPolicy": policy})
    run(order, Place(), 1)
    proof = DirectoryStore(road / "store", order.job).proof()
    assert proof is not None
    greedy = export.OnnxPolicy(Path(urlsplit(proof.artifact_uri).path).read_bytes(), 1, 2)
    if rate is not None:
        (cost,) = proof.costs
        assert (cost.name, cost.maximum, cost.mean <= LIMIT, cost.baseline > LIMIT) == ("collisions", LIMIT, True, True)
    world, driver = make("roads:Road", Split.HELD_OUT, 0, range(500)), export.Behaving(greedy, 0)
    observation, collisions = world.reset(), 0.0
    driver.begin(0)
    for _ in range(8):
        step = world.step(driver.act(observation))
        observation, collisions = step.observation, collisions + float(np.sum(step.values["collisions"]))
    return proof.evaluation.mean, collisions / 500


def test_a_constrained_run_ends_below_its_limit_where_an_unconstrained_one_does_not(road: Path) -> None:
    earned, collisions = driven(road, None, "free")
    assert earned > 7.8, "always fast earns 8"
    assert collisions > 3.5, "and collides 4 times of 8"
    earned, collisions = driven(road, 0.01, "limited")
    assert collisions <= LIMIT
    assert earned > 5.7, "slow where it is narrow earns 6, the limit allows 6.5, and never fast earns 4"


def test_multipliers_without_constraints_are_refused(road: Path) -> None:
    with pytest.raises(ConfigError, match=r"lagrangianLearningRate: '0.05' learns .*, and there are none; set"):
        driven(road, 0.05, "free")
