"""The process's settings, read from its environment at the start."""

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from learnloop_api.names import TOKEN_AUDIENCE
from learnloop_api.wire import base, memory_budget
from learnloop_common import key_rotation, sealed_bytes, settings
from learnloop_dataplane.errors import KeyMissing
from learnloop_dataplane.stems import LANGUAGES


class QuotaLimits(BaseModel):
    """Limits of one namespace; null: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    artifact_bytes: int | None = Field(
        default=None, ge=1, le=base.MOST, alias="artifactBytes", description="of artifacts and checkpoints"
    )
    memories: int | None = Field(
        default=None, ge=1, le=base.MOST, description="of all agents, the forgotten not counted"
    )
    episodes_per_second: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        alias="episodesPerSecond",
        description="at each replica, in bursts of ten seconds' worth",
    )


class Quotas(BaseModel):
    """The limits of all namespaces: a namespace's own fields replace those of the default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: QuotaLimits = QuotaLimits()
    namespaces: dict[str, QuotaLimits] = Field(default_factory=dict, max_length=10_000)

    def of(self, namespace: str) -> QuotaLimits:
        own = self.namespaces.get(namespace)
        return self.default if own is None else self.default.model_copy(update=own.model_dump(exclude_unset=True))


WAREHOUSE_OPTIONS = ("secure", "verify", "ca_cert", "client_cert", "client_cert_key", "server_host_name")
"""Options of the warehouse's URL; all but `secure` as clickhouse-connect names them."""


def warehouse_connection(url: str) -> dict[str, str]:
    """The arguments of clickhouse-connect for `clickhouse://user:password@host:port/database?option=value`.

    Raises:
        ValueError: names the mistake, never the login.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        valid = parts.scheme == "clickhouse" and host != "" and "," not in host and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("is not an address: write clickhouse://user:password@host:8123/database")
    options = dict(parse_qsl(parts.query))
    if unknown := sorted(set(options) - set(WAREHOUSE_OPTIONS)):
        raise ValueError(f"has unknown options {', '.join(unknown)}: use {', '.join(WAREHOUSE_OPTIONS)}")
    # The client takes `secure` as an argument and refuses it in the URL.
    secure = options.pop("secure", "false")
    return {"dsn": parts._replace(query=urlencode(options)).geturl(), "secure": secure}


_ID = UUID(int=0)
"""Wrapping keys have names, and no id."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class WrappingKeys:
    """By name; `newest` wraps, all unwrap."""

    newest: str
    secrets: Mapping[str, bytes]

    def __repr__(self) -> str:
        return f"WrappingKeys({', '.join(self.secrets)})"

    @classmethod
    def parse(cls, text: str) -> "WrappingKeys":
        """Reads `NAME KEY` lines, the newest first; a KEY is 32 random bytes in Base64.

        Raises:
            ValueError: says which line, never the key.
        """
        secrets: dict[str, bytes] = {}
        for number, line in enumerate((line for line in text.splitlines() if line.strip()), start=1):
            name, _, key = line.strip().partition(" ")
            if not _NAME.fullmatch(name):
                raise ValueError(f"line {number}: give NAME KEY; a name has 1 to 40 of a-z, 0-9 and -")
            if name in secrets:
                raise ValueError(f"line {number}: the name {name} appears twice; give the new key another one")
            try:
                secrets[name] = seed_from(key.strip())
            except ValueError as error:
                raise ValueError(f"line {number}: the key {name} {error}") from None
        if not secrets:
            raise ValueError("is empty; give a line NAME KEY")
        return cls(next(iter(secrets)), secrets)

    def wrap(self, secret: bytes, context: str) -> bytes:
        """Seals a data key by the newest key."""
        return sealed_bytes.seal(secret, sealed_bytes.DataKey(_ID, self.secrets[self.newest]), context)

    def unwrap(self, wrapped: bytes, name: str, context: str) -> bytes:
        """The data key that the key `name` has wrapped.

        Raises:
            KeyMissing: unknown name, or another key under this name.
        """
        if name not in self.secrets:
            raise KeyMissing(f"LEARNLOOP_ENCRYPTION_KEYS has no key {name}, which wraps data keys; put its line back")
        try:
            return sealed_bytes.unseal(wrapped, sealed_bytes.DataKey(_ID, self.secrets[name]), context)
        except sealed_bytes.Unreadable:
            problem = f"the key {name} of LEARNLOOP_ENCRYPTION_KEYS is not the one that wrapped; put the old one back"
            raise KeyMissing(problem) from None


