"""Settings of a policy server, read from the pod's environment."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from learnloop_api import names
from learnloop_api.wire.routing import routing_config_map
from learnloop_common import service_accounts, settings

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
Url = Annotated[str, AfterValidator(lambda url: url.rstrip("/"))]


def _namespace() -> str:
    mounted = SERVICE_ACCOUNT / "namespace"
    return mounted.read_text(encoding="utf-8").strip() if mounted.is_file() else "default"


def _kubernetes_url() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class Settings(settings.EnvironmentSettings):
    """Configuration of one arm. Durations in seconds."""

    model_deployment: str = Field(
        pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$", description="give the ModelDeployment's name"
    )
    revision: str = Field(pattern=r"^[0-9a-f]{8}$", description="give 8 lower-case hex digits")
    model_uri: str = Field(pattern=r"^[a-z0-9]+://\S{1,2048}$", description="give a URI such as learnloop://…")
    model_sha256: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        description="give 64 lower-case hex digits, or nothing for uniform://",
    )
    routing_mode: Literal["service", "gateway"] = Field(default="service", description="give service or gateway")
    namespace: str = Field(default_factory=_namespace)
    routing_configmap: str = Field(default_factory=lambda given: routing_config_map(given.get("model_deployment", "")))
    routing_file: Path | None = None
    episode_key_file: Path | None = Field(
        default=None, description="the key that all servers of the ModelDeployment share; without it a key of its own"
    )
    data_url: Url = ""
    token_file: Path = Path(names.TOKEN_FILE)
    kubernetes_url: str = Field(default_factory=_kubernetes_url)
    service_account: Path = Field(default_factory=lambda: SERVICE_ACCOUNT)
    host: str = "0.0.0.0"
    port: int = Field(default=names.PORT_SERVING, ge=0, le=65_535, description="give a number from 0 to 65535")
    probes_port: int | None = Field(default=None, ge=1, le=65_535, description="give a number from 1 to 65535")
    callers: Literal["token", "anybody"] = Field(default="anybody", description="give token or anybody")
    caller_namespaces: str = ""
    drain_seconds: float = Field(default=3.0, ge=0, le=300, description="give a number from 0 to 300")
    load_retry_seconds: float = Field(default=60.0, ge=0, le=3600, description="give a number from 0 to 3600")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.routing_file is None and not self.kubernetes_url:
            raise ValueError(
                "KUBERNETES_SERVICE_HOST: '' is empty and LEARNLOOP_ROUTING_FILE is not set: "
                "run in a cluster or name a routing file"
            )
        if self.episode_key_file is None and self.routing_file is None:
            raise ValueError(
                f"{names.ENV_EPISODE_KEY_FILE}: '' is empty: mount the Secret of the ModelDeployment's episodes and "
                "name the file; without it the servers of its arms cannot verify one another's episodes"
            )
        if self.callers == "token" and not self.kubernetes_url:
            raise ValueError(
                f"{names.ENV_CALLERS}: 'token' needs the cluster's keys and KUBERNETES_SERVICE_HOST is empty: run in a "
                "cluster, or give anybody on a network that you trust"
            )
        for name in sorted(self.served_namespaces - {self.namespace}):
            if not service_accounts.NAMESPACE.fullmatch(name):
                raise ValueError(f"{names.ENV_CALLER_NAMESPACES}: {name[:80]!r} is not the name of a namespace")
        return self

    @property
    def caller_keys(self) -> service_accounts.KeySource | None:
        """Keys that verify callers' tokens; None: everybody is served."""
        if self.callers == "anybody":
            return None
        return service_accounts.KeySource(
            f"{self.kubernetes_url}/openid/v1/jwks",
            str(self.service_account / "token"),
            str(self.service_account / "ca.crt"),
            audiences=(names.TOKEN_AUDIENCE, names.GATE_AUDIENCE),
        )

    @property
    def served_namespaces(self) -> frozenset[str]:
        """Namespaces whose accounts may call: the own one, and those of $LEARNLOOP_CALLER_NAMESPACES."""
        others = (name.strip() for name in self.caller_namespaces.split(","))
        return frozenset({self.namespace, *filter(None, others)})
