"""Which objects need a pass when another one changes. Kept from watch events; only ever used to mark objects dirty."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from learnloop_api import names
from learnloop_operator.core.content_digests import canonical
from learnloop_operator.kube.kinds import OWN_KINDS
from learnloop_operator.reconcile.work_queue import ObjectKey

OWN_NAMES = frozenset(kind.kind for kind in OWN_KINDS)
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
    """What the target goes by, too: a change there is one that it must look at."""


_REFERENCES = (
    ObjectReference("LearningAgent", ("spec", "rewardPolicyRef", "name"), "RewardPolicy"),
    ObjectReference("LearningAgent", ("spec", "memory", "serviceRef", "name"), "MemoryService", ("spec", "memory")),
    ObjectReference("ModelDeployment", ("spec", "model", "learningAgentRef", "name"), "LearningAgent"),
)
GATHERED = frozenset((reference.source, reference.target) for reference in _REFERENCES if reference.says)
"""Kinds that say something to another, which looks at all that say it: of a thousand at once it looks at the last."""
# A secret that a MemoryService names is not labelled by us: its change is noticed by requeue, not by a watch.


def owners(body: Mapping[str, Any]) -> set[ObjectKey]:
    """Our custom resources that a child belongs to: by controller reference and by label."""
    metadata = body.get("metadata") or {}
    namespace = str(metadata.get("namespace", ""))
    found = {
        ObjectKey(str(item["kind"]), namespace, str(item["name"]))
        for item in metadata.get("ownerReferences") or ()
        if item.get("kind") in OWN_NAMES and str(item.get("apiVersion", "")).startswith(f"{names.GROUP}/")
    }
    labels = metadata.get("labels") or {}
    return found | {ObjectKey(kind, namespace, labels[label]) for label, kind in LABELLED.items() if labels.get(label)}


def references(kind: str, body: Mapping[str, Any]) -> dict[ObjectKey, str]:
    """Custom resources that this one names in its spec or belongs to, and what it says to each, "" for nothing."""
    namespace = str((body.get("metadata") or {}).get("namespace", ""))
    found = dict.fromkeys(owners(body), "")
    for reference in _REFERENCES:
        name = _dig(body, reference.path) if reference.source == kind else None
        if isinstance(name, str) and name:
            said = _dig(body, reference.says) if reference.says else None
            found[ObjectKey(reference.target, namespace, name)] = "" if said is None else canonical(said)
    return found


def _dig(value: Any, path: Iterable[str]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


class RelatedObjects:
    """References between custom resources, in both directions."""

    def __init__(self) -> None:
        self._out: dict[ObjectKey, dict[ObjectKey, str]] = {}
        self._in: defaultdict[ObjectKey, set[ObjectKey]] = defaultdict(set)

    def changed(self, key: ObjectKey, body: Mapping[str, Any], *, deleted: bool) -> set[ObjectKey]:
        """Everyone to mark dirty: the object, its owners, who names it, and whom it began or ceased to name, or says
        something else to.

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
        return {key} | (owners(body) - {key}) | moved | self._in.get(key, set())
