"""Settings with a form of their own: quotas, addresses of the warehouse, keys, logins with several passwords."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from learnloop_api.wire.base import MOST
from learnloop_common.encryption import DataKey, Unreadable, seal, unseal
from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.errors import KeyMissing


class QuotaLimits(BaseModel):
    """Limits of one namespace; null: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    artifact_bytes: int | None = Field(
        default=None, ge=1, le=MOST, alias="artifactBytes", description="of artifacts and checkpoints"
    )
    memories: int | None = Field(default=None, ge=1, le=MOST, description="of all agents, the forgotten not counted")
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
        """The limits in force there."""
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
                raise ValueError(f"line {number}: the name {name} stands twice; give the new key another one")
            try:
                secrets[name] = seed_from(key.strip())
            except ValueError as error:
                raise ValueError(f"line {number}: the key {name} {error}") from None
        if not secrets:
            raise ValueError("is empty; give a line NAME KEY")
        return cls(next(iter(secrets)), secrets)

    def wrap(self, secret: bytes, context: str) -> bytes:
        """Seals a data key by the newest key."""
        return seal(secret, DataKey(_ID, self.secrets[self.newest]), context)

    def unwrap(self, wrapped: bytes, name: str, context: str) -> bytes:
        """The data key that the key `name` has wrapped.

        Raises:
            KeyMissing: unknown name, or another key under this name.
        """
        if name not in self.secrets:
            raise KeyMissing(f"LEARNLOOP_ENCRYPTION_KEYS has no key {name}, which wraps data keys; put its line back")
        try:
            return unseal(wrapped, DataKey(_ID, self.secrets[name]), context)
        except Unreadable:
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


def logins_of(login: str, passwords: KeyLines) -> dict[str, str]:
    """All logins with their passwords: `login` itself has the oldest, for who has no other yet knows that one."""
    return {login: passwords.values[-1], **{login_of(login, value): value for value in passwords.values}}


def newest_login(login: str, passwords: KeyLines) -> tuple[str, str]:
    """Login and password for a new connection. While there are several passwords, each has its own login."""
    password = passwords.values[0]
    return (login if len(passwords.values) == 1 else login_of(login, password)), password


def with_password(dsn: str, passwords: KeyLines) -> str:
    """The address with its login's newest password."""
    return with_login(dsn, unquote(urlsplit(dsn).username or ""), passwords.values[0])


def with_login(dsn: str, login: str, password: str) -> str:
    """The address with another login."""
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(login, safe='')}:{quote(password, safe='')}@{host}").geturl()
