"""Reward an environment's steps by a RewardPolicy, with the rules for logged episodes.

A step gets its own part immediately (see reward_rules.step_rewards.Advance). The last step of an episode also gets the
rest of the episode's reward. So the steps of an episode earn together exactly the reward of the rules.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.reward_policy import RewardPolicySpec, SafetyConstraint
from learnloop_common.reward_rules import components, step_rewards
from learnloop_common.reward_rules.outcome_values import LARGEST, OutcomeValues, source
from learnloop_environments import errors, multipliers, wrappers
from learnloop_environments.spaces import Observations, Step, VectorEnvironment, team_return

PREFIX = "rewarded."
UNPLAYED = ("feedback", "evaluator")
"""Types of components that no simulator measures."""
PATIENCE = 100
"""Episodes without any measurement after which a run ends: some numbers are reported only when something happens."""


class Rewarded(wrappers.Seeing):
    """Rewards by a RewardPolicy. Numbers of the steps become outcome values, as in the episodes of actors. A simulator
    does not measure feedback of people or other agents: the policy's `missing` decides what that means.

    Each agent of a team gets its own share of a step's reward, and all the same share of the rest at the end.
    """

    def __init__(
        self,
        inner: VectorEnvironment,
        policy: RewardPolicySpec,
        success_return: float | None = None,
        penalties: multipliers.Multipliers | None = None,
    ) -> None:
        """An episode with at least `success_return` succeeded, where the environment reports no success; None: unknown.

        `penalties` of the policy's constraints cost reward in the place of the constraints' own limits on it.

        Raises ConfigError when the policy shapes by a number that the observations do not have.
        """
        super().__init__(inner)
        shaping = policy.shaping
        if shaping is not None and shaping.observation is None:
            fix = "set shaping.observation, or set spec.data.rewards to environment"
            raise errors.ConfigError(
                "RewardPolicy shaping.milestones", shaping.milestones, "are of messages, not numbers", fix
            )
        if shaping is not None and shaping.observation is not None and shaping.observation >= inner.observations:
            problem = f"is not a number of the environment's observations, which have {inner.observations}"
            fix = "correct it in the RewardPolicy, or set spec.data.rewards to environment"
            raise errors.ConfigError("RewardPolicy shaping.observation", shaping.observation, problem, fix)
        count = len(inner.members)
        self._penalties = penalties
        self._worth = policy if penalties is None else policy.model_copy(update={"constraints": []})
        self._policy, self._success_return, self._given = policy, success_return, step_rewards.advance(policy)
        types = {component.type for component in components.counting(policy)}
        self._success_alone = policy.shaping is None and types - {*UNPLAYED} == {"success"}
        self._smooth = "smoothness" in types
        always = policy.shaping is not None or types & {*components.OF_PLAY} - {"success"}
        self._patience = 0 if always else PATIENCE
        self._read = components.read_values(policy)
        self._sources = {source(name) for name in self._read} | {*self._read}
        self._values = [OutcomeValues() for _ in range(count)]
        self.besides: Mapping[str, NDArray[Any]] = {}  # further values of the next step, from a wrapper around this one
        self._return, self._advanced, self._changed = (np.zeros(count) for _ in range(3))
        self._steps = np.zeros(count, dtype=np.int64)
        self._before: NDArray[np.float64] | None = None

    def reset(self) -> Observations:
        self._forget(np.ones(len(self.members), dtype=np.bool_))
        return super().reset()

    def impose(self, parameters: Mapping[str, NDArray[np.float64]]) -> Observations:
        self._forget(np.ones(len(self.members), dtype=np.bool_))
        return super().impose(parameters)

    def step(self, actions: NDArray[Any]) -> Step:
        """Raises ConfigError where only success counts and is unknown."""
        if self._smooth:
            self._compare(actions)
        step = self.inner.step(actions)
        if self._success_alone and step.success is None and self._success_return is None:
            raise nothing_measured(self._policy, "set spec.data.successReturn, or ")
        reward = self._given.share * step.reward.astype(np.float64) + self._given.each
        costs = self._costs()
        require_numbers(self._policy.constraints, step.values)
        self._measure({**step.values, **self.besides})
        self._return += team_return(step.reward)
        self._advanced += team_return(reward)  # type: ignore[arg-type]  # float64 here
        self._steps += 1
        ended = step.terminated | step.truncated
        for number in np.flatnonzero(ended).tolist():
            episode = self._episode(number, step)
            reward[number] += step_rewards.whole(self._worth, episode) - self._advanced[number]
            if self._patience:
                self._require_measurement(episode)
        if self._policy.shaping is not None:
            terms = self._potential(step.successor) * self._policy.shaping.discount
            terms[step.terminated] = 0.0
            terms -= self._potential(self._observation)
            reward += terms if reward.ndim == terms.ndim else terms[:, None]
        if self._penalties is not None and costs is not None and (after := self._costs()) is not None:
            reward = self._penalties.penalised(reward, np.nan_to_num(after) - np.nan_to_num(costs))
            for number in np.flatnonzero(ended).tolist():
                self._penalties.ended(after[number])
        self._forget(ended)
        self._observation = step.observation
        return replace(step, reward=reward.astype(np.float32))

    def _costs(self) -> NDArray[np.float64] | None:
        """Outcome values so far that have a multiplier [n, constraints], NaN where one is missing."""
        if self._penalties is None:
            return None
        return np.asarray([[one.get(key, np.nan) for key in self._penalties.keys] for one in self._values])

    def _measure(self, values: Mapping[str, NDArray[Any]]) -> None:
        for name in self._sources & values.keys():
            for one, number in zip(self._values, values[name].tolist(), strict=True):
                one.note({name: number})

    def _require_measurement(self, episode: components.Episode) -> None:
        """Raises ConfigError when the last of PATIENCE episodes has ended and none had a value of any component."""
        nothing = len(components.without_values(self._policy, [episode])) == len(components.counting(self._policy))
        self._patience = self._patience - 1 if nothing else 0
        if nothing and not self._patience:
            raise nothing_measured(self._policy)

    def _episode(self, number: int, step: Step) -> components.Episode:
        total, steps = float(self._return[number]), int(self._steps[number])
        success = None if step.success is None else bool(step.success[number])
        if success is None and self._success_return is not None:
            success = total >= self._success_return
        changed = self._changed[number] / (steps - 1) if self._smooth and steps > 1 else None
        return components.Episode(total, success, steps, self._values[number], change=changed)

    def _compare(self, actions: NDArray[Any]) -> None:
        """Count how far each action is from the one before in its episode."""
        taken = np.asarray(actions, dtype=np.float64)
        if self._before is not None:
            for number in np.flatnonzero(self._steps):
                self._changed[number] += components.change(*(_plain(side[number]) for side in (self._before, taken)))
        self._before = taken.copy()

    def _potential(self, observation: Observations) -> NDArray[np.float64]:
        """As reward_rules.step_terms.potential, of all environments [n], or of a team [n, agents]."""
        rule = self._policy.shaping
        assert rule is not None
        return np.asarray(rule.weight * observation[..., rule.observation].astype(np.float64))

    def _forget(self, ended: NDArray[np.bool_]) -> None:
        for array in (self._return, self._advanced, self._changed, self._steps):
            array[ended] = 0
        for number in np.flatnonzero(ended):
            self._values[number] = OutcomeValues()

    def state(self) -> dict[str, NDArray[np.generic]] | None:
        inner = self.inner.state()
        if inner is None:
            return None
        own = {"return": self._return, "advanced": self._advanced, "changed": self._changed, "steps": self._steps}
        if self._before is not None:
            own["before"] = self._before
        if self._read:
            own["values"] = np.asarray([[one.get(name, np.nan) for name in self._read] for one in self._values])
        return {**inner, **{PREFIX + name: array.copy() for name, array in own.items()}}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        self._return, self._advanced, self._changed = (
            np.array(state[PREFIX + name], dtype=np.float64) for name in ("return", "advanced", "changed")
        )
        self._steps = np.array(state[PREFIX + "steps"], dtype=np.int64)
        for number, row in enumerate(state.get(PREFIX + "values", np.empty((0, 0)))):
            measured = zip(self._read, row.tolist(), strict=True)
            self._values[number] = OutcomeValues({name: value for name, value in measured if not np.isnan(value)})
        before = state.get(PREFIX + "before")
        self._before = None if before is None else np.array(before, dtype=np.float64)
        return super().restore({name: array for name, array in state.items() if not name.startswith(PREFIX)})


def require_measured(policy: RewardPolicySpec) -> None:
    """Raise ConfigError where play would be rewarded with nothing but zeros."""
    if policy.shaping is None and all(one.type in UNPLAYED for one in components.counting(policy)):
        raise nothing_measured(policy)


def require_numbers(constraints: Iterable[SafetyConstraint], values: Mapping[str, NDArray[Any]]) -> None:
    """Raise ConfigError where a step reports a constraint's outcome value and it is NaN or huge."""
    for one in constraints:
        for name in {one.key, source(one.key)} & values.keys():
            if (np.abs(values[name]) > LARGEST).any():
                problem = "is NaN or beyond ±1e9 in a step, so nothing shows that it holds"
                fix = "have the environment report a number"
                raise errors.ConfigError(f"RewardPolicy constraints {one.name}", one.key, problem, fix)


def nothing_measured(policy: RewardPolicySpec, also: str = "") -> errors.ConfigError:
    """The refusal of a policy that rewards play with nothing; `also`: another fix."""
    named = components.described(policy, (one.name for one in components.counting(policy)))
    problem = f"would reward every step with 0: played episodes of this environment have no value of {named}"
    fix = f"{also}give the RewardPolicy a component of type {', '.join(components.OF_PLAY)}, or the key of a number in "
    fix += "the environment's info, or set it to environment"
    return errors.ConfigError("spec.data.rewards", "policy", problem, fix)


def _plain(action: NDArray[Any]) -> Any:
    """As a logged step has it: a number, or a list of numbers."""
    return action.reshape(-1).tolist() if action.ndim else action.item()
