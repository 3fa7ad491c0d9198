"""ModelDeployment: gathers the arms, the routing table and the evidence; learnloop_operator.rollout decides."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from learnloop_api import names
from learnloop_api.kinds import learning_agent, model_deployment
from learnloop_api.wire.routing import routing_config_map
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.data_plane_client import DataPlane, DataPlaneUnavailable
from learnloop_operator.kube import cached_reads, kubernetes_events, object_cache
from learnloop_operator.kube.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    HTTP_ROUTE,
    JOB,
    LEARNING_AGENT,
    MODEL_DEPLOYMENT,
    NETWORK_POLICY,
    POD,
    REPLICA_SET,
    SERVICE,
    SERVICE_ACCOUNT,
    ResourceKind,
)
from learnloop_operator.prometheus.pod_counters import targets
from learnloop_operator.reconcile.work_queue import Services, read_spec, read_status
from learnloop_operator.rollout.children import gate_jobs, routing, tensorzero
from learnloop_operator.rollout.children.serving_arms import COMPONENT, arms, pods_of_arms, revision_label
from learnloop_operator.rollout.decide_deployment import current, decide
from learnloop_operator.rollout.evidence import Evidence, EvidenceRequest
from learnloop_operator.rollout.fast_lane import PodEvidence
from learnloop_operator.rollout.judging import judgement, watched_arms
from learnloop_operator.rollout.state.rollout_state import State
from learnloop_operator.rollout.state.snapshot import Callers, Defaults, Snapshot, agent_status, resolve

_NEEDED = ("Accepted", "ResolvedRefs")


def route_problem(route: Mapping[str, Any] | None) -> str:
    """Reason why the HTTPRoute is not in force, in one sentence; "" when it is or was not written yet.

    A route is good as soon as one parent has accepted it, resolved its references and left nothing of it out (Gateway
    API, RouteParentStatus).
    """
    if route is None:
        return ""
    parents = (route.get("status") or {}).get("parents") or ()
    if not parents:
        return "no Gateway controller has looked at it; spec.routing.gateway must name an existing Gateway"
    problems = [_first_problem(parent) for parent in parents]
    return "" if "" in problems else problems[0]


def _first_problem(parent: Mapping[str, Any]) -> str:
    conditions = {item.get("type"): item for item in parent.get("conditions") or ()}
    for type_ in _NEEDED:
        item = conditions.get(type_)
        if item is None or item.get("status") != "True":
            text = item or {"reason": "Unknown", "message": f"{type_} has not been reported"}
            return f"{text.get('reason')}: {text.get('message') or 'no message'}"[:500]
    partly = conditions.get("PartiallyInvalid") or {}
    if partly.get("status") == "True":
        return f"a part of it was left out: {partly.get('reason')}: {partly.get('message') or 'no message'}"[:500]
    return ""


KEY_BYTES = 32


class ModelDeploymentController:
    """Serves policies and rolls them out."""

    kind: ResourceKind = MODEL_DEPLOYMENT

    def __init__(self, services: Services) -> None:
        self._kube: cached_reads.Reader = services.kube
        self._clock, self._ahead = services.clock, services.ahead
        self._data: DataPlane = services.data_plane
        self._source = services.evidence
        self._lane = services.lane
        settings = services.settings
        self._defaults = Defaults(
            settings.serving_image,
            settings.data_url,
            settings.image_pull_policy,
            settings.names_are_verified,
            settings.tls_namespaces,
            Callers(settings.serving_callers, settings.serving_caller_namespaces, settings.serving_peers),
            settings.four_eyes,
            settings.pod_rules,
            {
                "vllm": settings.vllm_image,
                "llama.cpp": settings.llama_cpp_image,
            },
        )

    async def gather(self, namespace: str, name: str) -> Snapshot | None:
        """The object, its arms, its table, the model it follows, and the evidence of a running rollout."""
        body = await self._kube.find(MODEL_DEPLOYMENT, namespace, name)
        if body is None:
            return None
        spec = read_spec(model_deployment.ModelDeploymentSpec, body)
        snapshot = await self._suites(
            await self._live(body, spec, read_status(model_deployment.ModelDeploymentStatus, body))
        )
        others = *await self._registered(body, spec), *await self._left_by_gates(snapshot)
        snapshot = replace(snapshot, children=(*snapshot.children, *others))
        state = current(snapshot)
        snapshot = replace(snapshot, direct=await self._direct(snapshot, state), now=self._clock())
        if watched_arms.breached(snapshot, state):
            return snapshot  # The source has nothing to add, and may be as broken as the arm
        key = (namespace, name)
        evidence = await self._lane.unless_breached(key, self._evidence(snapshot, state))
        # The clock is read again: a slow answer must not make evidence look younger than it is.
        snapshot = replace(snapshot, direct=self._lane.readings(key), now=self._clock())
        if evidence is None and not watched_arms.breached(snapshot, state):
            evidence = await self._evidence(snapshot, state)
        if evidence is None:
            return snapshot
        snapshot = replace(snapshot, evidence=evidence, now=self._clock())
        self._lane.let_episodes_speak(
            key, [arm for arm in snapshot.direct if judgement.is_steady(snapshot, state, arm)]
        )
        return snapshot

    async def _evidence(self, snapshot: Snapshot, state: State) -> Evidence:
        """Window of the copies while the canary is in shadow, of the arms' episodes otherwise."""
        spec, where = snapshot.spec, (snapshot.namespace, snapshot.name)
        shadowed = watched_arms.shadow_window(snapshot, state)
        if shadowed is not None:
            return await self._source.of_copies(*where, shadowed)
        times = spec.rollout.progress_deadline_seconds, spec.analysis.episode_deadline_seconds
        return await self._source.of_episodes(
            EvidenceRequest(*where, watched_arms.windows(snapshot, state), tuple(spec.analysis.metrics), *times)
        )

    async def _direct(self, snapshot: Snapshot, state: State) -> Mapping[str, PodEvidence]:
        """The fast lane's readings of the arms on trial; the lane follows them as long as this is asked."""
        key, wanted = (snapshot.namespace, snapshot.name), watched_arms.watched_arms(snapshot, state)
        if not wanted:
            self._lane.forget(key)
            return {}
        ours = f"{names.LABEL_DEPLOYMENT}={snapshot.name},{names.LABEL_COMPONENT}={COMPONENT}"
        listed, sets = await asyncio.gather(
            self._kube.list(POD, snapshot.namespace, labels=ours),
            self._kube.list(REPLICA_SET, snapshot.namespace, labels=ours),
        )
        pods = pods_of_arms(listed, sets, snapshot.children)
        arms = {item.revision: [pod for pod in pods if revision_label(pod) == item.revision] for item in wanted}
        return await self._lane.follow(key, wanted, {revision: targets(own) for revision, own in arms.items()})

    async def _live(
        self,
        body: object_cache.Object,
        spec: model_deployment.ModelDeploymentSpec,
        status: model_deployment.ModelDeploymentStatus,
    ) -> Snapshot:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        ours = f"{names.LABEL_DEPLOYMENT}={name},{names.LABEL_COMPONENT}={COMPONENT}"
        deployments, services, table, agent = await asyncio.gather(
            self._kube.list(DEPLOYMENT, namespace, labels=ours),
            self._kube.list(SERVICE, namespace, labels=ours),
            self._kube.find(CONFIG_MAP, namespace, routing_config_map(name)),
            self._agent(namespace, spec),
        )
        own = [item for item in deployments if _owned(item, body)]
        pods = await self._kube.list(POD, namespace, labels=ours) if any(map(_has_unready_pods, own)) else []
        pods = await kubernetes_events.with_events(self._kube, namespace, pods, self._clock())
        live = routing.read(table)
        by_gateway = spec.routing.mode == "gateway" or (live.table is not None and live.table.mode == "gateway")
        route = await self._kube.find(HTTP_ROUTE, namespace, name) if by_gateway else None
        return Snapshot(
            now=self._clock(),
            object=body,
            children=tuple(item for item in (*own, *services, table, route) if item is not None),
            spec=spec,
            before=status,
            desired=resolve(spec, agent, namespace, self._defaults.pods),
            arms=arms(own, pods),
            routing=replace(
                live,
                route=routing.read_route(route if route and _owned(route, body) else None, name),
            ),
            defaults=self._defaults,
            ahead=self._ahead(),
            fresh_key=secrets.token_urlsafe(KEY_BYTES),
            route_problem=route_problem(route) if spec.routing.mode == "gateway" else "",
        )

    async def _registered(
        self, body: object_cache.Object, spec: model_deployment.ModelDeploymentSpec
    ) -> tuple[object_cache.Object, ...]:
        """Registrations at other routers: read where the spec can name one."""
        if spec.language_model is None:
            return ()
        return await self._own(CONFIG_MAP, body, tensorzero.COMPONENT)

    async def _left_by_gates(self, snapshot: Snapshot) -> tuple[object_cache.Object, ...]:
        """Policies and accounts of gates' suites: read where the spec has lost a suite that ran."""
        if not gate_jobs.gates_left(snapshot.spec, snapshot.before):
            return ()
        kinds = NETWORK_POLICY, SERVICE_ACCOUNT
        lists = [await self._own(kind, snapshot.object, gate_jobs.COMPONENT) for kind in kinds]
        return tuple(item for items in lists for item in items)

    async def _own(self, kind: ResourceKind, body: Mapping[str, Any], part: str) -> tuple[object_cache.Object, ...]:
        """Objects of a component of this ModelDeployment."""
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        ours = f"{names.LABEL_DEPLOYMENT}={name},{names.LABEL_COMPONENT}={part}"
        return tuple(item for item in await self._kube.list(kind, namespace, labels=ours) if _owned(item, body))

    async def _suites(self, snapshot: Snapshot) -> Snapshot:
        """The same with the Jobs of running gates, and with what they have handed in."""
        gates = snapshot.before.gates
        if gates is None or gates.phase != "Running":
            return snapshot
        # No cache keeps these Jobs, and a selector that asks for a label alone is answered by the API server.
        ours = f"{names.LABEL_DEPLOYMENT}={snapshot.name},{names.LABEL_GATE_SUITE}"
        jobs, pods = await asyncio.gather(
            self._kube.list(JOB, snapshot.namespace, labels=ours),
            self._kube.list(POD, snapshot.namespace, labels=ours),
        )
        own = [job for job in jobs if _owned(job, snapshot.object)]
        pods = await kubernetes_events.with_events(self._kube, snapshot.namespace, pods, self._clock())
        problem = ""
        try:
            result = (await self._data.gate_reports(snapshot.namespace, snapshot.name)).reports
        except DataPlaneUnavailable as error:
            result, problem = [], f"its report cannot be read: {error}"
        return replace(
            snapshot,
            children=(*snapshot.children, *own),
            suite_runs=gate_jobs.suite_runs(own, pods, result),
            reports_problem=problem,
        )

    async def _agent(
        self, namespace: str, spec: model_deployment.ModelDeploymentSpec
    ) -> learning_agent.LearningAgentStatus | None:
        if spec.model.learning_agent_ref is None:
            return None
        return agent_status(await self._kube.find(LEARNING_AGENT, namespace, spec.model.learning_agent_ref.name))

    def decide(self, snapshot: Snapshot) -> Plan:
        return decide(snapshot)

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        """Remove it from the data plane's list of models."""
        self._lane.forget((namespace, name))
        return (Call("DELETE", f"/api/v1/models/{name}"),)


def _owned(item: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    uid = owner["metadata"]["uid"]
    return any(reference.get("uid") == uid for reference in item["metadata"].get("ownerReferences") or ())


def _has_unready_pods(deployment: Mapping[str, Any]) -> bool:
    status = deployment.get("status") or {}
    return bool((status.get("readyReplicas") or 0) < (status.get("replicas") or 0))
