"""What lies between us and a service: proxies, SOCKS, certificates, sockets, headers, clocks and descriptors.

The servers are on loopback, which is never asked through a proxy: what is asked through one has a name that does not
exist, or is reached by the proxy alone.
"""

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp_socks
import pytest

from journeyman.errors import ProviderError
from journeyman.hosts.proxies import Proxy
from journeyman.models.answers import read_refusal
from journeyman.models.exchange import FOREIGN, Exchange, failure_before
from journeyman.models.transport import Network, Timeouts, open_stream
from journeyman.types import Usage
from tests.contracts.faults import CERTIFICATES
from tests.contracts.patient_clock import on_patient_clock
from tests.models.raw_server import Handler, RawServer, closing_after, http, join, listening

ROOT = Path(__file__).parents[2]
KEY = "sk-ant-very-secret-key"
HEADERS = {"x-api-key": KEY}
USUAL = Network()
PATIENT = Timeouts()
ANSWER = http(b"data: 1\n\n")
INNER = "http://models.invalid/v1"


async def ask(url: str, *, network: Network = USUAL, timeouts: Timeouts = PATIENT) -> str:
    """Return what a service answers."""
    async with open_stream(url, headers=HEADERS, body=b"{}", timeouts=timeouts, network=network) as answer:
        if answer.status != 200:
            raise await read_refusal(answer)
        return (await answer.body()).decode().strip()


async def failure_of(url: str, *, network: Network = USUAL) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(url, network=network)
    assert (caught.value.__context__, KEY in str(caught.value)) == (None, False)
    return caught.value


def at(certificate: str) -> ssl.SSLContext:
    """Return what a server with this certificate shows."""
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(CERTIFICATES / f"{certificate}.pem")
    return shown


def trusting() -> ssl.SSLContext:
    """Return a client's context that trusts the authority of the tests, under whatever name its server is asked."""
    context = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
    context.check_hostname = False
    return context


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_every_variable_leads_to_the_proxy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(ANSWER) as proxy:
        monkeypatch.setenv(name, proxy.url.removeprefix("http://"))
        assert await ask(INNER) == "data: 1"
        assert proxy.requests[0].startswith(b"POST http://models.invalid/v1 ")


