"""Authorities and servers' certificates in files, for tests of whoever speaks TLS."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from learnloop_api.tls.certificates import Pair, make_authority, make_leaf

LIFE = timedelta(days=1)


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
