"""Contexts follow their files: certificates and authorities are exchanged under load, and nothing is refused."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from learnloop_common.service_accounts import KeySource, KeysUnavailable
from learnloop_common.tls import client_context, server_context, with_scheme
from learnloop_common.token_verification import KeySet
from testing.certificates import Folder, authority, folder, read


@asynccontextmanager
async def serving(files: Folder, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that answers each line with itself."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    context = context or server_context(files.certificate, files.key)
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context, backlog=512) as server:
        yield server.sockets[0].getsockname()[1]


async def ask(port: int, context: ssl.SSLContext, host: str = "localhost") -> str:
    """One connection, one answer; returns the hexadecimal key id of what the server showed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    writer.write(b"hello\n")
    assert await asyncio.wait_for(reader.readline(), 30) == b"hello\n"
    shown = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    await writer.wait_closed()
    return read(ssl.DER_cert_to_PEM_cert(shown)).key_id


def trusting(files: Folder) -> ssl.SSLContext:
    return client_context({"LEARNLOOP_TLS_CA": str(files.bundle)})


async def test_an_open_connection_lives_on_when_the_certificate_changes(tmp_path: Path) -> None:
    old, new = authority("old"), authority("new")
    files = folder(tmp_path, old)
    async with serving(files) as port:
        own = trusting(files)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=own, server_hostname="localhost")
        files.trust(new).show(new)
        writer.write(b"still here\n")
        assert await asyncio.wait_for(reader.readline(), 30) == b"still here\n"
        writer.close()
        await writer.wait_closed()


async def test_who_was_not_told_of_the_new_authority_refuses_it(tmp_path: Path) -> None:
    old, new = authority("old"), authority("new")
    files, other = folder(tmp_path / "server", old), folder(tmp_path / "client", old)
    async with serving(files) as port:
        context = trusting(other)
        await ask(port, context)
        files.show(new)
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(port, context)


async def test_a_retired_authority_is_refused_without_a_restart(tmp_path: Path) -> None:
    old, new = authority("old"), authority("new")
    files = folder(tmp_path, old)
    async with serving(files) as port:
        context = trusting(files)
        await ask(port, context)
        files.trust(new)
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(port, context)


async def test_a_server_of_another_name_is_refused(tmp_path: Path) -> None:
    files = folder(tmp_path, authority(), "cartpole.team-a.svc")
    async with serving(files) as port:
        await ask(port, trusting(files), "cartpole.team-a.svc")
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(port, trusting(files), "cartpole.team-b.svc")


async def test_a_client_that_has_suites_of_cbc_alone_is_refused(tmp_path: Path) -> None:
    files = folder(tmp_path, authority("old"))
    old = ssl.create_default_context(cafile=files.bundle)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("ECDHE+AES:!AESGCM:!AESCCM")
    async with serving(files) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(port, old)


async def test_files_that_do_not_fit_change_nothing_until_they_do(tmp_path: Path) -> None:
    ours = authority()
    files = folder(tmp_path, ours)
    async with serving(files) as port:
        context = trusting(files)
        before = await ask(port, context)
        files.key.write_text("half a key")
        assert await ask(port, context) == before
        files.bundle.write_text("no certificate")
        assert await ask(port, context) == before
        files.trust(ours).show(ours)
        assert await ask(port, context) != before


async def test_a_bundle_that_comes_later_is_found(tmp_path: Path) -> None:
    ours = authority()
    files = folder(tmp_path / "server", ours)
    late = Folder(tmp_path)
    async with serving(files) as port:
        context = trusting(late)
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(port, context)
        late.trust(ours)
        await ask(port, context)


def test_a_server_does_not_start_with_files_that_do_not_fit(tmp_path: Path) -> None:
    files = folder(tmp_path, authority())
    files.key.unlink()
    with pytest.raises(OSError, match="No such file"):
        server_context(files.certificate, files.key)


async def test_a_server_that_asks_for_clients_certificates_takes_those_of_its_authority_alone(tmp_path: Path) -> None:
    ours, foreign = authority(), authority("foreign")
    files = folder(tmp_path / "server", ours)
    stranger = folder(tmp_path / "stranger", foreign).trust(ours)
    friend = folder(tmp_path / "friend", ours)
    context = server_context(files.certificate, files.key)
    context.newest.verify_mode = ssl.CERT_REQUIRED
    context.newest.load_verify_locations(files.bundle)
    async with serving(files, context) as port:
        await ask(port, client_context(friend.environment()))
        for wrong in (client_context(stranger.environment()), trusting(files)):
            with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
                await ask(port, wrong)


async def test_the_log_has_a_server_that_nobody_vouches_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours = folder(tmp_path / "ours", authority())
    async with serving(folder(tmp_path / "foreign", authority("foreign"))) as port:
        with pytest.raises(KeysUnavailable):
            await KeySet(KeySource(f"https://localhost:{port}", str(tmp_path / "none"), str(ours.bundle))).key("any")
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


def test_an_address_without_a_scheme_goes_by_tls_where_the_authorities_are(tmp_path: Path) -> None:
    env = {"LEARNLOOP_TLS_CA": str(tmp_path / "ca.crt")}
    assert with_scheme("data.system.svc:8080", env) == "http://data.system.svc:8080"
    (tmp_path / "ca.crt").write_text("there")
    assert with_scheme("data.system.svc:8080", env) == "https://data.system.svc:8080"
    assert with_scheme("http://data.system.svc:8080", env) == "http://data.system.svc:8080"
    assert with_scheme("", env) == ""
