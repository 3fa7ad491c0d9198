"""Calls of a user's environment under a watchdog: a call that never returns ends the process, with the call's name."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.errors import ConfigError, EnvironmentFailed, EnvironmentMistaken, TrainerError, abandon
from learnloop_environments.spaces import Observations, Step, VectorEnvironment
from learnloop_environments.wrappers import Wrapper

VARIABLE = "LEARNLOOP_ENVIRONMENT_SECONDS"
LOOK_SECONDS = 0.25
T = TypeVar("T")
MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Errors of the code itself: another attempt meets them again. What a server or device does may pass."""


def limit() -> float:
    """Seconds one call of a user's environment may take."""
    text = os.environ.get(VARIABLE, "60")
    if not text.isdecimal() or not 1 <= int(text) <= 86400:
        raise ConfigError(VARIABLE, text, "is not a number of seconds from 1 to 86400", "correct it in spec.pod.env")
    return float(text)


class Watchdog:
    """Ends the process when a call takes too long: the thread that made it cannot be interrupted."""

    def __init__(self, name: str) -> None:
        """Of the environment of this name; watching begins with the first call."""
        self._name, self._limit, self._calls = name, limit(), 0
        self._call: tuple[str, float] | None = None
        threading.Thread(target=self._watch, name="environment", daemon=True).start()

    def run(self, what: str, action: Callable[[], T]) -> T:
        """Call the environment; raises EnvironmentMistaken where it raises one of MISTAKES, else EnvironmentFailed."""
        self._call, self._calls = (what, time.monotonic()), self._calls + 1
        try:
            return action()
        except TrainerError:
            raise
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            problem = f"spec.data.environment: '{self._name}' raised {text} in {what}, call {self._calls}"
            if isinstance(error, MISTAKES):
                raise EnvironmentMistaken(f"{problem}; correct the environment") from error
            raise EnvironmentFailed(
                f"{problem}; another attempt continues from the last checkpoint, but correct the environment: "
                "with other code training starts again from step 0"
            ) from error
        finally:
            self._call = None

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            call = self._call
            if call is not None and time.monotonic() - call[1] > self._limit:
                abandon(
                    EnvironmentFailed(
                        f"spec.data.environment: '{self._name}' did not return from {call[0]}, call {self._calls}, "
                        f"within {self._limit:.0f} s; correct the environment, or raise {VARIABLE} in spec.pod.env"
                    )
                )


class Guarded(Wrapper):
    """Another environment under a watchdog."""

    def __init__(self, inner: VectorEnvironment, watchdog: Watchdog) -> None:
        super().__init__(inner)
        self._watchdog = watchdog

    def reset(self) -> Observations:
        return self._watchdog.run("reset", self.inner.reset)

    def impose(self, parameters: Mapping[str, NDArray[np.float64]]) -> Observations:
        return self._watchdog.run("impose", lambda: super(Guarded, self).impose(parameters))

    def step(self, actions: NDArray[Any]) -> Step:
        return self._watchdog.run("step", lambda: self.inner.step(actions))

    def state(self) -> dict[str, NDArray[np.generic]] | None:
        return self._watchdog.run("state", self.inner.state)

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        return self._watchdog.run("restore", lambda: self.inner.restore(state))

    def close(self) -> None:
        self._watchdog.run("close", self.inner.close)


def guarded(name: str, opened: Callable[[], VectorEnvironment]) -> VectorEnvironment:
    """The product of `opened` for the environment of this name, under a watchdog from its first call on."""
    watchdog = Watchdog(name)
    return Guarded(watchdog.run("opening", opened), watchdog)
