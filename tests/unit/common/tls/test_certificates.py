"""What is signed, and what it may be used for: judged by OpenSSL's own verification."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from learnloop_common.tls.certificates import NotACertificate, Pair, make_leaf, read
from testing.certificates import authority, make_authority, make_signer

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


def handshake(trusted: str, pair: Pair, host: str, folder: Path) -> None:
    """Raises ssl.SSLError where OpenSSL refuses `pair` as `host`."""
    (folder / "crt").write_text(pair.certificate)
    (folder / "key").write_text(pair.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "crt", folder / "key")
    client = ssl.create_default_context(cadata=trusted)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    ours = client.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(6):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_a_leaf_serves_under_its_names_and_no_others(tmp_path: Path) -> None:
    ours = make_authority("a", NOW, 9 * DAY)
    leaf = make_leaf(ours, ["learnloop-data.system.svc", "*.nats.system.svc"], NOW, DAY)
    for host in ("learnloop-data.system.svc", "nats-0.nats.system.svc"):
        handshake(ours.certificate, leaf, host, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ours.certificate, leaf, "learnloop-data.team-a.svc", tmp_path)


def test_a_leaf_never_outlives_who_signed_it() -> None:
    ours = make_authority("a", NOW, 2 * DAY)
    leaf = read(make_leaf(ours, ["x.y.svc"], NOW, 9 * DAY).certificate)
    assert leaf.ends == read(ours.certificate).ends
    assert leaf.signer_id == read(ours.certificate).key_id
    assert leaf.names == {"x.y.svc"}


def test_a_certificate_holds_for_clocks_that_are_behind() -> None:
    assert read(authority().certificate).begins < datetime.now(UTC) - timedelta(minutes=5)


def test_the_signer_of_pods_certificates_cannot_pose_as_a_part(tmp_path: Path) -> None:
    ours = make_authority("a", NOW, 9 * DAY)
    signer = make_signer(ours, "pods", NOW, 3 * DAY, ["learnloop-data.system.svc"])
    handshake(ours.certificate, make_leaf(signer, ["cart.team-a.svc"], NOW, DAY), "cart.team-a.svc", tmp_path)
    forged = make_leaf(signer, ["learnloop-data.system.svc"], NOW, DAY)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ours.certificate, forged, "learnloop-data.system.svc", tmp_path)


def test_a_leaf_signs_nothing(tmp_path: Path) -> None:
    ours = make_authority("a", NOW, 9 * DAY)
    leaf = make_leaf(ours, ["cart.team-a.svc"], NOW, DAY)
    child = make_leaf(leaf, ["bank.team-b.svc"], NOW, DAY)
    chain = Pair(child.certificate + leaf.certificate, child.key)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ours.certificate, chain, "bank.team-b.svc", tmp_path)


def test_certificates_pass_the_profile_of_the_web() -> None:
    ours = make_authority("a", NOW, 9 * DAY)
    leaf = x509.load_pem_x509_certificate(make_leaf(ours, ["cart.team-a.svc"], NOW, DAY).certificate.encode())
    root = x509.load_pem_x509_certificate(ours.certificate.encode())
    verifier = PolicyBuilder().store(Store([root])).time(NOW).build_server_verifier(x509.DNSName("cart.team-a.svc"))
    assert verifier.verify(leaf, [])
    late = (
        PolicyBuilder().store(Store([root])).time(NOW + 2 * DAY).build_server_verifier(x509.DNSName("cart.team-a.svc"))
    )
    with pytest.raises(VerificationError):
        late.verify(leaf, [])


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_said_to_be_none(text: str) -> None:
    with pytest.raises(NotACertificate):
        read(text)


def test_a_certificate_without_names_is_not_made() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        make_leaf(authority(), [], NOW, DAY)
