"""Starts, stops and reads TrainingJobs for a caller who may do that by himself: Kubernetes RBAC decides each time."""

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_dataplane.access.tokens import Identity
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.errors import ApiError, ApiServerRefused
from learnloop_dataplane.postgres.database import Database, uuid7

if TYPE_CHECKING:
    from learnloop_dataplane.access.kubernetes_api import KubeApi


RESOURCE = "trainingjobs"
REQUESTED_BY, RECIPE = "learnloop.dev/requested-by", "learnloop.dev/recipe-sha256"
MERGE = "application/merge-patch+json"


class TrainingJobs:
    """The TrainingJobs of all namespaces, each through the eyes of its caller.

    Args:
        kube: None where the installation does not offer this.
    """

    def __init__(self, db: Database, kube: "KubeApi | None") -> None:
        self._db = db
        self._kube = kube

    async def start(
        self, caller: Identity, spec: TrainingJobSpec, *, name: str | None, key: str | None
    ) -> tuple[dict[str, Any], bool]:
        """Creates a TrainingJob, or resumes the one of this name and recipe; and whether it was there already.

        Args:
            name: left out: made from `key`, so that the same key starts the same job once; or from nothing.

        Raises:
            ApiError: 403, the caller may not; 409, the name is taken by another recipe; 422, the API server refuses it.
            Unavailable: the API server or PostgreSQL does not answer; ask again with the same key or name.
        """
        recipe = spec.to_kube()
        recipe.pop("suspend", None)
        digest = sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()  # of integers of any size
        chosen = name or _name(recipe, key)
        kube = await self._allowed(caller, "create", chosen, "training.start")
        job = {
            "apiVersion": "learnloop.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": chosen, "annotations": {REQUESTED_BY: caller.subject, RECIPE: digest}},
            "spec": recipe,
        }
        try:
            return await kube.request("POST", _path(caller.namespace), body=job), False
        except ApiServerRefused as refusal:
            if refusal.status != 409:
                raise _explained(refusal) from None
        existing = await self._get(kube, caller.namespace, chosen)
        if existing["metadata"].get("annotations", {}).get(RECIPE) != digest:
            raise ApiError(
                409,
                "a TrainingJob of this name has another recipe; choose another name or key",
                field="name",
                value=chosen,
            )
        if existing["spec"].get("suspend"):
            await self._allowed(caller, "patch", chosen, "training.resume")
            existing = await self._suspend(kube, caller.namespace, chosen, False)
        return existing, True

    async def stop(self, caller: Identity, name: str) -> dict[str, Any]:
        """Suspends a TrainingJob: its pods end, its newest checkpoint stays. Again is fine.

        Raises:
            ApiError: 403, the caller may not; 404, there is none.
            Unavailable: the API server or PostgreSQL does not answer.
        """
        kube = await self._allowed(caller, "patch", name, "training.stop")
        return await self._suspend(kube, caller.namespace, name, True)

    async def get(self, caller: Identity, name: str) -> dict[str, Any]:
        """One TrainingJob.

        Raises:
            ApiError: 403, the caller may not; 404, there is none.
        """
        return await self._get(await self._allowed(caller, "get", name), caller.namespace, name)

    async def page(self, caller: Identity, limit: int, after: str | None) -> tuple[list[dict[str, Any]], str | None]:
        """Up to `limit` TrainingJobs by name, and what to ask the next page with.

        Raises:
            ApiError: 403, the caller may not; 410, the page before is too long ago: begin again.
        """
        kube = await self._allowed(caller, "list", "")
        query = {"limit": str(limit), **({"continue": after} if after else {})}
        try:
            answer = await kube.request("GET", _path(caller.namespace), query=query)
        except ApiServerRefused as refusal:
            raise _explained(refusal) from None
        return answer["items"], answer["metadata"].get("continue") or None

    async def _allowed(self, caller: Identity, verb: str, name: str, action: str | None = None) -> "KubeApi":
        """The API server, once it said that the caller may; what is to change something goes on record first."""
        if self._kube is None:
            message = "training by REST is off here: have dataPlane.trainingApi.enabled set, or use kubectl"
            raise ApiError(403, message)
        allowed = await self._kube.may(caller, verb, RESOURCE, name)
        if action is not None:
            async with self._db.tenant(caller.namespace) as connection:
                outcome = "requested" if allowed else "refused"
                await note(connection, caller.namespace, action, f"training-job/{name}", outcome=outcome)
        if not allowed:
            raise ApiError(
                403,
                f"{caller.subject} may not {verb} {RESOURCE} in namespace {caller.namespace}; bind it a Role that does",
            )
        return self._kube

    async def _get(self, kube: "KubeApi", namespace: str, name: str) -> dict[str, Any]:
        try:
            job: dict[str, Any] = await kube.request("GET", _path(namespace, name))
        except ApiServerRefused as refusal:
            raise _explained(refusal, name) from None
        return job

    async def _suspend(self, kube: "KubeApi", namespace: str, name: str, suspend: bool) -> dict[str, Any]:
        patch = {"spec": {"suspend": suspend}}
        try:
            changed: dict[str, Any] = await kube.request(
                "PATCH", _path(namespace, name), body=patch, content_type=MERGE
            )
        except ApiServerRefused as refusal:
            raise _explained(refusal, name) from None
        return changed


def described(job: dict[str, Any]) -> dict[str, Any]:
    """The parts of a TrainingJob that a caller reads, in the words of its status."""
    spec, status = job["spec"], job.get("status") or {}
    ready: dict[str, Any] = next((item for item in status.get("conditions") or [] if item["type"] == "Ready"), {})
    wanted = ("phase", "step", "totalSteps", "progress", "eta", "return", "attempts", "startedAt", "finishedAt")
    return {
        "job": job["metadata"]["name"],
        "created_at": job["metadata"].get("creationTimestamp"),
        "agent_id": (spec["data"].get("learningAgentRef") or {}).get("name"),
        "algorithm": spec["algorithm"],
        "suspended": bool(spec.get("suspend")),
        "message": ready.get("message"),
        "artifact": status.get("artifact"),
        **{_snake(name): status.get(name) for name in wanted},
    }


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _name(recipe: dict[str, Any], key: str | None) -> str:
    agent = (recipe["data"].get("learningAgentRef") or {}).get("name") or "training"
    return f"{agent[:40].rstrip('-.')}-{sha256((key or str(uuid7())).encode()).hexdigest()[:10]}"


def _path(namespace: str, name: str = "") -> str:
    root = f"/apis/learnloop.dev/v1alpha1/namespaces/{quote(namespace, safe='')}/{RESOURCE}"
    return f"{root}/{quote(name, safe='')}" if name else root


def _explained(refusal: ApiServerRefused, name: str | None = None) -> ApiError:
    """The API server's refusal as one of this API: an invalid object is 422."""
    if refusal.status == 404 and name is not None:
        return ApiError(404, "no TrainingJob has this name in this namespace", field="job", value=name)
    status = 422 if refusal.status in (400, 422) else refusal.status
    return ApiError(status, refusal.message)
