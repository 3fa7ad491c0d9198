"""A run whose engine is another program: give it the order, pass on what it reports, and prove what it hands in."""

import hashlib
import os
import secrets
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from learnloop_api.wire import base, engine as wire
from learnloop_environments import errors as refusals, randomness
from learnloop_environments.interfaces.foreign_spaces import foreign_seeds
from learnloop_trainer import progress_reporter, recordings, training_order
from learnloop_trainer.engines import engine_language, trl_training
from learnloop_trainer.engines.engine_process import (
    PAGE,
    Child,
    Container,
    Engine,
    EngineFailed,
    EngineMistaken,
    Exchange,
    Handed,
)
from learnloop_trainer.engines.engine_proof import Subject, played
from learnloop_trainer.errors import Terminated
from learnloop_trainer.store.run_store import MAX_ARTIFACT, MAX_CHECKPOINT, Arrays, pack, part, unpack
from learnloop_trainer.training_run import agent_logs, checkpoints, proof, rank, training_loop

LOOK_SECONDS = 0.1
MAX_HEARTBEAT, MAX_RESULT = 64 << 10, 4 << 20
MOST_LOGGED_STEPS = 100_000
COMMANDS = {"sb3": (sys.executable, "-m", "learnloop_trainer.engines.sb3")}


def run(
    order: training_order.Order, place: training_order.Place, threads: int, command: Sequence[str] | None = None
) -> None:
    """As rank.run, by the order's engine.

    `command`: of an engine that is a child of this process; left out, an image's engine is a container of the same pod.
    """
    if order.spec.trained_by == "own":
        return rank.run(order, place, threads)
    if order.spec.trained_by == "trl":
        return rank.run(order, place, threads, partial(rank.together, begin_language=trl_training.begin))
    command = command or COMMANDS.get(order.spec.trained_by)
    folder = os.environ.get(wire.ENV_DIRECTORY, "")
    if command is None and not folder:
        fix = "start this image through a TrainingJob"
        raise refusals.ConfigError(
            wire.ENV_DIRECTORY, folder, "names no folder, and the engine is another container's", fix
        )
    with tempfile.TemporaryDirectory(prefix="learnloop-engine-", ignore_cleanup_errors=True) as own:
        exchange = Exchange(Path(folder if command is None else own))
        engine = Container(exchange) if command is None else Child(command, exchange.folder)
        try:
            rank.run(order, place, threads, lambda run, place: _Followed(run, place, exchange, engine).follow())
        finally:
            engine.stop()


@dataclass(slots=True)
class _Steps:
    step: int = 0


@dataclass(slots=True)
class EngineTraining:
    """As much of a training as proof.proven asks about."""

    title: str
    learner: _Steps = field(default_factory=_Steps)
    begun_from: str = ""
    read: recordings.ReadExperience = field(default_factory=recordings.ReadExperience)
    validation: None = None
    over: bool = False


