"""TrainingJob: gather, decide."""

import asyncio
from dataclasses import replace

from learnloop_api import names
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.training import TrainingRun
from learnloop_operator.adapters.data_plane import DataPlaneUnavailable
from learnloop_operator.adapters.kube.client import Object
from learnloop_operator.adapters.kube.errors import KindMissing, NotFound
from learnloop_operator.adapters.kube.event_reader import failure_of, with_events
from learnloop_operator.adapters.kube.kinds import LEARNING_AGENT, POD, PYTORCH_JOB, TRAINING_JOB, ResourceKind
from learnloop_operator.adapters.kube.pytorch_jobs import CONTAINER, PyTorchJobs, job_of
from learnloop_operator.adapters.pods.training_ranks import rank_of
from learnloop_operator.controllers.reconcilers.spec_validation import read_spec
from learnloop_operator.controllers.reconcilers.study_reader import StudyReader
from learnloop_operator.controllers.services import Services
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.core.study.decide import decide as decide_study
from learnloop_operator.core.study.snapshot import StudySnapshot
from learnloop_operator.core.study.trials import path as study_path
from learnloop_operator.core.training.attempts import run_path
from learnloop_operator.core.training.decide import decide
from learnloop_operator.core.training.snapshot import BackendJob, TrainingSnapshot

MISSING = (
    "the kind PyTorchJob (kubeflow.org/v1) does not exist in this cluster: install the Kubeflow training operator; "
    "this job starts by itself then"
)


class TrainingJobController:
    """Runs attempts as PyTorchJobs until there is a proof."""

    kind: ResourceKind = TRAINING_JOB

    def __init__(self, services: Services) -> None:
        self._services = services
        self._backend = PyTorchJobs(services.settings)
        self._studies = StudyReader(services)

    async def gather(self, namespace: str, name: str) -> TrainingSnapshot | None:
        """The job, its PyTorchJob and pods, its run in the data plane, its agent; with a study, its trials.

        The controller asks only for what some rule looks at. A finished job may still have to delete its PyTorchJob. A
        suspended one needs no pods and no agent. One that never began has no run of its own.
        """
        live = await self._services.kube.find(TRAINING_JOB, namespace, name)
        if live is None:
            return None
        live = {"apiVersion": TRAINING_JOB.api_version, "kind": TRAINING_JOB.kind, **live}
        spec = read_spec(TrainingJobSpec, live)
        status = live.get("status") or {}
        finished = bool(status.get("finishedAt"))
        resting = finished or spec.suspend
        unborn = spec.suspend and not status.get("attempts")
        agent_name = (live["metadata"].get("labels") or {}).get(names.LABEL_AGENT)
        if agent_name is None and spec.data.learning_agent_ref is not None:
            agent_name = spec.data.learning_agent_ref.name
        if spec.study is not None:
            agent = await self._agent(namespace, agent_name, skip=finished)
            return await self._studies.gather(live, spec, agent, agent_name)
        (job, missing), pods, (run, run_error), agent = await asyncio.gather(
            self._job(namespace, name),
            self._pods(namespace, name, skip=resting),
            self._run(namespace, name, skip=finished or unborn),
            self._agent(namespace, agent_name, skip=resting),
        )
        now = self._services.clock()
        pods = await with_events(self._services.kube, namespace, pods, now)
        return TrainingSnapshot(
            now=now,
            object=live,
            children=(job,) if job else (),
            spec=spec,
            job=await self._backend_job(namespace, job, len(pods) <= spec.workers and not resting) if job else None,
            ranks=tuple(rank for pod in pods if (rank := rank_of(pod, CONTAINER))),
            run=run,
            run_error=run_error,
            backend_missing=missing,
            agent=agent,
            agent_name=agent_name,
            pod_rules=self._services.settings.pod_rules,
        )

    def decide(self, snapshot: TrainingSnapshot) -> Plan:
        """See core.training and core.study."""
        if isinstance(snapshot, StudySnapshot):
            return decide_study(snapshot)
        return decide(snapshot, self._backend)

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        """The run's heartbeats and checkpoint are of no use to anyone; artifacts stay, models may be served from them.

        No finalizer: a deletion never waits for the data plane. What is missed here (operator and data plane down at
        the wrong moment) is removed before another job of the same name begins.
        """
        return (Call("DELETE", run_path(name)), Call("DELETE", study_path(name)))

    async def _job(self, namespace: str, name: str) -> tuple[Object | None, str | None]:
        try:
            job = await self._services.kube.get(PYTORCH_JOB, namespace, name)
        except KindMissing:
            return None, MISSING
        except NotFound:
            return None, None
        return {"apiVersion": PYTORCH_JOB.api_version, "kind": PYTORCH_JOB.kind, **job}, None

    async def _backend_job(self, namespace: str, job: Object, incomplete: bool) -> BackendJob:
        """The job; where pods are missing, with the reason that only events tell."""
        found = job_of(job)
        if not incomplete or found.state != "active":
            return found
        return replace(found, trouble=await failure_of(self._services.kube, namespace, job["metadata"]["uid"]))

    async def _pods(self, namespace: str, name: str, *, skip: bool) -> list[Object]:
        if skip:
            return []
        return await self._services.kube.list(POD, namespace, labels=f"{names.LABEL_TRAINING_JOB}={name}")

    async def _run(self, namespace: str, name: str, *, skip: bool) -> tuple[TrainingRun | None, str | None]:
        if skip:
            return None, None
        try:
            return await self._services.data_plane.run(namespace, name), None
        except DataPlaneUnavailable as error:
            return None, str(error)

    async def _agent(self, namespace: str, name: str | None, *, skip: bool) -> Object | None:
        if skip or name is None:
            return None
        return await self._services.kube.find(LEARNING_AGENT, namespace, name)
