"""Certificates for pods: who proves a namespace gets names of that namespace, and no others."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from learnloop_api.names import WORKLOADS_DOMAIN
from learnloop_api.wire.certificates import IssuedPair
from learnloop_common.tls.certificates import Pair, make_leaf, read
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ApiError, Invalid, Unavailable

RENEW_AT = 2 / 3
SHORTEST = timedelta(seconds=2)


class Certificates:
    """Signs with the authority in the files of `config`, which are read again each time."""

    def __init__(self, config: Config) -> None:
        self._certificate, self._key = config.tls_signer_certificate, config.tls_signer_key
        self._life = timedelta(hours=config.tls_workload_hours)

    async def issue(self, namespace: str, hosts: list[str]) -> IssuedPair:
        """A new key, and a certificate for it.

        Raises:
            ApiError: 404 where TLS is off, 403 for a name outside of the namespace.
            Unavailable: the authority cannot be read, or ends too soon to sign anything.
        """
        if self._certificate is None or self._key is None:
            raise ApiError(404, "this data plane makes no certificates: tls.mode is off; serve plain HTTP")
        for host in hosts:
            _require_own(namespace, host)
        return await asyncio.to_thread(self._issue, Path(self._certificate), Path(self._key), namespace, hosts)

    def _issue(self, certificate: Path, key: Path, namespace: str, hosts: list[str]) -> IssuedPair:
        now = datetime.now(UTC)
        added = [f"{namespace}.{WORKLOADS_DOMAIN}", WORKLOADS_DOMAIN]
        try:
            pair = make_leaf(
                Pair(certificate.read_text(), key.read_text()), [*dict.fromkeys(hosts), *added], now, self._life
            )
        except (OSError, ValueError) as error:
            raise Unavailable(f"the authority of pods' certificates ({str(error)[:200]})", retry_after=10) from error
        left = read(pair.certificate).ends - now
        if left < SHORTEST:
            raise Unavailable("the authority of pods' certificates, which has ended", retry_after=10)
        return IssuedPair(
            certificate=pair.certificate, key=pair.key, renew_after_seconds=left.total_seconds() * RENEW_AT
        )


def _require_own(namespace: str, host: str) -> None:
    """One label, or two for a pod of a StatefulSet; what stands before the namespace cannot leave it."""
    label = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
    if not re.fullmatch(rf"({label}\.){{1,2}}{re.escape(namespace)}\.svc(\.cluster\.local)?", host):
        if len(host.split(".")) < 3:
            raise Invalid(f"is no full name; write NAME.{namespace}.svc", field="names", value=host)
        raise ApiError(
            403,
            f"is outside of your namespace; ask for names that end with .{namespace}.svc",
            field="names",
            value=host,
        )
