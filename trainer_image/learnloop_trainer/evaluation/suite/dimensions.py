"""The dimensions of the evaluation suite, one after another, and the weights along training that they ask for."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.training.evaluation import WEIGHTS, Dimension
from learnloop_api.wire.training import DimensionResult, SuiteResult
from learnloop_environments import Conditions, randomness, simulation, spaces
from learnloop_environments.errors import ConfigError
from learnloop_trainer import algorithms, errors, progress_reporter, statistics
from learnloop_trainer.evaluation.held_out_episodes import Drawing, Policy, nominal, sample
from learnloop_trainer.evaluation.suite.disturbances import (
    Disturb,
    Finding,
    Noisy,
    NotMeasured,
    Returns,
    Stage,
    Sticky,
    effort,
    tuned,
)
from learnloop_trainer.neural.networks import Network

Arrays = dict[str, NDArray[np.generic]]
POINTS = 5


class Milestones:
    """Weights of some perceptrons at the first iteration that ends at or after each fifth of the run."""

    def __init__(self, total_steps: int, perceptrons: Iterable[str]) -> None:
        """Nothing is kept yet; `perceptrons` are the names that the exported graph is made of."""
        self._total, self._prefixes = total_steps, tuple(f"{name}." for name in perceptrons)
        self.snapshots: dict[int, dict[str, NDArray[np.float32]]] = {}

    def note(self, before: int, step: int, network: Network) -> None:
        """Training went from step `before` to `step`, and the network to what it is now."""
        if POINTS * before // self._total < min(POINTS, POINTS * step // self._total):
            arrays = network.exported()
            wanted = [name for name in arrays if name.startswith(self._prefixes) or name in network.fixed]
            self.snapshots[step] = {name: arrays[name].copy() for name in wanted}

    def state(self) -> Arrays:
        return {f"{step}/{name}": array for step, arrays in self.snapshots.items() for name, array in arrays.items()}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.snapshots = {}
        for key, array in state.items():
            step, name = key.split("/", 1)
            self.snapshots.setdefault(int(step), {})[name] = np.asarray(array, dtype=np.float32)


# The reference are episodes with training's own seeds; the gap between the two is the usual measure of overfitting
# (Cobbe et al., 2019, "Quantifying Generalization in Reinforcement Learning", arXiv 1812.02341).


def generalisation(stage: Stage) -> Finding:
    """Conditions: unseen episodes at the level evaluated, then the other levels."""
    usual = nominal(stage.order).level
    levels = [level.name for level in getattr(sample(stage.order), "LEVELS", ())]
    others = [name for name in levels if name != (usual or levels[0])]
    pairs = [stage.both(), *(stage.both(Conditions(level=name)) for name in others)]
    alike = stage.play(stage.policy, 0, split=randomness.Split.TRAINING)
    conditions = ["unseen episodes", *(f"level {name}" for name in others)]
    return Finding(conditions, [a for a, _ in pairs], [b for _, b in pairs], [alike], "episodes with training's seeds")


# The serving policy's history is unknown, so it is compared with ours after training, each at its best.
# Weights that were meta-learned are adapted first, as they are before export; at the end of training they are
# already.


def sample_efficiency(stage: Stage) -> Finding:
    """Conditions are the milestones; the reference is the policy at the end of training."""
    if not stage.milestones:
        raise NotMeasured("no weights were kept along training: it went on from a checkpoint made before this field")
    conditions, ours, others, alike = [], [], [], []
    for step, milestone in sorted(stage.milestones.items()):
        stage.check()
        unadapted = (
            algorithms.traits_of(stage.order.spec.algorithm).meta_learned and step < stage.order.spec.total_steps
        )
        weights = tuned(stage, milestone, nominal(stage.order)) if unadapted else milestone
        policy, first = stage.policy_of(weights), stage.fresh()
        conditions.append(f"step {step}")
        ours.append(stage.play(policy, first))
        alike.append(stage.play(stage.policy, first))
        others.append(stage.play(stage.baseline, first))
    return Finding(conditions, ours, others, alike, "the policy after training", alike)


MOST = 4  # physical parameters varied, in the order the environment names them


def physics(stage: Stage) -> dict[str, float]:
    """The environment's parameters at the level evaluated that can be raised and lowered by a share of their value."""
    world = sample(stage.order)
    parameters: Mapping[str, float] = getattr(world, "PARAMETERS", {})
    levels: tuple[simulation.Level, ...] = getattr(world, "LEVELS", ())
    usual = nominal(stage.order).level
    level = next((one.parameters for one in levels if one.name == usual), levels[0].parameters if levels else {})
    values = {**parameters, **level}
    return {name: value for name, value in values.items() if name != "max_steps" and value}


