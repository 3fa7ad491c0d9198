"""TrainingJob: gathers its gang, queue, run and agent, or the trials of its study; training/ decides."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from learnloop_api import names
from learnloop_api.kinds import model_deployment, training_job
from learnloop_api.wire.training import TrainingRun
from learnloop_operator.core.plan import Call, Plan, controller_uid
from learnloop_operator.kube import cached_reads, errors, kinds, kubernetes_events, object_cache
from learnloop_operator.reconcile.work_queue import Services, answer, read_spec, read_status
from learnloop_operator.training import attempts, decide_run, gang_pods, kueue, ranks, run_snapshot, study_trials
from learnloop_operator.training.backends import CONTAINERS, Backends, candidates, job_of_ranks
from learnloop_operator.training.decide_study import decide as decide_study


class Gang(NamedTuple):
    """A TrainingJob's gang, and the backends of the cluster."""

    object: object_cache.Object | None
    """Live object with apiVersion and kind; None: this TrainingJob has no gang."""
    backend: ranks.Backend | None
    installed: frozenset[str]
    """Backends whose kind the API server knows, of those that were asked about: all of them without a gang."""


async def find_gang(
    kube: cached_reads.Reader, owner: object_cache.Object, preference: str, recorded: str | None
) -> Gang:
    """The gang that `owner`, a live TrainingJob, controls.

    Args:
        preference: spec.backend.
        recorded: status.backend. It is asked about first, and the others only where it has none: an operator that was
            killed between two writes may have begun an attempt on another backend.
    """
    left = candidates(preference)
    first = [backend for backend in left if backend.name == recorded]
    result, previous = await _look(kube, owner, first)
    if result is None:
        result, others = await _look(kube, owner, [backend for backend in left if backend not in first])
        previous |= others
    item, backend = result or (None, None)
    return Gang(item, backend, previous)


GangObject = tuple[object_cache.Object, ranks.Backend] | None


async def _look(
    kube: cached_reads.Reader, owner: object_cache.Object, backends: Sequence[ranks.Backend]
) -> tuple[GangObject, frozenset[str]]:
    answers = await asyncio.gather(*(_ask(kube, owner, backend) for backend in backends))
    previous = frozenset(backend.name for backend, (there, _) in zip(backends, answers, strict=True) if there)
    for backend, (_, item) in zip(backends, answers, strict=True):
        if item is not None:
            return (item, backend), previous
    return None, previous


async def _ask(
    kube: cached_reads.Reader, owner: object_cache.Object, backend: ranks.Backend
) -> tuple[bool, object_cache.Object | None]:
    """Check that the kind exists; return the object of the TrainingJob's name if the TrainingJob owns it."""
    metadata, address = owner["metadata"], {"apiVersion": backend.api_version, "kind": backend.kind}
    try:
        item = await kube.get(kinds.kind_of(address), metadata["namespace"], metadata["name"])
    except errors.KindMissing:
        return False, None
    except errors.NotFound:
        return True, None
    return True, {**address, **item} if controller_uid(item) == metadata["uid"] else None


async def queue_missing(kube: cached_reads.Reader, namespace: str, queue: str) -> str:
    """Reason why nothing would hold a gang back that names this LocalQueue; "" where Kueue is there."""
    try:
        await _workloads(kube, namespace, "none")
    except errors.KindMissing:
        return kueue.NO_KUEUE.format(queue=queue)
    return ""


async def queue_says(kube: cached_reads.Reader, namespace: str, uid: str) -> str:
    """Message of the Workload of the gang `uid`; "" where there is none. Never raises: a missing sentence stops
    nothing."""
    try:
        result = await _workloads(kube, namespace, uid)
    except errors.KubeError:
        return ""
    return kueue.queue_sentence(result[0]) if result else ""


async def _workloads(kube: cached_reads.Reader, namespace: str, uid: str) -> list[object_cache.Object]:
    return await kube.list(kinds.WORKLOAD, namespace, labels=f"{kueue.LABEL_JOB_UID}={uid}")


def _number(job: str, body: object_cache.Object) -> int | None:
    text = str(body["metadata"]["name"]).removeprefix(f"{job}-t")
    return int(text) if text.isdecimal() else None


