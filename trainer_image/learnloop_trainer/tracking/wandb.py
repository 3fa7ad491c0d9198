"""A run at Weights & Biases, by its own client: at a server, or as files that `wandb sync` sends later.

One TrainingJob is one run, however often it is interrupted: its id comes from the job and its recipe. The key is
WANDB_API_KEY, which the client reads by itself.
"""

import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

STEP = "train/step"
"""The horizontal axis of every curve: the client's own step may not fall, and that of a resumed run does."""
INIT_SECONDS, END_SECONDS = 10.0, 5.0
AGAIN_SECONDS = 60.0  # each attempt leaves a folder behind
# The client reads these when it is imported: no report of errors to its makers, nothing below a home directory that a
# pod cannot write to.
QUIET = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
FOLDERS = ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")

Mode = Literal["online", "offline"]


class Away(OSError):
    """The server does not answer, or says no; or it is too early to ask again."""


class WandbRun:
    """One run, found or made when there is something to write.

    Args:
        directory: where the client keeps its files; None: a temporary one, which ends with the pod.
        identity: tells this run from every other of the project.
    """

    name = "Weights & Biases"

    def __init__(
        self,
        base_url: str,
        project: str,
        entity: str | None,
        mode: Mode,
        directory: Path | None,
        *,
        identity: str,
        job: str,
        configuration: Mapping[str, str],
    ) -> None:
        """Nothing is written or sent yet."""
        self._base_url, self._project, self._entity, self._mode = base_url, project, entity, mode
        self._directory, self._identity, self._job = directory, identity, job
        self._configuration = configuration
        self._run: Any = None
        self._refused: tuple[float, str] | None = None

    def write(self, points: Sequence[tuple[int, float, Mapping[str, float]]]) -> None:
        """Log (step, wall clock, values by name). Raises Away.

        What the client has taken it sends itself, and goes on trying while the server is away.
        """
        run = self._opened()
        for step, at, values in points:
            told = {name: value for name, value in values.items() if math.isfinite(value)}
            run.log({**told, STEP: step, "_timestamp": at})

    def end(self, ending: str) -> None:
        """End the run: finished, or failed with exit code 1."""
        if self._run is None:
            return
        import wandb

        self._run.finish(exit_code=0 if ending == "FINISHED" else 1)
        wandb.teardown()  # finish alone returns before the client's own process has written its last records

    def _opened(self) -> Any:
        if self._run is not None:
            return self._run
        if self._refused is not None and time.monotonic() - self._refused[0] < AGAIN_SECONDS:
            raise Away(self._refused[1])
        try:
            self._run = self._open()
        except Exception as error:  # the client has a dozen kinds of them, and ImportError
            self._refused = time.monotonic(), f"{self._base_url}: {type(error).__name__}: {error}"
            raise Away(self._refused[1]) from None
        return self._run

    def _open(self) -> Any:
        directory = self._directory or Path(tempfile.gettempdir())
        directory.mkdir(parents=True, exist_ok=True)
        own = str(Path(tempfile.gettempdir()) / "wandb-client")  # never `.wandb` beside a run: it would take that one
        for name, value in {**QUIET, **dict.fromkeys(FOLDERS, own)}.items():
            os.environ.setdefault(name, value)
        import wandb  # takes three seconds

        settings = wandb.Settings(
            base_url=self._base_url,
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
            init_timeout=INIT_SECONDS,
            finish_timeout=END_SECONDS,
            finish_timeout_raises=False,
        )
        run = wandb.init(
            project=self._project,
            entity=self._entity,
            dir=str(directory),
            id=self._identity,
            name=self._job,
            config=dict(self._configuration),
            mode=self._mode,
            resume="allow",
            settings=settings,
        )
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP)
        return run