def varied(value: float, factor: float) -> float:
    """The value times the factor; counts (whole numbers from 2 up) stay whole."""
    product = value * factor
    if value != int(value) or value < 2:
        return product
    return float(math.ceil(product) if factor > 1 else math.floor(product))


def robustness(stage: Stage) -> Finding:
    """Conditions: noise, sticky actions, each parameter up and down; the reference is the undisturbed world."""
    seed, share = stage.order.spec.seed, stage.suite.perturbation
    deviation = stage.suite.noise * stage.met.std(axis=0)
    disturbed: list[tuple[str, Conditions | None, Disturb | None]] = [
        (f"noise {stage.suite.noise:g}", None, lambda inner: Noisy(inner, np.asarray(deviation), seed)),
        (f"{share:.0%} of actions repeated", None, lambda inner: Sticky(inner, share, seed)),
    ]
    usual = nominal(stage.order).level
    for name, value in list(physics(stage).items())[:MOST]:
        for factor in (1.0 - share, 1.0 + share):
            other = varied(value, factor)
            disturbed.append((f"{name} {other:g}", Conditions(usual, ((name, other, other),)), None))
    pairs = [stage.both(conditions, disturb) for _, conditions, disturb in disturbed]
    calm = stage.play(stage.policy, stage.fresh())
    names = [name for name, _, _ in disturbed]
    return Finding(names, [a for a, _ in pairs], [b for _, b in pairs], [calm], "the undisturbed environment")


def changed(stage: Stage) -> tuple[str, Conditions, Disturb | None]:
    """The next level up (at the hardest the one below), else other physics, else sticky actions."""
    usual, share = nominal(stage.order).level, stage.suite.perturbation
    levels = [level.name for level in getattr(sample(stage.order), "LEVELS", ())]
    if len(levels) > 1:
        here = levels.index(usual) if usual else 0
        other = levels[here + 1] if here + 1 < len(levels) else levels[here - 1]
        return f"level {other}", Conditions(other), None
    for name, value in physics(stage).items():
        raised = varied(value, 1.0 + share)
        return f"{name} {raised:g}", Conditions(usual, ((name, raised, raised),)), None
    seed = stage.order.spec.seed
    return f"{share:.0%} of actions repeated", nominal(stage.order), lambda inner: Sticky(inner, share, seed)


def adaptability(stage: Stage) -> Finding:
    """One condition; the reference is the policy before fine-tuning, which is compared with the serving one."""
    name, conditions, disturb = changed(stage)
    after_tuning = stage.policy_of(tuned(stage, stage.weights, conditions, disturb))
    first = stage.fresh()
    after = stage.play(after_tuning, first, conditions, disturb)
    others = stage.play(stage.baseline, first, conditions, disturb)
    before = stage.play(stage.policy, first, conditions, disturb)
    return Finding([f"{name}, {effort(stage)}"], [after], [others], [before], "before fine-tuning", [before])


# Cross-play (Hu et al., 2020, "Other-Play", arXiv 2003.02979): each member of the team in turn follows the serving
# policy, as its neighbours do while a canary runs. A team that only understands itself falls far below its self-play.


