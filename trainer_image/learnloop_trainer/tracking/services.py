"""Write a run's curves to TensorBoard and MLflow.

One TrainingJob is one run of each service, however often it is interrupted: the job's name and its recipe identify it.
"""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import httpx

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
