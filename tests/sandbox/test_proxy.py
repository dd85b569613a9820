"""The proxy of a box: allowed hosts are reached through it, and nothing else is, however it is asked for."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from journeyman.hosts.addresses import may_be_reached
from journeyman.hosts.names import allows
from journeyman.hosts.proxy import HostProxy, RefusedHost, read_hello
from journeyman.sandbox import Bubblewrap, SandboxRefusal, TellsRefusals
from journeyman.sandbox.trials import run_in_sandbox
from tests.sandbox.stage import Stage

PYTHON = "python3 -I -S -c"
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@dataclass
class Served:
    """A server of one answer, and the requests that it has received."""

    port: int = 0
    received: list[str] = field(default_factory=list[str])
    leads_to: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append((await reader.readuntil(b"\r\n\r\n")).decode())
        status = f"302 Found\r\nLocation: {self.leads_to}" if self.leads_to else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\nhello".encode())
        with suppress(TimeoutError, OSError):  # a server may go on reading, whatever it was told of the connection
            async with asyncio.timeout(0.02):
                while chunk := await reader.read(1_000):
                    self.received.append(chunk.decode("latin-1"))
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    served = Served()
    async with await asyncio.start_server(served.answer, "127.0.0.1", 0) as listening:
        served.port = listening.sockets[0].getsockname()[1]
        yield served


async def ask(server: Served, text: str, *hosts: str) -> tuple[str, list[str]]:
    """Return what a proxy for the server, and these hosts, answers to a request, and what it refused."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    proxy = HostProxy(listener, (f"localhost:{server.port}", *hosts))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text.replace("PORT", str(server.port)).encode("utf-8"))
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer.decode("latin-1"), proxy.take_refused()
    finally:
        await asyncio.to_thread(proxy.close)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (
            "GET http://localhost:PORT/a?b=c HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: x\r\nA: b\r\n\r\n",
            "/a?b=c",
        ),
        ("GET http://LOCALHOST.:PORT HTTP/1.0\r\nA: b\r\n\r\n", "/"),
        ("CONNECT localhost:PORT HTTP/1.1\r\n\r\nGET /inner HTTP/1.1\r\nHost: localhost\r\nA: b\r\n\r\n", "/inner"),
    ],
)
async def test_an_allowed_host_is_reached_and_told_its_own_name(server: Served, text: str, sent: str) -> None:
    answer, refused = await ask(server, text)
    assert answer.endswith("\r\n\r\nhello")
    assert refused == []
    [received] = server.received
    assert received.startswith(f"GET {sent} HTTP/1.1\r\nHost: localhost")
    assert received.endswith("A: b\r\n\r\n")
    assert "evil" not in received
    assert "Proxy" not in received


