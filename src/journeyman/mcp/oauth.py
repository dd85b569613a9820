"""Signing in to an MCP server: OAuth by the SDK's client, or a token that the program gets by itself.

The SDK finds the authorization server, registers there, proves that the code is ours (PKCE) and refreshes. What it
leaves open is here: tokens outlive the process, with what a refresh needs; another process may have refreshed them;
a person is asked only where there is one, and only while the server is opened, never in the middle of a run; and a
server that lies about where to sign in is not followed to addresses that nobody should ask.
"""

from __future__ import annotations

import asyncio
import html
import inspect
import json
import os
import sys
import webbrowser
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from pydantic import AnyUrl

from journeyman.definition.narrowing import is_list, is_str_dict
from journeyman.errors import name_and_words, quoted
from journeyman.machine.files import make_private_folder, open_lock, replace_file, take_lock
from journeyman.mcp.servers import KEYRING, Http, OAuth, TokenProvider
from journeyman.texts import shorten_line

if TYPE_CHECKING:
    from httpx2 import URL, Auth, Request, Response
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

PATIENCE_S: Final = 300.0
"""How long a person has to sign in."""
_PROVIDER_S: Final = 30.0
"""How long the program's own function may take for a token: longer, and a call would seem to hang."""
_READ_S: Final = 10.0
"""How long a browser may take to say what it wants."""
_LONGEST_REQUEST: Final = 16_384
"""The longest head of a request to the page to which a browser comes back, in bytes: a code and a state are short."""
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_SERVICE: Final = "journeyman-mcp"
"""The name under which a keyring has the tokens."""
_DONE: Final = "You are signed in. You can close this window."
_LONG_AGO: Final = 1.0
"""An end of tokens, in seconds since 1970: the SDK takes 0 for none."""
Flow: TypeAlias = "AsyncGenerator[Request, Response]"
"""Gives the requests to send, the last of them signed, and gets the responses."""
Remedy: TypeAlias = "Callable[[OAuthClientProvider], Awaitable[bool]]"
"""Does what may help a request that was refused, and returns whether it may be sent again."""
Stored: TypeAlias = dict[str, Any]
"""What is kept of one server: its `client`, `tokens`, `expires_at` (seconds since 1970), `metadata`, `resource`."""


class SignInFailed(Exception):
    """Nobody is signed in, and why; its text is for people, and holds no secret."""


def default_place() -> Path:
    """Return the file of this user's tokens."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(base) / "journeyman" / "mcp-tokens.json"


def read_stored(oauth: OAuth, url: str) -> Stored:
    """Return what is kept of the server at an address; nothing, if nothing is.

    Raises:
        SignInFailed: the file or the keyring cannot be read.
    """
    try:
        if oauth.tokens == KEYRING:
            text = _keyring().get_password(_SERVICE, url)
            found: object = json.loads(text) if text else {}
        else:
            found = _read_file(_file(oauth)).get(url, {})
    except (OSError, ValueError) as error:
        raise SignInFailed(f"the kept tokens cannot be read ({_place_name(oauth)}: {_words(error)})") from None
    return dict(found) if is_str_dict(found) else {}


def write_stored(oauth: OAuth, url: str, changed: Mapping[str, object]) -> None:
    """Keep what has changed for the server at an address; other servers' tokens stay, whoever writes beside us.

    Raises:
        SignInFailed: the file or the keyring cannot be written.
    """
    try:
        if oauth.tokens == KEYRING:
            _keyring().set_password(_SERVICE, url, json.dumps({**read_stored(oauth, url), **changed}))
            return
        file = _file(oauth)
        make_private_folder(file.parent)
        lock = open_lock(file.with_name(f"{file.name}.lock"))
        try:
            take_lock(lock, wait=True)
            known = _read_file(file)
            before = known.get(url)
            known[url] = {**(before if is_str_dict(before) else {}), **changed}
            replace_file(file, json.dumps(known, indent=1).encode(), mode=0o600)
        finally:
            os.close(lock)
    except (OSError, ValueError) as error:
        raise SignInFailed(f"tokens cannot be kept ({_place_name(oauth)}: {_words(error)})") from None


def _read_file(file: Path) -> dict[str, object]:
    if not file.exists():
        return {}
    known: object = json.loads(file.read_bytes())
    if not is_str_dict(known):
        raise ValueError("it is no JSON object")
    return known


def _file(oauth: OAuth) -> Path:
    return default_place() if oauth.tokens is None else Path(oauth.tokens)


def _place_name(oauth: OAuth) -> str:
    return "keyring" if oauth.tokens == KEYRING else str(_file(oauth))


def _keyring() -> ModuleType:
    if find_spec("keyring") is None:
        raise SignInFailed("there is no keyring: pip install 'journeyman[keyring]', or name a file: OAuth(tokens=…)")
    import keyring

    return keyring


def _words(error: BaseException) -> str:
    return shorten_line(getattr(error, "strerror", None) or name_and_words(error), 200)


class SignIn:
    """The sign-in at one server: what signs its requests, and the secrets that come of it."""

    def __init__(self, server: Http) -> None:
        self._server: Final = server
        self.is_opening = True
        """True while the server is opened for the first time, when a person may be asked."""
        self.is_asking = False
        """True while a person is asked."""
        self.secrets: set[str] = set()
        """The texts that no error may show: tokens, codes and the client's secret."""

    def make_auth(self, refuse: Callable[[str], None]) -> Auth | None:
        """Return what signs the requests of one connection. `refuse` is told why nobody is signed in."""
        from httpx2 import Auth

        given = self._server.auth
        if given is None:
            return None
        sign = _OAuthFlow(self, self._server, given) if isinstance(given, OAuth) else _own_tokens(self, given)

        class Signing(Auth):
            async def async_auth_flow(self, request: Request) -> Flow:
                flow = sign(request)
                try:
                    outgoing = await anext(flow)
                    while True:
                        outgoing = await flow.asend((yield outgoing))
                except StopAsyncIteration:
                    return
                except SignInFailed as error:
                    refuse(str(error))
                    raise
                finally:
                    await flow.aclose()

        return Signing()


