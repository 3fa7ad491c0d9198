"""Outer routers that learn of the arms: TensorZero and llm-d. None of them decides the split.

learnloop's own table stays the one router. What stands here follows it, one write later, and where it cannot be written
nothing else waits: see Plan.outside.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from learnloop_api.names import LABEL_COMPONENT
from learnloop_api.wire.routing import Arm
from learnloop_operator.core.manifests import controller_uid
from learnloop_operator.core.plan import Manifest, Notice, ObjectRef
from learnloop_operator.rollout.children import llm_d, tensorzero
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.rollout.reasons import REGISTRATION_FAILED

TENSORZERO, TENSORZERO_IMAGE = tensorzero.COMPONENT, tensorzero.IMAGE
COMPONENTS = (tensorzero.COMPONENT, llm_d.COMPONENT)


class OuterRouter(Protocol):
    """The port: arms with their weights in, whole manifests of the ModelDeployment's namespace out."""

    def __call__(self, snapshot: Snapshot, wanted: Any, arms: Sequence[Arm], /) -> tuple[Manifest, ...]:
        """Manifests for this router. `arms` is not empty, stable first; `wanted` is its part of the spec."""


def told(snapshot: Snapshot, arms: Sequence[Arm]) -> tuple[Manifest, ...]:
    """Manifests for all routers that the spec names; none before the first arm serves."""
    language = snapshot.spec.serving.language
    wanted = language.registration if language and snapshot.spec.language_model else None
    if wanted is None or not arms:
        return ()
    if snapshot.scheme == "https":  # TensorZero trusts public authorities alone: all of it would go to the fallback
        wanted = wanted.model_copy(update={"tensor_zero": None})
    routers: tuple[tuple[OuterRouter, Any], ...] = (
        (tensorzero.tensorzero, wanted.tensor_zero),
        (llm_d.llm_d, wanted.llm_d),
    )
    return tuple(manifest for router, part in routers if part is not None for manifest in router(snapshot, part, arms))


def refused(snapshot: Snapshot) -> tuple[Notice, ...]:
    """Said once for each change of the spec: what a router that is named cannot be told."""
    language = snapshot.spec.serving.language
    named = language.registration.tensor_zero if language and language.registration else None
    if named is None or snapshot.scheme != "https" or snapshot.before.observed_generation == snapshot.generation:
        return ()
    text = (
        "spec.serving.language.registration.tensorZero: TensorZero trusts no authority of this installation, so it "
        "would only reach the fallback: use routing.mode gateway, or take the namespace out of tls.namespaces"
    )
    return (Notice("Warning", REGISTRATION_FAILED, text),)


def strays(snapshot: Snapshot, wanted: Sequence[Manifest], arms: Sequence[Arm]) -> tuple[ObjectRef, ...]:
    """Objects of an earlier spec that this one no longer wants. While nothing serves, all of them stay."""
    language = snapshot.spec.serving.language
    if not arms and language and language.registration:
        return ()
    remaining = {(item["kind"], item["metadata"]["name"]) for item in wanted}
    own = snapshot.object["metadata"]["uid"]
    return tuple(
        ObjectRef(item["apiVersion"], item["kind"], snapshot.namespace, item["metadata"]["name"])
        for item in snapshot.children
        if (item["metadata"].get("labels") or {}).get(LABEL_COMPONENT) in COMPONENTS
        and controller_uid(item) == own
        and (item["kind"], item["metadata"]["name"]) not in remaining
    )
