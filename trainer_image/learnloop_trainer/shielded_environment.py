"""An environment behind an action shield, and the log of the shield's interventions."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.training.environment_conditions import Intervention, Safety
from learnloop_environments import randomness, rewarded_by_policy, wrappers
from learnloop_environments.spaces import MASKED, Observations, Step, VectorEnvironment, agents
from learnloop_trainer.action_shield import Shield

VARIABLE = "LEARNLOOP_AUDIT_LOG"
LARGEST = 64 << 20  # bytes of one rank's file; interventions beyond it are only counted


class Trail:
    """Appends to the file named by LEARNLOOP_AUDIT_LOG; without it, a file of this process in /tmp."""

    def __init__(self, agent: str, environ: Mapping[str, str] = os.environ) -> None:
        self.path = Path(environ.get(VARIABLE, f"/tmp/learnloop-audit-{os.getpid()}.jsonl"))
        self._agent = agent

    def write(
        self,
        members: NDArray[np.int64],
        wanted: NDArray[np.generic],
        reward: NDArray[np.float32],
        constraints: list[list[str]],
        fallback: NDArray[np.bool_],
        worth: NDArray[np.float32] | None = None,
        *,
        exploring: bool,
    ) -> None:
        """One line for each row; `members` are the environments' numbers, `worth` the policy's own estimates."""
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        if self.path.exists() and self.path.stat().st_size > LARGEST:
            return
        with self.path.open("a", encoding="utf-8") as file:
            for row, member in enumerate(members):
                line = Intervention(
                    timestamp=now,
                    agent_id=f"{self._agent}/{member}",
                    action_hash=hashlib.sha256(np.asarray(wanted[row], dtype="<f4").tobytes()).hexdigest(),
                    reward=float(reward[row]),
                    q_value=None if worth is None else float(worth[row]),
                    exploration_flag=exploring,
                    constraints=constraints[row],
                    fallback=bool(fallback[row]),
                )
                file.write(line.model_dump_json() + "\n")

    def read(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""


@dataclass(frozen=True, slots=True)
class Preferences:
    """A learner's preferences among discrete actions: its logits, which it draws from, or values."""

    outputs: Callable[[Observations], NDArray[np.float32]]  # from what is seen to [n * agents, actions]
    drawn: bool
    seed: int


class Shielded(wrappers.Seeing):
    """Another environment behind a shield. Learners see the action they chose and what the executed one brought."""

    def __init__(self, inner: VectorEnvironment, shield: Shield, trail: Trail | None, *, exploring: bool) -> None:
        """`trail`: where interventions are written; None: they are only counted."""
        super().__init__(inner)
        self._shield, self._trail, self._exploring = shield, trail, exploring
        self._rewarded = wrappers.outermost(inner, rewarded_by_policy.Rewarded)
        self.worth: Callable[[Observations, NDArray[Any]], NDArray[np.float32]] | None = None  # of what the learner did
        self.preferences: Preferences | None = None  # of the learner; without them a forbidden action is the fallback
        self.interventions = np.zeros(len(inner.members), dtype=np.int64)
        self.executed = np.zeros(len(inner.members), dtype=np.int64)

    def step(self, actions: NDArray[Any]) -> Step:
        before = self._observation
        observations = before.reshape(-1, self.observations)
        wanted = actions.reshape(len(observations), -1) if self.inner.bounds is not None else actions.reshape(-1)
        safe, fallback = self._shield.project(observations, wanted)
        unsafe = fallback.any() or self._shield.policy is not None
        if self.preferences is not None and self.inner.bounds is None and unsafe:
            safe, fallback = self._preferred(self.preferences, before, safe, fallback)
        broken = self._shield.broken(observations, wanted)
        changed = broken.any(axis=0) | fallback
        per = agents(self.inner)
        count = changed.reshape(-1, per).sum(axis=1)
        if self._rewarded is not None:
            self._rewarded.besides = {"interventions": count.astype(np.float64)}
        step = self.inner.step(safe.reshape(actions.shape))
        self._observation = step.observation
        self.interventions += count
        self.executed += per
        if changed.any() and self._trail is not None:
            values = None if self.worth is None else self.worth(before, actions).reshape(-1)
            self._record(np.flatnonzero(changed), wanted, step, broken, fallback, values)
        return step

    def _preferred(
        self, preferences: Preferences, before: Observations, safe: NDArray[Any], bad: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Actions by the exported graph's mask, in rows [n] that are `bad`: the best action that is allowed.

        Of a learner that draws, a draw among those: together with what it drew itself, softmax of the masked logits.
        """
        logits, per = preferences.outputs(before), agents(self.inner)
        masked, only = self._shield.mask(before.reshape(-1, self.observations), logits)
        bad = bad | (np.take_along_axis(masked, safe[:, None], 1)[:, 0] <= MASKED)  # where a fallback policy acts
        if preferences.drawn:
            taken, members = (np.repeat(array, per)[:, None] for array in (self.executed, np.asarray(self.members)))
            agent = np.tile(np.arange(per), len(self.members))[:, None]
            masked = masked + randomness.gumbels(
                randomness.Purpose.SHIELD, preferences.seed, taken, members, agent, np.arange(self.actions)[None]
            )
        return np.where(bad, masked.argmax(axis=1), safe), bad & only

    def _record(
        self,
        rows: NDArray[np.intp],
        wanted: NDArray[Any],
        step: Step,
        broken: NDArray[Any],
        fallback: NDArray[Any],
        values: NDArray[np.float32] | None,
    ) -> None:
        assert self._trail is not None
        members = np.asarray(self.members)[rows // agents(self.inner)]
        reward = step.reward.reshape(-1)[rows]
        names = [
            [limit.name for limit, hit in zip(self._shield.limits, broken[:, row], strict=True) if hit] for row in rows
        ]
        worth = None if values is None else values[rows]
        self._trail.write(members, wanted[rows], reward, names, fallback[rows], worth, exploring=self._exploring)

    def state(self) -> dict[str, NDArray[np.generic]] | None:
        inner = self.inner.state()
        if inner is None:
            return None
        return {**inner, "shield.interventions": self.interventions.copy(), "shield.executed": self.executed.copy()}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        self.interventions = np.array(state["shield.interventions"], dtype=np.int64)
        self.executed = np.array(state["shield.executed"], dtype=np.int64)
        return super().restore({name: array for name, array in state.items() if not name.startswith("shield.")})


def shielded(
    inner: VectorEnvironment,
    safety: Safety | None,
    trail: Trail | None = None,
    *,
    exploring: bool = False,
    policy: bytes | None = None,
) -> VectorEnvironment:
    """The environment behind the shield that `safety` describes, or itself without one; raises ConfigError.

    `policy`: the file of its fallback policy.
    """
    if safety is None:
        return inner
    spaces, bounds = (inner.observations, inner.actions), inner.bounds
    shield = Shield(safety, *spaces, continuous=bounds is not None, policy=policy, bounds=bounds)
    return Shielded(inner, shield, trail, exploring=exploring)
