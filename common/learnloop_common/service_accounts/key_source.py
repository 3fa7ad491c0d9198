"""Where the cluster's signing keys are. Light: who verifies nothing imports no cryptography."""

from dataclasses import dataclass

from learnloop_api import names


@dataclass(frozen=True)
class KeySource:
    """Where the cluster's keys are, and what a token must say. `issuer` None: that of this pod's own token."""

    jwks_url: str
    token_file: str
    ca_file: str
    issuer: str | None = None
    audiences: tuple[str, ...] = (names.TOKEN_AUDIENCE,)


class KeysUnavailable(Exception):
    """Nobody can tell now whether a token holds."""

    def __init__(self, what: str, retry_after: int) -> None:
        super().__init__(f"{what} does not answer")
        self.what = what
        self.retry_after = retry_after