FIRST = "POST http://localhost:PORT/ HTTP/1.1\r\n"
SECOND = "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
LINES = (
    *("CONNECT 127.0.0.1:PORT", "CONNECT [::1]:PORT", "CONNECT 2130706433:PORT", "CONNECT 0x7f.1:PORT"),
    *("CONNECT 0177.0.0.1:PORT", "CONNECT 127.1:PORT", "CONNECT [::ffff:127.0.0.1]:PORT", "CONNECT localhost:PORT:443"),
    *("CONNECT localhost:22", "CONNECT localhost:80", "CONNECT localhost:443", "CONNECT localhost"),
    *("CONNECT localhost:", "CONNECT evil.test:443", "CONNECT localhost.evil.test:PORT", "CONNECT notexample.org:443"),
    *("CONNECT example.org:443", "CONNECT *.example.org:443", "CONNECT user@localhost:PORT"),
    *("CONNECT localhost@evil.test:PORT", "CONNECT evil.test#localhost:PORT", "CONNECT loc\u0430lhost:PORT"),
    *("CONNECT localhost..:PORT", "CONNECT localhost%00.evil.test:PORT", "CONNECT localhost/evil.test:PORT"),
    *("CONNECT localhost:+PORT", "CONNECT localhost:99999", "CONNECT \u24db\u24debcalhost:PORT"),
    *("CONNECT ip6-localhost:PORT", "GET http://127.0.0.1:PORT/", "GET http://user@localhost:PORT/"),
    *("GET http://localhost:PORT@127.0.0.1:PORT/", "GET http://evil.test/", "GET https://localhost:PORT/", "GET /"),
    *("GET //localhost:PORT/", "OPTIONS *", "GET http://evil.test\\@localhost:PORT/", "GET http://localhost\t:PORT/"),
    *("GET http:///", "get http://localhost:PORT/", "GET http://[::1]:PORT/", "GET http://localhost:PORT\x0b/"),
    *("GET ftp://localhost:PORT/", "GET http://0:PORT/", "CONNECT evil.test.:443", "CONNECT EVIL.TEST:443"),
    *("CONNECT localhost%2eevil.test:PORT", "CONNECT [localhost]:PORT", "CONNECT localhost\0.evil.test:PORT"),
    *("CONNECT [::ffff:7f00:1]:PORT", "CONNECT 127.0.0.1.:PORT", "CONNECT 0.0.0.0:PORT", "CONNECT [::]:PORT"),
    *("CONNECT localhost.localdomain:PORT", "CONNECT 127.0.0.1.nip.test:PORT", "CONNECT xn--locl-5qa.test:443"),
    *("CONNECT \u2460\u2461\u2466.0.0.1:PORT", "CONNECT localhost :PORT", "CONNECT localhost:\uff14\uff14\uff13"),
    *("TRACE http://evil.test/", "GET http:\\\\evil.test/"),
    *("GET http:/evil.test/", "GET http://localhost:PORT@evil.test/", "GET http://evil.test%2f@localhost:PORT/"),
    *("GET HTTP://evil.test/", "GET ws://localhost:PORT/", "GET file:///etc/passwd", "GET http://localhost:99999/"),
    *("GET http://localhost:-1/", "GET http://localhost:PORT:80/", "GET http://127.0.0.1:PORT%2f@localhost/"),
    *("GET http://[::ffff:127.0.0.1%25lo]:PORT/", "GET gopher://localhost:PORT/", "CONNECT localhost:65536"),
)
"""First lines of a request to the proxy, each of which is refused."""
TEXTS = (
    "GET http://localhost:PORT#@evil.test:80/ HTTP/1.1\r\n\r\n",
    f"GET http://localhost:PORT/ HTTP/1.1\r\n\r\n{SECOND}",
    f"GET http://localhost:PORT/ HTTP/1.1\r\nConnection: keep-alive\r\n\r\n{SECOND}",
    f"{FIRST}Content-Length: 3\r\n\r\nabc{SECOND}",
    f"{FIRST}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SECOND}",
    f"{FIRST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SECOND}",
    f"{FIRST}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{SECOND}",
    f"{FIRST}transfer-encoding:\tidentity, chunked\r\n\r\n0\r\n\r\n{SECOND}",
    *(f"{FIRST}Content-Length: {each}\r\n\r\n{SECOND}" for each in ("+99", "0x63", "-1", "9, 99", "", "9 9", "\u0669")),
    f"{FIRST}Content-Length: 0\r\nContent-Length: 99\r\n\r\n{SECOND}",
    f"{FIRST}Content-Length: 0\r\ncontent-length: 99\r\n\r\n{SECOND}",
    "GET http://localhost:PORT/ HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\n\r\n",
    "GET http://localhost:PORT/ HTTP/1.1\r\nHOST:evil.test\r\n\r\n",
    "GET http://localhost:PORT/ HTTP/1.1\r\nA: b\nHost: evil.test\r\n\r\n",
    "GET http://localhost:PORT/ HTTP/1.1\r\nA: b\rHost: evil.test\r\n\r\n",
    "GET http://localhost:PORT/ HTTP/1.1\r\n Host: evil.test\r\n\r\n",
    "GET http://localhost:PORT/\rHost:evil.test HTTP/1.1\r\n\r\n",
    "GET http://localhost:PORT/ HTTP/1.1\r\nProxy-Connection: x\r\nUpgrade: evil.test\r\n\r\n",
    f"GET http://localhost:PORT/\r\n\r\n{SECOND}",
    f"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{SECOND}",
    f"\x05\x01\x00\x05\x01\x00\x03\x09localhost\x01\xbb\r\n\r\n{SECOND}",
    f"\x04\x01\x01\xbb\x7f\x00\x00\x01\x00\r\n\r\n{SECOND}",
)
"""Whole texts, with something in them that no server may see. What is before it may come through."""
WAYS_ROUND = [*(f"{line} HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n" for line in LINES), *TEXTS]


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("number", range(len(WAYS_ROUND)))
async def test_no_way_round_the_list_of_hosts_is_open(server: Served, number: int) -> None:
    answer, _ = await ask(server, WAYS_ROUND[number], "*.example.org")
    assert "evil" not in "".join(server.received)
    if number < len(LINES):
        assert answer.startswith(("HTTP/1.1 403 ", "HTTP/1.1 400 ")), answer
        assert server.received == []