def _own_tokens(sign_in: SignIn, get_token: TokenProvider) -> Callable[[Request], Flow]:
    """Return what signs with the token that the program's own function gives, asked before each request."""

    async def ask() -> str:
        try:
            async with asyncio.timeout(_PROVIDER_S):
                given = get_token() if inspect.iscoroutinefunction(get_token) else await asyncio.to_thread(get_token)
                token = await given if inspect.isawaitable(given) else given
        except TimeoutError:
            raise SignInFailed(f"the function that gives its token took more than {_PROVIDER_S:g} s") from None
        except Exception as error:  # the program's own code: told by name
            raise SignInFailed(f"the function that gives its token raised {type(error).__name__}") from error
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            found = "a text with odd characters, or none" if isinstance(token, str) else f"{type(token).__name__!r}"
            raise SignInFailed(f"the function that gives its token returned {found}, not a token")
        sign_in.secrets.add(token)
        return token

    async def sign(request: Request) -> Flow:
        token = await ask()
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == _UNAUTHORIZED and (other := await ask()) != token:
            request.headers["Authorization"] = f"Bearer {other}"
            yield request

    return sign


@dataclass
class _Tokens:
    """The SDK's storage of tokens, which also keeps when they end and whom to ask for new ones."""

    sign_in: SignIn
    server: Http
    oauth: OAuth
    provider: OAuthClientProvider | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the kept tokens, and give the SDK what it does not keep by itself: their end, and the endpoints."""
        from mcp.shared.auth import OAuthMetadata, OAuthToken, ProtectedResourceMetadata

        stored = await self._read_stored()
        if self.provider is None or "tokens" not in stored:
            return None
        context = self.provider.context
        try:
            tokens = OAuthToken.model_validate(stored["tokens"])
            context.token_expiry_time = stored.get("expires_at")
            if (metadata := stored.get("metadata")) is not None:
                context.oauth_metadata = OAuthMetadata.model_validate(metadata)
            if (resource := stored.get("resource")) is not None:
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(resource)
                context.auth_server_url = str(context.protected_resource_metadata.authorization_servers[0])
        except (ValueError, LookupError):
            raise SignInFailed(f"the kept tokens are damaged ({_place_name(self.oauth)}); sign in again") from None
        self._hide(tokens)
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens."""
        assert self.provider is not None
        self._hide(tokens)
        context = self.provider.context
        resource, metadata = context.protected_resource_metadata, context.oauth_metadata
        kept = {
            "tokens": tokens.model_dump(mode="json", exclude_none=True),
            "expires_at": context.token_expiry_time,
            "metadata": None if metadata is None else metadata.model_dump(mode="json", exclude_none=True),
            "resource": None if resource is None else resource.model_dump(mode="json", exclude_none=True),
        }
        await asyncio.to_thread(write_stored, self.oauth, self.server.url, kept)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client as it was registered or given; none, if it was registered for another port."""
        from mcp.shared.auth import OAuthClientInformationFull

        if self.oauth.client_id is not None:
            method = "client_secret_post" if self.oauth.client_secret else "none"
            return OAuthClientInformationFull(
                client_id=self.oauth.client_id,
                client_secret=self.oauth.client_secret,
                token_endpoint_auth_method=method,
                redirect_uris=None if self.provider is None else self.provider.context.client_metadata.redirect_uris,
            )
        client = (await self._read_stored()).get("client")
        return None if client is None else OAuthClientInformationFull.model_validate(client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the client as it was registered."""
        if client_info.client_secret:
            self.sign_in.secrets.add(client_info.client_secret)
        kept = client_info.model_dump(mode="json", exclude_none=True)
        await asyncio.to_thread(write_stored, self.oauth, self.server.url, {"client": kept})

    async def _read_stored(self) -> Stored:
        return await asyncio.to_thread(read_stored, self.oauth, self.server.url)

    def _hide(self, tokens: OAuthToken) -> None:
        self.sign_in.secrets.update(filter(None, (tokens.access_token, tokens.refresh_token)))


