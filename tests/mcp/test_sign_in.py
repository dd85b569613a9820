"""Signing in to servers: with a person once, by kept tokens afterwards, by the program's own token; and servers that
lie."""

import asyncio
import json
import socket
import stat
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import keyring
import pytest
from aiohttp import web
from httpx2 import AsyncClient
from keyring.backend import KeyringBackend
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from journeyman.errors import DefinitionError, McpUnavailable
from journeyman.mcp import Http, OAuth, load_servers, mcp
from journeyman.mcp.oauth import default_place
from journeyman.mcp.servers import TokenProvider
from tests.mcp.signing_in import Authority, guarded, sign_in_at
from tests.mcp.small import by_name
from tests.mcp.test_http import serving
from tests.play import answered

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "settings" / "tokens.json"


async def read_note(target: Http) -> str:
    async with mcp({"notes": target}) as tools:
        return (await answered(by_name(tools)["read_note"], {})).text


async def reason(target: Http) -> str:
    with pytest.raises(McpUnavailable) as caught:
        await read_note(target)
    return caught.value.reason


async def test_a_person_signs_in_once_and_the_kept_tokens_are_used_and_refreshed(kept: Path) -> None:
    authority = Authority()
    async with guarded(authority) as url:
        assert await read_note(Http(url, auth=OAuth(kept, open_address=sign_in_at))) == "water the plants"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        alone = Http(url, auth=OAuth(kept))  # nobody can be asked: this process has no terminal
        assert await read_note(alone) == "water the plants"
        async with mcp({"notes": alone}) as tools:
            authority.access.clear()  # they end in the middle, sooner than was said
            assert (await answered(by_name(tools)["read_note"], {})).text == "water the plants"
    assert (authority.n_signed_in, authority.n_refreshed, len(authority.clients)) == (1, 1, 1)


async def test_tokens_that_have_ended_are_refreshed_before_they_are_sent(kept: Path) -> None:
    authority = Authority()
    async with guarded(authority) as url:
        await read_note(Http(url, auth=OAuth(kept, open_address=sign_in_at)))
        stored = json.loads(kept.read_text())
        stored[url]["expires_at"] = 1.0
        kept.write_text(json.dumps(stored))
        assert await read_note(Http(url, auth=OAuth(kept))) == "water the plants"
    assert authority.n_refreshed == 1


async def test_tokens_that_another_process_has_refreshed_are_taken_over(kept: Path) -> None:
    authority = Authority()
    async with guarded(authority) as url:
        first = Http(url, auth=OAuth(kept, open_address=sign_in_at))
        async with mcp({"notes": first}) as one, mcp({"notes": Http(url, auth=OAuth(kept))}) as other:
            for _ in range(3):  # each refresh token is good for one refresh
                authority.access.clear()
                for tools in (one, other):
                    assert (await answered(by_name(tools)["read_note"], {})).text == "water the plants"
    assert (authority.n_signed_in, authority.n_refreshed) == (1, 3)


async def test_where_nobody_can_be_asked_it_says_how_to_sign_in(kept: Path) -> None:
    authority = Authority()
    async with guarded(authority) as url:
        assert await reason(Http(url, auth=OAuth(kept))) == (
            f"it wants a person to sign in (HTTP 401): journeyman mcp login {url}"
        )
    assert (authority.clients, kept.exists()) == ({}, False)


async def test_a_refresh_that_fails_in_a_run_asks_nobody_and_the_call_says_why(kept: Path) -> None:
    authority = Authority()
    async with guarded(authority) as url, mcp({"notes": Http(url, auth=OAuth(kept, open_address=sign_in_at))}) as tools:
        authority.access.clear()
        authority.refresh.clear()
        result = await answered(by_name(tools)["read_note"], {})
        assert result.is_error
        assert f"journeyman mcp login {url}" in result.text
    assert authority.n_signed_in == 1


async def test_fewer_rights_than_were_asked_for_are_told_and_in_a_run_nobody_is_asked_for_more(kept: Path) -> None:
    authority = Authority()
    async with guarded(authority) as url:
        authority.grants = []
        assert "HTTP 403" in await reason(Http(url, auth=OAuth(kept, open_address=sign_in_at)))
        n_asked = authority.n_signed_in
        assert n_asked <= 2
        assert "it wants further rights (HTTP 403)" in await reason(Http(url, auth=OAuth(kept)))
        authority.grants = None
        assert await read_note(Http(url, auth=OAuth(kept, open_address=sign_in_at))) == "water the plants"
    assert authority.n_signed_in == n_asked + 1


