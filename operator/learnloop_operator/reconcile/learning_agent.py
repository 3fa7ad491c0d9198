"""LearningAgent: gather the experience, the jobs and the served model; the rest is decided in agents/."""

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.kinds import learning_agent, memory_service, model_deployment, reward_policy
from learnloop_api.kinds.training.training_status import TrainingJobStatus
from learnloop_operator.agents import agent_children, agent_snapshot, decide_agent, model_to_serve
from learnloop_operator.core import plan, pod_trouble
from learnloop_operator.kube import kinds, kubernetes_events
from learnloop_operator.reconcile.work_queue import Services, answer, read_spec, read_status


class LearningAgentController:
    """Keeps one agent's loop turning."""

    kind: kinds.ResourceKind = kinds.LEARNING_AGENT

    def __init__(self, services: Services) -> None:
        self._kube, self._data_plane, self._clock = services.kube, services.data_plane, services.clock
        settings = services.settings
        self._defaults = agent_snapshot.AgentDefaults(
            settings.serving_image,
            settings.data_url,
            settings.image_pull_policy,
            settings.tls_namespaces,
            settings.pod_rules,
            settings.workload_network,
            settings.names_are_verified,
        )

    async def gather(self, namespace: str, name: str) -> agent_snapshot.AgentSnapshot | None:
        """The agent and everything its loop consists of."""
        body = await self._kube.find(kinds.LEARNING_AGENT, namespace, name)
        if body is None:
            return None
        spec, before = (
            read_spec(learning_agent.LearningAgentSpec, body),
            read_status(learning_agent.LearningAgentStatus, body),
        )
        (policy, code), memory, (stats, problem), jobs, deployment, actors = await asyncio.gather(
            asyncio.gather(
                self._kube.find(kinds.REWARD_POLICY, namespace, spec.reward_policy_ref.name),
                self._environment_code(namespace, spec),
            ),
            self._memory(namespace, spec),
            answer(self._data_plane.stats(namespace, name)),
            self._kube.list(kinds.TRAINING_JOB, namespace, labels=f"{names.LABEL_AGENT}={name}"),
            self._kube.find(kinds.MODEL_DEPLOYMENT, namespace, name),
            self._kube.find(kinds.DEPLOYMENT, namespace, f"{name}-actor"),
        )
        uid = body["metadata"]["uid"]
        own = deployment if deployment and plan.controller_uid(deployment) == uid else None
        playing = actors if actors and plan.controller_uid(actors) == uid else None
        return agent_snapshot.AgentSnapshot(
            now=self._clock(),
            object=body,
            children=tuple(item for item in (*jobs, deployment, actors) if item is not None),
            spec=spec,
            before=before,
            policy=_policy(policy),
            environment_code=code,
            memory=memory,
            stats=stats,
            stats_problem=problem,
            jobs=_jobs(name, uid, jobs),
            deployment=read_status(model_deployment.ModelDeploymentStatus, own) if own else None,
            actors=playing.get("status") or {} if playing else None,
            actors_trouble=await self._trouble(namespace, name, playing) if playing else "",
            defaults=self._defaults,
        )

    async def _environment_code(self, namespace: str, spec: learning_agent.LearningAgentSpec) -> str:
        """Reads the API server: the cache holds only ConfigMaps that the operator made."""
        played = spec.task.environment or spec.task.external
        if played is None or played.environment_config_map is None:
            return ""
        field = f"metadata.name={played.environment_config_map.name}"
        result = await self._kube.list(kinds.CONFIG_MAP, namespace, fields=field)
        return plan.revision([result[0].get("data"), result[0].get("binaryData")]) if result else ""

    async def _memory(self, namespace: str, spec: learning_agent.LearningAgentSpec) -> agent_snapshot.MemoryHome | None:
        if spec.memory.service_ref is None:
            return None
        body = await self._kube.find(kinds.MEMORY_SERVICE, namespace, spec.memory.service_ref.name)
        if body is None:
            return agent_snapshot.MemoryHome()
        return agent_snapshot.MemoryHome(True, read_status(memory_service.MemoryServiceStatus, body).url)

    async def _trouble(self, namespace: str, name: str, actors: Mapping[str, Any]) -> str:
        status, wanted = actors.get("status") or {}, (actors.get("spec") or {}).get("replicas", 1)
        if not wanted or status.get("readyReplicas"):
            return ""
        labels = f"{names.LABEL_AGENT}={name},{names.LABEL_COMPONENT}={agent_children.ACTOR}"
        pods = await kubernetes_events.with_events(
            self._kube, namespace, await self._kube.list(kinds.POD, namespace, labels=labels), self._clock()
        )
        return pod_trouble.first_trouble(pods) or pod_trouble.creation_trouble(actors)

    def decide(self, snapshot: agent_snapshot.AgentSnapshot) -> plan.Plan:
        return decide_agent.decide(snapshot)

    def gone(self, namespace: str, name: str) -> tuple[plan.Call, ...]:
        """Its registration goes; what it experienced stays until retention takes it."""
        return (plan.Call("DELETE", f"/api/v1/agents/{name}"),)


def _policy(body: Mapping[str, Any] | None) -> agent_snapshot.Policy:
    return (
        agent_snapshot.Policy(True, read_status(reward_policy.RewardPolicyStatus, body).revision)
        if body
        else agent_snapshot.Policy()
    )


def _jobs(agent: str, uid: str, bodies: list[dict[str, Any]]) -> tuple[agent_snapshot.TrainingRun, ...]:
    """The agent's own runs by number; a job of another name or owner that wears the label is none of them."""
    own = [
        body
        for body in bodies
        if plan.controller_uid(body) == uid and model_to_serve.number_of(agent, body["metadata"]["name"])
    ]
    return tuple(sorted((_job(agent, body) for body in own), key=lambda job: job.number))


def _job(agent: str, body: Mapping[str, Any]) -> agent_snapshot.TrainingRun:
    metadata = body["metadata"]
    try:
        status = TrainingJobStatus.model_validate(body.get("status") or {})
    except ValidationError:
        # A run that cannot be read has proved nothing, and must not let another one overlap with it.
        status = TrainingJobStatus(phase="Unreadable")
    spec = body.get("spec") or {}
    newest = spec["continuous"].get("update", 0) if spec.get("continuous") else None
    rests = newest is not None and status.update == newest and status.phase in ("Validated", "Waiting")
    return agent_snapshot.TrainingRun(
        name=metadata["name"],
        number=model_to_serve.number_of(agent, metadata["name"]),
        phase=status.phase or "",
        finished=status.finished_at is not None,
        created_at=metadata.get("creationTimestamp", ""),
        finished_at=status.finished_at or (status.updated_at if rests else None),
        uri=status.artifact.uri if status.artifact else None,
        sha256=status.artifact.sha256 if status.artifact else None,
        mean_return=status.evaluation.mean if status.evaluation else None,
        # A data plane that is away changes the reason of Ready, and never that of Trained.
        verdict=_condition(status, "Ready" if newest is None else "Trained")[1],
        notes=metadata.get("annotations"),
        update=newest,
        rests=rests,
        proven=newest is not None and _condition(status, "Validated")[0] == "True",
        spec=spec if newest is not None else None,
    )


def _condition(status: TrainingJobStatus, type_: str) -> tuple[str, str]:
    """Status and reason of a condition; empty where there is none."""
    return next(((item.status, item.reason) for item in status.conditions or () if item.type == type_), ("", ""))
