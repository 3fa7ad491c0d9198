"""Does a token still hold? Only the API server knows: a deleted pod's or service account's token verifies until it
expires, wherever it is checked offline."""

import time
from collections.abc import Sequence
from hashlib import sha256

from learnloop_api import names
from learnloop_dataplane.kubernetes.api_client import KubeApi

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
FRESH_SECONDS = 30.0
MAX_KNOWN = 10_000


class TokenReviews:
    """Asks once for each token and half a minute.

    Args:
        kube: with the right to create TokenReviews, as system:auth-delegator has.
        audiences: of which the tokens must be for one.
    """

    def __init__(self, kube: KubeApi, audiences: Sequence[str] = (names.TOKEN_AUDIENCE,)) -> None:
        self._kube, self._audiences = kube, list(audiences)
        self._known: dict[bytes, tuple[float, bool]] = {}

    async def holds(self, token: str) -> bool:
        """The API server's word, at most half a minute old.

        Raises:
            Unavailable: it does not answer, and nothing fresh is known of this token.
            Refused: the data plane itself may not ask.
        """
        digest, now = sha256(token.encode("utf-8", "replace")).digest(), time.monotonic()
        found = self._known.get(digest)
        if found is not None and now - found[0] < FRESH_SECONDS:
            return found[1]
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": self._audiences},
        }
        status = (await self._kube.request("POST", PATH, body=review)).get("status", {})
        meant = set(self._audiences) & set(status.get("audiences") or ())
        holds = bool(status.get("authenticated")) and bool(meant)
        if len(self._known) >= MAX_KNOWN:
            self._known = {key: item for key, item in self._known.items() if now - item[0] < FRESH_SECONDS}
        if len(self._known) < MAX_KNOWN:
            self._known[digest] = (now, holds)
        return holds