async def test_no_error_and_no_repr_shows_a_token(kept: Path) -> None:
    authority = Authority()
    async with guarded(authority) as url:
        target = Http(url, auth=OAuth(kept, client_secret="hunter2hunter2", open_address=sign_in_at))
        assert "hunter2" not in repr(target)
        await read_note(Http(url, auth=OAuth(kept, open_address=sign_in_at)))
    token = json.loads(kept.read_text())[url]["tokens"]["access_token"]

    async def echo(request: web.Request) -> web.Response:
        return web.Response(status=500, text=request.headers.get("Authorization", ""))

    async with serving(echo) as other:
        stored = {other: json.loads(kept.read_text())[url]}
        kept.write_text(json.dumps(stored))
        assert token not in await reason(Http(other, auth=OAuth(kept)))


async def test_a_person_may_refuse_and_strangers_at_the_page_change_nothing(kept: Path) -> None:
    async def refuse(address: str) -> None:
        query = parse_qs(urlsplit(address).query)
        page = query["redirect_uri"][0]
        async with AsyncClient() as browser:
            for stray in ("?code=evil&state=guess", "?error=x", "/../other"):
                assert (await browser.get(f"{page}{stray}")).status_code == 404
            said = await browser.get(page, params={"state": query["state"][0], "error": "access_denied<b>"})
            assert "access_denied&lt;b&gt;" in said.text

    authority = Authority()
    async with guarded(authority) as url:
        why = await reason(Http(url, auth=OAuth(kept, open_address=refuse)))
    assert why == "signing in was refused: access_denied<b>"


async def test_a_client_registered_by_hand_is_not_registered_again(kept: Path) -> None:
    authority = Authority()
    async with guarded(authority) as url:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        oauth = OAuth(kept, client_id="by-hand", client_secret="its-secret", port=port, open_address=sign_in_at)
        authority.clients["by-hand"] = OAuthClientInformationFull(
            client_id="by-hand",
            client_secret="its-secret",
            redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}/callback")],
            token_endpoint_auth_method="client_secret_post",
            scope="notes",
        )
        assert await read_note(Http(url, auth=oauth)) == "water the plants"
    assert list(authority.clients) == ["by-hand"]


async def test_the_keyring_keeps_tokens_too() -> None:
    kept: dict[tuple[str, str], str] = {}

    class InMemory(KeyringBackend):
        def get_password(self, service: str, username: str) -> str | None:
            return kept.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            kept[service, username] = password

    before = keyring.get_keyring()
    keyring.set_keyring(InMemory())
    try:
        async with guarded(Authority()) as url:
            assert await read_note(Http(url, auth=OAuth("keyring", open_address=sign_in_at))) == "water the plants"
            assert await read_note(Http(url, auth=OAuth("keyring"))) == "water the plants"
    finally:
        keyring.set_keyring(before)


@pytest.mark.parametrize("content", ["[]", "no JSON", '{"URL": {"tokens": {"access_token": 3}}}'])
async def test_a_damaged_file_of_tokens_is_told_and_kept(kept: Path, content: str) -> None:
    kept.parent.mkdir()
    async with guarded(Authority()) as url:
        kept.write_text(content.replace("URL", url))
        assert str(kept) in await reason(Http(url, auth=OAuth(kept)))
    assert kept.read_text().startswith(content[:2])


LIES: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
    "another issuer": ({}, {"issuer": "https://evil.example"}, "issuer"),
    "another resource": ({"resource": "https://evil.example/mcp"}, {}, "does not match"),
    "an authority that is not encrypted": (
        {"authorization_servers": ["http://169.254.169.254/latest"]},
        {},
        "it sends us to http://169.254.169.254 to sign in, which is not encrypted",
    ),
    "a page that is no page": ({}, {"authorization_endpoint": "javascript:alert(1)"}, "signing in failed"),
    "a token endpoint that is not encrypted": ({}, {"token_endpoint": "http://10.1.2.3/token"}, "not encrypted"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_server_that_lies_about_where_to_sign_in_is_not_followed(lie: str, kept: Path) -> None:
    of_resource, of_authority, expected = LIES[lie]

    async def wants(request: web.Request) -> web.Response:
        return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})

    def root(request: web.Request) -> str:
        return f"http://{request.host}"

    async def resource(request: web.Request) -> web.Response:
        facts = {"resource": f"{root(request)}/mcp", "authorization_servers": [root(request)], **of_resource}
        return web.json_response(facts)

    async def authority(request: web.Request) -> web.Response:
        facts = {
            "issuer": root(request),
            "authorization_endpoint": f"{root(request)}/authorize",
            "token_endpoint": f"{root(request)}/token",
            "registration_endpoint": f"{root(request)}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            **of_authority,
        }
        return web.json_response(facts)

    async def register(request: web.Request) -> web.Response:
        return web.json_response({**await request.json(), "client_id": "us"}, status=201)

    async def authorize(request: web.Request) -> web.Response:
        back = f"{request.query['redirect_uri']}?code=it&state={request.query['state']}"
        return web.Response(status=302, headers={"Location": back})

    pages = {
        "/.well-known/oauth-protected-resource/mcp": resource,
        "/.well-known/oauth-authorization-server": authority,
        "/register": register,
        "/authorize": authorize,
    }
    async with serving(wants, pages) as url:
        assert expected in await reason(Http(url, auth=OAuth(kept, open_address=sign_in_at)))


