"""Environments of bsuite as Gymnasium's, one at a time: BSUITE_ID names it, BSUITE_FOLDER is where it records."""

import os
from typing import Any

import bsuite
import gymnasium
import numpy as np


class World(gymnasium.Env[Any, Any]):
    """`spec.data.environment` is bench.judges.bsuite_world:World. The record is bsuite's own, for its own analysis."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium reads it as a plain dictionary

    def __init__(self, render_mode: str | None = None) -> None:
        identity, folder = os.environ["BSUITE_ID"], os.environ["BSUITE_FOLDER"]
        self._inner = bsuite.load_and_record_to_csv(identity, folder, overwrite=True)
        shape = self._inner.observation_spec().shape
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (int(np.prod(shape)),), np.float32)
        self.action_space = gymnasium.spaces.Discrete(int(self._inner.action_spec().num_values))
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new episode; its chance is bsuite's, which each identity has with it."""
        super().reset(seed=seed)
        return self._flat(self._inner.reset()), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        moment = self._inner.step(int(action))
        ended = moment.last()
        return (
            self._flat(moment),
            float(moment.reward or 0.0),
            ended and moment.discount == 0.0,
            bool(ended and moment.discount != 0.0),
            {},
        )

    @staticmethod
    def _flat(moment: Any) -> Any:
        return np.asarray(moment.observation, dtype=np.float32).ravel()