SEED_BYTES = 32


def seed_from(text: str) -> bytes:
    """The 32 bytes of a key as it stands in a Secret: Base64.

    Raises:
        ValueError: it is something else.
    """
    try:
        seed = base64.b64decode(text, validate=True)
    except binascii.Error:
        seed = b""
    if len(seed) != SEED_BYTES:
        raise ValueError("is not 32 random bytes in Base64; make one with: head -c 32 /dev/urandom | base64")
    return seed


def login_of(login: str, password: str) -> str:
    """The name of a second login next to `login`, for one password of several."""
    return f"{login}_{sha256(password.encode()).hexdigest()[:8]}"


def logins_of(login: str, passwords: key_rotation.KeyLines) -> dict[str, str]:
    """All logins with their passwords: `login` itself has the oldest, for who has no other yet knows that one."""
    return {login: passwords.values[-1], **{login_of(login, value): value for value in passwords.values}}


def newest_login(login: str, passwords: key_rotation.KeyLines) -> tuple[str, str]:
    """Login and password for a new connection. While there are several passwords, each has its own login."""
    password = passwords.values[0]
    return (login if len(passwords.values) == 1 else login_of(login, password)), password


def with_password(dsn: str, passwords: key_rotation.KeyLines) -> str:
    """The address with its login's newest password."""
    return with_login(dsn, unquote(urlsplit(dsn).username or ""), passwords.values[0])


def with_login(dsn: str, login: str, password: str) -> str:
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(login, safe='')}:{quote(password, safe='')}@{host}").geturl()


LEAST_PSEUDONYM_KEY = 16
IN_CLUSTER_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
IN_CLUSTER_CA = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


def _that(check: Callable[[str], object]) -> AfterValidator:
    """Raises what `check` raises for the text of the secret."""

    def validated(secret: SecretStr) -> SecretStr:
        check(secret.get_secret_value())
        return secret

    return AfterValidator(validated)


def _is_database(url: str) -> None:
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("does not start with postgresql://; give the URL of the database")


def _are_seeds(text: str) -> None:
    for value in key_rotation.KeyLines.parse(text).values:
        seed_from(value)


def _are_pseudonym_keys(text: str) -> None:
    if min(map(len, key_rotation.KeyLines.parse(text).values)) < LEAST_PSEUDONYM_KEY:
        raise ValueError(f"each line must have {LEAST_PSEUDONYM_KEY} characters or more")


def _has_stemmer(language: str) -> str:
    if language not in LANGUAGES:
        raise ValueError(f"{language!r} has no stemmer; choose one of {', '.join(LANGUAGES)}")
    return language


Passwords = Annotated[SecretStr, _that(key_rotation.KeyLines.parse)]
"""Lines, the newest first: it is the password."""
Seeds = Annotated[SecretStr, _that(_are_seeds)]
"""Lines of 32 random bytes in Base64, the newest first."""


