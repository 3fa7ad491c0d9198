"""What the process reads from its environment, checked once at the start."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from learnloop_api.names import TOKEN_AUDIENCE
from learnloop_api.wire.base import MOST
from learnloop_api.wire.memory import MOST_MEMORIES
from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.config_values import Addresses, Quotas, WrappingKeys, seed_from, with_password
from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.text.analysis import LANGUAGES

PREFIX = "LEARNLOOP_"
LEAST_PSEUDONYM_KEY = 16
SECRETS = (
    "dsn",
    "database_password",
    "owner_dsn",
    "admin_dsn",
    "admin_password",
    "nats_password",
    "embedder_key",
    "distiller_key",
    "judge_key",
    "pseudonym_key",
    "audit_key",
    "encryption_keys",
    "nats_issuer_key",
    "warehouse",
    "weaviate_key",
)
IN_CLUSTER_JWKS = "https://kubernetes.default.svc/openid/v1/jwks"
IN_CLUSTER_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
IN_CLUSTER_CA = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


class Config(BaseModel):
    """Settings; each field is the environment variable LEARNLOOP_<FIELD IN CAPITALS>.

    Each of `SECRETS` may come from a file named by the same variable with the suffix `_FILE`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    dsn: SecretStr = Field(description="postgresql://user:password@host:port/database, with the vector extension")
    owner_dsn: SecretStr | None = Field(
        default=None, description="LEARNLOOP_DSN as it was given, where LEARNLOOP_DATABASE_PASSWORD completes it"
    )
    admin_dsn: SecretStr | None = Field(
        default=None,
        description="the same by a superuser's login, for `prepare` alone: nothing that serves has it",
    )
    admin_password: SecretStr | None = Field(
        default=None, description="of the login in LEARNLOOP_ADMIN_DSN: a line for each that holds, the newest first"
    )
    database_password: SecretStr | None = Field(
        default=None, description="of the login in LEARNLOOP_DSN: a line for each that holds, the newest first"
    )
    database_is_own: bool = Field(
        default=False,
        description="the login in LEARNLOOP_DSN is its server's superuser: this process gives it a login for each line",
    )
    nats_url: str | None = Field(
        default=None,
        pattern=r"^(nats|tls)://.+",
        description="one, or several with commas; absent: trajectories are written directly",
    )
    nats_user: str | None = None
    nats_tenants_user: str = Field(
        default="learnloop-tenants", description="the data plane's user in the tenants' account, same password"
    )
    nats_password: SecretStr | None = Field(
        default=None, description="a line for each that holds, the newest first, each of a user of its own"
    )
    nats_issuer_key: SecretStr | None = Field(
        default=None,
        description="lines of 32 random bytes in Base64; absent: NATS does not ask here who may publish what",
    )
    pseudonym_key: SecretStr | None = Field(
        default=None, min_length=16, description="16 random characters or more; absent: redaction makes no pseudonyms"
    )
    audit_key: SecretStr | None = Field(
        default=None, description="32 random bytes in Base64; absent: the audit chain is linked, but not signed"
    )
    audit_trusted_keys: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64}( |$))*$",
        description="public keys of the audit keys before this one, 64 hexadecimal digits each, a space between",
    )
    audit_log: bool = Field(default=True, description="copy each audit record to standard output, one JSON line")
    audit_checkpoint_seconds: float = Field(
        default=60.0, gt=0, le=86_400, description="between two signatures over an audit chain that grows"
    )
    encryption_keys: SecretStr | None = Field(
        default=None,
        description="lines NAME KEY, the newest first, a KEY 32 random bytes in Base64; absent: nothing is sealed",
    )
    artifacts: str = Field(pattern=r"^(file:///|s3://).+", description="file:///directory or s3://bucket/prefix")
    auth: Literal["jwks", "tokenreview", "none"] = "jwks"
    audience: str = Field(
        default=TOKEN_AUDIENCE,
        min_length=1,
        max_length=512,
        description="of the tokens that callers send",
    )
    jwks_url: str = Field(default=IN_CLUSTER_JWKS, pattern=r"^https?://.+")
    jwks_token_file: str = IN_CLUSTER_TOKEN
    jwks_ca_file: str = IN_CLUSTER_CA
    kube_url: str = Field(default="https://kubernetes.default.svc", pattern=r"^https?://[^/]+$")
    training_api: bool = Field(
        default=False, description="TrainingJobs by REST; the service account needs rights for it"
    )
    roles: Literal["rbac", "off"] = Field(
        default="rbac", description="off: every service account of a namespace may do everything there"
    )
    admins: str = Field(
        default="",
        pattern=r"^(system:serviceaccount:[^:\s]+:[^:\s]+( |$))*$",
        description="service accounts that administer the data of their own namespaces without a Role, a space between",
    )
    run_writers: Literal["ranks", "namespace"] = Field(
        default="ranks", description="who may report a TrainingJob's run: its own pods, or anybody of the namespace"
    )
    issuer: str | None = Field(default=None, description="absent: the issuer of this pod's own service-account token")
    operator_subject: str | None = Field(
        default=None, pattern=r"^system:serviceaccount:[^:]+:[^:]+$", description="may act for any namespace"
    )
    retention_days: int = Field(default=30, ge=1, le=3650)
    warehouse: SecretStr | None = Field(
        default=None,
        description="clickhouse://user:password@host:8123/database, more host:port with commas where they are one "
        "cluster; absent: PostgreSQL is all there is",
    )
    warehouse_cluster: str | None = Field(
        default=None,
        pattern=r"^([A-Za-z0-9_.-]{1,64}|\{[A-Za-z0-9_]{1,64}\})$",
        description="name of the warehouse's cluster in its servers' remote_servers, or a macro like {cluster}; "
        "absent: one server, which replicates nothing",
    )
    warehouse_days: int = Field(default=365, ge=1, le=3650, description="how long the warehouse keeps episodes")
    artifact_retention_days: int = Field(
        default=90, ge=1, le=3650, description="of models and checkpoints, counted from when they were last in use"
    )
    host: str = "0.0.0.0"
    port: int = Field(default=8080, ge=1, le=65535)
    probes_port: int | None = Field(
        default=None, ge=1, le=65535, description="of probes and metrics; absent: they are served beside everything"
    )
    drain_seconds: float = Field(
        default=3.0,
        ge=0,
        le=15,
        description="that callers are still served after SIGTERM, while nodes learn of the end",
    )
    requests_per_namespace: int = Field(
        default=256, ge=0, le=4096, description="under way at a time in one process; 0: no limit"
    )
    quotas: Quotas = Field(
        default=Quotas(), description='JSON: {"default": {"memories": 100000}, "namespaces": {"team-a": {…}}}'
    )
    max_artifact_bytes: int = Field(default=512 * 2**20, ge=1)
    max_body_bytes: int = Field(default=8 * 2**20, ge=1024)
    stream_max_bytes: int = Field(
        default=512 * 2**20, ge=2**20, description="room in RL_TRAJECTORIES for what waits to be stored, bytes"
    )
    stream_replicas: int = Field(
        default=1, ge=1, le=5, description="servers of a NATS cluster that keep each stream; 1 where there is one"
    )
    pool_size: int = Field(default=10, ge=2, le=200)
    ack_wait_seconds: float = Field(default=15.0, ge=0.5, le=600)
    sweep_seconds: float = Field(default=2.0, gt=0, le=60, description="how often work without a nudge is looked for")
    exact_up_to: int = Field(
        default=5000,
        ge=1,
        description="memories of an agent that are all ranked; of more only those with rare stems of the question, "
        "their neighbours and the nearest",
    )
    weaviate_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/@]+$",
        description="http(s)://host:port of the vector store of such agents; absent: pgvector is it",
    )
    weaviate_grpc: str | None = Field(
        default=None, pattern=r"^[^/@:]+:[0-9]{1,5}$", description="host:port; absent: the URL's host, port 50051"
    )
    weaviate_key: SecretStr | None = None
    recall_wait_ms: int = Field(
        default=5, ge=1, le=10_000, description="a recall that would wait longer for its turn is refused with 429"
    )
    language: str = Field(
        default="english",
        max_length=32,
        description="whose stems and stop words texts are searched by: `none`, or one that Snowball has a stemmer for",
    )
    embedder: str = Field(
        default="none", max_length=1024, description="none, static:///directory, onnx:///directory or URL#model"
    )
    embedder_before: str = Field(
        default="none",
        max_length=1024,
        description="the embedder that answers until the vectors of a new one are there, in the same form",
    )
    embedder_dimensions: int = Field(default=1536, ge=1, le=4000, description="of an HTTP embedder's vectors")
    embedder_key: SecretStr | None = None
    embedder_seconds: float = Field(default=10.0, ge=0.1, le=120, description="for an HTTP embedder's answer")
    embedder_recall_ms: int = Field(
        default=500, ge=10, le=10_000, description="that a recall waits for its question's vector; then by words alone"
    )
    distiller: str = Field(
        default="counting",
        max_length=1024,
        pattern=r"^(counting|https?://[^#\s]+#\S+)$",
        description="counting, or URL#model of a server with an OpenAI-compatible /chat/completions",
    )
    distiller_key: SecretStr | None = None
    distiller_seconds: float = Field(
        default=30.0,
        ge=1,
        le=60,
        description="for one answer of the distiller's model, and for all of a pass twice that",
    )
    judge: str | None = Field(
        default=None,
        max_length=1024,
        pattern=r"^https?://[^#\s]+#\S+$",
        description="https://host/v1#model of an OpenAI-compatible chat API that compares answers; absent: none does",
    )
    judge_key: SecretStr | None = None
    sandbox: str | None = Field(
        default=None,
        max_length=1024,
        pattern=r"^[a-z0-9-]{1,63}#\S+$",
        description="NAMESPACE#IMAGE in which code is run as Jobs; absent: none is",
    )
    memories_per_agent: int | None = Field(
        default=None, ge=1, le=MOST_MEMORIES, description="of every agent; above, the least valuable are forgotten"
    )
    memory_bytes_per_agent: int | None = Field(
        default=None, ge=1, le=MOST, description="of every agent, content and text; above, the least valuable go"
    )
    notifications: str | None = Field(
        default=None, max_length=16_384, description="JSON: the webhook and its events; absent: none"
    )
    notifications_key_file: str = Field(
        default="/run/notifications/key", description="file with the key that signs the webhook's messages"
    )
    agent_budgets_file: str | None = Field(
        default=None, description="JSON with budgets of single agents, read again at each pass; absent: there are none"
    )
    index_check_seconds: float = Field(default=60.0, gt=0, le=3600, description="how often large agents are looked for")
    consolidate_seconds: float = Field(
        default=3600.0, ge=0, le=2_592_000, description="between two consolidations of an agent; 0: only when asked"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["text", "json"] = "text"

    @field_validator("language")
    @classmethod
    def _has_a_stemmer(cls, language: str) -> str:
        if language not in LANGUAGES:
            raise ValueError(f"no stemmer is known for it; choose one of {', '.join(LANGUAGES)}")
        return language

    @field_validator("quotas", mode="before")
    @classmethod
    def _is_json(cls, quotas: object) -> object:
        return Quotas.model_validate_json(quotas) if isinstance(quotas, str) else quotas

    @field_validator("audit_key", "nats_issuer_key")
    @classmethod
    def _is_a_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None:
            for value in KeyLines.parse(key.get_secret_value()).values:
                seed_from(value)
        return key

    @field_validator("pseudonym_key")
    @classmethod
    def _are_long_enough(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and min(map(len, KeyLines.parse(key.get_secret_value()).values)) < LEAST_PSEUDONYM_KEY:
            raise ValueError(f"each line must have {LEAST_PSEUDONYM_KEY} characters or more")
        return key

    @field_validator("encryption_keys")
    @classmethod
    def _are_keys(cls, keys: SecretStr | None) -> SecretStr | None:
        if keys is not None:
            WrappingKeys.parse(keys.get_secret_value())
        return keys

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "Config":
        """Reads the environment.

        Raises:
            ConfigError: names the variable, its value unless secret, and what is expected.
        """
        values = {name: env[PREFIX + name.upper()] for name in cls.model_fields if env.get(PREFIX + name.upper())}
        for name in SECRETS:
            if path := env.get(f"{PREFIX}{name.upper()}_FILE"):
                values[name] = _read(f"{PREFIX}{name.upper()}_FILE", path)
        try:
            config = cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(_explain(error)) from None
        if not config.dsn.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ConfigError(f"{PREFIX}DSN does not start with postgresql://; give the URL of the database")
        if config.database_password is not None:
            whole = _completed(config.dsn, config.database_password, "DATABASE_PASSWORD")
            config = config.model_copy(update={"dsn": whole, "owner_dsn": config.dsn})
        if config.database_is_own and config.database_password is None:
            raise ConfigError(f"{PREFIX}DATABASE_IS_OWN: takes {PREFIX}DATABASE_PASSWORD; set it")
        if config.nats_password is not None:
            _lines(config.nats_password, "NATS_PASSWORD")
        if config.admin_dsn is not None and config.admin_password is not None:
            _lines(config.admin_password, "ADMIN_PASSWORD")
        if config.warehouse:
            _check_warehouse(config.warehouse, config.warehouse_cluster)
        elif config.warehouse_cluster:
            raise ConfigError(f"{PREFIX}WAREHOUSE_CLUSTER: takes {PREFIX}WAREHOUSE; set it")
        return config


def _check_warehouse(url: SecretStr, cluster: str | None) -> None:
    try:
        servers = Addresses.parse(url.get_secret_value()).servers
    except ValueError as error:
        raise ConfigError(f"{PREFIX}WAREHOUSE {error}") from None
    if len(servers) > 1 and cluster is None:
        raise ConfigError(
            f"{PREFIX}WAREHOUSE names {len(servers)} servers, and each would have other episodes than the next; "
            f"set {PREFIX}WAREHOUSE_CLUSTER to the name of their cluster, or name one"
        )


def _completed(dsn: SecretStr, passwords: SecretStr, name: str) -> SecretStr:
    return SecretStr(with_password(dsn.get_secret_value(), _lines(passwords, name)))


def _lines(secret: SecretStr, name: str) -> KeyLines:
    try:
        return KeyLines.parse(secret.get_secret_value())
    except ValueError as error:
        raise ConfigError(f"{PREFIX}{name} {error}") from None


def _read(variable: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise ConfigError(f"{variable}={path}: cannot be read ({error.strerror}); mount it there") from None


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False):
        name = str(item["loc"][0])
        description = Config.model_fields[name].description
        given = "" if item["type"] == "missing" or name in SECRETS else f"={item['input']}"
        lines.append(f"{PREFIX}{name.upper()}{given}: {item['msg']}" + (f" ({description})" if description else ""))
    return "; ".join(lines)