IN_A_BOX = (
    "exec 9<> /dev/tcp/127.0.0.1/$EVIL",
    "exec 9<> /dev/tcp/localhost/$EVIL",
    "exec 9<> /dev/tcp/::1/$EVIL; exec 9<> /dev/tcp/::ffff:127.0.0.1/$EVIL",
    "exec 9<> /dev/tcp/0.0.0.0/$EVIL; exec 9<> /dev/tcp/127.1.2.3/$EVIL",
    "echo x > /dev/udp/127.0.0.1/$UDP; echo x > /dev/udp/127.0.0.53/$UDP",
    "curl -m 2 http://127.0.0.1:$EVIL/",
    "curl -m 2 http://localhost:$EVIL/",
    "curl -m 2 --noproxy '*' http://localhost:$EVIL/",
    "no_proxy='*' NO_PROXY='*' curl -m 2 http://localhost:$EVIL/",
    "env -u http_proxy -u all_proxy -u ALL_PROXY curl -m 2 http://localhost:$EVIL/",
    "curl -m 2 -p -x $http_proxy http://localhost:$EVIL/",
    "curl -m 2 -p -x $http_proxy http://127.0.0.1:$EVIL/",
    "curl -m 2 -x socks5h://${http_proxy#*//} http://localhost:$EVIL/",
    "curl -m 2 -x socks4a://${http_proxy#*//} http://localhost:$EVIL/",
    "curl -m 2 -x http://evil@${http_proxy#*//} http://localhost:$EVIL/",
    "curl -m 2 -L -x $http_proxy http://localhost:$GOOD/",
    "curl -m 2 -x $http_proxy -H Host:\\ localhost:$EVIL http://localhost:$GOOD/plain",
    "curl -m 2 -x $http_proxy --connect-to localhost:$GOOD:localhost:$EVIL http://localhost:$GOOD/plain",
    "curl -m 2 -x $http_proxy --resolve localhost:$EVIL:127.0.0.1 http://localhost:$EVIL/",
    "curl -m 2 -x $http_proxy --preproxy socks5://localhost:$EVIL http://localhost:$GOOD/plain",
    "curl -m 2 --unix-socket socket http://localhost/",
    "curl -m 2 --abstract-unix-socket $ABSTRACT http://localhost/",
    "git -c http.proxy=$http_proxy ls-remote http://localhost:$EVIL/x",
    "timeout 2 git ls-remote git://localhost:$EVIL/x",
    "(setsid sh -c 'curl -m 2 http://localhost:$EVIL/' &); sleep 0.3",
    f'{PYTHON} \'import os, socket; socket.socket(2, 1, 262).connect(("127.0.0.1", int(os.environ["EVIL"])))\'',
    f'{PYTHON} \'import os, socket; socket.socket(2, 1, 132).connect(("127.0.0.1", int(os.environ["EVIL"])))\'',
    f"{PYTHON} 'import os, socket; socket.socket(40, 1).connect((2, int(os.environ[\"EVIL\"])))'",
    f'{PYTHON} \'import os, socket; socket.socket(2, 2, 1).sendto(b"x", ("127.0.0.1", 0)); print("sent")\'',
    f"{PYTHON} 'import socket; socket.socket(16, 3, 0).bind((0, 0))'; ip route add default dev lo; ip link set lo down",
    "unshare -rn true; nsenter -t 1 -n curl -m 2 http://localhost:$EVIL/",
)
"""Lines of a command in a box that may reach one server alone: another one is at the port $EVIL, and $UDP."""


@pytest.mark.share(one_in=8)
@pytest.mark.parametrize("number", range(len(IN_A_BOX)))
async def test_no_command_gets_past_its_proxy(
    bubblewrap: Bubblewrap, stage: Stage, server: Served, number: int
) -> None:
    ports = {"GOOD": str(server.port), "EVIL": stage.environment["TCP"]}
    server.leads_to = f"http://localhost:{ports['EVIL']}/"
    opened = bubblewrap.open(replace(stage.box(), hosts=(f"localhost:{server.port}",)))
    _, output = await run_in_sandbox(
        opened, 'exec bash -c "$LINE"', {**stage.environment, **ports, "LINE": IN_A_BOX[number]}
    )
    opened.close()
    assert stage.harms(output) == set(), output
    assert ports["EVIL"] not in "".join(server.received)


