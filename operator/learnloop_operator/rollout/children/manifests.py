"""Manifests of everything a ModelDeployment consists of."""

import json
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_api.wire.routing import ROUTING_KEY, RoutingTable, arm_name, episodes_secret, routing_config_map
from learnloop_operator.core.ownership import child, standard_labels
from learnloop_operator.core.pod_templates import Main, http_get, pod_template, scraped, service_names
from learnloop_operator.rollout.children.language_pods import NO_PARTS, language_parts
from learnloop_operator.rollout.children.routing_table import write_blocked
from learnloop_operator.rollout.judging.shadow_step import only_stable_answers
from learnloop_operator.rollout.model.arm_language_model import Spoken, spoken_by
from learnloop_operator.rollout.model.rollout_state import ArmState, State
from learnloop_operator.rollout.model.snapshot import Snapshot

COMPONENT = "policy-server"
ANNOTATION_ARM = f"{names.GROUP}/arm"
"""On an arm's Deployment: its model and the pod options it was made with, which it keeps when the user's change."""
EPISODES_VOLUME = "learnloop-episodes"
"""In an arm's pods: the key by which the servers of all arms know one another's episodes."""

Manifest = dict[str, Any]


def policy_account(model_deployment: str) -> str:
    """Name of the ServiceAccount, Role and RoleBinding of the policy servers."""
    return f"{model_deployment}-policy"


def labels(snapshot: Snapshot, revision: str | None = None) -> dict[str, str]:
    """Labels of the children; an arm's carry its revision."""
    extra = {names.LABEL_DEPLOYMENT: snapshot.name}
    agent = snapshot.spec.model.learning_agent_ref
    if agent:
        extra[names.LABEL_AGENT] = agent.name
    if revision:
        extra[names.LABEL_REVISION] = revision
    return standard_labels(COMPONENT, extra)


def access(snapshot: Snapshot, accounts: set[str]) -> list[Manifest]:
    """The servers' own account, and the right to read one ConfigMap by name for every account they run as."""
    own = policy_account(snapshot.name)
    marks = labels(snapshot)
    rules = [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [routing_config_map(snapshot.name)],
            "verbs": ["get", "list", "watch"],
        }
    ]
    subjects = [
        {"kind": "ServiceAccount", "name": name, "namespace": snapshot.namespace} for name in sorted({own, *accounts})
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": own}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        child(
            snapshot.object,
            api_version="v1",
            kind="ServiceAccount",
            name=own,
            labels=marks,
            automountServiceAccountToken=False,
        ),
        child(snapshot.object, api_version=rbac, kind="Role", name=own, labels=marks, rules=rules),
        child(
            snapshot.object,
            api_version=rbac,
            kind="RoleBinding",
            name=own,
            labels=marks,
            subjects=subjects,
            roleRef=role,
        ),
    ]


def episode_key(snapshot: Snapshot) -> Manifest:
    """The Secret that every arm's pods mount, made once: whatever was opened under another key is no evidence."""
    return child(
        snapshot.object,
        api_version="v1",
        kind="Secret",
        name=episodes_secret(snapshot.name),
        labels=labels(snapshot),
        type="Opaque",
        stringData={names.EPISODE_KEY: snapshot.fresh_key},
    )


def routing(snapshot: Snapshot, state: State, table: RoutingTable) -> Manifest:
    """The ConfigMap: table and verdict in one write."""
    return child(
        snapshot.object,
        api_version="v1",
        kind="ConfigMap",
        name=routing_config_map(snapshot.name),
        labels=labels(snapshot),
        annotations=write_blocked(state.blocked),
        data={ROUTING_KEY: table.to_json()},
    )


def entry_service(snapshot: Snapshot, state: State) -> Manifest:
    """The address users know. service mode: every arm's pods answer there and draw the arm by the table. gateway
    mode: the Gateway draws, so whoever comes past it gets the stable arm. So does everybody while the canary is in
    shadow: clients that know no episodes are answered by whichever pod they reach."""
    alone = snapshot.spec.routing.mode == "gateway" or only_stable_answers(snapshot, state)
    return _service(snapshot, snapshot.name, None, state.stable.revision if alone and state.stable else None)


def arm_service(snapshot: Snapshot, revision: str) -> Manifest:
    """One arm's own address."""
    return _service(snapshot, arm_name(snapshot.name, revision), revision, revision)


def _service(snapshot: Snapshot, name: str, revision: str | None, selected: str | None) -> Manifest:
    selector = {names.LABEL_DEPLOYMENT: snapshot.name, names.LABEL_COMPONENT: COMPONENT}
    if selected:
        selector[names.LABEL_REVISION] = selected
    ports = [{"name": "http", "port": names.PORT_SERVING, "targetPort": "http", "protocol": "TCP"}]
    return child(
        snapshot.object,
        api_version="v1",
        kind="Service",
        name=name,
        labels=labels(snapshot, revision),
        spec={"selector": selector, "ports": ports},
    )


