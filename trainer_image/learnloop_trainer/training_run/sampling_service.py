"""The learner's side of its samplers in one run: the port they find, the key they share, what is said of them."""

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from learnloop_api import names
from learnloop_environments import code_digest
from learnloop_environments.errors import ConfigError, TrainerError
from learnloop_trainer.progress_reporter import Reporter, say
from learnloop_trainer.sampling.connection import LearnerPort
from learnloop_trainer.sampling.learners import SampledLearner
from learnloop_trainer.training_order import Order

SHORTEST_KEY, LONGEST_KEY = 32, 4096
QUIET_SECONDS = 60.0


def read_key(environ: Mapping[str, str]) -> bytes:
    """The key that proves that a process belongs to the run; raises ConfigError."""
    name = environ.get(names.ENV_SAMPLERS_KEY_FILE, "")
    fix = f"mount the run's Secret, or write {SHORTEST_KEY} random characters into a file of your own"
    try:
        key = Path(name).read_bytes().strip() if name else b""
    except OSError as error:
        raise ConfigError(names.ENV_SAMPLERS_KEY_FILE, name, f"cannot be read ({error.strerror})", fix) from None
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        problem = f"does not name a key of {SHORTEST_KEY} to {LONGEST_KEY} bytes"
        raise ConfigError(names.ENV_SAMPLERS_KEY_FILE, name, problem, fix)
    return key


def identity(order: Order) -> dict[str, str]:
    """Words in which a learner and its samplers must agree: the run, its recipe and the environment's code."""
    spec = order.spec
    conditions = spec.data.model_dump_json(include={"environment", "level", "randomise", "credit", "rewards"})
    shaping = spec.shaping.model_dump_json() if spec.shaping is not None else ""
    text = (
        f"{spec.algorithm} {spec.seed} {spec.total_steps} {order.parameters.model_dump_json()} {conditions} {shaping}"
    )
    return {
        "run": order.job,
        "recipe": hashlib.sha256(text.encode()).hexdigest(),
        "environment code": code_digest(order.environment),
    }


class SamplingService:
    """Listens while a run trains."""

    def __init__(self, order: Order, learner: SampledLearner, rewards: str, reporter: Reporter) -> None:
        """Raises ConfigError without a key. `rewards`: the RewardPolicy's spec as JSON, "" without one."""
        assert order.spec.samplers is not None
        self._learner, self._reporter = learner, reporter
        self._heard, self._quiet, self._step = time.monotonic(), False, learner.step
        self._port = _port(os.environ)
        each = order.spec.samplers.environments
        self._server = LearnerPort(learner.intake, read_key(os.environ), identity(order), each, rewards)

    def __enter__(self) -> "SamplingService":
        """Begin to listen; raises TrainerError where that cannot be."""
        self._learner.publish()
        try:
            port = self._server.listen("*", self._port)
        except OSError as error:
            raise TrainerError(f"samplers cannot be awaited on port {self._port}: {error.strerror}") from None
        say(f"samplers are awaited on port {port}")
        return self

    def __exit__(self, *_: object) -> None:
        """Let samplers go: the port tells them so until the process ends."""
        self._learner.intake.finish()

    def look(self) -> None:
        """After each round: say it where the learner is left alone."""
        now = time.monotonic()
        if self._learner.step != self._step:
            self._heard, self._step = now, self._learner.step
        quiet = now - self._heard > QUIET_SECONDS
        if quiet:
            count = int(self._learner.intake.figures()["samplers"])
            here = f"{count} samplers are here" if count else "no sampler is here"
            self._reporter.caution(f"{here}, and no steps have come for {now - self._heard:.0f} s")
        elif self._quiet:
            self._reporter.caution("")
        self._quiet = quiet


def _port(environ: Mapping[str, str]) -> int:
    text = environ.get(names.ENV_SAMPLERS_PORT, str(names.PORT_SAMPLERS))
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise ConfigError(names.ENV_SAMPLERS_PORT, text, "is not a port", "write a number from 0 to 65535")
    return int(text)
