"""Settings with a form of their own: quotas, addresses of the warehouse, keys, logins with several passwords."""

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field

from learnloop_api.wire.base import MOST
from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.errors import KeyMissing


class QuotaLimits(BaseModel):
    """Limits of one namespace; a field that is left out, or null, is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    artifact_bytes: int | None = Field(
        default=None, ge=1, le=MOST, alias="artifactBytes", description="of artifacts and checkpoints"
    )
    memories: int | None = Field(default=None, ge=1, le=MOST, description="of all agents, the forgotten not counted")
    episodes_per_second: float | None = Field(
        default=None, gt=0, le=1e6, alias="episodesPerSecond", description="at each replica, ten seconds' worth at once"
    )


class Quotas(BaseModel):
    """The limits of all namespaces: what one says itself wins over the default, field by field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: QuotaLimits = QuotaLimits()
    namespaces: dict[str, QuotaLimits] = Field(default_factory=dict, max_length=10_000)

    def of(self, namespace: str) -> QuotaLimits:
        """The limits in force there."""
        own = self.namespaces.get(namespace)
        return self.default if own is None else self.default.model_copy(update=own.model_dump(exclude_unset=True))


SCHEME = "clickhouse"
PLAIN, ENCRYPTED = 8123, 8443
ENCRYPTED_PORTS = (443, ENCRYPTED)
OPTIONS = ("secure", "verify", "ca_cert", "client_cert", "client_cert_key", "server_host_name", "tls_mode")
"""Of TLS; all but `secure` as clickhouse-connect names them."""
_SWITCHES = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Addresses:
    """The servers of one warehouse, in the order in which they are asked."""

    servers: tuple[tuple[str, int], ...]
    login: Mapping[str, Any]  # arguments of clickhouse-connect that are the same for all

    @classmethod
    def parse(cls, dsn: str) -> "Addresses":
        """Raises ValueError, which says what is wrong and nothing of the login."""
        try:
            found = urlsplit(dsn)
        except ValueError:
            raise ValueError(f"is no URL; write {SCHEME}://user:password@host:8123/database") from None
        if found.scheme != SCHEME:
            raise ValueError(f"does not start with {SCHEME}://; give the URL of the warehouse")
        options: dict[str, Any] = dict(parse_qsl(found.query))
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise ValueError(f"has the options {', '.join(unknown)}; there are {', '.join(OPTIONS)}")
        for name in ("secure", "verify"):
            if name in options:
                options[name] = _switch(name, options[name])
        secure = options.pop("secure", None)
        who, _, where = found.netloc.rpartition("@")
        user, _, password = who.partition(":")
        servers = tuple(_server(item, secure=bool(secure)) for item in where.split(","))
        if secure is None:
            secure = all(port in ENCRYPTED_PORTS for _, port in servers)
        login: dict[str, Any] = {
            "interface": "https" if secure else "http",
            "username": unquote(user) or ("default" if password else None),
            "password": unquote(password),
            "database": unquote(found.path.strip("/").split("/")[0]) or None,
        }
        return cls(servers, login | options)


def _switch(name: str, value: str) -> bool:
    if value.lower() not in _SWITCHES:
        raise ValueError(f"has {name}={value[:20]}; it is true or false")
    return _SWITCHES[value.lower()]


def _server(text: str, *, secure: bool) -> tuple[str, int]:
    bracket = text.rfind("]")
    host, colon, port = text.rpartition(":") if text.rfind(":") > bracket else (text, "", "")
    host = host.strip("[]")
    if not host:
        raise ValueError("has an address without a host; separate host:port from host:port by one comma")
    if not colon:
        return host, ENCRYPTED if secure else PLAIN
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"has the port {port[:20]!r} at {host[:100]}; a port is a number from 1 to 65535")
    return host, int(port)


_NONCE_BYTES = 12
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
            raise ValueError("there is no key; give a line NAME KEY")
        return cls(next(iter(secrets)), secrets)

    def wrap(self, secret: bytes, context: str) -> bytes:
        """By the newest key: AES-256-GCM with a random nonce before it."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # as in `learnloop_common.encryption`

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self.secrets[self.newest]).encrypt(nonce, secret, context.encode())

    def unwrap(self, wrapped: bytes, name: str, context: str) -> bytes:
        """What was wrapped by the key `name`.

        Raises:
            KeyMissing: there is no such key, or another one under this name.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if name not in self.secrets:
            raise KeyMissing(f"LEARNLOOP_ENCRYPTION_KEYS has no key {name}, which wraps data keys; put its line back")
        try:
            return AESGCM(self.secrets[name]).decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], context.encode())
        except InvalidTag:
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
    """The name of a second login beside `login`, for one password of several."""
    return f"{login}_{sha256(password.encode()).hexdigest()[:8]}"


def logins_of(login: str, passwords: KeyLines) -> dict[str, str]:
    """All logins with their passwords: `login` itself has the oldest, for who has no other yet knows that one."""
    return {login: passwords.values[-1], **{login_of(login, value): value for value in passwords.values}}


def newest_login(login: str, passwords: KeyLines) -> tuple[str, str]:
    """Who to be, and by which password. While there are several, each is of a login of its own."""
    password = passwords.values[0]
    return (login if len(passwords.values) == 1 else login_of(login, password)), password


def with_password(dsn: str, passwords: KeyLines) -> str:
    """The address with its login's newest password."""
    return with_login(dsn, *newest_login(unquote(urlsplit(dsn).username or ""), passwords))


def with_login(dsn: str, login: str, password: str) -> str:
    """The address with another login."""
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(login, safe='')}:{quote(password, safe='')}@{host}").geturl()
