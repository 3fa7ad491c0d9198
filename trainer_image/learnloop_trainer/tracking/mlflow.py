"""A run on an MLflow tracking server, by its REST interface (mlflow.org/docs/latest/rest-api.html): no client needed.

One TrainingJob is one run, however often it is interrupted: a run that still stands as RUNNING and carries the same
tags is gone on with. Credentials come from the variables MLflow's own client reads.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

TIMEOUT = httpx.Timeout(5.0)
MOST_METRICS, MOST_PARAMS, LONGEST = 1000, 100, 500  # of one log-batch request; characters of a parameter
TOKEN, USER, PASSWORD = "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"


class RefusedByMlflow(OSError):
    """The server does not answer, or says no."""


class Run:
    """One MLflow run, found or made when there is something to write."""

    name = "MLflow"

    def __init__(
        self,
        uri: str,
        experiment: str,
        run: str,
        tags: Mapping[str, str],
        parameters: Mapping[str, str],
        environ: Mapping[str, str],
    ) -> None:
        """`tags` tell this run from every other of the experiment. Nothing is sent yet."""
        token, user = environ.get(TOKEN, ""), environ.get(USER, "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        auth = httpx.BasicAuth(user, environ.get(PASSWORD, "")) if user and not token else None
        self._client = httpx.Client(base_url=uri.rstrip("/"), timeout=TIMEOUT, headers=headers, auth=auth)
        self._uri, self._experiment, self._run, self._tags = uri, experiment, run, dict(tags)
        self._parameters = parameters
        self._id = ""

    def write(self, points: Sequence[tuple[int, float, Mapping[str, float]]]) -> None:
        """Log (step, wall clock, values by name). Raises RefusedByMlflow; sending the same points again is harmless."""
        self._open()
        metrics = [
            {"key": name, "value": value, "timestamp": int(at * 1000), "step": step}
            for step, at, values in points
            for name, value in values.items()
            if math.isfinite(value)
        ]
        for begin in range(0, len(metrics), MOST_METRICS):
            batch = metrics[begin : begin + MOST_METRICS]
            self._call("POST", "runs/log-batch", {"run_id": self._id, "metrics": batch})

    def end(self, ending: str) -> None:
        """Set the run's final status: FINISHED, FAILED or KILLED."""
        if self._id:
            body = {"run_id": self._id, "status": ending, "end_time": int(time.time() * 1000)}
            self._call("POST", "runs/update", body)

    def _open(self) -> None:
        if self._id:
            return
        experiment = self._experiment_id()
        found = self._unfinished(experiment)
        if found is None:
            tags = [{"key": key, "value": value} for key, value in self._tags.items()]
            body = {"experiment_id": experiment, "run_name": self._run, "start_time": int(time.time() * 1000)}
            made = self._call("POST", "runs/create", body | {"tags": tags})
            found = str(made["run"]["info"]["run_id"])
        parameters = [{"key": key, "value": value[:LONGEST]} for key, value in self._parameters.items()]
        for begin in range(0, len(parameters), MOST_PARAMS):
            batch = parameters[begin : begin + MOST_PARAMS]
            self._call("POST", "runs/log-batch", {"run_id": found, "params": batch})
        self._id = found

    def _experiment_id(self) -> str:
        found = self._named()
        if found is None:
            try:
                return str(self._call("POST", "experiments/create", {"name": self._experiment})["experiment_id"])
            except RefusedByMlflow:
                found = self._named()  # another run was quicker
                if found is None:
                    raise
        return found

    def _named(self) -> str | None:
        asked = {"experiment_name": self._experiment}
        answer = self._call("GET", "experiments/get-by-name", params=asked, missing=True)
        return str(answer["experiment"]["experiment_id"]) if answer else None

    def _unfinished(self, experiment: str) -> str | None:
        wanted = [f"tags.`{key}` = '{value}'" for key, value in self._tags.items()]
        where = " and ".join([*wanted, "attributes.status = 'RUNNING'"])
        body = {"experiment_ids": [experiment], "filter": where, "max_results": 1}
        runs = self._call("POST", "runs/search", body).get("runs") or []
        return str(runs[0]["info"]["run_id"]) if runs else None

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        *,
        missing: bool = False,
    ) -> dict[str, Any]:
        """The answer; an empty one for 404 where that is `missing` and no refusal."""
        where = f"/api/2.0/mlflow/{path}"
        try:
            response = self._client.request(method, where, json=body, params=params)
        except httpx.HTTPError as error:
            raise RefusedByMlflow(f"{self._uri}: {type(error).__name__}: {error}") from None
        if missing and response.status_code == 404:
            return {}
        if response.status_code != 200:
            raise RefusedByMlflow(f"{self._uri}{where}: {response.status_code} {' '.join(response.text.split())[:200]}")
        try:
            answer: dict[str, Any] = response.json()
        except ValueError:
            raise RefusedByMlflow(f"{self._uri}{where}: the answer is not JSON; is this an MLflow server?") from None
        return answer
