"""CartPole-v1 whose every step takes LEARNLOOP_BENCH_STEP_SECONDS, as a simulator's or a remote program's does."""

import os
import time
from typing import Any

import gymnasium

STEP_SECONDS = "LEARNLOOP_BENCH_STEP_SECONDS"


class SlowCartPole(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sleeps, and needs no processor meanwhile."""

    def __init__(self) -> None:
        """Around Gymnasium's own."""
        super().__init__(gymnasium.make("CartPole-v1"))
        self._seconds = float(os.environ.get(STEP_SECONDS, "0"))

    def step(self, action: Any) -> Any:
        """See gymnasium.Env.step."""
        time.sleep(self._seconds)
        return self.env.step(action)
