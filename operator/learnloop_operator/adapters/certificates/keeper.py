"""Makes and renews the certificates of the installation's own parts: Secrets of its own namespace, by their names."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from learnloop_api import names
from learnloop_api.tls.certificates import Pair, make_authority, make_leaf, make_signer
from learnloop_operator.adapters.certificates.authority_secret import (
    AUTHORITIES_KEY,
    CERTIFICATE_KEY,
    OBEYED_KEY,
    PRIVATE_KEY,
    HeldAuthority,
    decoded,
    held_authorities,
    hold,
    leaf_of,
    patch,
    stored,
    wish,
)
from learnloop_operator.adapters.kube.errors import Conflict
from learnloop_operator.adapters.kube.kinds import SECRET
from learnloop_operator.core.certificates.leaves import reason_to_renew
from learnloop_operator.core.certificates.rollover import Pace, roll_over

log = logging.getLogger(__name__)
ATTEMPTS = 5
MERGE = "application/merge-patch+json"
AUTHORITY_NAME = "learnloop authority"
SIGNER_NAME = "learnloop workloads"


class Requests(Protocol):
    """The part of KubeHttp that is needed here."""

    async def request(self, method: str, path: str, *, body: Any = None, content_type: str = ...) -> dict[str, Any]:
        """One request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """How long what is made here holds."""

    authority: timedelta = timedelta(days=90)
    part: timedelta = timedelta(days=7)
    announcement: timedelta = timedelta(days=1)

    @property
    def pace(self) -> Pace:
        """What the rollover goes by. The authority of pods' certificates lives as long as a part's certificate."""
        return Pace(announcement=self.announcement, longest_leaf=self.part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The Secrets, by name. The chart makes them empty."""

    namespace: str
    authority: str
    parts: Mapping[str, Sequence[str]]
    """Secret of a part → the DNS names that it serves under."""
    signer: str
    """Secret of the authority that the data plane signs pods' certificates with."""
    own: str = ""
    """Secret of the operator's own certificate, one of `parts`."""
    folder: Path | None = None
    """Where this process reads it: the volume of a Secret that it fills itself would still be empty."""


class CertificateKeeper:
    """One look makes what is missing or due, and touches nothing else."""

    def __init__(self, http: Requests, places: Places, lives: Lives, clock: Callable[[], datetime]) -> None:
        self._http, self._places, self._lives, self._clock = http, places, lives, clock
        self.ends: dict[str, datetime] = {}
        """When the certificate in each Secret ends, as the last look found or made it."""

    async def look(self) -> list[str]:
        """Returns the Secrets that were written.

        Raises:
            KubeError: the API server refuses, or the chart's Secrets are missing.
        """
        written: list[str] = []
        authorities, signer = await self._authorities(written)
        bundle = "".join(one.pair.certificate for one in authorities)
        for name, hosts in self._places.parts.items():
            await self._renew(name, frozenset(hosts), signer, bundle, written, self._leaf(signer, hosts))
        await self._renew(self._places.signer, frozenset(), signer, bundle, written, self._signer(signer))
        return written

    async def copy_own(self) -> None:
        """This process's own certificate and bundle, from their Secret into its folder. Raises KubeError."""
        if self._places.folder is None:
            return
        secret = await self._read(self._places.own)
        for key in (PRIVATE_KEY, CERTIFICATE_KEY, names.CA_KEY):
            _put(self._places.folder / key, decoded(secret, key))

    async def _authorities(self, written: list[str]) -> tuple[list[HeldAuthority], HeldAuthority]:
        name = self._places.authority
        for _ in range(ATTEMPTS):
            secret = await self._read(name)
            now, held, asked = self._clock(), held_authorities(secret), wish(secret)
            plan = roll_over(now, [one.facts for one in held], self._lives.pace, asked=bool(asked))
            kept = [one for one in held if one.facts.key_id in plan.kept]
            if plan.make:
                kept.append(hold(make_authority(AUTHORITY_NAME, now, self._lives.authority), now))
                log.warning("a new authority is announced; it signs from %s on", now + self._lives.announcement)
            kept.sort(key=lambda one: one.facts.announced, reverse=True)
            signer = next((one for one in kept if one.facts.key_id == plan.signer), kept[0])
            bundle = "".join(one.pair.certificate for one in kept)
            data = {AUTHORITIES_KEY: stored(kept), names.CA_KEY: bundle} | ({OBEYED_KEY: asked} if asked else {})
            if all(decoded(secret, key) == text for key, text in data.items()):
                return kept, signer
            if await self._written(name, secret, data):
                written.append(name)
                return kept, signer
        raise Conflict(f"Secret {name} was changed {ATTEMPTS} times while its authorities were looked after")

    async def _renew(
        self,
        name: str,
        hosts: frozenset[str],
        signer: HeldAuthority,
        bundle: str,
        written: list[str],
        make: Callable[[], Pair],
    ) -> None:
        for _ in range(ATTEMPTS):
            secret = await self._read(name)
            leaf = leaf_of(secret)
            why = reason_to_renew(self._clock(), leaf, hosts, signer.facts.key_id)
            if leaf is not None:
                self.ends[name] = leaf.ends
            data = {names.CA_KEY: bundle}
            if why:
                pair = make()
                data |= {CERTIFICATE_KEY: pair.certificate, PRIVATE_KEY: pair.key}
            elif decoded(secret, names.CA_KEY) == bundle:
                return
            if await self._written(name, secret, data):
                log.info("certificate %s: %s", name, f"made, for {why}" if why else "the bundle is another one")
                written.append(name)
                if why:
                    self.ends[name] = self._clock() + self._lives.part
                return
        raise Conflict(f"Secret {name} was changed {ATTEMPTS} times while its certificate was renewed")

    def _leaf(self, signer: HeldAuthority, hosts: Sequence[str]) -> Callable[[], Pair]:
        return lambda: make_leaf(signer.pair, hosts, self._clock(), self._lives.part)

    def _signer(self, signer: HeldAuthority) -> Callable[[], Pair]:
        # Whoever holds it can never pose as one of the parts.
        never = {host for hosts in self._places.parts.values() for host in hosts} - {names.WORKLOADS_DOMAIN}
        never = {host for host in never if not host.startswith("*.")}
        return lambda: make_signer(signer.pair, SIGNER_NAME, self._clock(), self._lives.part, never)

    async def _read(self, name: str) -> dict[str, Any]:
        return await self._http.request("GET", SECRET.path(self._places.namespace, name))

    async def _written(self, name: str, secret: Mapping[str, Any], data: Mapping[str, str]) -> bool:
        path = SECRET.path(self._places.namespace, name)
        try:
            await self._http.request("PATCH", path, body=patch(secret, data), content_type=MERGE)
        except Conflict:
            return False
        return True


def _put(target: Path, text: str) -> None:
    """Whole, or not at all; a text that is there already is left alone."""
    if not text or (target.is_file() and target.read_text() == text):
        return
    draft = target.with_suffix(".new")
    draft.write_text(text)
    draft.chmod(0o600)
    draft.replace(target)
