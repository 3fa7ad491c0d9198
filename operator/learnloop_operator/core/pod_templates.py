"""Pod templates under the *restricted* Pod Security Standard, with what a user may set on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions

USER_ID = 65532
TOKEN_VOLUME = "learnloop-token"
TMP_VOLUME = "learnloop-tmp"
BASE_VOLUME = "learnloop-base-model"

POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Main:
    """The one container learnloop puts into a pod."""

    name: str
    image: str
    pull_policy: str
    env: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    """Value, or a core/v1 EnvVarSource."""
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    probes: Mapping[str, Any] = field(default_factory=dict)
    """readinessProbe, livenessProbe, startupProbe, lifecycle."""
    mounts: Sequence[Mapping[str, Any]] = ()
    resources: Mapping[str, Any] = field(default_factory=dict)
    """requests and limits of what the user says nothing about."""


def variables(env: Mapping[str, str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """core/v1 EnvVars. The kubelet would put a variable of the container, a Secret perhaps, in place of a `$(NAME)`
    that an author wrote into some field of a spec; `$$` is a `$` to it."""
    return [
        {"name": name} | ({"value": value.replace("$", "$$")} if isinstance(value, str) else {"valueFrom": dict(value)})
        for name, value in env.items()
    ]


def env_list(env: Mapping[str, str | Mapping[str, Any]], options: PodOptions) -> list[dict[str, Any]]:
    """Container env: the user's variables first; ours win where both set one."""
    return [*(item.to_kube() for item in options.env or () if item.name not in env), *variables(env)]


def http_get(path: str, *, tls: bool, port: str = "http") -> dict[str, Any]:
    """The kubelet's request. It checks no certificate: it knows the pod by its address."""
    return {"path": path, "port": port, **({"scheme": "HTTPS"} if tls else {})}


def scraped(port: int, *, tls: bool) -> dict[str, str]:
    """Annotations by which Prometheus, and the fast lane, find a pod's metrics."""
    scheme = {names.ANNOTATION_SCHEME: "https"} if tls else {}
    return {"prometheus.io/scrape": "true", names.ANNOTATION_PORT: str(port), **scheme}


CERTIFICATE_DIRECTORY = "/run/tls"
CERTIFICATE_VOLUME = "learnloop-tls"
CERTIFICATE_MOUNT: dict[str, Any] = {"name": CERTIFICATE_VOLUME, "mountPath": CERTIFICATE_DIRECTORY, "readOnly": True}
CERTIFICATE_ENV = {
    names.ENV_TLS_CERTIFICATE: f"{CERTIFICATE_DIRECTORY}/tls.crt",
    names.ENV_TLS_KEY: f"{CERTIFICATE_DIRECTORY}/tls.key",
}


def certificate_volume() -> dict[str, Any]:
    """The namespace's certificate. Listing the keys holds the pod back until all of them exist."""
    items = [{"key": file, "path": file} for file in ("tls.crt", "tls.key", "ca.crt")]
    return {
        "name": CERTIFICATE_VOLUME,
        "secret": {"secretName": names.TLS_SECRET, "items": items, "defaultMode": 0o440},
    }


def token_volume(memory_audience: str = "", *, audience: str = names.TOKEN_AUDIENCE) -> dict[str, Any]:
    """A projected token that proves the pod's namespace to the data plane, and to nothing else; with it the bundle
    of the authorities that the data plane's certificate is of, where there is TLS. `memory_audience`: one more token,
    for the namespace's own MemoryService, which therefore never sees the other. `audience`: of the first one."""
    files = {names.TOKEN_FILE: audience, names.MEMORY_TOKEN_FILE: memory_audience}
    tokens = [
        {"serviceAccountToken": {"audience": meant, "expirationSeconds": 3600, "path": file.rsplit("/", 1)[1]}}
        for file, meant in files.items()
        if meant
    ]
    bundle = {"name": names.CA_CONFIG_MAP, "optional": True, "items": [{"key": names.CA_KEY, "path": names.CA_KEY}]}
    return {"name": TOKEN_VOLUME, "projected": {"sources": [*tokens, {"configMap": bundle}]}}


