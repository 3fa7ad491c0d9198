"""Curves of a run on their way to TensorBoard and MLflow, and figures of its process and its curve of returns.

One TrainingJob is one run of each service, however often it is interrupted: the job's name and its recipe identify it.
"""

import hashlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import httpx

from learnloop_api.wire import training
from learnloop_trainer.training_order import Order

Point = tuple[int, float, Mapping[str, float]]
"""Step, wall clock, values by name."""
Ending = Literal["FINISHED", "FAILED"]


class Service(Protocol):
    """Takes points."""

    name: str

    def write(self, points: Sequence[Point]) -> None:
        """Write all points; raises where it did not, and gets them again."""

    def end(self, ending: Ending) -> None:
        """End the run."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A run's full name, the digest of its recipe, and its parameters by name."""

    job: str
    recipe: str
    parameters: Mapping[str, str]

    @classmethod
    def of(cls, order: Order, namespace: str) -> "Identity":
        spec = order.spec
        recipe = spec.model_dump_json(exclude={"tracking", "checkpoint", "suspend", "pod"}, exclude_none=True)
        parameters = {"algorithm": spec.algorithm, "environment": spec.data.world}
        parameters |= {"seed": str(spec.seed), "totalSteps": str(spec.total_steps)}
        parameters |= {f"{spec.algorithm}.{name}": str(value) for name, value in order.parameters.to_kube().items()}
        return cls(f"{namespace or 'default'}/{order.job}", hashlib.sha256(recipe.encode()).hexdigest(), parameters)


class TensorBoard:
    """One folder of event files. Readers strike out what an earlier attempt wrote beyond the first step here.

    tensorboardX's SummaryWriter writes from a queue of its own, where errors are lost; its EventsWriter does not.
    """

    name = "TensorBoard"

    def __init__(self, directory: Path) -> None:
        """Nothing is written before the first points."""
        self._directory = directory
        self._writer: Any = None

    def write(self, points: Sequence[Point]) -> None:
        """Append points. Raises OSError."""
        from tensorboardX.event_file_writer import EventsWriter  # takes a second to import
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary

        if self._writer is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            own = f".{time.time_ns()}"  # the library's own names are those of the second: a restart would overwrite
            self._writer = EventsWriter(str(self._directory / "events"), own)
            start = SessionLog(status=SessionLog.START)
            self._writer.write_event(Event(wall_time=time.time(), step=points[0][0], session_log=start))
        for step, at, values in points:
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
            self._writer.write_event(Event(wall_time=at, step=step, summary=summary))
        self._writer.flush()

    def end(self, ending: Ending) -> None:
        del ending
        if self._writer is not None:
            self._writer.close()


class MlflowError(OSError):
    """The server does not answer, or refuses."""


