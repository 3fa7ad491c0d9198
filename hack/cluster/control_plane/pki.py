"""The certificates of one cluster, made with openssl.

The whole folder is made under another name and renamed when complete: a half-made one never counts.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.commands import run, succeeds
from toolkit.errors import Refusal

DAYS = "365"
ONE_WEEK_SECONDS = str(7 * 24 * 3600)


@dataclass(frozen=True)
class Identity:
    """The subject of a certificate. `names` are the addresses it may serve under, as openssl writes them."""

    file: str
    common_name: str
    organisation: str = ""
    names: Sequence[str] = ()

    @property
    def subject(self) -> str:
        organisation = f"/O={self.organisation}" if self.organisation else ""
        return f"{organisation}/CN={self.common_name}"


@dataclass(frozen=True)
class Pki:
    """A finished folder of keys and certificates."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"


def ensure(folder: Path, identities: Sequence[Identity]) -> Pki:
    """Make the certificates unless they are there, cover these identities and hold for another week.

    Raises Refusal when openssl is missing, CommandFailed when it fails.
    """
    pki = Pki(folder)
    wanted = "\n".join(repr(identity) for identity in identities)
    manifest = folder / "identities"
    if manifest.exists() and manifest.read_text() == wanted and _lasting(pki):
        return pki
    if shutil.which("openssl") is None:
        raise Refusal("openssl is needed to make certificates. Install it (Debian: apt-get install openssl).")
    shutil.rmtree(folder, ignore_errors=True)
    making = folder.with_name(folder.name + ".new")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True, mode=0o700)
    _make_authority(making)
    _make_service_account_keys(making)
    for identity in identities:
        _make_certificate(making, identity)
    (making / "identities").write_text(wanted)
    making.rename(folder)
    return pki


def _lasting(pki: Pki) -> bool:
    return succeeds(["openssl", "x509", "-checkend", ONE_WEEK_SECONDS, "-noout", "-in", pki.authority])


def _make_key(path: Path) -> None:
    run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path])
    path.chmod(0o600)


def _make_authority(folder: Path) -> None:
    _make_key(folder / "ca.key")
    run(
        [
            "openssl",
            "req",
            "-x509",
            "-new",
            "-key",
            folder / "ca.key",
            "-days",
            DAYS,
            "-subj",
            "/CN=learnloop-local",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
            "-out",
            folder / "ca.crt",
        ]
    )


def _make_service_account_keys(folder: Path) -> None:
    _make_key(folder / "service-accounts.key")
    run(["openssl", "ec", "-in", folder / "service-accounts.key", "-pubout", "-out", folder / "service-accounts.pub"])


def _make_certificate(folder: Path, identity: Identity) -> None:
    key, request = folder / f"{identity.file}.key", folder / f"{identity.file}.csr"
    extensions = folder / f"{identity.file}.ext"
    names = identity.names or [f"DNS:{identity.file}"]
    extensions.write_text(f"subjectAltName={','.join(names)}\nextendedKeyUsage=clientAuth,serverAuth\n")
    _make_key(key)
    run(["openssl", "req", "-new", "-key", key, "-subj", identity.subject, "-out", request])
    run(
        [
            "openssl",
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            folder / "ca.crt",
            "-CAkey",
            folder / "ca.key",
            "-CAcreateserial",
            "-days",
            DAYS,
            "-extfile",
            extensions,
            "-out",
            folder / f"{identity.file}.crt",
        ]
    )
    request.unlink()
    extensions.unlink()