def giving(tokens: Sequence[str]) -> tuple[TokenProvider, TokenProvider]:
    plain, awaited = iter(tokens), iter(tokens)

    async def later() -> str:
        await asyncio.sleep(0)
        return next(awaited)

    return (lambda: next(plain)), later


@pytest.mark.parametrize("which", [0, 1])
async def test_a_function_gives_the_token_of_each_request_and_another_where_one_is_refused(which: int) -> None:
    seen: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.Response(status=401 if len(seen) == 1 else 500)

    async with serving(serve) as url:
        await reason(Http(url, auth=giving(["one", "two", "three", "four", "five"])[which]))
    assert seen[:3] == ["Bearer one", "Bearer two", "Bearer three"]


def raising() -> str:
    raise RuntimeError("hunter2")


@pytest.mark.parametrize(
    ("provider", "why"),
    [
        (raising, "the function that gives its token raised RuntimeError"),
        (lambda: "", "the function that gives its token returned a text with odd characters, or none, not a token"),
        (lambda: "a\nb", "the function that gives its token returned a text with odd characters, or none, not a token"),
        (lambda: 3, "the function that gives its token returned 'int', not a token"),
    ],
)
async def test_a_function_that_gives_no_token_is_told(provider: TokenProvider, why: str) -> None:
    async with guarded(Authority()) as url:
        assert await reason(Http(url, auth=provider)) == why


A_TEXT: Any = "a-token"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, OAuth()),
        ({"oauth": {"clientId": "us", "callbackPort": 8080}}, OAuth(client_id="us", port=8080)),
        ({"auth": {"CLIENT_ID": "us", "CLIENT_SECRET": "${S}", "scopes": ["a"]}},
         OAuth(client_id="us", client_secret="hunter2hunter2", scopes=("a",))),
        ({"oauth": False}, None),
        ({"oauth": {"enabled": False}}, None),
        ({"headers": {"Authorization": "Bearer x"}}, None),
    ],
)  # fmt: skip
def test_a_file_of_servers_says_how_to_sign_in_as_editors_write_it(
    entry: dict[str, object], expected: OAuth | None, tmp_path: Path
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"url": "https://a.example/mcp", **entry}}}))
    server = load_servers(file, environ={"S": "hunter2hunter2"})["a"]
    assert isinstance(server, Http)
    assert server.auth == expected


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (Http("https://a.example", headers={"authorization": "x"}, auth=OAuth()), "both auth and a header"),
        (Http("https://a.example", auth=A_TEXT), "The auth of server 'a' is 'str'"),
    ],
)
async def test_wrong_ways_to_sign_in_are_refused_when_they_are_defined(server: Http, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        async with mcp({"a": server}):
            pass


async def test_a_person_signs_in_by_the_command_and_programs_use_the_tokens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    browser = tmp_path / "browser.py"
    browser.write_text("import sys, urllib.request\nurllib.request.urlopen(sys.argv[1]).read()\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BROWSER", f"{sys.executable} {browser} %s")
    authority = Authority()
    async with guarded(authority) as url:
        command = (sys.executable, "-m", "journeyman", "mcp", "login", url)
        login = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        stdout, stderr = await login.communicate()
        assert (login.returncode, stdout) == (0, b"signed in: 127.0.0.1\n"), stderr
        assert f"sign in at 127.0.0.1 in your browser: {url.removesuffix('/mcp')}/authorize?".encode() in stderr
        assert await read_note(Http(url, auth=OAuth())) == "water the plants"
    assert authority.n_signed_in == 1


def test_tokens_are_kept_with_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_place() == tmp_path / "journeyman" / "mcp-tokens.json"
