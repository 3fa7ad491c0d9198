"""Who is calling, and for which namespace: service-account tokens, verified offline against the cluster's keys."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from learnloop_api import names
from learnloop_common.service_accounts.claimed_account import NAMESPACE, account_of
from learnloop_common.service_accounts.key_source import KeySource, KeysUnavailable
from learnloop_dataplane.access.narrow_tokens import AUDIENCES, Bearer, bearer_of
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ApiError, Unavailable

if TYPE_CHECKING:
    from learnloop_common.service_accounts.token_verification import Tokens


@dataclass(frozen=True)
class Identity:
    """A caller that proved who it is."""

    namespace: str
    subject: str
    pod: str | None = None
    """The pod that the token was mounted into, and its uid; None where the token names none."""
    pod_uid: str | None = None
    bearer: Bearer | None = None
    """rank, gate suite: the token opens what these do alone; None: an agent's, or an administrator's."""


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
        self._tokens = None if config.auth == "none" else _tokens(config)

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
        return Identity(asked, own.subject, bearer=own.bearer)

    async def _verify(self, authorization: str | None) -> Identity:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token or self._tokens is None:
            raise _unauthorized(f"send a service-account token with audience {self._config.audience} as a Bearer token")
        try:
            account = account_of(await self._tokens.claims(token))
        except ValueError as error:
            raise _unauthorized(str(error)) from None
        except KeysUnavailable as error:
            raise Unavailable(error.what, retry_after=error.retry_after) from error
        # Who has both is an agent: it could take the wider one.
        bearer = None if self._config.audience in account.audiences else bearer_of(account.audiences)
        identity = Identity(account.namespace, account.subject, account.pod, account.pod_uid, bearer)
        if self._reviewer is not None and not await self._reviewer.holds(token):
            raise _unauthorized("the API server says that the token no longer holds: its pod or account is gone")
        return identity


def _tokens(config: Config) -> "Tokens":
    # PyJWT and cryptography: 8 MiB and a tenth of a start, for those alone who verify.
    from learnloop_common.service_accounts.token_verification import Tokens

    source = KeySource(
        config.jwks_url, config.jwks_token_file, config.jwks_ca_file, config.issuer, accepted_audiences(config)
    )
    return Tokens(source)


def accepted_audiences(config: Config) -> tuple[str, ...]:
    """Of tokens that are read here. A MemoryService has an audience of its own, and neither runs nor suites."""
    return (config.audience, *(AUDIENCES if config.audience == names.TOKEN_AUDIENCE else ()))


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, field="authorization")