class TrainingJobController:
    """Runs attempts on a backend until there is a proof."""

    kind: kinds.ResourceKind = kinds.TRAINING_JOB

    def __init__(self, services: Services) -> None:
        self._services = services
        settings = services.settings
        self._backends = Backends(
            defaults=ranks.RankDefaults(
                image=settings.trainer_image,
                pull_policy=settings.image_pull_policy,
                data_url=settings.data_url,
                runtime=settings.training_runtime,
                network=settings.workload_network,
            )
        )

    async def gather(self, namespace: str, name: str) -> run_snapshot.TrainingSnapshot | None:
        """The job, its gang and pods, its run in the data plane, its agent; with a study, its trials.

        The controller asks only for what some rule looks at. A finished job may still have to delete its gang. A
        suspended one needs no pods and no agent. One that never began has no run of its own.
        """
        live = await self._services.kube.find(kinds.TRAINING_JOB, namespace, name)
        if live is None:
            return None
        spec = read_spec(training_job.TrainingJobSpec, live)
        status = live.get("status") or {}
        finished = bool(status.get("finishedAt"))
        resting = finished or spec.suspend
        unborn = spec.suspend and not status.get("attempts")
        agent_name = (live["metadata"].get("labels") or {}).get(names.LABEL_AGENT)
        if agent_name is None and spec.data.learning_agent_ref is not None:
            agent_name = spec.data.learning_agent_ref.name
        if spec.study is not None:
            agent = await self._agent(namespace, agent_name, skip=finished)
            return await self._study(live, spec, agent, agent_name)
        gang, pods, (run, run_error), agent = await asyncio.gather(
            find_gang(self._services.kube, live, spec.backend, status.get("backend")),
            # The time of pods that are about to go is counted once more.
            self._pods(namespace, name, skip=finished or (spec.suspend and status.get("phase") == "Suspended")),
            self._run(namespace, name, skip=finished or unborn),
            self._agent(namespace, agent_name, skip=resting),
        )
        kube, now = self._services.kube, self._services.clock()
        pods = await kubernetes_events.with_events(kube, namespace, pods, now)
        incomplete = len(pods) <= spec.workers and not resting
        job = await self._backend_job(namespace, gang, incomplete)
        begins, uid = job is None and not resting, gang.object["metadata"]["uid"] if gang.object else ""
        return run_snapshot.TrainingSnapshot(
            now=now,
            object=live,
            children=(gang.object,) if gang.object else (),
            spec=spec,
            job=job,
            ranks=tuple(rank for pod in pods if (rank := gang_pods.rank_of(pod, CONTAINERS, now))),
            run=run,
            run_error=run_error,
            installed=gang.installed,
            queue_missing=await queue_missing(kube, namespace, spec.queue.name) if begins and spec.queue else "",
            queue_says=await queue_says(kube, namespace, uid) if uid and job and job.queued else "",
            agent=agent,
            agent_name=agent_name,
            deployment=await self._served(namespace, agent_name) if begins or spec.continuous else None,
            pod_rules=self._services.settings.pod_rules,
            prices=self._services.settings.prices,
        )

    async def _served(self, namespace: str, agent: str | None) -> model_deployment.ModelDeploymentStatus | None:
        live = await self._services.kube.find(kinds.MODEL_DEPLOYMENT, namespace, agent) if agent else None
        return read_status(model_deployment.ModelDeploymentStatus, live) if live else None

    async def _study(
        self,
        live: object_cache.Object,
        spec: training_job.TrainingJobSpec,
        agent: object_cache.Object | None,
        agent_name: str | None,
    ) -> study_trials.StudySnapshot:
        """The job's trials, its study, and the best trial's run once none is left to come."""
        namespace, name = str(live["metadata"]["namespace"]), str(live["metadata"]["name"])
        finished = bool((live.get("status") or {}).get("finishedAt"))
        bodies = await self._trials(live)
        data = self._services.data_plane
        state, problem = (None, "") if finished else await answer(data.study(namespace, name))
        over = state is not None and not any(trial.state == "running" for trial in state.trials)
        run, run_problem = (None, "")
        if state is not None and over and state.best is not None:
            run, run_problem = await answer(data.run(namespace, study_trials.trial_name(name, state.best)))
        return study_trials.StudySnapshot(
            now=self._services.clock(),
            object=live,
            children=tuple(bodies),
            spec=spec,
            run=run,
            run_error=run_problem or None,
            agent=agent,
            agent_name=agent_name,
            trials={
                number: study_trials.job_of(body) for body in bodies if (number := _number(name, body)) is not None
            },
            state=state,
            state_error=problem or None,
            prices=self._services.settings.prices,
        )

    async def _trials(self, live: object_cache.Object) -> list[dict[str, Any]]:
        metadata = live["metadata"]
        labels = f"{names.LABEL_STUDY}={metadata['name']}"
        result = await self._services.kube.list(kinds.TRAINING_JOB, metadata["namespace"], labels=labels)
        return [body for body in result if controller_uid(body) == metadata["uid"]]

    def decide(self, snapshot: run_snapshot.TrainingSnapshot) -> Plan:
        if isinstance(snapshot, study_trials.StudySnapshot):
            return decide_study(snapshot)
        return decide_run.decide(snapshot, self._backends)

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        """The run's heartbeats and checkpoint are of no use to anyone; artifacts stay, models may be served from them.

        No finalizer: a deletion never waits for the data plane. What is missed here (operator and data plane down at
        the wrong moment) is removed before another job of the same name begins.
        """
        return (Call("DELETE", attempts.run_path(name)), Call("DELETE", study_trials.path(name)))

    async def _backend_job(self, namespace: str, gang: Gang, incomplete: bool) -> run_snapshot.BackendJob | None:
        """The job; where pods are missing, with the reason that only events tell."""
        if gang.object is None or gang.backend is None:
            return None
        result = gang.backend.read(gang.object)
        if not incomplete or result.state != "active" or result.queued:
            return result
        kube, metadata = self._services.kube, gang.object["metadata"]
        trouble = await kubernetes_events.failure_of(kube, namespace, metadata["uid"])
        if not trouble and gang.backend.replicated_job:
            maker = job_of_ranks(metadata["name"], gang.backend.replicated_job)
            trouble = await kubernetes_events.failure_of_job(kube, namespace, maker, result.created)
        return replace(result, trouble=trouble)

    async def _pods(self, namespace: str, name: str, *, skip: bool) -> list[object_cache.Object]:
        if skip:
            return []
        return await self._services.kube.list(kinds.POD, namespace, labels=f"{names.LABEL_TRAINING_JOB}={name}")

    async def _run(self, namespace: str, name: str, *, skip: bool) -> tuple[TrainingRun | None, str | None]:
        if skip:
            return None, None
        run, problem = await answer(self._services.data_plane.run(namespace, name))
        return run, problem or None

    async def _agent(self, namespace: str, name: str | None, *, skip: bool) -> object_cache.Object | None:
        if skip or name is None:
            return None
        return await self._services.kube.find(kinds.LEARNING_AGENT, namespace, name)