async def test_a_variable_that_cannot_be_followed_is_told_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with RawServer(ANSWER) as server:
        monkeypatch.setenv("ALL_PROXY", f"gopher://joe:pass-word-1@{server.url.removeprefix('http://')}")
        error = await failure_of(INNER)
        assert (error.kind, error.usage, server.requests) == ("bad_request", Usage(), [])
        assert "models.invalid is not asked: ALL_PROXY is 'gopher://127.0.0.1:" in str(error)
        assert "pass-word-1" not in str(error)


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (407, "bad_request", "wants a name and a password. Write them into the variable"),
        (403, "bad_request", "answered 403"),
        (503, "network", "answered 503"),
    ],
)
async def test_a_proxy_that_refuses_is_asked_again_only_where_that_can_help(
    status: int, kind: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RawServer(http(status=status)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        error = await failure_of("https://models.invalid/v1")
    assert (error.kind, error.usage) == (kind, Usage())
    assert f"through the proxy of HTTPS_PROXY, {proxy.url}, which {words}" in str(error)


async def test_a_proxy_that_wants_a_password_for_a_request_in_the_clear_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with RawServer(http(status=407)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        error = await failure_of(INNER)
    assert (error.kind, error.status) == ("bad_request", 407)
    assert "It is the proxy of HTTP_PROXY that wants a name and a password" in str(error)


def socks5(heard: list[tuple[int, bytes]], to: int, *, reply: int = 0) -> Handler:
    """Speak SOCKS5 with a name and a password (RFC 1928 and 1929), note whom the client wants, and connect to `to`."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, n_methods = await reader.readexactly(2)
        assert version == 5
        methods = await reader.readexactly(n_methods)
        if 2 in methods:
            writer.write(b"\x05\x02")
            _, n_name = await reader.readexactly(2)
            name = await reader.readexactly(n_name)
            (n_password,) = await reader.readexactly(1)
            assert (name, await reader.readexactly(n_password)) == (b"joe", b"pass word")
            writer.write(b"\x01\x00")
        else:
            writer.write(b"\x05\x00")
        *_, kind = await reader.readexactly(4)
        n_host = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
        heard.append((kind, await reader.readexactly(n_host)))
        await reader.readexactly(2)
        writer.write(bytes([5, reply, 0, 1]) + bytes(6))
        if not reply:
            await join(reader, writer, to)

    return handle


@pytest.mark.parametrize("tls", [False, True])
async def test_socks_is_spoken_and_the_proxy_looks_the_name_up(tls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[int, bytes]] = []
    async with (
        RawServer(ANSWER, tls=at("here") if tls else None) as server,
        listening(socks5(heard, int(server.url.rpartition(":")[2]))) as port,
    ):
        monkeypatch.setenv("ALL_PROXY", f"socks5h://joe:pass%20word@127.0.0.1:{port}")
        url, network = INNER.replace("http:", "https:") if tls else INNER, Network(tls=trusting())
        for _ in range(2):
            assert await ask(url, network=network) == "data: 1"
        assert (len(server.requests), heard) == (2, [(3, b"models.invalid")])


@pytest.mark.parametrize(("reply", "words"), [(2, "not allowed"), (5, "refused")])
async def test_what_a_socks_proxy_refuses_is_told_with_the_variable(
    reply: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(socks5([], 0, reply=reply)) as port:
        monkeypatch.setenv("HTTP_PROXY", f"socks5h://127.0.0.1:{port}")
        error = await failure_of(INNER)
    assert (error.kind, error.usage) == ("network", Usage())
    assert f"could not be reached through the proxy of HTTP_PROXY, socks5h://127.0.0.1:{port}" in str(error)
    assert words in str(error)


@pytest.mark.parametrize(
    "kind", [aiohttp_socks.ProxyError, aiohttp_socks.ProxyConnectionError, aiohttp_socks.ProxyTimeoutError]
)
def test_no_exception_of_the_package_for_socks_is_taken_for_an_answer(kind: type[Exception]) -> None:
    proxy = Proxy("socks5h://joe:pass-word-1@proxy:1080", "ALL_PROXY")
    error = failure_before(kind("said"), Exchange(INNER, HEADERS), proxy)
    assert not isinstance(kind("said"), FOREIGN)
    assert (error.kind, error.usage, "pass-word-1" in str(error)) == ("network", Usage(), False)


async def test_a_context_of_the_users_counts_more_than_the_environment() -> None:
    async with RawServer(ANSWER, tls=at("here")) as server:
        assert await ask(server.url, network=Network(tls=trusting())) == "data: 1"
        error = await failure_of(server.url)
    assert error.kind == "bad_request"
    assert "has a certificate that is not trusted here" in str(error)


async def test_a_service_that_wants_a_certificate_of_the_client_is_shown_it() -> None:
    shown = at("here")
    shown.verify_mode = ssl.CERT_REQUIRED
    shown.load_verify_locations(CERTIFICATES / "self_signed.pem")
    known = trusting()
    known.load_cert_chain(CERTIFICATES / "self_signed.pem")
    async with RawServer(ANSWER, tls=shown) as server:
        assert await ask(server.url, network=Network(tls=known)) == "data: 1"
        error = await failure_of(server.url, network=Network(tls=trusting()))
    assert error.kind == "network"


@pytest.mark.parametrize(
    ("variable", "name", "words"),
    [
        ("SSL_CERT_FILE", "nowhere.pem", "which holds no certificates (No such file or directory)"),
        ("SSL_CERT_FILE", "empty.pem", "which holds no certificates"),
        ("SSL_CERT_DIR", "nowhere", "which is no folder"),
    ],
)
async def test_authorities_that_are_not_there_are_told_as_that(
    variable: str, name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    async with RawServer(ANSWER, tls=at("here")) as server:
        monkeypatch.setenv(variable, str(tmp_path / name))
        error = await failure_of(server.url)
    assert (error.kind, error.usage) == ("bad_request", Usage())
    assert f"is not asked: {variable} is '{tmp_path / name}', {words}" in str(error)


async def test_a_variable_that_others_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATES / "authority.pem"))
    async with RawServer(ANSWER, tls=at("here")) as server:
        error = await failure_of(server.url)
    assert "REQUESTS_CA_BUNDLE is read by others alone: set SSL_CERT_FILE to the same file" in str(error)


async def test_a_port_that_speaks_tls_and_is_asked_in_the_clear_is_told() -> None:
    async with RawServer(closing_after(b"\x15\x03\x01\x00\x02\x02\x16")) as server:
        error = await failure_of(server.url)
    assert error.kind == "bad_request"
    assert "speaks TLS at this port, and was asked in the clear: write https:// in base_url" in str(error)


AFTER_AIOHTTP = """
import aiohttp, os, sys
os.environ["SSL_CERT_FILE"] = sys.argv[1]
from journeyman.models.exchange import TRUST
from journeyman.models.transport import _environment, _tls
names = {dict(part[0] for part in each["subject"])["commonName"] for each in _tls(_environment(TRUST)).get_ca_certs()}
print(names)
"""


def test_authorities_that_are_named_after_aiohttp_was_imported_are_trusted() -> None:
    program = [sys.executable, "-c", AFTER_AIOHTTP, str(CERTIFICATES / "authority.pem")]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert len(said.strip()) > len("set()")


async def test_a_service_on_a_unix_socket_is_asked_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(ANSWER)
        writer.close()

    path = str(tmp_path / "s")
    server = await asyncio.start_unix_server(serve, path)
    assert await ask("http://model/v1", network=Network(unix_socket=path)) == "data: 1"
    server.close()
    assert asked[0].startswith(b"POST /v1 HTTP/1.1\r\nHost: model\r\n")
    error = await failure_of("https://model/v1", network=Network(unix_socket=path))
    assert (error.kind, len(asked)) == ("bad_request", 1)
    assert "TLS is not spoken over Network.unix_socket" in str(error)


async def test_many_and_long_headers_are_read_up_to_a_bound() -> None:
    for headers in ({"Set-Cookie": "s=" + "a" * 60_000}, {f"X-{n}": str(n) for n in range(480)}):
        async with RawServer(http(b"data: 1\n\n", headers=headers)) as server:
            assert await ask(server.url) == "data: 1"
    for headers in ({"Set-Cookie": "s=" + "a" * 70_000}, {f"X-{n}": str(n) for n in range(520)}):
        async with RawServer(http(b"data: 1\n\n", headers=headers)) as server:
            assert (await failure_of(server.url)).kind == "unknown"


@pytest.mark.parametrize("beat", [b": beat\n\n", b"event: ping\ndata: {}\n\n", b"data:\n\n", b"\n"])
def test_a_stream_of_heartbeats_alone_ends(beat: bytes) -> None:
    n_beats = 0

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal n_beats
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for _beat in range(100):
            writer.write(beat)
            n_beats += 1
            await asyncio.sleep(10)

    async def read() -> str:
        async with RawServer(serve) as server:
            limits = Timeouts(idle_s=60, heartbeats_s=100)
            async with open_stream(server.url, headers={}, body=b"{}", timeouts=limits) as answer:
                await answer.look_ahead()
                while await answer.events():
                    pass
        return "ended"

    with pytest.raises(ProviderError, match="nothing but heartbeats in 100 s") as caught:
        on_patient_clock(read)
    assert caught.value.kind == "stream_idle"
    assert 11 <= n_beats <= 13


MANY = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from journeyman.models.transport import Timeouts, open_stream

async def ask(url):
    async with open_stream(url, headers={}, body=b"{}", timeouts=Timeouts(connect_s=30)) as answer:
        return len(await answer.body())

async def main():
    answers = await asyncio.gather(*[ask(sys.argv[1]) for _ in range(200)])
    print(len(answers), {*answers})

asyncio.run(main())
"""


async def test_more_requests_than_descriptors_wait_for_one_another() -> None:
    async with RawServer(ANSWER) as server:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", MANY, server.url), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said, _ = await program.communicate()
        assert said.decode() == "200 {9}\n"
        assert server.n_connections <= 48