async def test_what_is_no_request_is_refused_in_words(server: Served) -> None:
    folded = "GET http://localhost:PORT/ HTTP/1.1\r\nA: b\r\n Host: evil.test\r\n\r\n"
    for text in (folded, "hello\r\n\r\n", "GET http://localhost:PORT/ HTTP/1.1\nHost: x\n\n\r\n\r\n", "\x00\r\n\r\n"):
        assert "did not understand" in (await ask(server, text))[0]
    assert (await ask(server, "x" * 100_000))[0].startswith("HTTP/1.1 502 ")
    assert (await ask(server, "CONNECT evil.test:443 HTTP/1.1\r\n\r\n"))[1] == ["evil.test:443"]
    assert server.received == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        *(("93.184.216.34", (True, True)), ("2606:2800:220:1::1", (True, True)), ("10.0.0.1", (False, True))),
        *(("127.0.0.1", (False, True)), ("::1", (False, True)), ("::ffff:10.0.0.1", (False, True))),
        *(
            ("169.254.169.254", (False, False)),
            ("fe80::1%eth0", (False, False)),
            ("::ffff:169.254.1.1", (False, False)),
        ),
        *(("2002:a00:1::", (False, True)), ("64:ff9b::a00:1", (False, True)), ("::10.0.0.1", (False, True))),
        *(("64:ff9b::5db8:d822", (True, True)), ("64:ff9b::a9fe:a9fe", (False, False)), ("ff02::1", (False, False))),
        *(("::ffff:0:10.0.0.1", (False, True)), ("64:ff9b:1::a00:1", (False, True)), ("fd00::1", (False, True))),
        *(("2001:0:a00:1::", (False, True)), ("255.255.255.255", (False, True)), ("198.18.0.1", (False, True))),
        *(("0.0.0.0", (False, False)), ("224.0.0.1", (False, False)), ("100.64.0.1", (False, True))),
    ],
)
def test_a_name_leads_to_a_private_address_only_where_it_is_named_with_its_port(
    address: str, expected: tuple[bool, bool]
) -> None:
    assert (may_be_reached(address, is_named=False), may_be_reached(address, is_named=True)) == expected


def test_a_host_is_allowed_at_the_usual_ports_or_at_its_own() -> None:
    hosts = ("a.test", "*.b.test", "c.test:22")
    found = [allows(hosts, *each) for each in (("a.test", 443), ("x.b.test", 80), ("c.test", 22))]
    assert found == [True] * 3
    others = [
        ("a.test", 22),
        ("c.test", 443),
        *((name, 443) for name in ("x.a.test", "b.test", "evilb.test", ".b.test")),
    ]
    assert [allows(hosts, *each) for each in others] == [False] * 6


async def hello_to(host: str, name: str | None, *, raw: bytes | None = None) -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    reader = asyncio.StreamReader()
    reader.feed_data(outgoing.read() if raw is None else raw)
    reader.feed_eof()
    return await read_hello(host, reader)


async def test_tls_must_ask_for_the_host_that_was_allowed() -> None:
    assert (await hello_to("good.test", "good.test"))[:1] == b"\x16"
    assert (await hello_to("good.test", None))[:1] == b"\x16"
    with pytest.raises(RefusedHost, match=r"evil\.test:443: the connection was one to good\.test\."):
        await hello_to("good.test", "evil.test")
    with pytest.raises(RefusedHost, match="only TLS"):
        await hello_to("good.test", None, raw=b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")


async def test_a_command_in_a_box_reaches_allowed_hosts_alone_and_what_it_was_refused_is_known(
    bubblewrap: Bubblewrap, stage: Stage, server: Served
) -> None:
    box = replace(stage.box(), hosts=(f"localhost:{server.port}",))
    opened = bubblewrap.open(box)
    talk = 'exec 9<>/dev/tcp/127.0.0.1/${http_proxy##*:}; printf "$1 HTTP/1.1\\r\\n\\r\\n" >&9; cat <&9'
    line = f"ask() {{ {talk}; }}; ask 'GET http://localhost:{server.port}/'; ask 'CONNECT evil.test:443'"
    direct = f"exec 8<>/dev/tcp/127.0.0.1/{server.port}"
    _, output = await run_in_sandbox(opened, 'exec bash -c "$LINE"', {**PATH, "LINE": f"{line}; {direct}"})
    assert isinstance(opened, TellsRefusals)
    assert opened.take_refusals() == [SandboxRefusal(cause="network", what="evil.test:443", need="host:evil.test")]
    assert "hello" in output
    assert "Connection refused" in output
    assert len(server.received) == 1
    assert stage.harms(output) == set()
    opened.close()
