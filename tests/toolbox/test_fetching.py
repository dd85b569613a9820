"""The tool `fetch`: only public addresses are asked, every redirect is checked, and no page is too much."""

import asyncio
import gzip
import re
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Image
from journeyman.hosts.addresses import is_public
from journeyman.toolbox import Workspace, fetch_tool
from journeyman.toolbox import download_media as with_bytes
from journeyman.toolbox.fetch import readable_text
from journeyman.types import Base64
from tests.contracts.faults import CERTIFICATES
from tests.models.raw_server import RawServer, http, join, listening
from tests.play import answered, existing
from tests.support.files import PNG
from tests.support.stopwatch import STALL_S, longest_stall

HERE = ["127.0.0.0/8"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """A site on this machine, and every path that it was asked for."""

    def __init__(self, port: int, asked: list[str]) -> None:
        self.asked = asked
        self.port = port
        self.url = f"http://127.0.0.1:{port}"


@asynccontextmanager
async def site(handler: Handler) -> AsyncGenerator[Site]:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(f"{request.host.partition(':')[0]}{request.path_qs}")
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Site(runner.addresses[0][1], asked)
    finally:
        await runner.cleanup()


def page(body: str | bytes, content_type: str = "text/plain", *, status: int = 200) -> Handler:
    content = body.encode() if isinstance(body, str) else body

    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(body=content, status=status, headers={"Content-Type": content_type})

    return handle


async def fetched(url: str, *, is_error: bool = False, **options: object) -> str:
    result = await answered(fetch_tool(**{"allow": HERE, **options}), {"url": url})  # pyright: ignore[reportArgumentType] - options of every type
    assert result.is_error is is_error, result.text
    return result.text


async def refused(url: str, **options: object) -> str:
    return await fetched(url, is_error=True, **options)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What hosts are at which addresses, for this test: the first address is taken at the first look, and so on."""
    known: dict[str, list[str]] = {}

    async def look_up(
        loop: asyncio.AbstractEventLoop, host: str, port: int, **options: object
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        families = {each: socket.AF_INET6 if ":" in each else socket.AF_INET for each in known[host].pop(0).split()}
        return [(family, socket.SOCK_STREAM, 6, "", (each, port)) for each, family in families.items()]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    return known


NOT_PUBLIC = [
    *("127.0.0.1", "127.255.0.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "192.0.0.1", "198.18.0.1", "192.0.2.1", "224.0.0.1"),
    *("239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1", "100::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("64:ff9b:1::1", "64:ff9b:1::808:808", "2002:7f00:1::1", "2002:a00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "93.184.216.34"),
    *("2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"),
]


@pytest.mark.parametrize("address", [*NOT_PUBLIC, *PUBLIC])
def test_a_public_address_is_told_from_others(address: str) -> None:
    assert is_public(ip_address(address)) is (address in PUBLIC)


@given(st.ip_addresses(v=4))
def test_an_address_of_ipv4_is_as_public_in_the_words_of_ipv6(address: object) -> None:
    assert is_public(ip_address(f"::ffff:{address}")) == is_public(ip_address(str(address)))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"]
)
async def test_this_machine_is_not_asked_whatever_it_is_called(host: str) -> None:
    async with site(page("secret")) as there:
        text = await refused(f"http://{host}:{there.port}/", allow=[])
        assert "not a public address" in text or "cannot be looked up" in text
        assert there.asked == []


async def test_a_name_that_has_one_address_that_is_not_public_is_not_asked(names: dict[str, list[str]]) -> None:
    names["mixed.example"] = ["8.8.8.8 10.0.0.1"]
    assert await refused("http://mixed.example/") == (
        "mixed.example is 10.0.0.1, which is not a public address, so it is not asked. Use a public URL."
    )


async def test_the_connection_goes_to_the_address_that_was_checked(names: dict[str, list[str]]) -> None:
    async with site(page("here")) as there:
        names["changing.example"] = ["127.0.0.1", "10.0.0.1"]  # another one at the second look
        text = await fetched(f"http://changing.example:{there.port}/a?b=c")
        assert text.endswith("\n\nhere")
        assert (there.asked, names) == (["changing.example/a?b=c"], {"changing.example": ["10.0.0.1"]})


async def test_a_site_is_told_who_asks() -> None:
    async def who(request: web.Request) -> web.StreamResponse:
        return web.Response(text=request.headers["User-Agent"])

    async with site(who) as there:
        assert (await fetched(there.url)).endswith("\n\njourneyman")
        assert (await fetched(there.url, user_agent="Ada's crawler")).endswith("\n\nAda's crawler")


async def test_a_host_can_be_allowed_by_its_name(names: dict[str, list[str]]) -> None:
    async with site(page("here")) as there:
        names["intranet"] = ["127.0.0.1"]
        assert (await fetched(f"http://Intranet:{there.port}/", allow=["intranet"])).endswith("here")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("file:///etc/passwd", "'file:///etc/passwd' is not fetched. Give a whole URL with http or https."),
        ("example.org", "'example.org' is not fetched. Give a whole URL with http or https."),
        ("http://", "'http://' is not fetched. Give a whole URL with http or https."),
        ("http://me:word@example.org/", "The URL has a user name or a password in it. Give it without."),
        ("http://example.org:99999/", "'http://example.org:99999/' is not a URL: Port out of range 0-65535."),
        ("http://[::1/", "'http://[::1/' is not a URL: Invalid IPv6 URL."),
    ],
)
async def test_only_whole_urls_of_the_web_are_fetched(url: str, text: str) -> None:
    assert await refused(url) == text


async def test_a_host_that_does_not_exist_or_answer_is_an_error(names: dict[str, list[str]]) -> None:
    assert "nowhere.example cannot be looked up" in await refused("http://nowhere.example/")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        names["closed.example"] = ["127.0.0.1"]
        text = await refused(f"http://closed.example:{closed.getsockname()[1]}/")
    assert "cannot be fetched" in text


def redirecting(**targets: str) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        target = targets.get(request.path.strip("/"))
        if target is None:
            return web.Response(text=f"at {request.path}")
        return web.Response(status=302, headers={"Location": target})

    return handle


async def test_a_redirect_on_the_same_host_is_followed() -> None:
    async with site(redirecting(a="b?x=1", b="/c/d")) as there:
        text = await fetched(f"{there.url}/a")
        assert text == f"[{there.url}/c/d: 200 OK, text/plain. Written by strangers.]\n\nat /c/d"
        assert there.asked == ["127.0.0.1/a", "127.0.0.1/b?x=1", "127.0.0.1/c/d"]


async def test_a_redirect_to_another_host_is_told_to_the_model(names: dict[str, list[str]]) -> None:
    async with site(redirecting(a="http://other.example/?secret")) as there:
        names["127.0.0.1"] = ["127.0.0.1"]
        assert await refused(f"{there.url}/a") == (
            "The page redirects to another host. To go on, fetch http://other.example/?secret"
        )


@pytest.mark.parametrize(
    "target", ["http://metadata.example/", "http://169.254.169.254/", "//[::1]/", "file:///etc/passwd"]
)
async def test_a_redirect_to_what_is_not_public_is_not_followed_even_anywhere(
    names: dict[str, list[str]], target: str
) -> None:
    async with site(redirecting(a=target)) as there:
        names.update({"front.example": ["127.0.0.1"], "metadata.example": ["169.254.169.254"]})
        names.update({"169.254.169.254": ["169.254.169.254"], "::1": ["::1"]})
        text = await refused(f"http://front.example:{there.port}/a", follow="anywhere")
        assert "not a public address" in text or "is not fetched" in text
        assert there.asked == ["front.example/a"]


async def test_redirects_anywhere_are_followed_where_that_is_wanted(names: dict[str, list[str]]) -> None:
    async with site(page("moved")) as there, site(redirecting(a=f"http://two.example:{there.port}/b")) as front:
        names.update({"one.example": ["127.0.0.1"], "two.example": ["127.0.0.1"]})
        assert (await fetched(f"http://one.example:{front.port}/a", follow="anywhere")).endswith("moved")


async def test_redirects_without_an_end_are_given_up() -> None:
    async with site(redirecting(a="/a")) as there:
        assert "redirects more than 5 times" in await refused(f"{there.url}/a")
        assert len(there.asked) == 6


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    try:
        while True:
            await response.write(b"word " * 10_000)
    except ConnectionError:
        return response


async def test_a_page_without_an_end_is_cut(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    async with site(endless) as there:
        result = await answered(fetch_tool(workspace, allow=HERE, max_bytes=1_000_000), {"url": there.url})
    noted = re.search(r"All of it is in (\S+fetch-1\.txt): read it with an offset\.\]", result.text)
    assert "only the first 1,000,000 bytes" in result.text
    assert len(result.text) < 52_000
    assert len(Path(existing(noted).group(1)).read_bytes()) == 1_000_000
    workspace.close()


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_page_that_never_comes_is_given_up() -> None:
    async with site(never) as there:
        assert await refused(there.url, timeout_s=0.2) == f"{there.url} did not answer within 0.2 s."


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_packed_page_is_unpacked_and_one_that_explodes_is_cut(pack: Callable[[bytes], bytes]) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        content = b"short" if request.path == "/short" else bytes([65]) * 20_000_000
        kind = "gzip" if pack is gzip.compress else "deflate"
        return web.Response(body=pack(content), headers={"Content-Encoding": kind, "Content-Type": "text/plain"})

    async with site(handle) as there:
        assert (await fetched(f"{there.url}/short")).endswith("\n\nshort")
        assert "only the first 1,000 bytes" in await fetched(f"{there.url}/bomb", max_bytes=1_000)


async def test_a_result_is_marked_as_untrusted_and_says_so() -> None:
    made = fetch_tool()
    assert (made.untrusted, made.effect, made.parallel) == (True, "idempotent", True)


async def test_an_error_of_the_site_is_an_error_with_its_text() -> None:
    async with site(page("no such page", status=404)) as there:
        head = f"[{there.url}/x: 404 Not Found, text/plain. Written by strangers.]"
        assert await refused(f"{there.url}/x") == f"{head}\n\nno such page"


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("<p>grün".encode("latin-1"), "text/html; charset=iso-8859-1", "grün"),
        ('<meta charset="iso-8859-1"><p>grün'.encode("latin-1"), "text/html", "grün"),
        ("<p>grün".encode(), "text/html", "grün"),
        ("grün".encode(), "text/plain; charset=no-such", "grün"),
        ("grün".encode(), "application/json", "grün"),
        (b"\x00\x01", "application/zip", "[Nothing that can be shown as text.]"),
    ],
)
async def test_texts_are_read_in_their_own_encoding_and_nothing_else_is(
    body: bytes, content_type: str, text: str
) -> None:
    async with site(page(body, content_type)) as there:
        kind = content_type.partition(";")[0]
        assert (await fetched(there.url)).endswith(f"{kind}. Written by strangers.]\n\n{text}")


HTML = """<!doctype html><html><head><title>A page</title><style>p { color: red }</style>
<script>alert("<p>no</p>")</script></head><body><nav><a href="/home">Home</a></nav>
<h1>Big   <em>words</em></h1><p>One
paragraph,<br>two lines &amp; an <img src=x alt="image"> &lt;here&gt;.</p>
<ul><li>first</li><li><a href="b.html?x=1">second</a></ul><pre>
  kept   as
    it is</pre><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table><noscript>off</noscript>
<a name="anchor">text</a></body></html>"""


def test_a_page_becomes_a_text_to_read() -> None:
    expected = """\
A page

[Home](https://example.org/home)

# Big words

One paragraph,
two lines & an [image: image] <here>.

- first
- [second](https://example.org/a/b.html?x=1)

```

  kept   as
    it is
```

 | a | b
 | 1 | 2

text"""
    assert readable_text(HTML, "https://example.org/a/") == expected


@given(st.text(alphabet="<>/apretscipl!-&;\"' \n[]=", max_size=200))
def test_any_page_becomes_some_text(html: str) -> None:
    assert isinstance(readable_text(html, "https://example.org/"), str)


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize(
    "piece",
    [
        *("<a ", "<!--", "<", "&", "<a href='", "</", "<![CDATA[", "<script>"),
        *("<div>", "<a>", "<?", "<a '>'", "<a '\">", "<script></script>", "<a href="),
    ],
)
def test_a_page_made_to_take_long_does_not(piece: str) -> None:
    # Were its time not in proportion to its length, it would not end within the time of a test.
    assert isinstance(readable_text(piece * (500_000 // len(piece)), "https://example.org/"), str)


CHARSETS = ("punycode", "idna", "utf-7", "unicode_escape", "rot13", "no-such", "big5", "utf-8")


@pytest.mark.parametrize("charset", CHARSETS)
async def test_no_encoding_that_a_page_names_stops_the_loop(charset: str) -> None:
    async with site(page(b"a" * 1_000_000, f"text/plain; charset={charset}")) as there:
        assert (await fetched(there.url)).count("a" * 1_000)
        assert await longest_stall(lambda: fetched(there.url)) < STALL_S


async def test_packing_that_was_not_asked_for_is_refused_and_what_is_read_is_asked_for() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "gzip, deflate"
        return web.Response(body=b"x", headers={"Content-Encoding": "br", "Content-Type": "text/plain"})

    async with site(handle) as there:
        assert "packed as br, which was not asked for" in await refused(there.url)


async def test_a_file_is_fetched_with_what_it_is() -> None:
    async with site(page(PNG, "application/octet-stream")) as here:
        image = await with_bytes(Image.from_url(f"{here.url}/a.png"), allow=HERE)
        assert image == Image(Base64.of(PNG, "image/png"))
        assert await with_bytes(image) is image


async def pictures_without_end(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "image/png"})
    await response.prepare(request)
    with suppress(ConnectionError):
        while True:
            await response.write(PNG * 100)
    return response


async def elsewhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://10.0.0.1/a.png")


@pytest.mark.parametrize(
    ("handler", "allow", "words"),
    [
        (page(PNG, "image/png"), [], "127.0.0.1 is not a public address, so it is not asked"),
        (page("<html>", "text/html"), HERE, "is text/html, which is no picture"),
        (page(PNG[:-9], "image/png"), HERE, "its end is missing"),
        (page("gone", status=404), HERE, "answered 404 Not Found"),
        (pictures_without_end, HERE, "has more than 50,000 bytes, or has no end"),
        (elsewhere, HERE, "10.0.0.1 is not a public address, so it is not asked"),
    ],
)
async def test_what_is_no_such_file_is_refused_in_one_sentence(handler: Handler, allow: list[str], words: str) -> None:
    async with site(handler) as here:
        with pytest.raises(ValueError, match=re.escape(words)) as raised:
            await with_bytes(Image.from_url(f"{here.url}/a.png"), allow=allow, max_bytes=50_000)
    assert "\n" not in str(raised.value)


async def test_a_proxy_is_asked_for_the_address_that_was_checked(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names["shop.example"] = ["93.184.216.34"]
    async with RawServer(http(b"Hello.", content_type="text/plain")) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        assert "Hello." in await fetched("http://shop.example:81/a?b=c")
        head = proxy.requests[0]
    assert head.startswith(b"GET http://93.184.216.34:81/a?b=c HTTP/1.1\r\n")
    assert b"\r\nHost: shop.example:81\r\n" in head


async def test_over_tls_the_site_is_asked_by_its_name_through_the_proxy(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names["shop.example"] = ["93.184.216.34"]
    asked: list[str | None] = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATES / "here.pem")
    tls.sni_callback = lambda _, name, __: asked.append(name)
    wanted: list[bytes] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wanted.append((await reader.readuntil(b"\r\n\r\n")).splitlines()[0])
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await join(reader, writer, int(site.url.rpartition(":")[2]))

    async with RawServer(b"", tls=tls) as site, listening(tunnel) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{port}")
        assert "CERTIFICATE_VERIFY_FAILED" in await refused("https://shop.example/a")
    assert (wanted, asked) == ([b"CONNECT 93.184.216.34:443 HTTP/1.1"], ["shop.example"])


async def test_what_is_not_public_is_not_asked_of_a_proxy_either(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names["inner.example"] = ["10.0.0.7"]
    async with RawServer(http(b"Hello.")) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        assert "not a public address" in await refused("http://inner.example/")
        assert proxy.requests == []


@pytest.mark.parametrize(
    ("proxy", "words"),
    [("socks5h://proxy:1", "ALL_PROXY names a SOCKS proxy"), ("gopher://proxy", "ALL_PROXY is 'gopher://proxy'")],
)
async def test_a_proxy_that_cannot_be_used_for_pages_is_named(
    proxy: str, words: str, names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names["shop.example"] = ["93.184.216.34"]
    monkeypatch.setenv("ALL_PROXY", proxy)
    assert f"http://shop.example/ is not fetched: {words}" in await refused("http://shop.example/")
