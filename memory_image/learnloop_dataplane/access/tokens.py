"""Callers: who they are by their service-account tokens, and what a token opens."""

import re
from dataclasses import dataclass
from typing import Literal

from learnloop_api import names
from learnloop_common import service_accounts, token_verification
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ApiError, Unavailable

Bearer = Literal["rank", "gate suite"]
AUDIENCES: dict[str, Bearer] = {names.RUN_AUDIENCE: "rank", names.GATE_AUDIENCE: "gate suite"}
OPEN: dict[Bearer, tuple[tuple[str, str], ...]] = {
    "rank": (
        # Its own run alone, where there is a cluster to ask: pod_owners.py.
        ("PUT", "/api/v1/training/runs/{}/heartbeat"),
        ("PUT", "/api/v1/training/runs/{}/checkpoint"),
        ("PUT", "/api/v1/training/runs/{}/proof"),
        ("GET", "/api/v1/training/runs/{}"),
        ("GET", "/api/v1/training/runs/{}/checkpoint"),
        ("PUT", "/api/v1/artifacts"),
        ("GET", "/api/v1/artifacts/{}"),
        ("GET", "/api/v1/experience/observations"),
        ("GET", "/api/v1/experience/trajectories"),
        ("GET", "/api/v1/preferences"),
        ("GET", "/api/v1/rewards/policies/{}/revisions/{}"),
    ),
    "gate suite": (("PUT", "/api/v1/models/{}/gates/{}/report"),),
}
"""By method and path; {} is one name."""
_MATCHING = {
    bearer: re.compile("|".join(f"{method} {path.replace('{}', '[^/]+')}" for method, path in routes))
    for bearer, routes in OPEN.items()
}


@dataclass(frozen=True)
class Identity(service_accounts.Account):
    """A caller that proved who it is."""

    bearer: Bearer | None = None
    """rank, gate suite: the token opens what these do alone; None: an agent's, or an administrator's."""


class Authenticator:
    """Turns a request's headers into an Identity. A token is valid until it expires."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tokens = None if config.auth == "none" else _tokens(config)

    async def identify(self, authorization: str | None, requested: str | None) -> Identity:
        """The caller and the namespace it acts for.

        Args:
            authorization: value of the Authorization header.
            requested: the namespace the request asks for; only the operator may name another than its own.

        Raises:
            ApiError: 401 without a valid token; 403 for a namespace that is not the caller's; 400 for a bad name.
            Unavailable: the cluster's keys cannot be had.
        """
        if requested is not None and not service_accounts.NAMESPACE.fullmatch(requested):
            raise ApiError(400, "not the name of a namespace", field=names.HEADER_NAMESPACE, value=requested)
        if self._config.auth == "none":
            return Identity(requested or "default", "anonymous")
        own = await self._verify(authorization)
        if requested is None or requested == own.namespace:
            return own
        if own.subject != self._config.operator_subject:
            raise ApiError(
                403,
                f"the token is for namespace {own.namespace}; only the operator may act for another one",
                field=names.HEADER_NAMESPACE,
                value=requested,
            )
        return Identity(requested, own.subject, bearer=own.bearer)

    async def _verify(self, authorization: str | None) -> Identity:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token or self._tokens is None:
            raise _unauthorized(f"send a service-account token with audience {self._config.audience} as a Bearer token")
        try:
            account = service_accounts.account_of(await self._tokens.claims(token))
        except ValueError as error:
            raise _unauthorized(str(error)) from None
        except service_accounts.KeysUnavailable as error:
            raise Unavailable(error.what, retry_after=error.retry_after) from error
        # Who has both is an agent: it could take the wider one.
        bearer = None if self._config.audience in account.audiences else bearer_of(account.audiences)
        return Identity(**vars(account), bearer=bearer)


def _tokens(config: Config) -> token_verification.Tokens:
    source = service_accounts.KeySource(
        config.jwks_url, config.jwks_token_file, config.jwks_ca_file, config.issuer, accepted_audiences(config)
    )
    return token_verification.Tokens(source)


def accepted_audiences(config: Config) -> tuple[str, ...]:
    """Of tokens that are read here. A MemoryService has an audience of its own, and neither runs nor suites."""
    return (config.audience, *(AUDIENCES if config.audience == names.TOKEN_AUDIENCE else ()))


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, field="authorization")


def bearer_of(audiences: frozenset[str]) -> Bearer | None:
    """Classifies a token by its audiences; None: neither a rank's nor a suite's."""
    return next((bearer for audience, bearer in AUDIENCES.items() if audience in audiences), None)


def require_open(bearer: Bearer, method: str, path: str) -> None:
    """Returns where the token opens this.

    Raises:
        ApiError: 403.
    """
    if not _MATCHING[bearer].fullmatch(f"{method} {path}"):
        raise ApiError(403, f"the token of a {bearer} does not open {method} {path[:200]}", field="authorization")
