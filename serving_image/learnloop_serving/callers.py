"""Callers that a policy server serves: service accounts of its namespaces, by their tokens."""

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from learnloop_common.service_accounts import KeySource, KeysUnavailable, account_of
from learnloop_serving.refusals import Refusal

if TYPE_CHECKING:
    from learnloop_common.token_verification import Tokens

BELIEVED_SECONDS = 60.0
REMEMBERED = 4096
LONGEST = 16_384
_NEVER = (0.0, "")
_SEND = "send a service-account token of audience learnloop as `authorization: Bearer …`"


class Callers:
    """Accounts of `namespaces`, by tokens that verify against `source`; None: everybody."""

    def __init__(self, source: KeySource | None, namespaces: frozenset[str]) -> None:
        self._namespaces = namespaces
        self._believed: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._tokens = None if source is None else _tokens(source)

    async def refusal(self, authorization: bytes) -> Refusal | None:
        """Why this caller is not served; None: it is. 401 without a token that holds, 403 from another namespace."""
        if self._tokens is None or self._believed.get(authorization, _NEVER)[0] > time.monotonic():
            return None
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not 0 < len(token) <= LONGEST:
            return Refusal(401, "Unauthorized", f"authorization: {_SEND}")
        try:
            claims = await self._tokens.claims(token.decode("latin-1"))
            account = account_of(claims)
        except ValueError as error:
            return Refusal(401, "Unauthorized", f"authorization: {error}; {_SEND}"[:500])
        except KeysUnavailable as error:
            return Refusal(503, "NotReady", f"{error}: the token cannot be verified now: try again")
        if account.namespace not in self._namespaces:
            served = ", ".join(sorted(self._namespaces))
            message = f"authorization: {account.subject} is not of a namespace that this server serves: {served}"
            return Refusal(403, "Forbidden", f"{message}; add it to serving.callers.namespaces of the chart")
        self._believe(authorization, float(claims["exp"]), account.subject)
        return None

    def subject(self, authorization: bytes) -> str | None:
        """The account of a caller that was not refused, system:serviceaccount:NAMESPACE:NAME; None: callers are not
        checked."""
        return None if self._tokens is None else self._believed.get(authorization, _NEVER)[1]

    def _believe(self, authorization: bytes, expires: float, subject: str) -> None:
        left = min(BELIEVED_SECONDS, expires - time.time())
        if left > 0.0:
            self._believed[authorization] = (time.monotonic() + left, subject)
            self._believed.move_to_end(authorization)
        while len(self._believed) > REMEMBERED:
            self._believed.popitem(last=False)


def _tokens(source: KeySource) -> "Tokens":
    # PyJWT and cryptography, for those alone who verify.
    from learnloop_common.token_verification import Tokens

    return Tokens(source)