class Mlflow:
    """A run on a tracking server by its REST interface (mlflow.org/docs/latest/rest-api.html).

    An interrupted run goes on with the one that is RUNNING and has its tags. Credentials come from the variables of
    MLflow's own client.
    """

    name = "MLflow"
    MOST_METRICS, MOST_PARAMETERS, LONGEST_PARAMETER = 1000, 100, 500  # of one log-batch request

    def __init__(self, uri: str, experiment: str, run: str, identity: Identity, environ: Mapping[str, str]) -> None:
        """Nothing is sent before the first points."""
        token, user = environ.get("MLFLOW_TRACKING_TOKEN", ""), environ.get("MLFLOW_TRACKING_USERNAME", "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        password = environ.get("MLFLOW_TRACKING_PASSWORD", "")
        auth = httpx.BasicAuth(user, password) if user and not token else None
        self._client = httpx.Client(base_url=uri.rstrip("/"), timeout=5.0, headers=headers, auth=auth)
        self._experiment, self._run, self._identity = experiment, run, identity
        self._id = ""

    def write(self, points: Sequence[Point]) -> None:
        """Log points; sending the same ones again is harmless. Raises MlflowError."""
        if not self._id:
            self._id = self._open()
        metrics = [
            {"key": name, "value": value, "timestamp": int(at * 1000), "step": step}
            for step, at, values in points
            for name, value in values.items()
            if math.isfinite(value)
        ]
        self._log(self._id, "metrics", metrics, self.MOST_METRICS)

    def end(self, ending: Ending) -> None:
        if self._id:
            self._post("runs/update", {"run_id": self._id, "status": ending, "end_time": int(time.time() * 1000)})

    def _open(self) -> str:
        existing = self._call("GET", "experiments/get-by-name", params={"experiment_name": self._experiment})
        experiment = (
            existing["experiment"]["experiment_id"]
            if existing
            else self._post("experiments/create", {"name": self._experiment})["experiment_id"]
        )
        tags = {"learnloop.job": self._identity.job, "learnloop.recipe": self._identity.recipe}
        same = " and ".join([*(f"tags.`{key}` = '{value}'" for key, value in tags.items())])
        where = f"{same} and attributes.status = 'RUNNING'"
        search = {"experiment_ids": [experiment], "filter": where, "max_results": 1}
        runs = self._post("runs/search", search).get("runs")
        if not runs:
            create = {"experiment_id": experiment, "run_name": self._run, "start_time": int(time.time() * 1000)}
            create["tags"] = [{"key": key, "value": value} for key, value in tags.items()]
            runs = [self._post("runs/create", create)["run"]]
        run = str(runs[0]["info"]["run_id"])
        parameters = self._identity.parameters.items()
        entries = [{"key": key, "value": value[: self.LONGEST_PARAMETER]} for key, value in parameters]
        self._log(run, "params", entries, self.MOST_PARAMETERS)
        return run

    def _log(self, run: str, kind: str, entries: Sequence[Mapping[str, Any]], most: int) -> None:
        for begin in range(0, len(entries), most):
            self._post("runs/log-batch", {"run_id": run, kind: entries[begin : begin + most]})

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("POST", path, json=body)

    def _call(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """The answer; an empty one for an experiment that does not exist."""
        try:
            response = self._client.request(method, f"/api/2.0/mlflow/{path}", **request)
            if path == "experiments/get-by-name" and response.status_code == 404:
                return {}
            response.raise_for_status()
            answer: dict[str, Any] = response.json()
        except httpx.HTTPStatusError as error:
            text = " ".join(error.response.text.split())[:200]
            raise MlflowError(f"{error.request.url.path}: {error.response.status_code} {text}") from None
        except httpx.HTTPError as error:
            raise MlflowError(f"{self._client.base_url}: {type(error).__name__}: {error}") from None
        except ValueError:
            raise MlflowError(f"{path}: the answer is not JSON; is {self._client.base_url} MLflow?") from None
        return answer


def services(order: Order, environ: Mapping[str, str], namespace: str) -> list[Service]:
    """The services that an order names; MLFLOW_TRACKING_URI alone names MLflow too."""
    wish, identity, named = order.spec.tracking, Identity.of(order, namespace), list[Service]()
    if wish is not None and wish.tensorboard is not None:
        named.append(TensorBoard(Path(wish.tensorboard.directory) / order.job))
    uri, experiment = environ.get("MLFLOW_TRACKING_URI", ""), environ.get("MLFLOW_EXPERIMENT_NAME", "learnloop")
    if wish is not None and wish.mlflow is not None:
        uri, experiment = wish.mlflow.tracking_uri, wish.mlflow.experiment
    if uri:
        named.append(Mlflow(uri, experiment, order.job, identity, environ))
    return named


WRITE_SECONDS, LAST_SECONDS = 5.0, 10.0
MOST_WAITING = 10_000  # points for a service that is away; then the oldest are dropped
SETTLED, LEAST_POINTS, MOST_POINTS = 0.05, 8, 512  # of a curve of returns


class Feed:
    """The points that one service has not taken yet."""

    def __init__(self, service: Service) -> None:
        self.service, self._waiting, self._failing = service, deque[Point](maxlen=MOST_WAITING), False

    def add(self, point: Point) -> None:
        self._waiting.append(point)

    def write(self) -> bool:
        """Write what waits; False: it did not, and still waits."""
        points = list(self._waiting)
        if points and not self._try(lambda: self.service.write(points)):
            return False
        for _ in points:
            self._waiting.popleft()
        return True

    def end(self, ending: Ending) -> None:
        if self.write():
            self._try(lambda: self.service.end(ending))

    def _try(self, action: Callable[[], None]) -> bool:
        problem = ""
        try:
            action()
        except Exception as error:  # of any foreign library or server: training goes on
            problem = str(error)
        if bool(problem) != self._failing:
            does = f"does not take the curves, training continues: {problem}" if problem else "takes the curves again"
            print(f"{self.service.name} {does}", flush=True)
        self._failing = bool(problem)
        return not problem


class Tracker:
    """Takes points from the training thread. Each service has its own thread: none slows training or another."""

    def __init__(self, named: Sequence[Service]) -> None:
        self.feeds = [Feed(service) for service in named]
        self.threads: list[threading.Thread] = []
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._ending: Ending = "FAILED"

    def note(self, step: int, values: Mapping[str, float]) -> None:
        """Take a point of every curve named, without waiting."""
        with self._lock:
            for feed in self.feeds:
                feed.add((step, time.time(), dict(values)))
            if not self.threads:
                self.threads = [
                    threading.Thread(target=self._run, args=(feed,), name="tracking", daemon=True)
                    for feed in self.feeds
                ]
                for thread in self.threads:
                    thread.start()

    def finish(self, ending: Ending) -> None:
        """Write what waits and end the runs, within LAST_SECONDS. A run that will go on is not finished."""
        self._ending = ending
        self._stop.set()
        last = time.monotonic() + LAST_SECONDS
        for thread in self.threads:
            thread.join(max(0.0, last - time.monotonic()))

    def _run(self, feed: Feed) -> None:
        while not self._stop.wait(WRITE_SECONDS):
            feed.write()
        feed.end(self._ending)


def tracker(order: Order, environ: Mapping[str, str], namespace: str) -> Tracker:
    return Tracker(services(order, environ, namespace))


class LearningCurve:
    """Mean returns by step, thinned so that a long run takes no more room than a short one."""

    def __init__(self) -> None:
        self._points: list[training.CurvePoint] = []
        self._every, self._skipped = 1, 0

    def resume(self, points: Iterable[training.CurvePoint]) -> None:
        """Go on from an earlier attempt's; `note` drops what lies beyond the step that it resumes at."""
        self._points = list(points)

    def note(self, step: int, mean: float, low: float, high: float) -> None:
        while self._points and self._points[-1].step > step:
            self._points.pop()
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self._points.append(training.CurvePoint(step=step, mean=mean, low=low, high=high))
        if len(self._points) > MOST_POINTS:
            self._points = self._points[1::2]
            self._every *= 2

    def thinned(self) -> list[training.CurvePoint]:
        """As many as a heartbeat takes, the newest among them."""
        every = max(1, math.ceil(len(self._points) / training.MOST_POINTS))
        return self._points[::-every][::-1]

    def figures(self) -> dict[str, float]:
        """`convergence`: 1 less the change over the last quarter of the steps, as a share of the whole range.
        `samples_to_convergence`: the step from which on the return stayed within 5 % of that range of its last value;
        only once that holds for the last quarter. Nothing while there are few points, or all are the same.
        """
        values = [point.mean for point in self._points]
        spread = max(values) - min(values) if len(values) >= LEAST_POINTS else 0.0
        if spread <= 0.0:
            return {}
        first, last = self._points[0].step, self._points[-1].step
        quarter = last - (last - first) / 4.0
        late = [point.mean for point in self._points if point.step >= quarter]
        figures = {"convergence": max(0.0, 1.0 - abs(late[-1] - late[0]) / spread)}
        settled = last
        for point in reversed(self._points):
            if abs(point.mean - values[-1]) > SETTLED * spread:
                break
            settled = point.step
        if settled <= quarter:
            figures["samples_to_convergence"] = float(settled)
        return figures


class ProcessFigures:
    """Shares of processors, memory and GPU that this process uses, from 0 to 1, since the last look.

    Args:
        cpus: processors that the cgroup allows.
        root: stands for `/` in tests.
    """

    def __init__(
        self,
        cpus: float,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._cpus = cpus if math.isfinite(cpus) else float(os.cpu_count() or 1)
        self._root, self._clock, self._processor = root, clock, processor
        self._at, self._used = clock(), processor()

    def look(self) -> dict[str, float]:
        """Figures as `learnloop_api.wire.training` names them; those that cannot be read are left out."""
        now, used = self._clock(), self._processor()
        figures: dict[str, float] = {}
        if now - self._at > 0.01:
            figures["cpu_utilization"] = min(1.0, (used - self._used) / (now - self._at) / self._cpus)
            self._at, self._used = now, used
        page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
        resident = self._number("proc/self/statm", 1, 0.0) * page
        if resident:
            limit = self._number("sys/fs/cgroup/memory.max", 0, math.inf)
            figures["memory_bytes"] = resident
            figures["memory_utilization"] = min(1.0, resident / min(limit, float(page * pages)))
        return figures | _gpu()

    def _number(self, path: str, index: int, default: float) -> float:
        try:
            return float((self._root / path).read_text().split()[index])
        except (OSError, ValueError, IndexError):  # no such file, or "max"
            return default


def _gpu() -> dict[str, float]:
    import torch

    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    reserved = float(torch.cuda.memory_reserved())
    figures = {"gpu_memory_bytes": reserved, "gpu_memory_utilization": (total - free) / total}
    try:
        figures["gpu_utilization"] = torch.cuda.utilization() / 100.0
    except Exception:  # torch does not require the library that it needs for this
        return figures
    return figures