class _Followed:
    def __init__(self, run: training_loop.Run, place: training_order.Place, exchange: Exchange, engine: Engine) -> None:
        self._run, self._order, self._place = run, run.order, place
        self._exchange, self._engine = exchange, engine
        self._marks: dict[str, object] = {}
        self._training = EngineTraining(f"{run.order.spec.trained_by} engine on {run.order.environment}")
        self._checkpoint = b""
        self._secret = secrets.randbelow(base.MOST)
        self._reported = -1

    def follow(self) -> None:
        """Return when the proof is durable, or, on another rank than the first, when the engine has ended."""
        _refuse_unheard(self._order)
        spoken = self._order.spec.data.language_model is not None
        subject: Subject = engine_language.spoken(self._order) if spoken else played(self._order)
        handed = self._resumed() if self._place.rank == 0 else None
        if handed is None:
            self._give(subject)
            self._wait()
            if self._place.rank > 0:
                return
            handed = self._handed(subject)
            self._save(handed)
        self._training.learner.step = handed.result.step
        proved = subject.prove(replace(self._run, order=self._judged()), handed, self._place.size)
        proven = proof.proven(self._run, self._training, None, proved)  # type: ignore[arg-type]
        self._run.reporter.proven(proven)
        self._run.reporter.finish("done", rank.summary(proven))

    def _judged(self) -> training_order.Order:
        """The order with held-out episodes that an image's program cannot compute, the same ones in each attempt."""
        spec = self._order.spec
        if spec.trained_by != "image":
            return self._order
        evaluation = spec.evaluation.model_copy(update={"seed": self._secret, "first_episode": 0})
        return self._order.model_copy(update={"spec": spec.model_copy(update={"evaluation": evaluation})})

    def _resumed(self) -> Handed | None:
        """Last files of an earlier attempt, if it had them all; else its checkpoint is kept for the engine."""
        body = checkpoints.newest(self._run.store)
        if body is None:
            return None
        arrays, facts = unpack(body)
        if facts.get("fingerprint") != checkpoints.fingerprint(self._order):
            progress_reporter.say("the checkpoint belongs to another specification, starting again")
            return None
        self._training.learner.step = int(facts["step"])
        self._secret = int(facts.get("held_out", self._secret))
        self._checkpoint = arrays["checkpoint"].tobytes()
        if "result" not in arrays:
            progress_reporter.say(f"resuming at step {facts['step']}")
            return None
        progress_reporter.say("training has ended in an earlier attempt: going on with its proof")
        self._run.saver.offer(body, int(facts["step"]))
        files = {name: array.tobytes() for name, array in part(arrays, "handed").items()}
        return Handed(files, wire.EngineResult.model_validate_json(arrays["result"].tobytes()))

    def _give(self, subject: Subject) -> None:
        order, spec = self._order, self._order.spec
        own = (wire.HEARTBEAT, wire.CHECKPOINT, wire.RESULT, wire.RESUME, wire.EXIT, wire.ERROR)
        for name in (*own, *(name for group in subject.files for name in group)):
            self._exchange.remove(name)
        if self._checkpoint:
            self._exchange.give(wire.RESUME, self._checkpoint)
        if agent_logs.agents_of(order) and spec.trained_by == "image":
            log = agent_logs.read_log(order, self._run.store, MOST_LOGGED_STEPS)
            episodes = log.episodes
            lines = "".join(f"{one.model_dump_json()}\n" for one in episodes)
            self._exchange.give(wire.EPISODES, lines.encode())
            steps = sum(len(one.steps) for one in episodes)
            self._training.read.note = agent_logs.note_of(log, self._run.store, steps)
        document = wire.EngineOrder(
            job=order.job,
            attempt=order.attempt,
            rank=self._place.rank,
            world_size=self._place.size,
            algorithm=spec.algorithm,
            total_steps=spec.total_steps,
            seed=seed_of(spec.seed),
            environment_seeds=foreign_seeds(randomness.Split.TRAINING, seed_of(spec.seed), np.arange(wire.SEEDS)),
            environment=order.environment,
            max_steps_per_episode=spec.data.max_steps_per_episode,
            behaviour=spec.export.behaviour,
            settings=spec.settings or {},
            **subject.order_fields(),
        )
        self._exchange.give(wire.ORDER, document.model_dump_json().encode())  # the last file: engines wait for it

    def _wait(self) -> None:
        """Until the engine has ended well; what it reports and saves meanwhile is passed on."""
        stopper, reporter = self._run.stopper, self._run.reporter
        stopper.graceful = True
        try:
            reporter.phase("training", self._training.title)
            self._engine.start()
            while (code := self._engine.ended()) is None and not stopper.requested:
                self._look()
                time.sleep(LOOK_SECONDS)
            if code is None:
                self._engine.stop()
                self._look(last=True)
                flushed = self._run.saver.flush(training_loop.FLUSH_SECONDS / 2)
                raise Terminated("SIGTERM: checkpoint saved" if flushed else "SIGTERM: no time to save a checkpoint")
            self._look(last=True)
        finally:
            stopper.graceful = False
        if code:
            self._run.saver.flush(training_loop.FLUSH_SECONDS)
            kind = EngineMistaken if code == EngineMistaken.exit_code else EngineFailed
            why = (self._exchange.take(wire.ERROR, 4096, cut=True) or b"see its log").decode(errors="replace")
            raise kind(f"the engine ended with exit code {code} at step {self._training.learner.step}; {why}")

    def _look(self, *, last: bool = False) -> None:
        if self._place.rank > 0:
            self._run.reporter.alive()
            return
        if self._changed(wire.HEARTBEAT):
            beat = self._exchange.read(wire.HEARTBEAT, wire.EngineHeartbeat, MAX_HEARTBEAT)
            if beat is not None:
                if beat.step < self._reported:
                    problem = f"{wire.HEARTBEAT}: step: {beat.step} is below the {self._reported} before"
                    raise EngineMistaken(f"{problem}; count all steps of this attempt")
                self._reported = beat.step
                self._training.learner.step = beat.step
                recent = deque(beat.returns)
                self._run.reporter.progress(beat.step, recent, trail=beat.returns, figures=lambda: beat.figures)
        if (last or self._run.saver.idle) and self._changed(wire.CHECKPOINT):
            self._checkpoint = self._exchange.take(wire.CHECKPOINT, MAX_CHECKPOINT) or b""
            self._save()

    def _changed(self, name: str) -> bool:
        mark = self._exchange.mark(name)
        before, self._marks[name] = self._marks.get(name), mark
        return mark is not None and mark != before

    def _save(self, handed: Handed | None = None) -> None:
        step = self._training.learner.step if handed is None else handed.result.step
        files = {"checkpoint": self._checkpoint}
        if handed is not None:
            files |= {f"handed/{name}": body for name, body in handed.files.items()}
            files["result"] = handed.result.model_dump_json().encode()
        arrays: Arrays = {name: np.frombuffer(body, dtype=np.uint8) for name, body in files.items()}
        facts = {"fingerprint": checkpoints.fingerprint(self._order), "step": str(step)}
        facts["held_out"] = str(self._secret)
        self._run.saver.offer(pack(arrays, facts), step)

    def _handed(self, subject: Subject) -> Handed:
        """All that a whole run hands in. Raises EngineMistaken, naming everything that is missing."""
        taken = {name: self._exchange.take(name, MAX_ARTIFACT) for group in subject.files for name in group}
        files = {name: body for name, body in taken.items() if body is not None}
        whole = next((group for group in subject.files if files.keys() >= set(group)), ())
        result = self._exchange.read(wire.RESULT, wire.EngineResult, MAX_RESULT)
        handed_in = {
            wire.HEARTBEAT: self._reported >= 0 or self._training.learner.step > 0,  # of an earlier attempt
            wire.CHECKPOINT: bool(self._checkpoint),
            " or ".join(" with ".join(group) for group in subject.files): bool(whole),
            wire.RESULT: result is not None,
        }
        missing = [name for name, there in handed_in.items() if not there]
        if missing or result is None:
            raise EngineMistaken(f"the engine ended without {', '.join(missing)}: write each as {PAGE} says")
        if result.step < self._order.spec.total_steps:
            problem = f"result.json: step: {result.step} is below the {self._order.spec.total_steps} of the order"
            raise EngineMistaken(f"{problem}; train on before the result is written")
        return Handed({name: files[name] for name in whole}, result)


def seed_of(seed: int) -> int:
    """An engine's own seed: of the run's seed are held-out episodes of sb3, and all draws of a proof."""
    return int.from_bytes(hashlib.sha256(f"engine {seed}".encode()).digest()[:4]) >> 1


def _refuse_unheard(order: training_order.Order) -> None:
    """Raises ConfigError for what only learnloop's own learners would heed."""
    data, fix = order.spec.data, "remove it, or choose an algorithm of engine own"
    unheard = {
        "spec.data.level": data.level,
        "spec.data.rewards": data.rewards if data.rewards == "policy" else None,
        "spec.data.randomise": ", ".join(item.parameter for item in data.randomise) or None,
        "spec.hyperparameters": ", ".join(order.spec.hyperparameters.to_kube()) or None,
    }
    for name, value in unheard.items():
        if value is not None:
            raise refusals.ConfigError(name, value, f"is not heeded by engine {order.spec.trained_by}", fix)
