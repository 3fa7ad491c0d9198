"""The operator's own settings: environment variables, read once at start."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from learnloop_api import names
from learnloop_common.telemetry.otlp_exporter import headers_of
from learnloop_operator.core.allowed_pods import DEFAULT_RULES, PodRules
from learnloop_operator.core.coordination.quotas import UNLIMITED, Quotas
from learnloop_operator.core.coordination.quotas import read as read_quotas
from learnloop_operator.core.workload_network import WorkloadNetwork
from learnloop_operator.rollout.evidence.source import POD_LABEL

PULL_POLICIES = ("Always", "IfNotPresent", "Never")


class SettingsError(ValueError):
    """An environment variable has a value that cannot work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where everything is; field names follow the variables `LEARNLOOP_<FIELD>`."""

    watch_namespaces: tuple[str, ...] = ()
    """Empty: all namespaces."""
    system_namespace: str = "learnloop-system"
    data_url: str = "http://learnloop-data:8080"
    token_file: str = names.TOKEN_FILE
    prometheus_url: str = ""
    query_url: str = ""
    """A prom-label-proxy, which answers queries of ModelDeployments by their namespace's series. Empty: they hold."""
    query_pod_label: str = POD_LABEL
    """Tells an arm's own pods; empty: whichever pods of the namespace."""
    trainer_image: str = "localhost/learnloop/trainer:dev"
    training_runtime: str = ""
    """ClusterTrainingRuntime of TrainJobs; empty: the installation made none."""
    training_quotas: Quotas = UNLIMITED
    """How much may train at once and in a day (LEARNLOOP_TRAINING_QUOTAS, JSON); unset: as much as anybody wants."""
    serving_image: str = "localhost/learnloop/serving:dev"
    memory_image: str = "localhost/learnloop/memory:dev"
    postgres_image: str = "localhost/learnloop/postgres:17"
    tls: bool = False
    """All parts serve by TLS; the bundle of the authorities is `ca_file`, and the operator's own pair beside it."""
    names_are_verified: bool = False
    """The chart's admission policy lets nobody write another's name into a verb's annotation."""
    four_eyes: bool = False
    """Who wrote a spec does not approve it (LEARNLOOP_FOUR_EYES); takes verified names."""
    vllm_image: str = "vllm/vllm-openai:v0.11.0"
    llama_cpp_image: str = "ggml-org/llama.cpp:server-b9994"
    tensorzero_image: str = "tensorzero/gateway:2026.6.0"
    serving_callers: str = "anybody"
    """Whom policy servers serve: token (LEARNLOOP_SERVING_CALLERS) or anybody."""
    serving_caller_namespaces: tuple[str, ...] = ()
    serving_peers: tuple[Mapping[str, Any], ...] | None = None
    """NetworkPolicyPeers beside the own namespace (LEARNLOOP_SERVING_PEERS, a JSON list); unset: no NetworkPolicy."""
    workload_network: WorkloadNetwork | None = None
    """What training, actors and MemoryServices may call (LEARNLOOP_WORKLOAD_NETWORK); unset: no NetworkPolicies."""
    pod_rules: PodRules = DEFAULT_RULES
    """What pods made for others may have (LEARNLOOP_POD_RULES, a JSON object)."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    lease_name: str = "learnloop-operator"
    operator_subject: str = ""
    """Our own subject, told to the memory services we run."""
    pod_name: str = ""
    port: int = 9090
    workers: int = 16
    resync_seconds: float = 300.0
    log_level: str = "INFO"
    traces_endpoint: str = ""
    """Address of an OpenTelemetry collector (OTLP over HTTP); empty: nothing is traced."""
    traces_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent to the collector, such as a token (LEARNLOOP_TRACES_HEADERS, key=value,key=value)."""


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Settings from `LEARNLOOP_*` and `POD_NAME`.

    Raises:
        SettingsError: a value is not one that can work; names the variable, the value and the fix.
    """
    defaults = Settings()

    def text(field: str) -> str:
        return environment.get(f"LEARNLOOP_{field.upper()}", "") or str(getattr(defaults, field))

    policy = text("image_pull_policy")
    if policy not in PULL_POLICIES:
        raise SettingsError(f"LEARNLOOP_IMAGE_PULL_POLICY is {policy!r}: set one of {', '.join(PULL_POLICIES)}")
    callers = environment.get("LEARNLOOP_SERVING_CALLERS", "") or "anybody"
    if callers not in ("token", "anybody"):
        raise SettingsError(f"LEARNLOOP_SERVING_CALLERS is {callers!r}: set token or anybody")
    watched, quotas = environment.get("LEARNLOOP_WATCH_NAMESPACE", ""), _quotas(environment)
    return Settings(
        watch_namespaces=_names(watched),
        system_namespace=text("system_namespace"),
        data_url=_url("LEARNLOOP_DATA_URL", text("data_url")),
        token_file=text("token_file"),
        prometheus_url=_url("LEARNLOOP_PROMETHEUS_URL", environment.get("LEARNLOOP_PROMETHEUS_URL", "")),
        query_url=_url("LEARNLOOP_QUERY_URL", environment.get("LEARNLOOP_QUERY_URL", "")),
        query_pod_label=_pod_label(environment),
        trainer_image=text("trainer_image"),
        training_runtime=text("training_runtime"),
        training_quotas=quotas,
        serving_image=text("serving_image"),
        vllm_image=text("vllm_image"),
        llama_cpp_image=text("llama_cpp_image"),
        tensorzero_image=text("tensorzero_image"),
        memory_image=text("memory_image"),
        postgres_image=text("postgres_image"),
        tls=environment.get("LEARNLOOP_TLS", "") == "true",
        names_are_verified=environment.get("LEARNLOOP_NAMES_ARE_VERIFIED", "") == "true",
        four_eyes=environment.get("LEARNLOOP_FOUR_EYES", "") == "true",
        serving_callers=callers,
        serving_caller_namespaces=_names(environment.get("LEARNLOOP_SERVING_CALLER_NAMESPACES", "")),
        serving_peers=_peers(environment.get("LEARNLOOP_SERVING_PEERS", "")),
        workload_network=_workload_network(environment.get("LEARNLOOP_WORKLOAD_NETWORK", "")),
        pod_rules=_pod_rules(environment.get("LEARNLOOP_POD_RULES", "")),
        image_pull_policy=cast(Literal["Always", "IfNotPresent", "Never"], policy),
        lease_name=text("lease_name"),
        operator_subject=environment.get("LEARNLOOP_OPERATOR_SUBJECT", ""),
        pod_name=environment.get(names.ENV_POD_NAME, "") or environment.get("HOSTNAME", "") or "learnloop-operator",
        port=int(_number("LEARNLOOP_PORT", text("port"), 0, 65535)),
        workers=int(_number("LEARNLOOP_WORKERS", text("workers"), 1, 256)),
        resync_seconds=_number("LEARNLOOP_RESYNC_SECONDS", text("resync_seconds"), 1, 86400),
        log_level=text("log_level").upper(),
        traces_endpoint=_url("LEARNLOOP_TRACES_ENDPOINT", environment.get("LEARNLOOP_TRACES_ENDPOINT", "")),
        traces_headers=_headers(environment.get("LEARNLOOP_TRACES_HEADERS", "")),
    )


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _peers(value: str) -> tuple[Mapping[str, Any], ...] | None:
    if not value:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise SettingsError(f"LEARNLOOP_SERVING_PEERS is {value[:200]!r}: set a JSON list of NetworkPolicyPeers")
    return tuple(found)


def _workload_network(value: str) -> WorkloadNetwork | None:
    """A JSON object of `from`, `to`, `closed` and `apiServerPorts`; what is left out has its default."""
    if not value:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        found = {"": None}
    usual = WorkloadNetwork()
    peers, rules = found.pop("from", []), found.pop("to", [])
    closed, ports = found.pop("closed", usual.closed), found.pop("apiServerPorts", list(usual.api_server_ports))
    lists = all(isinstance(item, list) for item in (peers, rules, ports))
    if (
        found
        or not lists
        or not isinstance(closed, bool)
        or not all(isinstance(item, dict) for item in (*peers, *rules))
        or not all(type(port) is int and 0 < port < 65536 for port in ports)
    ):
        raise SettingsError(
            f"LEARNLOOP_WORKLOAD_NETWORK is {value[:200]!r}: set a JSON object of from (NetworkPolicyPeers), to "
            f"(NetworkPolicyEgressRules), closed (true or false) and apiServerPorts (numbers)"
        )
    return WorkloadNetwork(tuple(peers), closed, tuple(rules), tuple(ports))


RULES = {
    "images": "images",
    "serviceAccounts": "service_accounts",
    "volumeKinds": "volume_kinds",
    "envSources": "env_sources",
}


def _pod_rules(value: str) -> PodRules:
    """A list that is left out has its default."""
    if not value:
        return PodRules()
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    lists = found if isinstance(found, dict) and not found.keys() - RULES.keys() else None
    if lists is None or not all(
        isinstance(items, list) and all(isinstance(item, str) and item for item in items) for items in lists.values()
    ):
        shape = ", ".join(RULES)
        raise SettingsError(f"LEARNLOOP_POD_RULES is {value[:200]!r}: set a JSON object of lists of texts: {shape}")
    return PodRules(**{RULES[key]: tuple(items) for key, items in lists.items()})


def _quotas(environment: Mapping[str, str]) -> Quotas:
    value = environment.get("LEARNLOOP_TRAINING_QUOTAS", "")
    if not value:
        return Quotas()
    try:
        return read_quotas(json.loads(value))
    except ValueError as error:
        raise SettingsError(f"LEARNLOOP_TRAINING_QUOTAS is {value[:200]!r}: {error}") from None


def _pod_label(environment: Mapping[str, str]) -> str:
    label = environment.get("LEARNLOOP_QUERY_POD_LABEL", POD_LABEL)
    if not re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)?", label):
        raise SettingsError(f"LEARNLOOP_QUERY_POD_LABEL is {label!r}: set a label's name, e.g. pod, or nothing")
    return label


def _url(variable: str, value: str) -> str:
    if value and not value.startswith(("http://", "https://")):
        raise SettingsError(f"{variable} is {value!r}: it must start with http:// or https://")
    return value.rstrip("/")


def _headers(value: str) -> dict[str, str]:
    try:
        return headers_of(value)
    except ValueError as error:
        raise SettingsError(f"LEARNLOOP_TRACES_HEADERS: {error}") from None


def _number(variable: str, value: str, low: float, high: float) -> float:
    try:
        number = float(value)
    except ValueError:
        raise SettingsError(f"{variable} is {value!r}: it must be a number from {low:g} to {high:g}") from None
    if not low <= number <= high:
        raise SettingsError(f"{variable} is {value!r}: it must be from {low:g} to {high:g}")
    return number
