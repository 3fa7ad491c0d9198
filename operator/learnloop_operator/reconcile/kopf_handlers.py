"""Kopf as a watcher: `on.event` handlers that mark objects, and the objects related to them, for a pass.

With only event handlers Kopf writes nothing to the objects: no finalizers, no annotations. The resync makes up for a
missed event.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import kopf

from learnloop_api import names
from learnloop_operator.core.plan import canonical
from learnloop_operator.kube import fenced_client, kinds, object_cache, watch_session
from learnloop_operator.reconcile.work_queue import ObjectKey, Runtime

OWN_NAMES = frozenset(kind.kind for kind in kinds.OWN_KINDS)
LABELLED = {
    names.LABEL_TRAINING_JOB: "TrainingJob",
    names.LABEL_DEPLOYMENT: "ModelDeployment",
    names.LABEL_MEMORY: "MemoryService",
    names.LABEL_AGENT: "LearningAgent",
}


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Objects of kind `source` name one of kind `target` at `path`."""

    source: str
    path: tuple[str, ...]
    target: str
    says: tuple[str, ...] = ()
    """Fields that the target depends on: it is looked at when one of them changes."""


_REFERENCES = (
    ObjectReference("LearningAgent", ("spec", "rewardPolicyRef", "name"), "RewardPolicy"),
    ObjectReference("LearningAgent", ("spec", "memory", "serviceRef", "name"), "MemoryService", ("spec", "memory")),
    ObjectReference("ModelDeployment", ("spec", "model", "learningAgentRef", "name"), "LearningAgent"),
)
GATHERED = frozenset((reference.source, reference.target) for reference in _REFERENCES if reference.says)
"""Kinds that say something to another, which looks at all that say it: of a thousand in a row it looks at the last."""
FOLLOWED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "LearningAgent": (
        ("metadata", "uid"),
        ("metadata", "generation"),
        ("status", "phase"),
        ("status", "model"),
        ("status", "rewardPolicyRevision"),
    ),
    "TrainingJob": (),
}
"""Fields that those go by which name or belong to an object of the kind; of other kinds, all. An agent's figures follow
those of its children: were these marked by them, the two would wake one another without end."""
# A secret that a MemoryService names is not labelled by us: its change is noticed by requeue, not by a watch.


def owners(body: Mapping[str, Any]) -> set[ObjectKey]:
    """Our custom resources that a child belongs to: by controller reference and by label."""
    metadata = body.get("metadata") or {}
    namespace = str(metadata.get("namespace", ""))
    result = {
        ObjectKey(str(item["kind"]), namespace, str(item["name"]))
        for item in metadata.get("ownerReferences") or ()
        if item.get("kind") in OWN_NAMES and str(item.get("apiVersion", "")).startswith(f"{names.GROUP}/")
    }
    labels = metadata.get("labels") or {}
    return result | {ObjectKey(kind, namespace, labels[label]) for label, kind in LABELLED.items() if labels.get(label)}


def references(kind: str, body: Mapping[str, Any]) -> dict[ObjectKey, str]:
    """Custom resources that this one names in its spec or belongs to, and what it says to each, "" for nothing."""
    namespace = str((body.get("metadata") or {}).get("namespace", ""))
    result = dict.fromkeys(owners(body), "")
    for reference in _REFERENCES:
        name = _dig(body, reference.path) if reference.source == kind else None
        if isinstance(name, str) and name:
            text = _dig(body, reference.says) if reference.says else None
            result[ObjectKey(reference.target, namespace, name)] = "" if text is None else canonical(text)
    return result


def _dig(value: Any, path: Iterable[str]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


class RelatedObjects:
    """References between custom resources, in both directions."""

    def __init__(self) -> None:
        self._out: dict[ObjectKey, dict[ObjectKey, str]] = {}
        self._in: defaultdict[ObjectKey, set[ObjectKey]] = defaultdict(set)
        self._shown: dict[ObjectKey, str] = {}
        """Values of the FOLLOWED fields at the last event."""

    def changed(self, key: ObjectKey, body: Mapping[str, Any], *, deleted: bool) -> set[ObjectKey]:
        """Keys to mark: the object, its owners, objects that name it, and those that it began or ceased to name, or
        tells something else.

        Not everyone it names: a policy that a thousand agents use need not be looked at each time one of them moves.
        """
        before = self._out.pop(key, {})
        after = {} if deleted else references(key.kind, body)
        after.pop(key, None)
        for target in before.keys() - after.keys():
            self._in[target].discard(key)
            if not self._in[target]:
                del self._in[target]
        for target in after:
            self._in[target].add(key)
        if after:
            self._out[key] = after
        moved = {target for target, _ in before.items() ^ after.items()}
        followers = self._in.get(key, set()) if self._has_moved(key, body, deleted=deleted) else set()
        return {key} | (owners(body) - {key}) | moved | followers

    def _has_moved(self, key: ObjectKey, body: Mapping[str, Any], *, deleted: bool) -> bool:
        """Whether those that follow the object have to look at it."""
        fields, before = FOLLOWED.get(key.kind), self._shown.pop(key, None)
        if fields is None or deleted:
            return True
        self._shown[key] = canonical([_dig(body, path) for path in fields])
        return self._shown[key] != before


IDLE_SECONDS = 0.1
"""Seconds for which Kopf keeps a task, with the parsed event, of each object. With its own five seconds
all of ten thousand would be held when they are listed."""
SILENT_SECONDS = 70.0
"""A watch without an event or bookmark for so long is opened again. The API server sends a bookmark each minute."""
GATHER_SECONDS = 2.0
"""Time for which an object's look waits for further news of the many that it depends on."""

# The API server filters, so that a busy cluster's other pods never reach this process.
CHILD_SELECTORS: Mapping[kinds.ResourceKind, str] = {
    **dict.fromkeys(kinds.GANG_KINDS, names.LABEL_TRAINING_JOB),
    kinds.POD: names.LABEL_TRAINING_JOB,
    kinds.DEPLOYMENT: f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}",
    kinds.SERVICE: f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}",
    kinds.STATEFUL_SET: f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}",
    kinds.CONFIG_MAP: names.LABEL_MEMORY,
}


