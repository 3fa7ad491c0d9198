"""X.509 certificates for tests of TLS: authorities, servers' certificates, folders as Secrets mount them."""

import contextlib
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = timedelta(days=1)
BACKDATED = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate (PEM) and its private key (PEM, PKCS#8)."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Fields of a certificate; key identifiers in hexadecimal digits."""

    ends: datetime
    names: frozenset[str]
    key_id: str
    signer_id: str


def make_authority(name: str, now: datetime, life: timedelta) -> Pair:
    """An authority that signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = _builder(subject, subject, key, now, now + life, ca=True)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return _signed(builder.add_extension(identifier, critical=False), key, key)


def make_leaf(authority: Pair, hosts: Sequence[str], now: datetime, life: timedelta) -> Pair:
    """A certificate of a server, and of the same process as a client, for these DNS names."""
    parent = x509.load_pem_x509_certificate(authority.certificate.encode())
    parent_key: Any = load_pem_private_key(authority.key.encode(), password=None)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_subject(hosts[0][:64]), parent.subject, key, now, now + life, ca=False)
    signer = parent.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    for extension in (
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
        x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]),
    ):
        builder = builder.add_extension(extension, critical=False)
    return _signed(builder, key, parent_key)


def read(pem: str) -> Facts:
    """The facts of the first certificate in `pem`."""
    certificate = x509.load_pem_x509_certificate(pem.encode())
    extensions = [extension.value for extension in certificate.extensions]
    own = next((one.digest for one in extensions if isinstance(one, x509.SubjectKeyIdentifier)), b"")
    signers = (one.key_identifier for one in extensions if isinstance(one, x509.AuthorityKeyIdentifier))
    hosts = next((one for one in extensions if isinstance(one, x509.SubjectAlternativeName)), None)
    names = frozenset(hosts.get_values_for_type(x509.DNSName)) if hosts else frozenset[str]()
    return Facts(certificate.not_valid_after_utc, names, own.hex(), (next(signers, None) or b"").hex())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, ends: datetime, *, ca: bool
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(usage, critical=True)
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signing_key: Any) -> Pair:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Pair(builder.sign(signing_key, SHA256()).public_bytes(Encoding.PEM).decode(), secret)


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


def shake_hands(tmp_path: Path, server: dict[str, str], bundle: str, name: str) -> None:
    """A strict client that trusts `bundle` asks for `name`; raises ssl.SSLError."""
    for key, text in server.items():
        (tmp_path / key).write_text(text)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    asking = ssl.create_default_context(cadata=bundle)
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    down, up = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = asking.wrap_bio(down, up, server_hostname=name), serving.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert ends[0].version() == "TLSv1.3"
