"""A pod's own certificate: asked of the data plane with the pod's token, kept in two files, renewed before it ends.

No Secret is made for it and the operator reads none: the token proves the namespace, and the data plane signs names of
that namespace only. The key lives in the pod's temporary folder and in nobody else's files.
"""

import json
import logging
import os
import random
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.certificates import CertificateRequest, IssuedPair
from learnloop_common.tls.contexts import FollowingContext, client_context, server_context

log = logging.getLogger(__name__)
PATH = "/api/v1/certificates"
TIMEOUT_SECONDS = 10.0
MAX_ANSWER = 65_536
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
PATIENCE_SECONDS = 120.0
"""How long a start waits for its first certificate: the data plane may be starting, too."""


class NotIssued(Exception):
    """The data plane gave no certificate; the sentence says why."""


@dataclass(slots=True)
class OwnCertificate:
    """The files of one pod's certificate. `names_wanted` are DNS names of its namespace."""

    data_url: str
    names_wanted: tuple[str, ...]
    token_file: Path
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="learnloop-tls-")))

    @property
    def certificate(self) -> Path:
        """The chain, PEM."""
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        """The private key, PEM, for this user alone."""
        return self.folder / "tls.key"

    def obtain(self, patience: float = PATIENCE_SECONDS, sleep: Callable[[float], None] = time.sleep) -> float:
        """Asks until there is one; returns the seconds after which to renew it.

        Raises:
            NotIssued: there is none after `patience` seconds.
        """
        pause, until = FIRST_PAUSE, time.monotonic() + patience
        while True:
            try:
                return self.renew()
            except NotIssued as error:
                if time.monotonic() + pause > until:
                    raise
                log.warning("%s; next attempt in %.1f s", error, pause)
            sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def keep(self, renew_after: float) -> None:
        """Renews in a thread of its own for as long as the process lives, which it never keeps from ending."""

        def run() -> None:
            due = renew_after
            while True:
                time.sleep(due * random.uniform(0.9, 1.0))  # pods that began together do not ask together
                due = self.obtain(float("inf"))

        threading.Thread(target=run, name="certificate", daemon=True).start()

    def renew(self) -> float:
        """One attempt; returns what obtain does. Raises NotIssued."""
        issued = self._ask()
        _write(self.key, issued.key, 0o600)
        _write(self.certificate, issued.certificate, 0o644)
        return issued.renew_after_seconds

    def _ask(self) -> IssuedPair:
        headers = {"content-type": "application/json"}
        try:
            headers["authorization"] = f"Bearer {self.token_file.read_text(encoding='utf-8').strip()}"
        except OSError as error:
            raise NotIssued(f"{self.token_file}: the token cannot be read ({error.strerror}); mount it") from None
        body = CertificateRequest(names=list(self.names_wanted)).model_dump_json().encode()
        request = urllib.request.Request(self.data_url.rstrip("/") + PATH, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=client_context().newest) as answer:
                return IssuedPair.model_validate_json(answer.read(MAX_ANSWER))
        except urllib.error.HTTPError as error:
            raise NotIssued(f"the data plane refuses a certificate: {error.code} {_sentence(error)}") from None
        except (OSError, ValidationError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise NotIssued(f"{self.data_url} gives no certificate: {str(reason)[:300]}") from None


def own_context(env: Mapping[str, str] = os.environ) -> FollowingContext | None:
    """What this process serves with; None: plain HTTP. It may wait for the data plane.

    The files of $LEARNLOOP_TLS_CERTIFICATE and $LEARNLOOP_TLS_KEY, where they are named; else a certificate for the
    names of $LEARNLOOP_TLS_NAMES, which is renewed from now on.

    Raises:
        ValueError, OSError: the variables do not fit one another, or the files.
        NotIssued: the data plane gives no certificate.
    """
    certificate, key = env.get(names.ENV_TLS_CERTIFICATE, ""), env.get(names.ENV_TLS_KEY, "")
    if bool(certificate) != bool(key):
        raise ValueError(f"{names.ENV_TLS_CERTIFICATE} and {names.ENV_TLS_KEY} go together: set both, or neither")
    if certificate:
        return server_context(Path(certificate), Path(key))
    own = wanted(env)
    if own is None:
        return None
    own.keep(own.obtain())
    return server_context(own.certificate, own.key)


def wanted(env: Mapping[str, str] = os.environ, folder: Path | None = None) -> OwnCertificate | None:
    """The certificate for the names of $LEARNLOOP_TLS_NAMES, not yet asked for; None: there are none.

    Args:
        folder: where its files are written; None: a new one, for this process alone.

    Raises:
        ValueError: nothing says where the data plane is.
    """
    hosts = tuple(name for name in env.get(names.ENV_TLS_NAMES, "").split(",") if name)
    if not hosts:
        return None
    url = env.get(names.ENV_DATA_URL, "")
    if not url:
        raise ValueError(f"{names.ENV_DATA_URL}: '' is empty: give the data plane's address, it makes certificates")
    token = Path(env.get(names.ENV_TOKEN_FILE) or names.TOKEN_FILE)
    return OwnCertificate(url, hosts, token, folder) if folder else OwnCertificate(url, hosts, token)


def _write(target: Path, text: str, mode: int) -> None:
    """Whole or not at all."""
    draft = target.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(target)


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        told = json.loads(error.read(MAX_ANSWER))["error"]["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(told)[:300]
