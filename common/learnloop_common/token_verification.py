"""Service-account tokens, verified offline against the cluster's keys. Imported only where there are any to verify."""

import asyncio
import logging
import ssl
import time
from pathlib import Path
from typing import Any

import httpx
import jwt

from learnloop_common.service_accounts import KeySource, KeysUnavailable

log = logging.getLogger(__name__)
ALGORITHMS = ["RS256", "ES256"]
REFRESH_SECONDS = 10.0
MAX_AGE_SECONDS = 3600.0
MAX_STALE_SECONDS = 6 * 3600.0
"""How long keys that cannot be fetched again are believed: a key that the cluster withdrew must stop working."""
MAX_JWKS_BYTES = 2**18
LEEWAY_SECONDS = 30


class KeySet:
    """The cluster's signing keys: fetched with this pod's own token, cached an hour, six where the API server is away.

    Fetched again when a token names an unknown key, but not more than once in 10 s, whatever callers send.
    """

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._keys: dict[str, Any] = {}
        self._fetched = -MAX_AGE_SECONDS
        self._tried = -REFRESH_SECONDS
        self._lock = asyncio.Lock()

    async def key(self, kid: str) -> Any | None:
        """The public key with this id, or None when the cluster has no such key.

        Raises:
            KeysUnavailable: the API server does not answer, and no key is known that is fresh enough.
        """
        if kid not in self._keys or time.monotonic() - self._fetched > MAX_AGE_SECONDS:
            async with self._lock:
                if time.monotonic() - self._tried >= REFRESH_SECONDS:
                    self._tried = time.monotonic()
                    await self._refresh()
        if not self._keys or time.monotonic() - self._fetched > MAX_STALE_SECONDS:
            raise KeysUnavailable("the API server's key set", int(REFRESH_SECONDS))
        return self._keys.get(kid)

    async def _refresh(self) -> None:
        try:
            document = await self._fetch()
            keys = jwt.PyJWKSet.from_dict(document).keys
        except (OSError, ValueError, httpx.HTTPError, jwt.PyJWTError) as error:
            log.warning("the key set at %s cannot be read: %r", self._source.jwks_url, error)
            return
        self._keys = {key.key_id: key.key for key in keys if key.key_id}
        self._fetched = time.monotonic()

    async def _fetch(self) -> Any:
        ca, token = Path(self._source.ca_file), Path(self._source.token_file)
        verify: Any = True
        if ca.exists():
            verify = ssl.create_default_context(cafile=str(ca))
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"} if token.exists() else {}
        async with httpx.AsyncClient(verify=verify, timeout=5, follow_redirects=False, trust_env=False) as client:
            answer = await client.get(self._source.jwks_url, headers=headers)
        answer.raise_for_status()
        if len(answer.content) > MAX_JWKS_BYTES:
            raise ValueError("the key set is implausibly large")
        return answer.json()


class Tokens:
    """Tokens with one of these audiences, of this cluster's issuer."""

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._keys = KeySet(source)
        self._issuer = source.issuer

    async def claims(self, token: str) -> dict[str, Any]:
        """Claims of a valid token.

        Raises:
            ValueError: it does not hold; the message may be shown to the caller.
            KeysUnavailable: the cluster's keys, or its issuer's name, cannot be had.
        """
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            key = await self._keys.key(kid) if isinstance(kid, str) else None
            if key is not None:
                return jwt.decode(
                    token,
                    key,
                    algorithms=ALGORITHMS,
                    audience=list(self._source.audiences),
                    issuer=self._expected_issuer(),
                    leeway=LEEWAY_SECONDS,
                    options={"require": ["exp", "iss", "aud", "sub"]},
                )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise ValueError(f"the token is not valid: {error}") from None
        raise ValueError("the token is signed with a key this cluster does not have")

    def _expected_issuer(self) -> str:
        """As configured, or the issuer of the token the kubelet gave this pod: the same API server signs both."""
        if self._issuer is None:
            try:
                own = Path(self._source.token_file).read_text().strip()
                self._issuer = str(jwt.decode(own, options={"verify_signature": False})["iss"])
            except (OSError, KeyError, jwt.PyJWTError):
                log.error("set LEARNLOOP_ISSUER: %s has no token to read it from", self._source.token_file)
                raise KeysUnavailable("the token issuer's name", int(REFRESH_SECONDS)) from None
        return self._issuer