class _OAuthFlow:
    """A signer of requests by OAuth: the SDK's flow, with what may be tried before a person is asked."""

    def __init__(self, sign_in: SignIn, server: Http, oauth: OAuth) -> None:
        self._sign_in: Final = sign_in
        self._server: Final = server
        self._oauth: Final = oauth
        self._tokens: Final = _Tokens(sign_in, server, oauth)
        self._returning: Final = _Returning(sign_in, oauth)

    async def __call__(self, request: Request) -> Flow:
        from mcp.client.auth import OAuthFlowError

        provider = await self._make_provider()
        can_ask = self._oauth.open_address is not None or sys.stderr.isatty()
        left: list[Remedy] = [self._adopt_others, self._expire]
        flow = provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                _check_address(outgoing.url, self._server.url)
                response = yield outgoing
                lacks_scope = "insufficient_scope" in response.headers.get("www-authenticate", "")
                is_refused = response.status_code == _UNAUTHORIZED or (
                    response.status_code == _FORBIDDEN and lacks_scope
                )
                wants_person = outgoing is request and is_refused
                is_helped = False
                while wants_person and left and not is_helped:
                    is_helped = await left.pop(0)(provider)
                if is_helped:
                    await flow.aclose()  # which frees the SDK's lock
                    flow = provider.async_auth_flow(request)
                    outgoing = await anext(flow)
                elif wants_person and not (self._sign_in.is_opening and can_ask):
                    lacks = "further rights" if response.status_code == _FORBIDDEN else "a person to sign in"
                    how = f"journeyman mcp login {self._server.shown}"
                    raise SignInFailed(f"it wants {lacks} (HTTP {response.status_code}): {how}")
                else:
                    outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except (OAuthFlowError, ValueError) as error:
            raise SignInFailed(f"signing in failed: {shorten_line(name_and_words(error), 300)}") from error
        finally:
            await flow.aclose()

    async def _make_provider(self) -> OAuthClientProvider:
        from mcp.client.auth import OAuthClientProvider

        if self._tokens.provider is None:
            stored = await asyncio.to_thread(read_stored, self._oauth, self._server.url)
            self._tokens.provider = OAuthClientProvider(
                self._server.url,
                _describe_us(self._oauth, await self._returning.choose_port(stored)),
                self._tokens,
                redirect_handler=self._returning.note_address,
                callback_handler=self._returning.wait_for_person,
            )
        return self._tokens.provider

    async def _adopt_others(self, provider: OAuthClientProvider) -> bool:
        """Take the tokens that another process has got in the meantime."""
        before = provider.context.current_tokens
        found = await self._tokens.get_tokens()
        if found is None or (before is not None and found.access_token == before.access_token):
            return False
        provider.context.current_tokens = found
        provider.context.client_info = await self._tokens.get_client_info()
        return True

    async def _expire(self, provider: OAuthClientProvider) -> bool:
        """Let the SDK refresh tokens that the server does not take, though they should hold."""
        provider.context.token_expiry_time = _LONG_AGO
        return provider.context.can_refresh_token()


def _describe_us(oauth: OAuth, port: int) -> OAuthClientMetadata:
    from mcp.shared.auth import OAuthClientMetadata

    return OAuthClientMetadata(
        client_name="Journeyman",
        redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}/callback")],
        scope=" ".join(oauth.scopes) or None,
        token_endpoint_auth_method=None if oauth.client_secret else "none",
    )


def _check_address(url: URL, server: str) -> None:
    """Refuse to be sent by a server to an address that is not encrypted, unless both are on this machine."""
    of_server = urlsplit(server)
    if url.scheme == "https" or (url.scheme, url.host) == (of_server.scheme, of_server.hostname):
        return
    if url.scheme == "http" and _is_here(url.host) and _is_here(of_server.hostname or ""):
        return
    raise SignInFailed(f"it sends us to {url.scheme}://{url.host} to sign in, which is not encrypted")


