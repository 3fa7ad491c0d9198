"""What a TrainingJob with a study consists of: its trials, and the study in the data plane."""

from typing import Any

from learnloop_api import names
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.study import StudyState
from learnloop_api.wire.training import TrainingRun
from learnloop_operator.core.ownership import controller_uid
from learnloop_operator.data_plane import DataPlaneUnavailable
from learnloop_operator.kube.client import Object
from learnloop_operator.kube.kinds import TRAINING_JOB
from learnloop_operator.reconcile.services import Services
from learnloop_operator.training.study.snapshot import StudySnapshot, job_of, trial_name


class StudyReader:
    """Gathers the world of a study."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def gather(
        self, live: Object, spec: TrainingJobSpec, agent: Object | None, agent_name: str | None
    ) -> StudySnapshot:
        """The job's trials, its study, and the best trial's run once none is left to come."""
        namespace, name = str(live["metadata"]["namespace"]), str(live["metadata"]["name"])
        finished = bool((live.get("status") or {}).get("finishedAt"))
        bodies = await self._trials(live)
        state, problem = (None, None) if finished else await self._state(namespace, name)
        over = state is not None and not any(trial.state == "running" for trial in state.trials)
        run, run_problem = (None, None)
        if state is not None and over and state.best is not None:
            run, run_problem = await self._run(namespace, trial_name(name, state.best))
        return StudySnapshot(
            now=self._services.clock(),
            object=live,
            children=tuple(bodies),
            spec=spec,
            run=run,
            run_error=run_problem,
            agent=agent,
            agent_name=agent_name,
            trials={number: job_of(body) for body in bodies if (number := _number(name, body)) is not None},
            state=state,
            state_error=problem,
        )

    async def _trials(self, live: Object) -> list[dict[str, Any]]:
        metadata = live["metadata"]
        labels = f"{names.LABEL_STUDY}={metadata['name']}"
        found = await self._services.kube.list(TRAINING_JOB, metadata["namespace"], labels=labels)
        head = {"apiVersion": TRAINING_JOB.api_version, "kind": TRAINING_JOB.kind}
        return [{**head, **body} for body in found if controller_uid(body) == metadata["uid"]]

    async def _state(self, namespace: str, name: str) -> tuple[StudyState | None, str | None]:
        try:
            return await self._services.data_plane.study(namespace, name), None
        except DataPlaneUnavailable as error:
            return None, str(error)

    async def _run(self, namespace: str, name: str) -> tuple[TrainingRun | None, str | None]:
        try:
            return await self._services.data_plane.run(namespace, name), None
        except DataPlaneUnavailable as error:
            return None, str(error)


def _number(job: str, body: Object) -> int | None:
    text = str(body["metadata"]["name"]).removeprefix(f"{job}-t")
    return int(text) if text.isdecimal() else None