def base_model(uri: str, folder: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The volume with a base model and its mount at `folder`; none where the pod has or fetches it (file:// and s3://).

    An image as a volume needs Kubernetes 1.33, or the feature gate ImageVolume before.
    """
    scheme, _, rest = uri.partition("://")
    mount = {"name": BASE_VOLUME, "mountPath": folder, "readOnly": True}
    if scheme == "oci":
        return [{"name": BASE_VOLUME, "image": {"reference": rest, "pullPolicy": "IfNotPresent"}}], [mount]
    if scheme != "pvc":
        return [], []
    claim, _, within = rest.partition("/")
    volume = {"name": BASE_VOLUME, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    return [volume], [mount | ({"subPath": within.strip("/")} if within.strip("/") else {})]


def restricted(container: dict[str, Any]) -> dict[str, Any]:
    """A container of a pod under the *restricted* standard, with a read-only root."""
    return {
        **container,
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _resources(ours: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Merge: the user's values, and ours for resources that the user names neither in requests nor in limits. Our
    request could exceed the user's limit."""
    named = {*others.get("requests", {}), *others.get("limits", {})}
    result = dict(others)
    for part in ("requests", "limits"):
        missing = {name: amount for name, amount in ours.get(part, {}).items() if name not in named}
        if missing:
            result[part] = {**missing, **others.get(part, {})}
    return result


def container(main: Main, options: PodOptions, *, token: bool) -> dict[str, Any]:
    mounts: list[Mapping[str, Any]] = [{"name": TMP_VOLUME, "mountPath": "/tmp"}]
    if token:
        mounts.append({"name": TOKEN_VOLUME, "mountPath": names.TOKEN_DIRECTORY, "readOnly": True})
    resources = _resources(main.resources, options.resources.to_kube() if options.resources else {})
    result = restricted(
        {
            "name": main.name,
            "image": options.image or main.image,
            "imagePullPolicy": options.image_pull_policy or main.pull_policy,
            "env": env_list(main.env, options),
            "volumeMounts": [*mounts, *main.mounts, *(options.volume_mounts or ())],
            **main.probes,
        }
    )
    if main.command:
        result["command"] = list(main.command)
    if main.args:
        result["args"] = list(main.args)
    if main.ports:
        result["ports"] = [{"name": name, "containerPort": port} for name, port in main.ports.items()]
    if resources:
        result["resources"] = resources
    return result


def pod_template(
    main: Main,
    options: PodOptions,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    token: bool = True,
    audience: str = names.TOKEN_AUDIENCE,
    memory_audience: str = "",
    api_access: bool = False,
    service_account: str | None = None,
    volumes: Sequence[Mapping[str, Any]] = (),
    grace_seconds: int = 30,
    user_id: int = USER_ID,
    sidecars: Sequence[Mapping[str, Any]] = (),
    before: Sequence[Mapping[str, Any]] = (),
    ends: bool = False,
) -> dict[str, Any]:
    """core/v1 PodTemplateSpec. `token` mounts the data plane's token, of this `audience`, with one for
    `memory_audience` next to it, `api_access` the API server's; `sidecars` and
    `before` are further containers, and those that have to end before all others start. `ends`: the pod has to end by
    itself, so meshes leave it alone unless the user's annotations or labels say otherwise.

    Labels and annotations that learnloop needs win over the user's.
    """
    spec: dict[str, Any] = {
        "containers": [container(main, options, token=token), *sidecars],
        **({"initContainers": list(before)} if before else {}),
        "securityContext": {**POD_SECURITY, "runAsUser": user_id, "runAsGroup": user_id, "fsGroup": user_id},
        "automountServiceAccountToken": api_access,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds,
        "volumes": [
            {"name": TMP_VOLUME, "emptyDir": {}},
            *([token_volume(memory_audience, audience=audience)] if token else []),
            *volumes,
            *(options.volumes or ()),
        ],
    }
    account = options.service_account_name or service_account
    optional = {
        "serviceAccountName": account,
        # Its old name, too: who removes one alone gets it back from the other, which the API server has filled in.
        "serviceAccount": None if service_account else account,
        "nodeSelector": options.node_selector,
        "tolerations": options.tolerations,
        "affinity": options.affinity,
        "topologySpreadConstraints": options.topology_spread_constraints,
        "schedulerName": options.scheduler_name,
        "resourceClaims": options.resource_claims,
        "priorityClassName": options.priority_class_name,
        "imagePullSecrets": [item.to_kube() for item in options.image_pull_secrets or ()],
    }
    spec.update({key: value for key, value in optional.items() if value})
    unmeshed = (names.NO_SIDECAR_LABELS, names.NO_SIDECAR) if ends else ({}, {})
    metadata: dict[str, Any] = {"labels": {**unmeshed[0], **(options.labels or {}), **labels}}
    notes = {**unmeshed[1], **(options.annotations or {}), **(annotations or {})}
    if notes:
        metadata["annotations"] = notes
    return {"metadata": metadata, "spec": spec}
