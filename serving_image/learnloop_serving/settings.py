"""What the pod's environment says. Checked once, at start: a wrong value is one clear sentence."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from learnloop_api import names
from learnloop_api.wire.routing import routing_config_map
from learnloop_common.service_accounts.claimed_account import NAMESPACE
from learnloop_common.service_accounts.key_source import KeySource

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_MODEL_BYTES = 512 * 1024 * 1024


class ConfigurationError(ValueError):
    """The environment cannot be served from; the message names the variable, the value and the fix."""


@dataclass(frozen=True)
class Settings:
    """One arm's configuration. Durations in seconds, sizes in bytes."""

    model_deployment: str
    revision: str
    model_uri: str
    model_sha256: str
    routing_mode: str
    namespace: str
    routing_configmap: str
    routing_file: Path | None
    episode_key_file: Path | None
    """What all servers of the ModelDeployment share (seal.py); None: a key that only this process has."""
    data_url: str
    token_file: Path
    kubernetes_url: str
    service_account: Path
    host: str = "0.0.0.0"
    port: int = names.PORT_SERVING
    probes_port: int | None = None
    """Of probes and metrics; None: they are served beside everything."""
    caller_keys: KeySource | None = None
    """Where the keys are that callers' tokens are verified by; None: everybody is served."""
    caller_namespaces: frozenset[str] = frozenset()
    drain_seconds: float = 3.0
    load_retry_seconds: float = 60.0
    max_model_bytes: int = MAX_MODEL_BYTES


def _matching(env: Mapping[str, str], variable: str, pattern: str, fix: str, default: str = "") -> str:
    value = env.get(variable, default).strip()
    if not re.fullmatch(pattern, value):
        raise ConfigurationError(f"{variable}: {value[:200]!r} is not valid: {fix}")
    return value


def _number(env: Mapping[str, str], variable: str, default: float, low: float, high: float) -> float:
    text = env.get(variable, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise ConfigurationError(f"{variable}: {text[:50]!r} is not valid: give a number from {low:g} to {high:g}")
    return value


def _namespace(env: Mapping[str, str]) -> str:
    if value := env.get(names.ENV_NAMESPACE, "").strip():
        return value
    mounted = SERVICE_ACCOUNT / "namespace"
    return mounted.read_text(encoding="utf-8").strip() if mounted.is_file() else "default"


def _kubernetes_url(env: Mapping[str, str]) -> str:
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def read_settings(env: Mapping[str, str] = os.environ) -> Settings:
    """Read and check the environment; raises ConfigurationError."""
    deployment = _matching(
        env, "LEARNLOOP_MODEL_DEPLOYMENT", r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "give the ModelDeployment's name"
    )
    routing_file = env.get("LEARNLOOP_ROUTING_FILE", "")
    kubernetes_url = _kubernetes_url(env)
    if not routing_file and not kubernetes_url:
        raise ConfigurationError(
            "KUBERNETES_SERVICE_HOST: '' is empty and LEARNLOOP_ROUTING_FILE is not set: "
            "run in a cluster or name a routing file"
        )
    key_file = env.get(names.ENV_EPISODE_KEY_FILE, "")
    if not key_file and not routing_file:
        raise ConfigurationError(
            f"{names.ENV_EPISODE_KEY_FILE}: '' is empty: mount the Secret of the ModelDeployment's episodes and name "
            "the file; without it the servers of its arms cannot tell one another's episodes from made-up ones"
        )
    namespace = _namespace(env)
    return Settings(
        model_deployment=deployment,
        revision=_matching(env, "LEARNLOOP_REVISION", r"[0-9a-f]{8}", "give 8 lower-case hex digits"),
        model_uri=_matching(env, "LEARNLOOP_MODEL_URI", r"[a-z0-9]+://\S{1,2048}", "give a URI such as learnloop://…"),
        model_sha256=_matching(
            env,
            "LEARNLOOP_MODEL_SHA256",
            r"([0-9a-f]{64})?",
            "give 64 lower-case hex digits, or nothing for uniform://",
        ),
        routing_mode=_matching(env, "LEARNLOOP_ROUTING_MODE", "service|gateway", "give service or gateway", "service"),
        namespace=namespace,
        routing_configmap=env.get("LEARNLOOP_ROUTING_CONFIGMAP", "") or routing_config_map(deployment),
        routing_file=Path(routing_file) if routing_file else None,
        episode_key_file=Path(key_file) if key_file else None,
        data_url=env.get(names.ENV_DATA_URL, "").rstrip("/"),
        token_file=Path(env.get(names.ENV_TOKEN_FILE) or names.TOKEN_FILE),
        kubernetes_url=kubernetes_url,
        service_account=SERVICE_ACCOUNT,
        host=env.get("LEARNLOOP_HOST", "0.0.0.0"),
        port=int(_number(env, "LEARNLOOP_PORT", names.PORT_SERVING, 0, 65535)),
        probes_port=int(_number(env, names.ENV_PROBES_PORT, 0, 1, 65535)) if env.get(names.ENV_PROBES_PORT) else None,
        caller_keys=_caller_keys(env, kubernetes_url),
        caller_namespaces=_caller_namespaces(env, namespace),
        drain_seconds=_number(env, "LEARNLOOP_DRAIN_SECONDS", 3.0, 0, 300),
        load_retry_seconds=_number(env, "LEARNLOOP_LOAD_RETRY_SECONDS", 60.0, 0, 3600),
    )


def _caller_keys(env: Mapping[str, str], kubernetes_url: str) -> KeySource | None:
    if _matching(env, names.ENV_CALLERS, "token|anybody", "give token or anybody", "anybody") == "anybody":
        return None
    if not kubernetes_url:
        raise ConfigurationError(
            f"{names.ENV_CALLERS}: 'token' needs the cluster's keys and KUBERNETES_SERVICE_HOST is empty: run in a "
            "cluster, or give anybody on a network that you trust"
        )
    account = SERVICE_ACCOUNT
    audiences = (names.TOKEN_AUDIENCE, names.GATE_AUDIENCE)
    return KeySource(
        f"{kubernetes_url}/openid/v1/jwks", str(account / "token"), str(account / "ca.crt"), audiences=audiences
    )


def _caller_namespaces(env: Mapping[str, str], own: str) -> frozenset[str]:
    others = {name.strip() for name in env.get(names.ENV_CALLER_NAMESPACES, "").split(",") if name.strip()}
    for name in sorted(others):
        if not NAMESPACE.fullmatch(name):
            raise ConfigurationError(f"{names.ENV_CALLER_NAMESPACES}: {name[:80]!r} is not the name of a namespace")
    return frozenset({own, *others})
