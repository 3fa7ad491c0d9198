"""Shaping changes no optimal policy: any small world solved with and without it (Ng, Harada & Russell, 1999)."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from learnloop_api.kinds.reward_policy import PotentialShaping
from learnloop_common.reward_rules.components import potential_terms

STATES, ACTIONS, ROUNDS = 5, 3, 400
Bonus = Callable[[int, int | None], float]


class World:
    """Deterministic; some actions end the episode. `potentials`: what the observation of each state shows."""

    def __init__(self, seed: int, discount: float, weight: float) -> None:
        rng = np.random.default_rng(seed)
        self.goes = rng.integers(0, STATES + 1, (STATES, ACTIONS))  # STATES: the end
        self.goes[0, 0] = STATES
        self.rewards = rng.normal(0, 1, (STATES, ACTIONS))
        self.potentials = rng.normal(0, 3, STATES)
        self.rule = PotentialShaping(observation=1, weight=weight, discount=discount)

    def step(self, state: int, *, ends: bool = False) -> dict:
        return {"observation": [0.0, float(self.potentials[state])], "action": 0, "terminated": ends}

    def bonus(self, state: int, following: int | None) -> float:
        """The product's addition to a step from one state to the next, None the end."""
        if following is None:
            return potential_terms(self.rule, [self.step(state, ends=True)])[0]
        return potential_terms(self.rule, [self.step(state), self.step(following)])[0]

    def worth(self, bonus: Bonus):
        """Value of each action in each state, by value iteration."""
        q = np.zeros((STATES, ACTIONS))
        for _ in range(ROUNDS):
            best = np.append(q.max(axis=1), 0.0)
            q = self.rewards + self.added(bonus) + self.rule.discount * best[self.goes]
        return q

    def added(self, bonus: Bonus):
        return np.array(
            [
                [bonus(state, None if following == STATES else int(following)) for following in row]
                for state, row in enumerate(self.goes)
            ]
        )


worlds = st.builds(World, st.integers(0, 2**31), st.sampled_from([0.5, 0.8, 0.9]), st.floats(-5, 5))


@settings(max_examples=settings().max_examples // 2)
@given(worlds)
def test_every_action_loses_the_potential_of_its_state_and_nothing_else(world: World) -> None:
    plain, shaped = world.worth(lambda *_: 0.0), world.worth(world.bonus)
    expected = plain - world.rule.weight * world.potentials[:, None]
    assert shaped == pytest.approx(expected, abs=1e-6)


def test_a_bonus_for_states_that_is_no_difference_of_potentials_does_change_what_is_best() -> None:
    """So that the test above can fail: the naive bonus is what potential-based shaping is there to replace."""
    changed = 0
    for seed in range(20):
        world = World(seed, 0.9, 3.0)
        naive = world.worth(lambda state, _, world=world: world.rule.weight * float(world.potentials[state]))
        changed += bool((naive.argmax(axis=1) != world.worth(lambda *_: 0.0).argmax(axis=1)).any())
    assert changed > 10
