"""The operator's settings: environment variables `LEARNLOOP_<FIELD>`, read once at start."""

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, ValidationError
from pydantic_settings import NoDecode

from learnloop_api import names
from learnloop_common.settings import EnvironmentSettings
from learnloop_operator.core.allowed_pods import DEFAULT_RULES, PodRules
from learnloop_operator.core.workload_network import WorkloadNetwork
from learnloop_operator.rollout.evidence import POD_LABEL
from learnloop_operator.training.run_cost import Prices

PREFIX = "LEARNLOOP_"
CONTENT = {
    "serving_peers": "a JSON list of NetworkPolicyPeers",
    "workload_network": "a JSON object of from (NetworkPolicyPeers), to (NetworkPolicyEgressRules), closed and "
    "apiServerPorts",
    "pod_rules": "a JSON object of lists of texts: images, serviceAccounts, volumeKinds, envSources",
    "prices": "a JSON object of cpuHour and gpuHour, which are numbers, and currency, three capital letters",
    "query_pod_label": "a label's name, e.g. pod, or nothing",
}


def _url(value: str) -> str:
    if value and not value.startswith(("http://", "https://")):
        raise ValueError("it must start with http:// or https://")
    return value.rstrip("/")


def _names(value: Any) -> Any:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


def _headers(value: Any) -> Any:
    """Percent-encoded `key=value,key=value`. An error tells the part by its number: its value may be a secret."""
    if not isinstance(value, str):
        return value
    headers = {}
    for number, part in enumerate(filter(None, value.split(",")), 1):
        key, separator, text = part.partition("=")
        if not separator or not key.strip():
            raise ValueError(f"part {number} is not a pair: write key=value,key=value, percent-encoded")
        headers[unquote(key.strip()).lower()] = unquote(text.strip())
    return headers


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


Url = Annotated[str, AfterValidator(_url)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]
Headers = Annotated[Mapping[str, str], NoDecode, BeforeValidator(_headers)]


class Settings(EnvironmentSettings):
    """All settings of one operator process."""

    watch_namespaces: Names = Field(default=(), validation_alias="LEARNLOOP_WATCH_NAMESPACE")
    """Empty: all namespaces."""
    system_namespace: str = "learnloop-system"
    data_url: Url = "http://learnloop-data:8080"
    token_file: str = names.TOKEN_FILE
    prometheus_url: Url = ""
    query_url: Url = ""
    """A prom-label-proxy, which answers queries of ModelDeployments from their namespace's series; without it they
    hold."""
    query_pod_label: str = Field(
        default_factory=lambda: os.environ.get("LEARNLOOP_QUERY_POD_LABEL", POD_LABEL),
        pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$",
    )
    """Tells an arm's own pods; set but empty: any pods of the namespace."""
    trainer_image: str = "localhost/learnloop/trainer:dev"
    training_runtime: str = ""
    """ClusterTrainingRuntime of TrainJobs, where the installation made one."""
    serving_image: str = "localhost/learnloop/serving:dev"
    memory_image: str = "localhost/learnloop/memory:dev"
    postgres_image: str = "localhost/learnloop/postgres:17"
    vllm_image: str = "vllm/vllm-openai:v0.11.0"
    llama_cpp_image: str = "ggml-org/llama.cpp:server-b9994"
    tls: bool = False
    """The installation's own parts serve by TLS."""
    tls_namespaces: Names = ()
    """Namespaces that have the Secret `learnloop-tls`: pods of ours there serve by TLS with it."""
    names_are_verified: bool = False
    """The chart's admission policy refuses another person's name in the annotation of a verb."""
    four_eyes: bool = False
    """The author of a spec may not approve it; takes verified names."""
    serving_callers: Literal["token", "anybody"] = "anybody"
    serving_caller_namespaces: Names = ()
    serving_peers: Annotated[tuple[Mapping[str, Any], ...] | None, NoDecode, BeforeValidator(_json)] = None
    """NetworkPolicyPeers that reach policy servers from other namespaces; unset: no NetworkPolicy."""
    workload_network: Annotated[WorkloadNetwork | None, NoDecode, BeforeValidator(_json)] = None
    """Network of training, actors and MemoryServices; unset: no NetworkPolicies."""
    pod_rules: Annotated[PodRules, NoDecode, BeforeValidator(_json)] = DEFAULT_RULES
    prices: Annotated[Prices | None, NoDecode, BeforeValidator(_json)] = None
    """Of training; unset: its cost is in hours only."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    lease_name: str = "learnloop-operator"
    operator_subject: str = ""
    """Our own subject, for the memory services that we run."""
    pod_name: str = Field(default="learnloop-operator", validation_alias=AliasChoices(names.ENV_POD_NAME, "HOSTNAME"))
    port: int = Field(default=9090, ge=0, le=65535)
    workers: int = Field(default=16, ge=1, le=256)
    resync_seconds: float = Field(default=300.0, ge=1, le=86400)
    log_level: Annotated[str, AfterValidator(str.upper)] = "INFO"
    traces_endpoint: Url = ""
    """OpenTelemetry collector (OTLP over HTTP); empty: no traces."""
    traces_headers: Headers = Field(default_factory=dict, repr=False)
    """Sent to the collector, such as a token."""

    @classmethod
    def _sentence(cls, error: ValidationError) -> str:
        """A header of the collector may be a secret: its value is left out."""
        first = error.errors(include_url=False)[0]
        field, *rest = (str(part) for part in first["loc"])
        variable = field if field.startswith(PREFIX) else PREFIX + field.upper()
        value = "" if field == "traces_headers" else f" is {str(os.environ.get(variable, ''))[:200]!r}"
        at = f"{'.'.join(rest)}: " if rest else ""
        message = first["msg"].removeprefix("Value error, ")
        fix = f"; set {CONTENT[field]}" if field in CONTENT else ""
        return f"{variable}{value}: {at}{message}{fix}"
