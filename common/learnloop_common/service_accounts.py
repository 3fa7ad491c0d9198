"""Service accounts: the account that a verified token names, and where the cluster's keys are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from learnloop_api import names

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# What Kubernetes lets a ServiceAccount be named. NATS' permissions are made of it: a `*` in it would be one.
ACCOUNT = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Account:
    """A service account, and the pod that the token was mounted into where it names one."""

    namespace: str
    subject: str
    pod: str | None = None
    pod_uid: str | None = None
    audiences: frozenset[str] = frozenset()


def account_of(claims: Mapping[str, Any]) -> Account:
    """The account that verified claims name.

    Raises:
        ValueError: they name none; the message may be shown to the caller.
    """
    kubernetes = claims.get("kubernetes.io")
    namespace = kubernetes.get("namespace") if isinstance(kubernetes, dict) else None
    subject = str(claims["sub"])
    if not isinstance(namespace, str) or not NAMESPACE.fullmatch(namespace):
        raise ValueError("the token names no namespace; mount a projected service-account token")
    prefix = f"system:serviceaccount:{namespace}:"
    if not subject.startswith(prefix) or not ACCOUNT.fullmatch(subject.removeprefix(prefix)):
        raise ValueError("the token's subject is not a service account of its namespace")
    pod = kubernetes.get("pod") if isinstance(kubernetes, dict) else None
    name, uid = (pod.get("name"), pod.get("uid")) if isinstance(pod, dict) else (None, None)
    audience = claims.get("aud")
    audiences = frozenset({audience} if isinstance(audience, str) else audience or ())
    if isinstance(name, str) and isinstance(uid, str):
        return Account(namespace, subject, name, uid, audiences)
    return Account(namespace, subject, audiences=audiences)


@dataclass(frozen=True)
class KeySource:
    """Location of the cluster's keys, and required claims of a token. `issuer` None: that of this pod's own token."""

    jwks_url: str
    token_file: str
    ca_file: str
    issuer: str | None = None
    audiences: tuple[str, ...] = (names.TOKEN_AUDIENCE,)


class KeysUnavailable(Exception):
    """Tokens cannot be verified now."""

    def __init__(self, what: str, retry_after: int) -> None:
        super().__init__(f"{what} does not answer")
        self.what = what
        self.retry_after = retry_after