def registry(
    runtime: Runtime,
    cache: object_cache.ObjectCache,
    *,
    namespaced: bool,
    started: Callable[[], None] = lambda: None,
    cut: watch_session.CutCounter = lambda plural: None,
) -> kopf.OperatorRegistry:
    """Handlers bound to one runtime; `started` is called when Kopf has taken its first steps (and the signals), `cut`
    for each answer of the API server that broke off."""
    handlers = kopf.OperatorRegistry()
    relations = RelatedObjects()

    @kopf.on.startup(registry=handlers)
    async def configure_kopf(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings, namespaced=namespaced)
        started()

    @kopf.on.login(registry=handlers)
    async def login(**kwargs: Any) -> Any:
        result = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
        return watch_session.session_for(result, cut) if result else None

    for kind in kinds.OWN_KINDS:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=handlers, id=kind.plural)(
            own_handler(kind, runtime, relations, cache)
        )
    for kind in CHILD_SELECTORS:
        selector = (kind.group, kind.version, kind.plural) if kind.group else (kind.version, kind.plural)
        kopf.on.event(*selector, registry=handlers, id=kind.plural)(child_handler(kind, runtime, cache))
    return handlers


def configure(settings: kopf.OperatorSettings, *, namespaced: bool) -> None:
    """Kopf's settings as production operators run it; every wait is bounded."""
    settings.posting.enabled = False
    settings.scanning.disabled = namespaced
    settings.execution.default_backoff = 5
    settings.networking.request_timeout = 10
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = (0.2, 0.5, 1, 2, 5)
    settings.networking.enforce_retry_after = True
    settings.watching.server_timeout = 290
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 5
    settings.watching.inactivity_timeout = SILENT_SECONDS
    settings.watching.chunk_size = fenced_client.PAGE
    settings.queueing.exit_timeout = 5
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.process.ultimate_exiting_timeout = 10
    for kind, selector in CHILD_SELECTORS.items():
        key = (kind.group, kind.version, kind.plural) if kind.group else (kind.version, kind.plural)
        settings.watching.label_selectors[key] = selector


def own_handler(
    kind: kinds.ResourceKind, runtime: Runtime, relations: RelatedObjects, cache: object_cache.ObjectCache
) -> Any:
    """Marks the object and everything related to it.

    Its own status marks nothing, for the plan says when to look again. A spec does, even where the cache had it before
    this event: another controller may have applied it, or a listing shown it.
    """
    specs: dict[ObjectKey, int] = {}

    async def handle(event: Mapping[str, Any], **_: Any) -> None:
        body, deleted = event["object"], event["type"] == "DELETED"
        metadata = body["metadata"]
        key = ObjectKey(kind.kind, metadata["namespace"], metadata["name"])
        spec = hash((metadata.get("generation"), canonical(metadata.get("annotations") or {})))
        news = learn(cache, kind, event) or key not in runtime.tracked or specs.get(key, spec) != spec
        if deleted:
            specs.pop(key, None)
        else:
            specs[key] = spec
        for other in relations.changed(key, body, deleted=deleted):
            if other == key or other not in runtime.tracked:
                continue
            if (key.kind, other.kind) in GATHERED:
                runtime.queue.mark_later(other, GATHER_SECONDS)
            else:
                runtime.mark(other.kind, other.namespace, other.name)
        if news:
            runtime.mark(key.kind, key.namespace, key.name)

    return handle


def child_handler(kind: kinds.ResourceKind, runtime: Runtime, cache: object_cache.ObjectCache) -> Any:

    async def handle(event: Mapping[str, Any], **_: Any) -> None:
        metadata = event["object"]["metadata"]
        first = not cache.has(kind, metadata["namespace"], metadata["name"])
        fresh = learn(cache, kind, event)
        if not fresh and event["type"] is None:
            return
        # An object that a listing shows for the first time has merely been there.
        news = fresh and not (first and event["type"] is None)
        for key in owners(event["object"]):
            if key not in runtime.tracked:
                continue
            if news:
                runtime.mark(key.kind, key.namespace, key.name)
            else:  # we made the child, and most likely others with it
                runtime.queue.mark_later(key, GATHER_SECONDS)

    return handle


def learn(cache: object_cache.ObjectCache, kind: kinds.ResourceKind, event: Mapping[str, Any]) -> bool:
    """False when the event says what we knew, as the echo of our own write does, or a repeated listing (type None)."""
    if event["type"] == "DELETED":
        cache.remove(kind, event["object"])
        return True
    return cache.put(kind, event["object"])
