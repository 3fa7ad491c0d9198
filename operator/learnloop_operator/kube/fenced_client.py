"""The operator's client of the Kubernetes API: asynchronous, server-side apply, no write without a change."""

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import orjson
from kubernetes_asyncio.client import Configuration

from learnloop_api import names
from learnloop_operator.core.plan import KubeObject, ObjectRef, quantity
from learnloop_operator.kube import errors, http_transport, kinds, object_cache

APPLY = "application/apply-patch+yaml"  # JSON is YAML
PAGE = 100
"""Objects in one answer of a listing. Parsed, a Deployment takes 50 KiB: five hundred of each kind would be the
most that the operator ever holds."""
RESTARTS = 4
APPLIED = f"{names.GROUP}/applied"
"""Annotation with the digest of the manifest that was applied."""


class KubeClient:
    """Reads are live; `cache` learns from the answers to our own writes, so that it is never older than they.

    `guard` is called before each attempt of a write and raises when this process does not lead; `written` is called
    with (verb, kind) for each write.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        guard: Callable[[], None] = lambda: None,
        written: Callable[[str, str], None] = lambda _verb, _kind: None,
        cache: object_cache.ObjectCache | None = None,
        timeout: float = 10.0,
    ) -> None:
        self.http = http_transport.KubeHttp(configuration, timeout, guard)
        self._guard, self._written = guard, written
        self._cache = cache

    async def close(self) -> None:
        await self.http.close()

    async def get(self, kind: kinds.ResourceKind, namespace: str, name: str) -> object_cache.Object:
        return await self.http.request("GET", kind.path(namespace, name))

    async def find(self, kind: kinds.ResourceKind, namespace: str, name: str) -> object_cache.Object | None:
        """One object, or None when it (or its kind) does not exist."""
        try:
            return await self.get(kind, namespace, name)
        except errors.NotFound:
            return None

    async def pages(
        self,
        kind: kinds.ResourceKind,
        namespace: str | None,
        *,
        labels: str = "",
        fields: str = "",
    ) -> AsyncIterator[tuple[list[object_cache.Object], str]]:
        """All objects page by page, each with apiVersion and kind, and the resourceVersion of the collection.

        `namespace=None`: the whole cluster.

        Raises:
            NotFound: the API server does not know the kind.
            Gone: the list must be begun again.
        """
        query = {"limit": str(PAGE)}
        query |= {"labelSelector": labels} if labels else {}
        query |= {"fieldSelector": fields} if fields else {}
        while True:
            page = await self.http.request("GET", kind.path(namespace), query=query)
            metadata = page.get("metadata") or {}
            items = [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or ()]
            yield items, str(metadata.get("resourceVersion", ""))
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    async def list(
        self,
        kind: kinds.ResourceKind,
        namespace: str | None,
        *,
        labels: str = "",
        fields: str = "",
    ) -> list[object_cache.Object]:
        """All objects, each with apiVersion and kind filled in; `namespace` as in `pages`."""
        for _ in range(RESTARTS):
            pages = self.pages(kind, namespace, labels=labels, fields=fields)
            with contextlib.suppress(errors.Gone):  # the continue token expired between two pages: begin again
                return [item async for items, _ in pages for item in items]
        raise errors.Gone(f"list {kind.plural}: the list changed faster than its {RESTARTS} readings", status=410)

    async def apply(self, manifest: KubeObject, manager: str, *, live: KubeObject | None) -> object_cache.Object:
        """Server-side apply with force, unless `live` (the object as it was just read; None: there is none) already
        says the same.

        Returns the object as it is afterwards.

        Raises:
            Conflict: the object changed, or was replaced or deleted, since it was read as `live`.
        """
        wanted = _marked(manifest)
        if live is not None and covers(wanted, live):
            return dict(live)
        return await self._write_apply(wanted, manager, live)

    async def apply_status(self, status: KubeObject, manager: str, *, live: KubeObject) -> object_cache.Object:
        """Server-side apply on /status of an object read as `live`; None values are left out.

        Raises:
            Conflict: the object changed, or was replaced or deleted, since it was read as `live`.
        """
        metadata = {key: live["metadata"][key] for key in ("name", "namespace")}
        about = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": metadata}
        body = {**about, "status": without_none(status)}
        if live.get("status") == body["status"]:
            return dict(live)
        return await self._write_apply(body, manager, live, "status")

    async def create(self, manifest: KubeObject) -> object_cache.Object:
        """Create.

        Raises:
            Conflict: exists already.
        """
        kind = kinds.kind_of(manifest)
        self._set_out("create", kind.kind)
        path = kind.path(manifest["metadata"].get("namespace"))
        return await self.http.request("POST", path, body=manifest)

    async def replace(self, manifest: KubeObject) -> object_cache.Object:
        """PUT; with metadata.resourceVersion it only succeeds without a write in between (else Conflict)."""
        kind = kinds.kind_of(manifest)
        self._set_out("update", kind.kind)
        path = kind.path(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        return await self.http.request("PUT", path, body=manifest)

    async def delete(self, ref: ObjectRef, *, live: KubeObject | None = None) -> bool:
        """Delete; False when it was not there. With `live`, only if it has not changed since it was read as such.

        Raises:
            Conflict: it has.
        """
        kind = kinds.kind_of(ref)
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if live is not None:
            options["preconditions"] = _precondition(live)
        self._set_out("delete", kind.kind)
        try:
            await self.http.request("DELETE", kind.path(ref.namespace, ref.name), body=options)
        except (errors.NotFound, errors.Conflict) as error:
            await self.relearn(kind, ref.namespace, ref.name)
            if isinstance(error, errors.Conflict):
                raise
            return False
        await self.relearn(kind, ref.namespace, ref.name)
        return True

    async def relearn(self, kind: kinds.ResourceKind, namespace: str, name: str) -> object_cache.Object | None:
        """Read one object live and correct its entry in the cache."""
        result = await self.find(kind, namespace, name)
        if self._cache is not None:
            self._cache.settle(kind, namespace, name, result)
        return result

    def _set_out(self, verb: str, kind: str) -> None:
        self._guard()
        self._written(verb, kind)

    async def _write_apply(
        self, manifest: KubeObject, manager: str, live: KubeObject | None, subresource: str | None = None
    ) -> object_cache.Object:
        kind, namespace, name = kinds.kind_of(manifest), manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        self._set_out("apply_status" if subresource else "apply", kind.kind)
        # Without `Ignore` the API server parses the body a second time, for warnings that are not read.
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Ignore"}
        path = kind.path(namespace, name, subresource)
        precondition = {} if live is None else _precondition(live)
        body = {**manifest, "metadata": {**manifest["metadata"], **precondition}}
        try:
            result = await self.http.request("PATCH", path, body=body, content_type=APPLY, query=query)
        except errors.Conflict:
            await self.relearn(kind, namespace, name)  # the next pass must not decide on the same stale entry
            raise
        if self._cache is not None:
            self._cache.put(kind, result)
        return result


def without_none(value: Any) -> Any:
    """The same without keys whose value is None, at any depth: null has no place in a structural schema."""
    if isinstance(value, str | int | float):  # most of them: asking whether a text is a Mapping takes longer
        return value
    if isinstance(value, Mapping):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list | tuple) else value


def _precondition(live: KubeObject) -> dict[str, str]:
    """The uid alone does not do: server-side apply to a status answers 200 where it differs."""
    return {"uid": live["metadata"]["uid"], "resourceVersion": live["metadata"]["resourceVersion"]}


def _marked(manifest: KubeObject) -> object_cache.Object:
    """The manifest with the digest of its content: one that drops a field has another digest."""
    text = orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS, default=str)
    digest = hashlib.blake2b(text, digest_size=12).hexdigest()
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), APPLIED: digest}}}


_IDENTITY = ("apiVersion", "kind", "uid", "resourceVersion")


def covers(desired: Any, live: Any) -> bool:
    """`desired` is a subset of `live`: extra map keys (defaults, other managers) are fine, list lengths are not."""
    # Every pass looks through every field of every child, so the types are asked for by name: for an abstract one
    # (Mapping, Sequence) Python takes ten times as long.
    if isinstance(desired, dict):
        if not isinstance(live, dict):
            return False
        for key, value in desired.items():
            if value is None or key in _IDENTITY:
                continue
            if not (covers(value, live[key]) if key in live else _absent_is_fine(value)):
                return False
        return True
    if not isinstance(desired, list | tuple):
        return _same_scalar(desired, live)
    if not isinstance(live, list | tuple) or len(desired) != len(live):
        return False
    return all(map(covers, desired, live))


def _absent_is_fine(value: Any) -> bool:
    # The API server leaves empty strings, lists and maps out of what it returns (omitempty).
    return isinstance(value, str | list | tuple | dict) and len(value) == 0


def _same_scalar(desired: Any, live: Any) -> bool:
    if isinstance(desired, bool) or isinstance(live, bool):
        return desired is live
    if desired == live:
        return True
    # The API server rewrites quantities ("0.5" becomes "500m").
    ours, others = quantity(desired), quantity(live)
    return ours is not None and ours == others