def pod_options(snapshot: Snapshot, revision: str) -> PodOptions:
    """The options an existing arm was made with; the user's present ones for a new arm."""
    arm = snapshot.arms.get(revision)
    return arm.pod if arm and arm.pod is not None else snapshot.spec.serving.pod


def spoken_options(snapshot: Snapshot, revision: str) -> Spoken | None:
    """What an existing arm speaks by; as the spec says for a new arm."""
    arm = snapshot.arms.get(revision)
    return arm.spoken if arm and arm.pod is not None else spoken_by(snapshot.spec)


def arm_deployment(snapshot: Snapshot, arm: ArmState, replicas: int) -> Manifest:
    """One arm's pods. Nothing in it depends on the arm's role: promotion and rollback restart no pod."""
    options = pod_options(snapshot, arm.revision)
    marks = labels(snapshot, arm.revision)
    main, volumes, parts = _main(snapshot, arm), [_key_volume(snapshot)], NO_PARTS
    spoken = spoken_options(snapshot, arm.revision)
    if spoken is not None:
        parts = language_parts(snapshot, arm, spoken, options, main)
        main, volumes = parts.main, [*volumes, *parts.volumes]
    selector = {key: marks[key] for key in (names.LABEL_DEPLOYMENT, names.LABEL_REVISION, names.LABEL_COMPONENT)}
    template = pod_template(
        main,
        options,
        labels=marks,
        annotations=scraped(names.PORT_PROBES, tls=snapshot.scheme == "https"),
        api_access=True,
        service_account=policy_account(snapshot.name),
        volumes=volumes,
        beside=parts.beside,
        before=parts.before,
    )
    return child(
        snapshot.object,
        api_version="apps/v1",
        kind="Deployment",
        name=arm_name(snapshot.name, arm.revision),
        labels=marks,
        annotations={ANNOTATION_ARM: _identity(arm, options, spoken)},
        spec={
            "replicas": replicas,
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": template,
        },
    )


def _key_volume(snapshot: Snapshot) -> Manifest:
    """Readable for the pod's own group alone."""
    items = [{"key": names.EPISODE_KEY, "path": names.EPISODE_KEY}]
    source = {"secretName": episodes_secret(snapshot.name), "items": items, "defaultMode": 0o440}
    return {"name": EPISODES_VOLUME, "secret": source}


def _identity(arm: ArmState, options: PodOptions, spoken: Spoken | None) -> str:
    model = {"uri": arm.model.uri, "sha256": arm.model.sha256}
    language = {"language": spoken.to_kube()} if spoken is not None else {}
    return json.dumps({"model": model, "pod": options.to_kube(), **language}, sort_keys=True)


def _main(snapshot: Snapshot, arm: ArmState) -> Main:
    def probe(path: str, period: int, failures: int) -> Manifest:
        return {
            "httpGet": http_get(path, tls=snapshot.scheme == "https", port="metrics"),
            "periodSeconds": period,
            "timeoutSeconds": 3,
            "failureThreshold": failures,
        }

    env: dict[str, str | Manifest] = {
        "LEARNLOOP_MODEL_DEPLOYMENT": snapshot.name,
        "LEARNLOOP_REVISION": arm.revision,
        "LEARNLOOP_MODEL_URI": arm.model.uri,
        "LEARNLOOP_MODEL_SHA256": arm.model.sha256 or "",
        "LEARNLOOP_ROUTING_MODE": snapshot.spec.routing.mode,
        "LEARNLOOP_ROUTING_CONFIGMAP": routing_config_map(snapshot.name),
        names.ENV_PROBES_PORT: str(names.PORT_PROBES),
        names.ENV_NAMESPACE: snapshot.namespace,
        names.ENV_DATA_URL: snapshot.defaults.data_url,
        names.ENV_TOKEN_FILE: names.TOKEN_FILE,
        names.ENV_CALLERS: snapshot.defaults.callers.known_by,
        names.ENV_CALLER_NAMESPACES: ",".join(snapshot.defaults.callers.namespaces),
        names.ENV_EPISODE_KEY_FILE: f"{names.EPISODE_KEY_DIRECTORY}/{names.EPISODE_KEY}",
        names.ENV_POD_NAME: {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
    }
    if snapshot.scheme == "https":
        env |= {
            names.ENV_TLS_NAMES: service_names(snapshot.namespace, snapshot.name, arm_name(snapshot.name, arm.revision))
        }
    return Main(
        name=COMPONENT,
        image=snapshot.defaults.image,
        pull_policy=snapshot.defaults.image_pull_policy,
        env=env,
        ports={"http": names.PORT_SERVING, "metrics": names.PORT_PROBES},
        # A server that is still fetching its model is not dead: startup has two minutes before liveness counts.
        probes={
            "startupProbe": probe("/healthz", 2, 60),
            "livenessProbe": probe("/healthz", 10, 3),
            "readinessProbe": probe("/readyz", 2, 2),
        },
        mounts=[{"name": EPISODES_VOLUME, "mountPath": names.EPISODE_KEY_DIRECTORY, "readOnly": True}],
        resources={"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
    )
