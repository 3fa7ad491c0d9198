"""One case: a log by one policy, an estimate of another one, and what that one really earns."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bench.offpolicy.worlds import WORLDS, World, acting
from learnloop_environments import make
from learnloop_environments.action_spaces import ActionSpace
from learnloop_environments.randomness import Split
from learnloop_trainer.evaluation.off_policy import Estimate, LoggedSteps, evaluate
from learnloop_trainer.export import Behaving
from learnloop_trainer.floating_point import settle
from learnloop_trainer.manifest.proof import Weights
from learnloop_trainer.recordings.recording import Recording

TRUE_EPISODES = 500
SIZES = (300, 600, 1200)  # logged episodes
SHARE = 0.5
LIMIT = 200  # steps of an episode


@dataclass(frozen=True, slots=True)
class Case:
    """Which policy logs, which one is judged, and by how much."""

    world: str
    logs: tuple[int, float]  # which weights, at which temperature
    judged: tuple[int, float]
    episodes: int
    seed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The estimate beside the truth."""

    case: Case
    estimate: Estimate
    true: float
    error: float  # standard error of the truth

    @property
    def within(self) -> bool:
        """Whether the interval holds the true return."""
        found = self.estimate.corrected
        return found is not None and found.low <= self.true <= found.high


def drawn(world: str, number: int, seed: int) -> Case:
    """Case `number` of a world: policies, temperatures and the log's size drawn at random."""
    random = np.random.default_rng([seed, number, *world.encode()])
    logs, judged = random.integers(0, 3, 2)
    temperatures = random.choice([0.5, 1.0, 1.5, 2.0]), random.choice([0.3, 0.5, 0.7, 1.0])
    size = int(random.choice(SIZES))
    return Case(world, (int(logs), float(temperatures[0])), (int(judged), float(temperatures[1])), size, seed + number)


def played(world: World, policy: Behaving, episodes: int, seed: int, split: Split) -> Recording:
    """Whole episodes of a policy as an agent logs them, one after another."""
    environment = make(world.environment, split, seed, range(episodes))
    space = ActionSpace.of(environment)
    seen, running = environment.reset(), np.arange(episodes)
    policy.begin(seed)
    steps: list[tuple[NDArray[np.generic], ...]] = []
    for age in range(LIMIT):
        whole = np.zeros((episodes, *np.shape(space.sample(lambda k: np.full((1, k), 0.5)))[1:]))
        chosen = policy.act(seen[running])
        whole = whole.astype(chosen.dtype)
        whole[running] = chosen
        step = environment.step(whole)
        over = (step.terminated | step.truncated)[running] | (age == LIMIT - 1)
        steps.append((running, seen[running], chosen, step.reward[running], over, step.terminated[running]))
        seen, running = step.observation, running[~over]
        if not len(running):
            break
    environment.close()
    order = np.argsort(np.concatenate([one[0] for one in steps]), kind="stable")
    observation, action, reward, last, terminated = (
        np.concatenate([one[field] for one in steps])[order] for field in range(1, 6)
    )
    log_prob = policy.log_probability(observation.astype(np.float32), action)
    return Recording(
        observation.astype(np.float32),
        space.normalise(action),
        reward.astype(np.float32),
        log_prob.astype(np.float32),
        last,
        terminated,
    )


def split(recording: Recording, share: float) -> tuple[LoggedSteps, LoggedSteps]:
    """The first episodes prove, the others are what the model is fitted to."""
    ends = np.flatnonzero(recording.last) + 1
    cut = ends[int(share * len(ends)) - 1]
    arrays = [
        getattr(recording, name) for name in ("observation", "action", "reward", "log_prob", "last", "terminated")
    ]
    return (
        LoggedSteps.of(Recording(*(one[:cut] for one in arrays))),
        LoggedSteps.of(Recording(*(one[cut:] for one in arrays))),
    )


def judge(case: Case, weights: list[Weights]) -> Outcome:
    """Log, estimate, and play for the truth."""
    settle(1)
    world = WORLDS[case.world]
    logging = acting(world, weights[case.logs[0]], case.logs[1], case.seed)
    judged = acting(world, weights[case.judged[0]], case.judged[1], case.seed + 1)
    log = played(world, logging, case.episodes, case.seed, Split.TRAINING)
    sample = make(world.environment, Split.TRAINING, 0, range(1))
    space = ActionSpace.of(sample)
    sample.close()
    found = evaluate(judged, *split(log, SHARE), space, world.discount, case.seed, torch.device("cpu"))
    real = LoggedSteps.of(played(world, judged, TRUE_EPISODES, case.seed, Split.HELD_OUT))
    returns = real.returns_to_go(world.discount)[:, 0]
    return Outcome(case, found, float(returns.mean()), float(returns.std() / np.sqrt(len(returns))))
