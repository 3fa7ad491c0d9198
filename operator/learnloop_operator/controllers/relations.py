"""Who must be looked at when something changes. Kept from watch events; only ever used to mark objects dirty."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from learnloop_api import names
from learnloop_operator.adapters.kinds import OWN_KINDS
from learnloop_operator.controllers.key import Key

OWN_NAMES = frozenset(kind.kind for kind in OWN_KINDS)
LABELLED = {
    names.LABEL_TRAINING_JOB: "TrainingJob",
    names.LABEL_DEPLOYMENT: "ModelDeployment",
    names.LABEL_MEMORY: "MemoryService",
    names.LABEL_AGENT: "LearningAgent",
}
_REFERENCES = (
    ("LearningAgent", ("spec", "rewardPolicyRef", "name"), "RewardPolicy"),
    ("LearningAgent", ("spec", "memory", "serviceRef", "name"), "MemoryService"),
    ("ModelDeployment", ("spec", "model", "learningAgentRef", "name"), "LearningAgent"),
)
# A secret that a MemoryService names is not labelled by us: its change is noticed by requeue, not by a watch.


def owners(body: Mapping[str, Any]) -> set[Key]:
    """Our custom resources that a child belongs to: by controller reference and by label."""
    metadata = body.get("metadata") or {}
    namespace = str(metadata.get("namespace", ""))
    found = {
        Key(str(item["kind"]), namespace, str(item["name"]))
        for item in metadata.get("ownerReferences") or ()
        if item.get("kind") in OWN_NAMES and str(item.get("apiVersion", "")).startswith(f"{names.GROUP}/")
    }
    labels = metadata.get("labels") or {}
    return found | {Key(kind, namespace, labels[label]) for label, kind in LABELLED.items() if labels.get(label)}


def references(kind: str, body: Mapping[str, Any]) -> set[Key]:
    """Custom resources that this one names in its spec or belongs to."""
    namespace = str((body.get("metadata") or {}).get("namespace", ""))
    found = owners(body)
    for source, path, target in _REFERENCES:
        name = _dig(body, path) if source == kind else None
        if isinstance(name, str) and name:
            found.add(Key(target, namespace, name))
    return found


def _dig(value: Any, path: Iterable[str]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


class Relations:
    """References between custom resources, in both directions."""

    def __init__(self) -> None:
        self._out: dict[Key, set[Key]] = {}
        self._in: defaultdict[Key, set[Key]] = defaultdict(set)

    def changed(self, key: Key, body: Mapping[str, Any], *, deleted: bool) -> set[Key]:
        """Everyone to mark dirty: the object, its owners, who names it, and whom it began or ceased to name.

        Not everyone it names: a policy that a thousand agents use need not be looked at each time one of them moves.
        """
        before = self._out.pop(key, set())
        after = set() if deleted else references(key.kind, body) - {key}
        for target in before - after:
            self._in[target].discard(key)
            if not self._in[target]:
                del self._in[target]
        for target in after:
            self._in[target].add(key)
        if after:
            self._out[key] = after
        return {key} | (owners(body) - {key}) | (before ^ after) | self._in.get(key, set())