class Mixed:
    """A team in which one member follows another policy. Observations come team by team, as `play` asks."""

    def __init__(self, ours: Policy, partner: Policy, agents: int, odd: int) -> None:
        """`odd`: the number of the agent that follows `partner`."""
        self._ours, self._partner, self._agents, self._odd = ours, partner, agents, odd

    def begin(self, first: int) -> None:
        for policy in (self._ours, self._partner):
            if isinstance(policy, Drawing):
                policy.begin(first)

    def act(self, observation: spaces.Observations) -> spaces.Actions:
        """Both are asked for all agents: so each draws as it does alone."""
        odd = np.arange(len(observation)) % self._agents == self._odd
        actions = np.array(self._ours.act(observation))
        actions[odd] = self._partner.act(observation)[odd]
        return actions


def coordination(stage: Stage) -> Finding:
    """Conditions: which member follows the serving policy; the reference is self-play, ours throughout."""
    count = spaces.agents(sample(stage.order))
    if count < 2:
        raise NotMeasured(f"{stage.order.spec.data.environment} has one agent, which has no other to coordinate with")
    ours, others = [], []
    for odd in range(count):
        first = stage.fresh()
        ours.append(stage.play(Mixed(stage.policy, stage.baseline, count, odd), first))
        others.append(stage.play(stage.baseline, first))
    alone = stage.play(stage.policy, stage.fresh())
    names = [f"agent {odd} follows the serving policy" for odd in range(count)]
    return Finding(names, ours, others, [alone], "self-play")


MEASURES: Mapping[Dimension, Callable[[Stage], Finding]] = {
    "sample-efficiency": sample_efficiency,
    "generalisation": generalisation,
    "robustness": robustness,
    "coordination": coordination,
    "adaptability": adaptability,
}


def measure(stage: Stage, ours: Returns, baseline: Returns) -> SuiteResult:
    """The whole suite; `ours` and `baseline` are the returns of the held-out evaluation.

    The time left is shared equally among the dimensions that still wait, so a slow one takes nothing from the others.
    """
    began = time.monotonic()
    end, dimensions = began + stage.suite.max_seconds, list(stage.suite.dimensions)
    results = []
    for number, dimension in enumerate(dimensions):
        now = time.monotonic()
        stage.enter(dimension, now + max(0.0, end - now) / (len(dimensions) - number))
        results.append(_result(stage, dimension))
        progress_reporter.say(results[-1].message or _sentence(results[-1]))
    return SuiteResult(
        improvement=statistics.probability_of_improvement([ours], [baseline], stage.order.spec.seed),
        overall=overall(results),
        results=results,
        seconds=time.monotonic() - began,
    )


def overall(results: Sequence[DimensionResult]) -> float | None:
    """The specification's weighted score, of probabilities: they alone have the same unit in every dimension."""
    measured = [(WEIGHTS[one.dimension], one.improvement.value) for one in results if one.improvement is not None]
    total = sum(weight for weight, _ in measured)
    return sum(weight * value for weight, value in measured) / total if measured else None


def _result(stage: Stage, dimension: Dimension) -> DimensionResult:
    try:
        finding = MEASURES[dimension](stage)
    except (
        NotMeasured,
        errors.NumericError,
        ConfigError,
    ) as why:  # a world that breaks when it is changed proves nothing
        return DimensionResult(dimension=dimension, message=str(why)[:1024])
    seed, alike = stage.order.spec.seed, finding.ours if finding.alike is None else finding.alike
    return DimensionResult(
        dimension=dimension,
        conditions=finding.conditions,
        episodes=sum(len(returns) for returns in finding.ours),
        iqm=statistics.stratified_mean(finding.ours, seed),
        baseline=statistics.stratified_mean(finding.baseline, seed),
        improvement=statistics.probability_of_improvement(alike, finding.baseline, seed),
        reference=statistics.stratified_mean(finding.reference, seed),
        compared=finding.compared,
    )


def _sentence(result: DimensionResult) -> str:
    assert result.iqm is not None
    assert result.improvement is not None
    chance = result.improvement
    return (
        f"{result.dimension}: IQM {result.iqm.value:.1f} [{result.iqm.low:.1f}, {result.iqm.high:.1f}], probability of "
        f"improvement {chance.value:.2f} [{chance.low:.2f}, {chance.high:.2f}]"
    )
