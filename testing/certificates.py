"""Authorities and servers' certificates in files, for tests of whoever speaks TLS."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from learnloop_common.tls.certificates import (
    Pair,
    _begun,
    _by,
    _key_usage,
    _loaded,
    _new_key,
    _signed,
    _subject,
    make_leaf,
)

LIFE = timedelta(days=1)


def make_authority(name: str, now: datetime, life: timedelta) -> Pair:
    """An authority that signed itself."""
    key = _new_key()
    subject = _subject(name)
    builder = _begun(subject, subject, key.public_key(), now, now + life, ca=True, path_length=1)
    builder = builder.add_extension(_key_usage(ca=True), critical=True)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
    )
    return _signed(builder, key, key, ())


def make_signer(authority: Pair, name: str, now: datetime, life: timedelta, never: Collection[str]) -> Pair:
    """An authority below `authority` that signs servers, yet nothing under names in `never` (RFC 5280, 4.2.1.10)."""
    parent, parent_key = _loaded(authority)
    key = _new_key()
    ends = min(now + life, parent.not_valid_after_utc)
    builder = _begun(_subject(name), parent.subject, key.public_key(), now, ends, ca=True, path_length=0)
    builder = builder.add_extension(_key_usage(ca=True), critical=True).add_extension(_by(parent), critical=False)
    if never:
        excluded = [x509.DNSName(host) for host in sorted(never)]
        builder = builder.add_extension(x509.NameConstraints(None, excluded), critical=True)
    return _signed(builder, key, parent_key, (parent,))


@dataclass
class Folder:
    """A folder as a Secret's volume gives it: tls.crt, tls.key, ca.crt."""

    path: Path
    owner: tuple[int, int] | None = None
    """User and group of the files, where another process than ours reads them."""

    @property
    def certificate(self) -> Path:
        return self.path / "tls.crt"

    @property
    def key(self) -> Path:
        return self.path / "tls.key"

    @property
    def bundle(self) -> Path:
        return self.path / "ca.crt"

    def trust(self, *authorities: Pair) -> "Folder":
        """The bundle is these from now on."""
        self._put(self.bundle, "".join(one.certificate for one in authorities))
        return self

    def show(self, authority: Pair, *hosts: str) -> "Folder":
        """A new certificate by `authority` from now on; the files change one after the other."""
        pair = make_leaf(authority, hosts or ("localhost",), datetime.now(UTC), LIFE)
        self._put(self.key, pair.key)
        self._put(self.certificate, pair.certificate)
        return self

    def environment(self) -> dict[str, str]:
        """The variables by which a process serves with it and trusts its bundle."""
        return {
            "LEARNLOOP_TLS_CERTIFICATE": str(self.certificate),
            "LEARNLOOP_TLS_KEY": str(self.key),
            "LEARNLOOP_TLS_CA": str(self.bundle),
        }

    def _put(self, target: Path, text: str) -> None:
        draft = target.with_suffix(".draft")
        draft.write_text(text)
        draft.chmod(0o600)
        if self.owner:
            os.chown(draft, *self.owner)
        draft.replace(target)


def authority(name: str = "test authority") -> Pair:
    """A new one."""
    return make_authority(name, datetime.now(UTC), LIFE)


def folder(path: Path, by: Pair, *hosts: str) -> Folder:
    """A folder with a certificate by `by`, which is also what it trusts."""
    path.mkdir(parents=True, exist_ok=True)
    return Folder(path).trust(by).show(by, *hosts)
