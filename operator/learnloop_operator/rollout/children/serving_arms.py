"""Manifests of everything a ModelDeployment consists of, and its arms as read from live objects."""

import json
from collections.abc import Iterable
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_api.wire.routing import arm_name, episodes_secret, routing_config_map
from learnloop_operator.core import pod_templates, pod_trouble, times, workload_network
from learnloop_operator.core.plan import KubeObject, child, controller_uid, standard_labels
from learnloop_operator.rollout.children import language_pods
from learnloop_operator.rollout.judging.shadow_step import only_stable_answers
from learnloop_operator.rollout.state.rollout_state import ArmState, State
from learnloop_operator.rollout.state.snapshot import LiveArm, Model, Snapshot, Spoken, read_spoken, spoken_by

COMPONENT = "policy-server"
ANNOTATION_ARM = f"{names.GROUP}/arm"
"""On an arm's Deployment: its model and the pod options it was made with, which it keeps when the user's change."""
EPISODES_VOLUME = "learnloop-episodes"
"""In an arm's pods: the key by which the servers of all arms know one another's episodes."""


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


def access(snapshot: Snapshot, accounts: set[str]) -> list[KubeObject]:
    """The servers' own account, and the right to watch one ConfigMap by name for every account they run as."""
    own = policy_account(snapshot.name)
    marks = labels(snapshot)
    rules = [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [routing_config_map(snapshot.name)],
            "verbs": ["watch"],
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


def episode_key(snapshot: Snapshot) -> KubeObject:
    """The Secret that every arm's pods mount, made once: episodes opened under another key do not count."""
    return child(
        snapshot.object,
        api_version="v1",
        kind="Secret",
        name=episodes_secret(snapshot.name),
        labels=labels(snapshot),
        type="Opaque",
        stringData={names.EPISODE_KEY: snapshot.fresh_key},
    )


def entry_service(snapshot: Snapshot, state: State) -> KubeObject:
    """The address users know. service mode: every arm's pods answer there and draw the arm by the table. gateway
    mode: the Gateway draws, so callers that bypass it get the stable arm. So does everybody while the canary is in
    shadow: clients that know no episodes are answered by whichever pod they reach."""
    alone = snapshot.spec.routing.mode == "gateway" or only_stable_answers(snapshot, state)
    return _service(snapshot, snapshot.name, None, state.stable.revision if alone and state.stable else None)


def arm_service(snapshot: Snapshot, revision: str) -> KubeObject:
    """One arm's own address."""
    return _service(snapshot, arm_name(snapshot.name, revision), revision, revision)


def _service(snapshot: Snapshot, name: str, revision: str | None, selected: str | None) -> KubeObject:
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
    """Language model of an existing arm; for a new arm, that of the spec."""
    arm = snapshot.arms.get(revision)
    return arm.spoken if arm and arm.pod is not None else spoken_by(snapshot.spec)


def arm_deployment(snapshot: Snapshot, arm: ArmState, replicas: int) -> KubeObject:
    """One arm's pods. Nothing in it depends on the arm's role: promotion and rollback restart no pod."""
    options = pod_options(snapshot, arm.revision)
    marks = labels(snapshot, arm.revision)
    main, volumes, parts = _main(snapshot, arm), [_key_volume(snapshot)], language_pods.NO_PARTS
    if snapshot.scheme == "https":
        volumes.append(pod_templates.certificate_volume())
    spoken = spoken_options(snapshot, arm.revision)
    if spoken is not None:
        parts = language_pods.language_parts(snapshot, arm, spoken, options, main)
        main, volumes = parts.main, [*volumes, *parts.volumes]
    selector = {key: marks[key] for key in (names.LABEL_DEPLOYMENT, names.LABEL_REVISION, names.LABEL_COMPONENT)}
    template = pod_templates.pod_template(
        main,
        options,
        labels=marks,
        annotations=pod_templates.scraped(names.PORT_PROBES, tls=snapshot.scheme == "https"),
        api_access=True,
        service_account=policy_account(snapshot.name),
        volumes=volumes,
        sidecars=parts.sidecars,
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


def _key_volume(snapshot: Snapshot) -> KubeObject:
    """Readable for the pod's own group alone."""
    items = [{"key": names.EPISODE_KEY, "path": names.EPISODE_KEY}]
    source = {"secretName": episodes_secret(snapshot.name), "items": items, "defaultMode": 0o440}
    return {"name": EPISODES_VOLUME, "secret": source}


def _identity(arm: ArmState, options: PodOptions, spoken: Spoken | None) -> str:
    model = {"uri": arm.model.uri, "sha256": arm.model.sha256}
    language = {"language": spoken.to_kube()} if spoken is not None else {}
    return json.dumps({"model": model, "pod": options.to_kube(), **language}, sort_keys=True)


def _main(snapshot: Snapshot, arm: ArmState) -> pod_templates.Main:
    def probe(path: str, period: int, failures: int) -> KubeObject:
        return {
            "httpGet": pod_templates.http_get(path, tls=snapshot.scheme == "https", port="metrics"),
            "periodSeconds": period,
            "timeoutSeconds": 3,
            "failureThreshold": failures,
        }

    env: dict[str, str | KubeObject] = {
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
        names.ENV_CALLERS: snapshot.defaults.callers.verified_by,
        names.ENV_CALLER_NAMESPACES: ",".join(snapshot.defaults.callers.namespaces),
        names.ENV_EPISODE_KEY_FILE: f"{names.EPISODE_KEY_DIRECTORY}/{names.EPISODE_KEY}",
        names.ENV_POD_NAME: {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
    }
    mounts = [{"name": EPISODES_VOLUME, "mountPath": names.EPISODE_KEY_DIRECTORY, "readOnly": True}]
    if snapshot.scheme == "https":
        env |= pod_templates.CERTIFICATE_ENV
        mounts.append(pod_templates.CERTIFICATE_MOUNT)
    return pod_templates.Main(
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
        mounts=mounts,
        resources={"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
    )


# Reads arms out of live Deployments and pods. Whatever is missing or odd in them reads as 'not ready'.


def arms(deployments: Iterable[KubeObject], pods: Iterable[KubeObject]) -> dict[str, LiveArm]:
    """Arms by revision, as their Deployments and pods have them."""
    by_revision: dict[str, list[KubeObject]] = {}
    for pod in pods:
        by_revision.setdefault(revision_label(pod), []).append(pod)
    return {
        revision_label(deployment): _arm(deployment, by_revision.get(revision_label(deployment), []))
        for deployment in deployments
        if revision_label(deployment)
    }


def _arm(deployment: KubeObject, pods: list[KubeObject]) -> LiveArm:
    status = deployment.get("status") or {}
    model, options, spoken = _observed_identity(deployment)
    return LiveArm(
        ready=int(status.get("readyReplicas") or 0),
        replicas=int(status.get("replicas") or 0),
        restarts=max((int(item.get("restartCount") or 0) for pod in pods for item in _containers(pod)), default=0),
        message=_message(deployment, pods)[:900],
        pod=options,
        model=model,
        spoken=spoken,
        unready_since=times.unready_since(deployment),
    )


def _message(deployment: KubeObject, pods: list[KubeObject]) -> str:
    """The pod's own last sentence first, then why it could not start, then why there is none."""
    newest_first = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    for read in (pod_trouble.last_words, pod_trouble.held_up):
        for pod in newest_first:
            if text := read(pod.get("status") or {}):
                return text
    return pod_trouble.creation_trouble(deployment)


def _containers(pod: KubeObject) -> list[KubeObject]:
    return pod_trouble.containers(pod.get("status") or {})


def revision_label(item: KubeObject) -> str:
    return str((item["metadata"].get("labels") or {}).get(names.LABEL_REVISION, ""))


def _observed_identity(deployment: KubeObject) -> tuple[Model | None, PodOptions | None, Spoken | None]:
    text = (deployment["metadata"].get("annotations") or {}).get(ANNOTATION_ARM)
    try:
        body = json.loads(text or "null")
        model, pod = body["model"], PodOptions.model_validate(body["pod"])
        result = Model(revision_label(deployment), str(model["uri"]), model.get("sha256"))
        return result, pod, read_spoken(body.get("language"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None, None, None


def pods_of_arms(
    pods: Iterable[KubeObject], replica_sets: Iterable[KubeObject], children: Iterable[KubeObject]
) -> list[KubeObject]:
    """Those that the arms' own Deployments made. A stranger's pod may carry all labels of an arm.

    Without any ReplicaSet of theirs, no controller of Deployments has looked at the arms yet, and labels decide.
    """
    arms = {str(child["metadata"]["uid"]) for child in children if child["kind"] == "Deployment"}
    makers = {str(item["metadata"]["uid"]) for item in replica_sets if controller_uid(item) in arms}
    return [pod for pod in pods if not makers or controller_uid(pod) in makers]


# Callers of the policy servers of a ModelDeployment: the network's half of knowing them.


def network_policy(snapshot: Snapshot) -> tuple[KubeObject, ...]:
    """One NetworkPolicy for all arms; none where the installation wants none.

    The pods of the own namespace may come, those of the namespaces that are served, the gateway's, and the peers of the
    chart, among them the operator and Prometheus. The port of probes and metrics is for these peers alone: Kubernetes
    lets a node's kubelet in whatever a policy says, and arms of one namespace have no reason to ask.
    """
    callers = snapshot.defaults.callers
    if callers.peers is None:
        return ()
    gateway = snapshot.spec.routing.gateway
    others = {*callers.namespaces, *((gateway.namespace or snapshot.namespace,) if gateway else ())}
    peers: list[Any] = [{"podSelector": {}}]
    peers += [workload_network.namespace(name) for name in sorted(others - {snapshot.namespace})]
    selector = {names.LABEL_DEPLOYMENT: snapshot.name, names.LABEL_COMPONENT: COMPONENT}
    ingress = [{"from": [*peers, *callers.peers], "ports": [{"port": names.PORT_SERVING, "protocol": "TCP"}]}]
    if callers.peers:  # a rule without peers would let everybody in
        ingress.append({"from": [*callers.peers], "ports": [{"port": names.PORT_PROBES, "protocol": "TCP"}]})
    manifest = workload_network.policy(
        snapshot.object,
        name=policy_account(snapshot.name),
        component=COMPONENT,
        selector=selector,
        ingress=ingress,
        egress=None,
    )
    return (manifest,)
