"""X.509 certificates (RFC 5280) on P-256 keys: authorities, and what they sign.

`cryptography` is imported where it is needed: most processes that import this package never sign anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

BACKDATED = timedelta(minutes=10)
"""Nodes' clocks differ: a certificate that begins now would be refused by whoever is behind."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate (PEM, the signers after it that a server must send, too) and its private key (PEM, PKCS#8)."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What a certificate says of itself."""

    begins: datetime
    ends: datetime
    names: frozenset[str]
    key_id: str
    """Of its own key, in hexadecimal digits; empty where it does not say."""
    signer_id: str
    """Of the key that signed it."""


class NotACertificate(ValueError):
    """The text is not a certificate in PEM."""


def make_leaf(authority: Pair, hosts: Sequence[str], now: datetime, life: timedelta) -> Pair:
    """A certificate of a server, and of the same process as a client, for these DNS names; the first is its name.

    It never outlives who signed it. Where `authority` is a signer, its own certificate is sent along.

    Raises:
        ValueError: no names.
    """
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if not hosts:
        raise ValueError("a certificate needs a name: give at least one")
    parent, parent_key = _loaded(authority)
    key = _new_key()
    ends = min(now + life, parent.not_valid_after_utc)
    builder = _begun(_subject(hosts[0][:64]), parent.subject, key.public_key(), now, ends, ca=False, path_length=None)
    builder = builder.add_extension(_key_usage(ca=False), critical=True).add_extension(_by(parent), critical=False)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = builder.add_extension(usage, critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
    chain = () if parent.subject == parent.issuer else (parent,)
    return _signed(builder, key, parent_key, chain)


def read(pem: str) -> Facts:
    """The facts of the first certificate in `pem`.

    Raises:
        NotACertificate: there is none.
    """
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
    except ValueError as error:
        raise NotACertificate(str(error)[:200]) from None
    extensions = [extension.value for extension in certificate.extensions]
    own = next((one.digest for one in extensions if isinstance(one, x509.SubjectKeyIdentifier)), b"")
    signers = (one.key_identifier for one in extensions if isinstance(one, x509.AuthorityKeyIdentifier))
    hosts = next((one for one in extensions if isinstance(one, x509.SubjectAlternativeName)), None)
    return Facts(
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        frozenset(hosts.get_values_for_type(x509.DNSName)) if hosts else frozenset(),
        own.hex(),
        (next(signers, None) or b"").hex(),
    )


def _loaded(pair: Pair) -> "tuple[Certificate, Any]":
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return (
        x509.load_pem_x509_certificate(pair.certificate.encode()),
        load_pem_private_key(pair.key.encode(), password=None),
    )


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(
    subject: Any, issuer: Any, public_key: Any, now: datetime, ends: datetime, *, ca: bool, path_length: int | None
) -> Any:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=path_length), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(*, ca: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
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


def _by(parent: "Certificate") -> Any:
    from cryptography import x509

    own = parent.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _signed(builder: Any, key: Any, signing_key: Any, chain: "Sequence[Certificate]") -> Pair:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    certificate = builder.sign(signing_key, SHA256())
    parts = [one.public_bytes(Encoding.PEM).decode() for one in (certificate, *chain)]
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Pair("".join(parts), secret)
