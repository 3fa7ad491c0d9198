"""MemoryService: gather, decide."""

import asyncio
import base64
import binascii
import dataclasses
import secrets
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.memory_service import MemoryServiceSpec, SecretKeyRef
from learnloop_operator.adapters.kube.client import Object
from learnloop_operator.adapters.kube.event_reader import failure_of, with_events
from learnloop_operator.adapters.kube.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    LEARNING_AGENT,
    MEMORY_SERVICE,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    ResourceKind,
)
from learnloop_operator.adapters.pods.training_ranks import complaint_of
from learnloop_operator.bootstrap import seed
from learnloop_operator.controllers.reconcilers.spec_validation import read_spec
from learnloop_operator.controllers.services import Services
from learnloop_operator.core.memory_service import models
from learnloop_operator.core.memory_service.agent_budgets import budgets_of, tell
from learnloop_operator.core.memory_service.decide import decide
from learnloop_operator.core.memory_service.snapshot import AUDIT_KEY, MemoryServiceSnapshot
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.core.pod_trouble import creation_trouble

SEED_IS = "32 random bytes in Base64; make one with: head -c 32 /dev/urandom | base64"


class MemoryServiceController:
    """Runs the memory image, and PostgreSQL where asked to."""

    kind: ResourceKind = MEMORY_SERVICE

    def __init__(self, services: Services) -> None:
        self._services = services

    async def gather(self, namespace: str, name: str) -> MemoryServiceSnapshot | None:
        """The service, its children, what its agents may keep, and whether the secrets it needs can be used (never what
        is in them)."""
        live = await self._services.kube.find(MEMORY_SERVICE, namespace, name)
        if live is None:
            return None
        live = {"apiVersion": MEMORY_SERVICE.api_version, "kind": MEMORY_SERVICE.kind, **live}
        settings, agents = self._services.settings, await self._services.kube.list(LEARNING_AGENT, namespace)
        world = MemoryServiceSnapshot(
            now=self._services.clock(),
            object=live,
            spec=read_spec(MemoryServiceSpec, live),
            images=(settings.memory_image, settings.postgres_image),
            pull_policy=settings.image_pull_policy,
            budgets=tell(namespace, budgets_of(name, agents)),
            operator_subject=settings.operator_subject,
            data_url=settings.data_url,
            tls=settings.tls,
        )
        server, front, database, back, credentials, (audit, audit_problem) = await asyncio.gather(
            self._child(DEPLOYMENT, namespace, world.server_name),
            self._child(SERVICE, namespace, world.server_name),
            self._child(STATEFUL_SET, namespace, world.database_name),
            self._child(SERVICE, namespace, world.database_name),
            self._child(SECRET, namespace, world.credentials_name),
            self._audit_key(namespace, world.audit_name),
        )
        told = await self._child(CONFIG_MAP, namespace, world.budgets_name)
        complaint = await self._complaint(namespace, name, server, database)
        problem, version = await self._own_secret(namespace, world.spec.dsn_secret_ref)
        key = world.spec.weaviate.api_key_secret_ref if world.spec.weaviate else None
        key_problem, key_version, _ = await self._secret(namespace, "spec.weaviate.apiKeySecretRef", key)
        named = [await self._secret(namespace, field, ref) for field, ref in models.keys(world.spec).items()]
        asked = world.spec.weaviate is not None and ((server or {}).get("status") or {}).get("readyReplicas")
        changes: dict[str, Any] = {
            "degraded": await self._services.data_plane.degraded(world.url) if asked else None,
            "children": tuple(item for item in (server, front, database, back, credentials, audit, told) if item),
            "fresh_password": "" if credentials else secrets.token_urlsafe(32),
            "has_credentials": credentials is not None,
            "fresh_audit_key": "" if audit else seed(),
            "has_audit_key": audit is not None,
            "audit_problem": audit_problem,
            "dsn_problem": problem,
            "dsn_version": version,
            "weaviate_problem": key_problem,
            "weaviate_version": key_version,
            "models_problem": next((problem for problem, _, _ in named if problem), None),
            "models_version": "-".join(version for _, version, _ in named),
            "server": server,
            "database": database,
            "complaint": complaint,
        }
        return dataclasses.replace(world, **changes)

    def decide(self, snapshot: MemoryServiceSnapshot) -> Plan:
        """See core.memory."""
        return decide(snapshot)

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        """Nothing outside the cluster: owner references take the children along."""
        return ()

    async def _child(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        found = await self._services.kube.find(kind, namespace, name)
        if found is None:
            return None
        if kind is SECRET:
            found.pop("data", None)  # nothing below needs it, so nothing can leak it
        return {"apiVersion": kind.api_version, "kind": kind.kind, **found}

    async def _complaint(self, namespace: str, name: str, server: Object | None, database: Object | None) -> str | None:
        """What the first pod that is not ready says, or why there is none."""
        kube = self._services.kube
        pods = await kube.list(POD, namespace, labels=f"{names.LABEL_MEMORY}={name}")
        pods = await with_events(kube, namespace, pods, self._services.clock())
        said = next(filter(None, map(complaint_of, pods)), None) or (creation_trouble(server) if server else "")
        if said or database is None or _has_pods(database):
            return said or None
        # A StatefulSet has no condition for what keeps it from making its pod.
        return await failure_of(kube, namespace, database["metadata"]["uid"]) or None

    async def _audit_key(self, namespace: str, name: str) -> tuple[Object | None, str | None]:
        """The Secret without what is in it, and why it cannot be used: somebody may have put it there before us."""
        secret = await self._services.kube.find(SECRET, namespace, name)
        if secret is None:
            return None, None
        encoded = (secret.pop("data", None) or {}).get(AUDIT_KEY, "")
        problem = None if _is_seed(encoded) else f"Secret {name}, key {AUDIT_KEY}: must hold {SEED_IS}"
        return {"apiVersion": SECRET.api_version, "kind": SECRET.kind, **secret}, problem

    async def _own_secret(self, namespace: str, ref: SecretKeyRef | None) -> tuple[str | None, str]:
        problem, version, encoded = await self._secret(namespace, "spec.dsnSecretRef", ref)
        if ref is None or problem is not None or _is_dsn(encoded):
            return problem, version
        where = f"spec.dsnSecretRef: Secret {ref.name}, key {ref.key}"
        return f"{where}: must hold postgresql://user:password@host:port/database", ""

    async def _secret(self, namespace: str, field: str, ref: SecretKeyRef | None) -> tuple[str | None, str, str]:
        """Why it cannot be used, its version, and what it holds in Base64, which goes no further than this file."""
        if ref is None:
            return None, "", ""
        secret = await self._services.kube.find(SECRET, namespace, ref.name)
        where = f"{field}: Secret {ref.name}"
        if secret is None:
            return f"{where} does not exist in namespace {namespace}: create it with key {ref.key}", "", ""
        encoded = (secret.get("data") or {}).get(ref.key)
        if encoded is None:
            return f"{where} has no key {ref.key}: name one that it has", "", ""  # which those are is not told
        return None, str(secret["metadata"]["resourceVersion"]), encoded


def _has_pods(stateful_set: Object) -> bool:
    wanted = (stateful_set.get("spec") or {}).get("replicas", 1)
    return bool(((stateful_set.get("status") or {}).get("replicas") or 0) >= wanted)


def _is_seed(encoded: str) -> bool:
    try:
        inside = base64.b64decode(encoded, validate=True).strip()
        return len(base64.b64decode(inside, validate=True)) == 32
    except binascii.Error:
        return False


def _is_dsn(encoded: str) -> bool:
    try:
        return base64.b64decode(encoded, validate=True).decode().startswith(("postgresql://", "postgres://"))
    except (binascii.Error, UnicodeDecodeError):
        return False
