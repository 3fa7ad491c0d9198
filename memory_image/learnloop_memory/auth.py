"""Who is calling, and for which namespace: service-account tokens, verified offline against the cluster's keys."""

import asyncio
import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
import jwt

from learnloop_api import names
from learnloop_memory.config import Config
from learnloop_memory.errors import ApiError, Unavailable

log = logging.getLogger(__name__)
ALGORITHMS = ["RS256", "ES256"]
REFRESH_SECONDS = 10.0
MAX_AGE_SECONDS = 3600.0
MAX_JWKS_BYTES = 2**18
LEEWAY_SECONDS = 30
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# What Kubernetes lets a ServiceAccount be named. NATS' permissions are made of it: a `*` in it would be one.
ACCOUNT = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Identity:
    """A caller that proved who it is."""

    namespace: str
    subject: str


class KeySet:
    """The cluster's signing keys: fetched with this pod's own token, cached an hour, fetched again when a token names
    an unknown key, but not more than once in 10 s, whatever callers send."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._keys: dict[str, Any] = {}
        self._fetched = -MAX_AGE_SECONDS
        self._tried = -REFRESH_SECONDS
        self._lock = asyncio.Lock()

    async def key(self, kid: str) -> Any | None:
        """The public key with this id, or None when the cluster has no such key.

        Raises:
            Unavailable: no key is known and the API server does not answer.
        """
        if kid not in self._keys or time.monotonic() - self._fetched > MAX_AGE_SECONDS:
            async with self._lock:
                if time.monotonic() - self._tried >= REFRESH_SECONDS:
                    self._tried = time.monotonic()
                    await self._refresh()
        if not self._keys:
            raise Unavailable("the API server's key set", retry_after=int(REFRESH_SECONDS))
        return self._keys.get(kid)

    async def _refresh(self) -> None:
        try:
            document = await self._fetch()
            keys = jwt.PyJWKSet.from_dict(document).keys
        except (OSError, ValueError, httpx.HTTPError, jwt.PyJWTError) as error:
            log.warning("the key set at %s cannot be read: %r", self._config.jwks_url, error)
            return
        self._keys = {key.key_id: key.key for key in keys if key.key_id}
        self._fetched = time.monotonic()

    async def _fetch(self) -> Any:
        ca, token = Path(self._config.jwks_ca_file), Path(self._config.jwks_token_file)
        verify: Any = True
        if ca.exists():
            import ssl

            verify = ssl.create_default_context(cafile=str(ca))
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"} if token.exists() else {}
        async with httpx.AsyncClient(verify=verify, timeout=5, follow_redirects=False, trust_env=False) as client:
            answer = await client.get(self._config.jwks_url, headers=headers)
        answer.raise_for_status()
        if len(answer.content) > MAX_JWKS_BYTES:
            raise ValueError("the key set is implausibly large")
        return answer.json()


class Reviewer(Protocol):
    """Whoever knows whether a token that verifies still holds; see token_review."""

    async def holds(self, token: str) -> bool:
        """False: its pod or service account is gone. Raises Unavailable."""
        ...


class Authenticator:
    """Turns a request's headers into an Identity.

    Args:
        reviewer: asked about every token that verifies; None: a token holds until it expires.
    """

    def __init__(self, config: Config, reviewer: Reviewer | None = None) -> None:
        self._config = config
        self._reviewer = reviewer
        self._keys = KeySet(config)
        self._issuer = config.issuer

    async def identify(self, authorization: str | None, asked: str | None) -> Identity:
        """The caller and the namespace it acts for.

        Args:
            authorization: value of the Authorization header.
            asked: the namespace the request asks for; only the operator may name another than its own.

        Raises:
            ApiError: 401 without a valid token; 403 for a namespace that is not the caller's; 400 for a bad name.
            Unavailable: the cluster's keys cannot be had.
        """
        if asked is not None and not NAMESPACE.fullmatch(asked):
            raise ApiError(400, "not the name of a namespace", field=names.HEADER_NAMESPACE, value=asked)
        if self._config.auth == "none":
            return Identity(asked or "default", "anonymous")
        own = await self._verify(authorization)
        if asked is None or asked == own.namespace:
            return own
        if own.subject != self._config.operator_subject:
            raise ApiError(
                403,
                f"the token is for namespace {own.namespace}; only the operator may act for another one",
                field=names.HEADER_NAMESPACE,
                value=asked,
            )
        return Identity(asked, own.subject)

    async def _verify(self, authorization: str | None) -> Identity:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise _unauthorized("send a service-account token with audience learnloop as a Bearer token")
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            key = await self._keys.key(kid) if isinstance(kid, str) else None
            if key is None:
                raise _unauthorized("the token is signed with a key this cluster does not have")
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=names.TOKEN_AUDIENCE,
                issuer=self._expected_issuer(),
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise _unauthorized(f"the token is not valid: {error}") from None
        identity = _identity(claims)
        if self._reviewer is not None and not await self._reviewer.holds(token):
            raise _unauthorized("the API server says that the token no longer holds: its pod or account is gone")
        return identity

    def _expected_issuer(self) -> str:
        """As configured, or the issuer of the token the kubelet gave this pod: the same API server signs both."""
        if self._issuer is None:
            try:
                own = Path(self._config.jwks_token_file).read_text().strip()
                self._issuer = str(jwt.decode(own, options={"verify_signature": False})["iss"])
            except (OSError, KeyError, jwt.PyJWTError):
                log.error("set LEARNLOOP_ISSUER: %s has no token to read it from", self._config.jwks_token_file)
                raise Unavailable("the token issuer's name", retry_after=10) from None
        return self._issuer


def _identity(claims: dict[str, Any]) -> Identity:
    kubernetes = claims.get("kubernetes.io")
    namespace = kubernetes.get("namespace") if isinstance(kubernetes, dict) else None
    subject = str(claims["sub"])
    if not isinstance(namespace, str) or not NAMESPACE.fullmatch(namespace):
        raise _unauthorized("the token names no namespace; mount a projected service-account token")
    prefix = f"system:serviceaccount:{namespace}:"
    if not subject.startswith(prefix) or not ACCOUNT.fullmatch(subject.removeprefix(prefix)):
        raise _unauthorized("the token's subject is not a service account of its namespace")
    return Identity(namespace, subject)


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, field="authorization")
