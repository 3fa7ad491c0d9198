"""Points of a run's curves. Each backend writes from a thread of its own: none slows training, another, or stops it."""

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from learnloop_trainer.tracking.mlflow import Run
from learnloop_trainer.tracking.tensorboard import Board
from learnloop_trainer.tracking.wandb import WandbRun
from learnloop_trainer.training_order import Order

MLFLOW_URI, MLFLOW_EXPERIMENT = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"  # as MLflow's own client reads them
WRITE_SECONDS = 5.0
MOST_POINTS = 10_000  # that wait for a backend which is away; then the oldest are left out
LAST_SECONDS = 10.0

Point = tuple[int, float, Mapping[str, float]]
Ending = Literal["FINISHED", "FAILED"]


class Backend(Protocol):
    """What takes points."""

    name: str

    def write(self, points: Sequence[Point]) -> None:
        """Write all of them; raises when it did not, and is given them again."""

    def end(self, ending: str) -> None:
        """The run has ended."""


class _Feed:
    """The points one backend has not taken yet."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self._waiting, self.trouble = backend, deque[Point](maxlen=MOST_POINTS), ""

    def add(self, point: Point) -> None:
        self._waiting.append(point)

    def write(self) -> bool:
        points = list(self._waiting)
        if points and not self._try(lambda: self.backend.write(points)):
            return False
        for _ in points:
            self._waiting.popleft()
        return True

    def end(self, ending: str) -> None:
        if self.write():
            self._try(lambda: self.backend.end(ending))

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except Exception as error:  # whatever a foreign library or server comes up with: training goes on
            if not self.trouble:
                print(f"{self.backend.name} does not take the curves, training goes on: {error}", flush=True)
            self.trouble = str(error)
            return False
        if self.trouble:
            print(f"{self.backend.name} takes the curves again", flush=True)
        self.trouble = ""
        return True


class Tracker:
    """Takes points from the training thread. Without backends it does nothing."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        """The threads begin with the first point."""
        self._feeds = [_Feed(backend) for backend in backends]
        self._lock, self._stop, self._ending = threading.Lock(), threading.Event(), ""
        self._threads: list[threading.Thread] = []

    def note(self, step: int, values: Mapping[str, float]) -> None:
        """A point of every curve named; returns at once."""
        if not self._feeds:
            return
        with self._lock:
            for feed in self._feeds:
                feed.add((step, time.time(), dict(values)))
            if not self._threads:
                for feed in self._feeds:
                    thread = threading.Thread(target=self._run, args=(feed,), name="tracking", daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def finish(self, ending: Ending) -> None:
        """Write what waits and end the runs, within LAST_SECONDS. A run that will be gone on with is not finished."""
        self._ending = ending
        self._stop.set()
        last = time.monotonic() + LAST_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, last - time.monotonic()))

    def _run(self, feed: _Feed) -> None:
        while not self._stop.wait(WRITE_SECONDS):
            feed.write()
        feed.end(self._ending)


def tracker(order: Order, environ: Mapping[str, str], namespace: str) -> Tracker:
    """The backends an order asks for; MLFLOW_TRACKING_URI alone asks for MLflow too."""
    asked, backends = order.spec.tracking, list[Backend]()
    if asked is not None and asked.tensorboard is not None:
        backends.append(Board(Path(asked.tensorboard.directory) / order.job))
    uri, experiment = environ.get(MLFLOW_URI, ""), environ.get(MLFLOW_EXPERIMENT, "learnloop")
    if asked is not None and asked.mlflow is not None:
        uri, experiment = asked.mlflow.tracking_uri, asked.mlflow.experiment
    job, recipe, parameters = _recipe(order, namespace)
    if uri:
        tags = {"learnloop.job": job, "learnloop.recipe": recipe}
        backends.append(Run(uri, experiment, order.job, tags, parameters, environ))
    if asked is not None and asked.wandb is not None:
        wish = asked.wandb
        directory = Path(wish.directory) if wish.directory else None
        configuration = {**parameters, "job": job, "recipe": recipe}
        identity = hashlib.sha256(f"{job}\n{recipe}".encode()).hexdigest()[:32]
        where = (wish.base_url, wish.project, wish.entity, wish.mode, directory)
        backends.append(WandbRun(*where, identity=identity, job=order.job, configuration=configuration))
    return Tracker(backends)


def _recipe(order: Order, namespace: str) -> tuple[str, str, dict[str, str]]:
    """The job's full name, the digest of what it does, and its parameters by name."""
    recipe = order.spec.model_dump_json(exclude={"tracking", "checkpoint", "suspend", "pod"}, exclude_none=True)
    parameters = {"algorithm": order.spec.algorithm, "environment": order.spec.data.world}
    parameters |= {"seed": str(order.spec.seed), "totalSteps": str(order.spec.total_steps)}
    own = order.parameters.to_kube()
    parameters |= {f"{order.spec.algorithm}.{name}": str(value) for name, value in own.items()}
    return f"{namespace or 'default'}/{order.job}", hashlib.sha256(recipe.encode()).hexdigest(), parameters
