"""TensorZero 2026.6.0, the last of its releases: a function with one variant for each arm, and the gateway that has it.

Every variant leads to a gateway of learnloop, and to the fallback where that does not answer. In `service` mode it is
the ModelDeployment's own address, where learnloop draws the arm; TensorZero's weights are what the table says, and what
it draws names a variant in its own records alone. In `gateway` mode the router before the arms draws, as an
HTTPRoute does, and so a variant leads to its arm's own address. The file is read once, so pods carry its checksum.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.language_model import LanguageFallback, TensorZeroRegistration
from learnloop_api.wire.routing import Arm, arm_name
from learnloop_operator.core.manifests import child, controller_uid, standard_labels
from learnloop_operator.core.plan import Manifest, Notice, ObjectRef
from learnloop_operator.core.pod_templates import Main, pod_template
from learnloop_operator.core.workload_network import DNS, address, pods, ports
from learnloop_operator.rollout.children.manifests import COMPONENT as POLICY_SERVER
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.rollout.reasons import REGISTRATION_FAILED

COMPONENT, IMAGE = "tensorzero", "tensorzero"
FILE, FOLDER, VOLUME = "tensorzero.toml", "/app/config", "learnloop-tensorzero"
PORT = 3000
CHECKSUM = f"{names.GROUP}/config-checksum"
CALLER_KEY = "learnloop_token"
"""A request's credential of this name is the caller's own token: TensorZero has none of its own."""
FALLBACK_KEY = "LEARNLOOP_FALLBACK_KEY"
NEEDS = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


def registered(snapshot: Snapshot, arms: Sequence[Arm]) -> tuple[Manifest, ...]:
    """Manifests of the TensorZero that the spec asks for; none before the first arm serves. learnloop's own table stays
    the one router: these follow it one write later, and nothing waits for them (Plan.outside). `arms`: stable first."""
    wanted = _wanted(snapshot)
    # TensorZero trusts public authorities alone: by TLS all requests would go to the fallback.
    return _manifests(snapshot, wanted, arms) if wanted and arms and snapshot.scheme != "https" else ()


def refused(snapshot: Snapshot) -> tuple[Notice, ...]:
    """Warn once for each change of the spec when TensorZero cannot be registered."""
    warned = snapshot.before.observed_generation == snapshot.generation
    if _wanted(snapshot) is None or snapshot.scheme != "https" or warned:
        return ()
    text = (
        "spec.serving.language.registration.tensorZero: TensorZero trusts no authority of this installation, so it "
        "would only reach the fallback: use routing.mode gateway, or take the namespace out of tls.namespaces"
    )
    return (Notice("Warning", REGISTRATION_FAILED, text),)


def strays(snapshot: Snapshot, wanted: Sequence[Manifest], arms: Sequence[Arm]) -> tuple[ObjectRef, ...]:
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


def _wanted(snapshot: Snapshot) -> TensorZeroRegistration | None:
    language = snapshot.spec.serving.language
    registration = language.registration if language and snapshot.spec.language_model else None
    return registration.tensor_zero if registration else None


def _manifests(snapshot: Snapshot, wanted: TensorZeroRegistration, arms: Sequence[Arm]) -> tuple[Manifest, ...]:
    """The ConfigMap, and the gateway's pods where any are wanted."""
    text, name, marks = config(snapshot, arms), f"{snapshot.name}-tensorzero", labels(snapshot)
    config_map = child(snapshot.object, api_version="v1", kind="ConfigMap", name=name, labels=marks, data={FILE: text})
    if not wanted.replicas:
        return (config_map,)
    selector = {key: marks[key] for key in (names.LABEL_DEPLOYMENT, names.LABEL_COMPONENT)}
    service = child(
        snapshot.object,
        api_version="v1",
        kind="Service",
        name=name,
        labels=marks,
        spec={
            "selector": selector,
            "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    )
    deployment = child(
        snapshot.object,
        api_version="apps/v1",
        kind="Deployment",
        name=name,
        labels=marks,
        spec={
            "replicas": wanted.replicas,
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": _pods(snapshot, text, name, marks),
        },
    )
    return (config_map, service, _network_policy(snapshot, name, selector), deployment)


def labels(snapshot: Snapshot) -> dict[str, str]:
    """Labels of all of it."""
    return standard_labels(COMPONENT, {names.LABEL_DEPLOYMENT: snapshot.name})


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
    return f"dynamic::{CALLER_KEY}" if snapshot.defaults.callers.known_by == "token" else "none"


def _fallback(snapshot: Snapshot) -> LanguageFallback | None:
    language = snapshot.spec.serving.language
    return language.fallback if language else None


def _pods(snapshot: Snapshot, text: str, name: str, marks: dict[str, str]) -> Manifest:
    fallback = _fallback(snapshot)
    env: dict[str, Any] = {}
    mounts = [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}]
    volumes: list[Manifest] = [{"name": VOLUME, "configMap": {"name": name}}]
    if fallback and fallback.key_ref:
        ref = {"name": fallback.key_ref.name, "key": fallback.key_ref.key}
        env[FALLBACK_KEY] = {"secretKeyRef": ref}
    probe = {"httpGet": {"path": "/status", "port": "http"}, "timeoutSeconds": 3}
    main = Main(
        name=COMPONENT,
        image=snapshot.defaults.model_servers.get(IMAGE, ""),
        pull_policy=snapshot.defaults.image_pull_policy,
        args=(f"--config-file={FOLDER}/{FILE}",),
        env=env,
        ports={"http": PORT},
        probes={
            "startupProbe": probe | {"periodSeconds": 2, "failureThreshold": 30},
            "readinessProbe": probe | {"periodSeconds": 2},
            "livenessProbe": probe | {"periodSeconds": 10},
        },
        mounts=mounts,
        resources=NEEDS,
    )
    checksum = hashlib.sha256(text.encode()).hexdigest()
    annotations = {CHECKSUM: checksum}
    return pod_template(main, PodOptions(), labels=marks, annotations=annotations, token=False, volumes=volumes)


def _network_policy(snapshot: Snapshot, name: str, selector: dict[str, str]) -> Manifest:
    """Pods of the namespace may ask it; it asks learnloop's gateways, the fallback and the DNS."""
    servers = {names.LABEL_DEPLOYMENT: snapshot.name, names.LABEL_COMPONENT: POLICY_SERVER}
    fallback = _fallback(snapshot)
    egress: list[Any] = [ports(names.PORT_SERVING, peers=[pods(servers)], key="to"), DNS]
    egress += address(fallback.url) if fallback else ()
    return child(
        snapshot.object,
        api_version="networking.k8s.io/v1",
        kind="NetworkPolicy",
        name=name,
        labels=labels(snapshot),
        spec={
            "podSelector": {"matchLabels": selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": PORT, "protocol": "TCP"}]}],
            "egress": egress,
        },
    )
