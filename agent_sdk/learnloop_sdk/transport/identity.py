"""Who this agent is to the data plane: a projected service-account token, read afresh because it rotates."""

import base64
import binascii
import json
import os
from pathlib import Path

from learnloop_api import names

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def namespace_of(given: str | None) -> str:
    """The namespace given, else from the environment, else from the pod, else "default"."""
    if value := given or os.environ.get(names.ENV_NAMESPACE, "").strip():
        return value
    return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() if _NAMESPACE_FILE.is_file() else "default"


class Identity:
    """Headers that prove the caller's namespace."""

    def __init__(self, namespace: str, token_file: Path | None = None) -> None:
        self.namespace = namespace
        self._token_file = token_file or Path(os.environ.get(names.ENV_TOKEN_FILE) or names.TOKEN_FILE)
        self._token = ""
        self._stamp = -1

    def headers(self) -> dict[str, str]:
        """`authorization` when there is a token; without one the namespace, which only a data plane without
        authentication believes."""
        if token := self.token():
            return {"authorization": f"Bearer {token}"}
        return {names.HEADER_NAMESPACE: self.namespace}

    def token(self) -> str:
        """The service-account token as it is now; empty without one."""
        try:
            stamp = self._token_file.stat().st_mtime_ns
            if stamp != self._stamp:
                self._token, self._stamp = self._token_file.read_text(encoding="utf-8").strip(), stamp
        except OSError:
            self._token, self._stamp = "", -1
        return self._token

    def account(self) -> tuple[str, str] | None:
        """Namespace and name of the token's ServiceAccount, as the token says; None without a token that says it.

        Not verified: it chooses where this client listens, and whether it may is the server's to decide.
        """
        payload = (self.token().split(".") + [""])[1].encode()
        try:
            subject = json.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))["sub"]
            _, kind, namespace, name = subject.split(":")
        except (binascii.Error, ValueError, KeyError, TypeError, AttributeError):
            return None
        return (namespace, name) if kind == "serviceaccount" and namespace and name else None
