"""TLS and mTLS towards KEDA, and what a rotation leaves of the old authority: nothing."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from autoscaler.certificates import TlsFiles
from autoscaler.keda_server import KedaServer
from serving.errors import Misconfigured
from tests.phasewise.keda_client import Authority, Identity, Interface
from tests.phasewise.keda_desk import Desk, status_of

Status = grpc.StatusCode


@pytest.fixture(scope="module")
def interface(tmp_path_factory: pytest.TempPathFactory) -> Interface:
    return Interface(tmp_path_factory.mktemp("interface"))


def _write(folder: Path, server: Identity, client_ca: Authority | None) -> TlsFiles:
    files = TlsFiles(
        cert=folder / "tls.crt",
        key=folder / "tls.key",
        client_ca=None if client_ca is None else folder / "ca.crt",
    )
    files.cert.write_bytes(server.cert)
    files.key.write_bytes(server.key)
    if client_ca is not None:
        (folder / "ca.crt").write_bytes(client_ca.cert)
    return files


def _channel(
    server: KedaServer, trusted: Authority, client: Identity | None = None
) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(
        root_certificates=trusted.cert,
        private_key=None if client is None else client.key,
        certificate_chain=None if client is None else client.cert,
    )
    return grpc.aio.secure_channel(server.address, credentials)


async def _is_active(interface: Interface, channel: grpc.aio.Channel) -> bool:
    reference = interface.reference(tier="chat", pool="prefill")
    return bool((await interface.call(channel, "IsActive", reference)).result)


async def test_with_tls_only_who_trusts_the_authority_is_served(
    interface: Interface, tmp_path: Path
) -> None:
    ours, other = Authority("ours"), Authority("other")
    server = KedaServer(
        Desk().answers(), port=0, tls=_write(tmp_path, ours.identity("server"), None)
    )
    await server.start()
    try:
        async with (
            _channel(server, ours) as good,
            _channel(server, other) as bad,
            grpc.aio.insecure_channel(server.address) as plain,
        ):
            assert await _is_active(interface, good)
            for channel in (bad, plain):
                assert (await status_of(_is_active(interface, channel)))[0] is Status.UNAVAILABLE
    finally:
        await server.stop()


async def test_with_mtls_a_client_without_a_certificate_of_the_authority_is_refused(
    interface: Interface, tmp_path: Path
) -> None:
    ours, other = Authority("ours"), Authority("other")
    server = KedaServer(
        Desk().answers(), port=0, tls=_write(tmp_path, ours.identity("server"), ours)
    )
    await server.start()
    try:
        async with (
            _channel(server, ours, ours.identity("keda")) as good,
            _channel(server, ours) as nameless,
            _channel(server, ours, other.identity("keda")) as stranger,
        ):
            assert await _is_active(interface, good)
            for channel in (nameless, stranger):
                assert (await status_of(_is_active(interface, channel)))[0] is Status.UNAVAILABLE
    finally:
        await server.stop()


async def test_after_a_rotation_a_client_of_the_old_authority_is_refused_even_on_an_open_connection(
    interface: Interface, tmp_path: Path
) -> None:
    old, new = Authority("old"), Authority("new")
    server = KedaServer(Desk().answers(), port=0, tls=_write(tmp_path, old.identity("server"), old))
    await server.start()
    port = server.port
    try:
        async with _channel(server, old, old.identity("keda")) as connected:
            assert await _is_active(interface, connected)

            _write(tmp_path, new.identity("server"), new)
            assert await server.reload()

            assert server.port == port
            assert (await status_of(_is_active(interface, connected)))[0] is Status.UNAVAILABLE
            async with _channel(server, new, old.identity("keda")) as withdrawn:
                assert (await status_of(_is_active(interface, withdrawn)))[0] is Status.UNAVAILABLE
            async with _channel(server, new, new.identity("keda")) as renewed:
                assert await _is_active(interface, renewed)
    finally:
        await server.stop()


async def test_a_half_done_rotation_changes_nothing_until_it_is_whole(
    interface: Interface, tmp_path: Path
) -> None:
    ours = Authority("ours")
    files = _write(tmp_path, ours.identity("server"), ours)
    server = KedaServer(Desk().answers(), port=0, tls=files)
    await server.start()
    try:
        assert not await server.reload()
        second = ours.identity("server")
        files.cert.write_bytes(second.cert)
        assert not await server.reload()
        async with _channel(server, ours, ours.identity("keda")) as channel:
            assert await _is_active(interface, channel)

        files.key.write_bytes(second.key)
        assert await server.reload()
    finally:
        await server.stop()


async def test_a_connected_client_is_answered_by_every_listener_that_takes_over(
    interface: Interface, tmp_path: Path
) -> None:
    ours = Authority("ours")
    files = _write(tmp_path, ours.identity("server"), ours)
    server = KedaServer(Desk().answers(), port=0, tls=files)
    await server.start()
    try:
        async with _channel(server, ours, ours.identity("keda")) as channel:
            for _ in range(3):
                assert await _is_active(interface, channel)
                _write(tmp_path, ours.identity("server"), ours)
                assert await server.reload()
            assert await _is_active(interface, channel)
    finally:
        await server.stop()


@pytest.mark.parametrize("fault", ["missing", "garbage", "foreign key", "no authority"])
async def test_certificates_that_cannot_be_used_are_one_sentence_without_the_key(
    tmp_path: Path, fault: str
) -> None:
    ours = Authority("ours")
    files = _write(tmp_path, ours.identity("server"), ours)
    match fault:
        case "missing":
            files.key.unlink()
        case "garbage":
            files.cert.write_text("garbage")
        case "foreign key":
            files.key.write_bytes(ours.identity("server").key)
        case "no authority":
            (tmp_path / "ca.crt").write_text("")
    with pytest.raises(Misconfigured) as caught:
        await KedaServer(Desk().answers(), port=0, tls=files).start()

    assert str(tmp_path) in str(caught.value)
    assert "PRIVATE" not in str(caught.value)
