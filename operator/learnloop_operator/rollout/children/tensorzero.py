"""TensorZero's file: a gateway of TensorZero before the arms, kept in step with the routing table.

Its function has one variant for each arm. Every variant leads to a gateway of learnloop, and to the fallback where that
does not answer. In `service` mode it is the ModelDeployment's own address, where learnloop draws the arm; TensorZero's
weights are what the table says, and what it draws names a variant in its own records alone. In `gateway` mode the
router before the arms draws, as an HTTPRoute does, and so a variant leads to its arm's own address.
"""

import json
from collections.abc import Sequence

from learnloop_api import names
from learnloop_api.kinds.language_model import LanguageFallback
from learnloop_api.wire.routing import Arm, arm_name
from learnloop_operator.core.plan import KubeObject, Notice, ObjectRef, child, controller_uid, standard_labels
from learnloop_operator.rollout.reasons import REGISTRATION_FAILED
from learnloop_operator.rollout.state.snapshot import Snapshot

COMPONENT = "tensorzero"
FILE = "tensorzero.toml"
PORT = 3000
CALLER_KEY = "learnloop_token"
"""A request's credential of this name is the caller's own token: TensorZero has none of its own."""
FALLBACK_KEY = "LEARNLOOP_FALLBACK_KEY"
"""The environment variable of TensorZero that has the fallback's key, where it wants one."""


def registered(snapshot: Snapshot, arms: Sequence[Arm]) -> tuple[KubeObject, ...]:
    """The ConfigMap with the file, where the spec asks for one; none before the first arm serves. learnloop's own table
    stays the one router: this follows it one write later, and nothing waits for it (Plan.outside). `arms`: stable
    first."""
    # TensorZero trusts public authorities alone: by TLS all requests would go to the fallback.
    if not (_wanted(snapshot) and arms and snapshot.scheme != "https"):
        return ()
    marks = standard_labels(COMPONENT, {names.LABEL_DEPLOYMENT: snapshot.name})
    data = {FILE: config(snapshot, arms)}
    name = f"{snapshot.name}-tensorzero"
    return (child(snapshot.object, api_version="v1", kind="ConfigMap", name=name, labels=marks, data=data),)


def refused(snapshot: Snapshot) -> tuple[Notice, ...]:
    """Warn once for each change of the spec when TensorZero cannot be registered."""
    warned = snapshot.before.observed_generation == snapshot.generation
    if not _wanted(snapshot) or snapshot.scheme != "https" or warned:
        return ()
    text = (
        "spec.serving.language.registration: TensorZero trusts no authority of this installation, so it "
        "would only reach the fallback: use routing.mode gateway, or take the namespace out of tls.namespaces"
    )
    return (Notice("Warning", REGISTRATION_FAILED, text),)


def strays(snapshot: Snapshot, wanted: Sequence[KubeObject], arms: Sequence[Arm]) -> tuple[ObjectRef, ...]:
    """Objects of an earlier spec that this one no longer wants. While nothing serves, all of them stay."""
    if not arms and _wanted(snapshot):
        return ()
    remaining = {(item["kind"], item["metadata"]["name"]) for item in wanted}
    own = snapshot.object["metadata"]["uid"]
    return tuple(
        ObjectRef(item["apiVersion"], item["kind"], snapshot.namespace, item["metadata"]["name"])
        for item in snapshot.children
        if (item["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT) == COMPONENT
        and controller_uid(item) == own
        and (item["kind"], item["metadata"]["name"]) not in remaining
    )


def _wanted(snapshot: Snapshot) -> bool:
    language = snapshot.spec.serving.language
    return bool(snapshot.spec.language_model and language and language.registration == "tensorZero")


def config(snapshot: Snapshot, arms: Sequence[Arm]) -> str:
    """tensorzero.toml. Strings are written as JSON does, which TOML reads alike."""
    fallback = _fallback(snapshot)
    lines = ["[gateway]", f'bind_address = "0.0.0.0:{PORT}"', "observability.enabled = false", ""]
    for arm in arms:
        model = f"models.{json.dumps(f'{snapshot.name}-{arm.revision}')}"
        lines += [f"[{model}]", f"routing = {json.dumps(['learnloop', *(['ollama'] if fallback else [])])}", ""]
        lines += _provider(f"{model}.providers.learnloop", snapshot.name, _base(snapshot, arm), _caller_key(snapshot))
        if fallback:
            key = f"env::{FALLBACK_KEY}" if fallback.key_ref else "none"
            lines += _provider(f"{model}.providers.ollama", fallback.model, f"{fallback.url.rstrip('/')}/v1/", key)
    function = f"functions.{json.dumps(snapshot.name)}"
    lines += [f"[{function}]", 'type = "chat"', ""]
    for arm in arms:
        lines += [f"[{function}.variants.{json.dumps(variant(arm))}]", 'type = "chat_completion"']
        lines += [f"model = {json.dumps(f'{snapshot.name}-{arm.revision}')}", ""]
    weights = ", ".join(f"{json.dumps(variant(arm))} = {arm.weight}.0" for arm in _drawn(arms))
    lines += [f"[{function}.experimentation]", 'type = "static"', f"candidate_variants = {{ {weights} }}", ""]
    return "\n".join(lines)


def variant(arm: Arm) -> str:
    """The same before and after a promotion: an episode keeps its variant by this name."""
    return f"arm-{arm.revision}"


def _drawn(arms: Sequence[Arm]) -> Sequence[Arm]:
    return [arm for arm in arms if arm.weight] or arms[:1]


def _provider(table: str, model: str, base: str, key: str) -> list[str]:
    text = {"type": "openai", "model_name": model, "api_base": base, "api_key_location": key}
    return [f"[{table}]", *(f"{name} = {json.dumps(value)}" for name, value in text.items()), ""]


def _base(snapshot: Snapshot, arm: Arm) -> str:
    service = arm_name(snapshot.name, arm.revision) if snapshot.spec.routing.mode == "gateway" else snapshot.name
    return f"{snapshot.scheme}://{service}.{snapshot.namespace}.svc:{names.PORT_SERVING}/v1/"


def _caller_key(snapshot: Snapshot) -> str:
    return f"dynamic::{CALLER_KEY}" if snapshot.defaults.callers.verified_by == "token" else "none"


def _fallback(snapshot: Snapshot) -> LanguageFallback | None:
    language = snapshot.spec.serving.language
    return language.fallback if language else None