class Config(settings.EnvironmentSettings):
    """Each secret may come from a file that its variable with the suffix `_FILE` names."""

    dsn: Annotated[SecretStr, _that(_is_database)] = Field(
        description="give postgresql://user:password@host:port/database, with the vector extension"
    )
    database_password: Passwords | None = None
    """Of the login in `dsn`."""
    database_is_own: bool = False
    """The login in `dsn` is its server's superuser: this process gives it the newest line of the password."""
    admin_dsn: SecretStr | None = None
    """The same database by a superuser's login, for `prepare` and restores alone."""
    admin_password: Passwords | None = None
    nats_url: str | None = Field(
        default=None, pattern=r"^(nats|tls)://.+", description="give nats://host:port, several with commas"
    )
    """Absent: trajectories are written directly."""
    nats_user: str | None = None
    nats_password: Passwords | None = None
    nats_issuer_key: Seeds | None = None
    """Absent: NATS does not ask the data plane for permissions."""
    pseudonym_key: Annotated[SecretStr, _that(_are_pseudonym_keys)] | None = None
    """Absent: redaction makes no pseudonyms."""
    audit_log: bool = True
    """Copy each audit record to standard output."""
    encryption_keys: Annotated[SecretStr, _that(WrappingKeys.parse)] | None = None
    """Absent: nothing is sealed."""
    artifacts: str = Field(pattern=r"^(file:///|s3://).+", description="give file:///directory or s3://bucket/prefix")
    auth: Literal["jwks", "none"] = "jwks"
    audience: str = Field(default=TOKEN_AUDIENCE, min_length=1, max_length=512)
    jwks_url: str = Field(default="https://kubernetes.default.svc/openid/v1/jwks", pattern=r"^https?://.+")
    jwks_token_file: str = IN_CLUSTER_TOKEN
    jwks_ca_file: str = IN_CLUSTER_CA
    issuer: str | None = None
    """Absent: the issuer of this pod's own service-account token."""
    kube_url: str = Field(default="https://kubernetes.default.svc", pattern=r"^https?://[^/]+$")
    training_api: bool = False
    roles: Literal["rbac", "off"] = "rbac"
    """off: every service account of a namespace may do everything there."""
    admins: str = Field(
        default="",
        pattern=r"^(system:serviceaccount:[^:\s]+:[^:\s]+( |$))*$",
        description="give system:serviceaccount:NAMESPACE:NAME, a space between",
    )
    run_writers: Literal["ranks", "namespace"] = "ranks"
    """Callers that may report a TrainingJob's run: its own pods, or all of the namespace."""
    operator_subject: str | None = Field(default=None, pattern=r"^system:serviceaccount:[^:]+:[^:]+$")
    """May act for any namespace."""
    retention_days: int = Field(default=30, ge=1, le=3650)
    artifact_retention_days: int = Field(default=90, ge=1, le=3650)
    """Of models and checkpoints, counted from their last use."""
    warehouse: Annotated[SecretStr, _that(warehouse_connection)] | None = None
    warehouse_days: int = Field(default=365, ge=1, le=3650)
    host: str = "0.0.0.0"
    port: int = Field(default=8080, ge=1, le=65535)
    probes_port: int | None = Field(default=None, ge=1, le=65535)
    """Absent: probes and metrics are served on `port`."""
    drain_seconds: float = Field(default=3.0, ge=0, le=15)
    """Callers are served for so long after SIGTERM, until no node routes to this pod."""
    requests_per_namespace: int = Field(default=256, ge=0, le=4096)
    """At the same time in this process; 0: no limit."""
    quotas: Quotas = Quotas()
    max_artifact_bytes: int = Field(default=512 * 2**20, ge=1)
    max_body_bytes: int = Field(default=8 * 2**20, ge=1024)
    stream_max_bytes: int = Field(default=512 * 2**20, ge=2**20)
    stream_replicas: int = Field(default=1, ge=1, le=5)
    pool_size: int = Field(default=10, ge=2, le=200)
    ack_wait_seconds: float = Field(default=15.0, ge=0.5, le=600)
    sweep_seconds: float = Field(default=2.0, gt=0, le=60)
    """Between two looks for work in all namespaces."""
    exact_up_to: int = Field(default=5000, ge=1)
    """All memories of an agent with so many are ranked; above, only candidates."""
    weaviate_url: str | None = Field(
        default=None, pattern=r"^https?://[^/@]+$", description="give http(s)://host:port; absent: pgvector"
    )
    weaviate_grpc: str | None = Field(
        default=None,
        pattern=r"^[^/@:]+:[0-9]{1,5}$",
        description="give host:port; absent: the URL's host and port 50051",
    )
    weaviate_key: SecretStr | None = None
    language: Annotated[str, AfterValidator(_has_stemmer)] = "english"
    embedder: str = Field(default="none", max_length=1024)
    """none, onnx:///directory or URL#model."""
    embedder_before: str = Field(default="none", max_length=1024)
    """The embedder that answers until a new one's vectors are complete."""
    embedder_dimensions: int = Field(default=1536, ge=1, le=4000)
    embedder_key: SecretStr | None = None
    embedder_seconds: float = Field(default=10.0, ge=0.1, le=120)
    embedder_recall_ms: int = Field(default=500, ge=10, le=10_000)
    """A recall waits for so long for its question's vector; then it uses words alone."""
    distiller: str = Field(
        default="counting",
        max_length=1024,
        pattern=r"^(counting|https?://[^#\s]+#\S+)$",
        description="give counting, or URL#model of an OpenAI-compatible server",
    )
    distiller_key: SecretStr | None = None
    distiller_seconds: float = Field(default=30.0, ge=1, le=60)
    judge: str | None = Field(
        default=None,
        max_length=1024,
        pattern=r"^https?://[^#\s]+#\S+$",
        description="give URL#model of an OpenAI-compatible server",
    )
    judge_key: SecretStr | None = None
    sandbox: str | None = Field(
        default=None, max_length=1024, pattern=r"^[a-z0-9-]{1,63}#\S+$", description="give NAMESPACE#IMAGE"
    )
    memories_per_agent: int | None = Field(default=None, ge=1, le=memory_budget.MOST_MEMORIES)
    memory_bytes_per_agent: int | None = Field(default=None, ge=1, le=base.MOST)
    notifications: str | None = Field(default=None, max_length=16_384)
    """JSON: the webhook and its events; absent: no notifications."""
    notifications_key_file: str = "/run/notifications/key"
    agent_budgets_file: str | None = None
    """JSON with budgets of single agents, read again at each pass."""
    index_check_seconds: float = Field(default=60.0, gt=0, le=3600)
    consolidate_seconds: float = Field(default=3600.0, ge=0, le=2_592_000)
    """Between two consolidations of an agent; 0: only on request."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["text", "json"] = "text"

    @property
    def database_url(self) -> str:
        """`dsn` with the newest password."""
        url = self.dsn.get_secret_value()
        return with_password(url, lines) if (lines := self.lines("database_password")) else url

    def lines(self, name: str) -> key_rotation.KeyLines | None:
        """The lines of a secret; None where it is not set."""
        secret: SecretStr | None = getattr(self, name)
        return key_rotation.KeyLines.parse(secret.get_secret_value()) if secret else None

    @model_validator(mode="before")
    @classmethod
    def _from_files(cls, values: dict[str, Any]) -> dict[str, Any]:
        read = {}
        for name in SECRETS:
            variable = f"LEARNLOOP_{name.upper()}_FILE"
            if path := os.environ.get(variable):
                try:
                    read[name] = Path(path).read_text().strip()
                except OSError as error:
                    raise ValueError(f"{variable}={path}: cannot be read ({error.strerror}); mount it there") from None
        return values | read

    @model_validator(mode="after")
    def _has_password(self) -> Self:
        if self.database_is_own and self.database_password is None:
            raise ValueError("LEARNLOOP_DATABASE_IS_OWN: takes LEARNLOOP_DATABASE_PASSWORD; set it")
        return self

    @classmethod
    def _sentence(cls, error: ValidationError) -> str:
        first = error.errors(include_url=False, include_input=False)[0]
        if not first["loc"] or first["type"] != "value_error":
            return super()._sentence(error)
        return f"LEARNLOOP_{str(first['loc'][0]).upper()}: {first['msg'].removeprefix('Value error, ')}"


SECRETS = tuple(name for name, field in Config.model_fields.items() if "SecretStr" in str(field.annotation))