def _is_here(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


class _Returning:
    """The page on this machine to which a browser comes back with a code, and the way there."""

    def __init__(self, sign_in: SignIn, oauth: OAuth) -> None:
        self._sign_in: Final = sign_in
        self._oauth: Final = oauth
        self._port = 0
        self._state = ""
        self._address = ""

    async def choose_port(self, stored: Stored) -> int:
        """Return the port for the page: that of the registered client, if there is one, else a free one."""
        if self._oauth.port:
            self._port = self._oauth.port
            return self._port
        client = stored.get("client")
        uris = client.get("redirect_uris") if is_str_dict(client) else None
        self._port = (urlsplit(str(uris[0])).port or 0) if is_list(uris) and uris else 0
        if not self._port:
            server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
            self._port = server.sockets[0].getsockname()[1]
            server.close()
            await server.wait_closed()
        return self._port

    async def note_address(self, address: str) -> None:
        """Note the address at which to sign in; it is opened once the page is there."""
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SignInFailed(f"it sends people to {quoted(address[:80])} to sign in, which no browser should open")
        self._address, self._state = address, parse_qs(parts.query).get("state", [""])[0]

    async def wait_for_person(self) -> AuthorizationCodeResult:
        """Return what the browser brings back."""
        answered: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._sign_in.is_asking = True
        try:
            async with self._page(answered), asyncio.timeout(PATIENCE_S):
                await _open(self._oauth, self._address)
                return await answered
        except TimeoutError:
            raise SignInFailed(f"nobody has signed in within {PATIENCE_S:g} s") from None
        except OSError as error:
            hint = "Close what listens there, or give another: OAuth(port=…)."
            raise SignInFailed(
                f"port {self._port}, for the browser's way back, is taken ({_words(error)}). {hint}"
            ) from None
        finally:
            self._sign_in.is_asking = False

    @asynccontextmanager
    async def _page(self, answered: asyncio.Future[AuthorizationCodeResult]) -> AsyncGenerator[None]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, ValueError, EOFError, asyncio.LimitOverrunError):  # TimeoutError is an OSError
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _READ_S)
                status, words = self._read_request(head, answered)
                body = f"<!doctype html><meta charset=utf-8><title>Journeyman</title><p>{html.escape(words)}".encode()
                kind = "Content-Type: text/html; charset=utf-8\r\nContent-Security-Policy: default-src 'none'"
                writer.write(
                    f"HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                )
                writer.write(body)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", self._port, limit=_LONGEST_REQUEST)
        try:
            yield
        finally:
            server.close()

    def _read_request(self, head: bytes, answered: asyncio.Future[AuthorizationCodeResult]) -> tuple[str, str]:
        """Return the page's status and words for one request. What does not bring back our state changes nothing."""
        from mcp.shared.auth import AuthorizationCodeResult

        words = head.decode("ascii", "replace").split(" ")
        asked = urlsplit(words[1] if len(words) > 1 else "")
        given = {name: values[0] for name, values in parse_qs(asked.query).items()}
        if asked.path != "/callback" or given.get("state") != self._state or answered.done():
            return "404 Not Found", "Nothing is here."
        if not (code := given.get("code")):
            why = shorten_line(given.get("error_description") or given.get("error") or "no reason is given", 200)
            answered.set_exception(SignInFailed(f"signing in was refused: {why}"))
            return "200 OK", f"You are not signed in: {why}"
        self._sign_in.secrets.add(code)
        answered.set_result(AuthorizationCodeResult(code=code, state=given["state"], iss=given.get("iss")))
        return "200 OK", _DONE


def show_address(address: str) -> None:
    """Print where to sign in, and open it in a browser, which nobody waits for: some go on as long as their window."""
    where = urlsplit(address).hostname
    sys.stderr.write(f"journeyman: sign in at {where} in your browser: {address}\n")
    sys.stderr.flush()
    Thread(target=webbrowser.open, args=(address,), name="journeyman-browser", daemon=True).start()


async def _open(oauth: OAuth, address: str) -> None:
    """Bring a person to an address: by the program's own function, a plain one in a thread, or else by the terminal."""
    open_address = oauth.open_address or show_address
    if inspect.iscoroutinefunction(open_address):
        outcome = open_address(address)
    else:
        outcome = await asyncio.to_thread(open_address, address)
    if inspect.isawaitable(outcome):
        await outcome
