"""Definitions of MCP servers: programs to start and addresses to call, in code or in a file that lists them.

What the servers are given may be secret, so no repr and no error shows it.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json, to_json

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_dict, is_list, is_list_of_texts, is_mapping, is_str_dict, is_str_mapping
from journeyman.definition.problems import raise_problems
from journeyman.errors import DefinitionError, Problem
from journeyman.hosts.names import host_problem
from journeyman.machine.environment import is_secret
from journeyman.result import Result
from journeyman.sandbox.needs import read_need
from journeyman.tools.redaction import scrub_secrets
from journeyman.types import Message

if TYPE_CHECKING:
    from journeyman.sandbox import Box, Sandbox

_log = logging.getLogger("journeyman")
_NEED_HINT: Final = "Write host:NAME, host:NAME:PORT, write:PATH or read:PATH; sandbox=None for all that you may do."
_LEAST_SECRET: Final = 8  # shorter values are not hidden unless their name tells: they would be found in ordinary words
_NAME: Final = re.compile(r"[^\W_][\w .:@/+&()-]{0,127}")


@lazy_dataclass(frozen=True)
class Stdio:
    """A server that is a program: started here, and spoken to over its standard input and output."""

    command: str
    """The program to start."""
    args: Sequence[str] = field(default=(), repr=False)
    """What it is started with."""
    _: KW_ONLY
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Environment variables for the server, in addition to the few of this process that every program needs."""
    keep: Collection[str] = ()
    """Names of further environment variables of this process that the server gets."""
    cwd: str | Path | None = None
    """The folder in which the server is started, which it may change. None: the current folder, if its command line
    names something there; else, in a box, an empty one."""
    sandbox: Literal["auto", "required"] | Box | Sandbox | None = field(default="auto", repr=False)
    """The box that it runs in. `auto`: one of its own, where a sandbox holds enough; `required`: that, or it is not
    started; a box, or a sandbox; None: it runs as this process does."""
    needs: Sequence[str] = ()
    """The needs beyond its own box: `host:NAME[:PORT]`, `write:PATH`, `read:PATH`. A box that is given has all."""
    only: Collection[str] | None = None
    """The tools to take, as the server names them; None for all."""
    without: Collection[str] = ()
    """The tools to leave out, as the server names them."""
    sampling: Sampler | None = field(default=None, repr=False)
    """Lets the server ask the model of the run that calls it: `journeyman.loop.ask_model`. None: it may not."""
    hidden: Collection[str] = field(default=(), repr=False)
    """Texts that no error may show, in addition to the values of `env` and `keep`."""
    grace_s: float = 2.0
    """How many seconds the server has to end by itself, and again after it was asked to end."""

    @property
    def identity(self) -> dict[str, str]:
        """The facts that stay the same as long as it is the same server."""
        return {"transport": "stdio", "program": PurePath(self.command).name}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no error may show."""
        kept = {name: os.environ[name] for name in self.keep if name in os.environ}
        values = [value for name, value in {**self.env, **kept}.items() if _may_be_secret(name, value)]
        return (*values, *self.hidden)


class Sampler(Protocol):
    """Asks the model of the run that goes on, as `journeyman.loop.ask_model` does."""

    async def __call__(
        self, messages: Sequence[Message], *, instructions: str, max_tokens: int | None, name: str
    ) -> Result[str]:
        """Return how asking ended."""
        ...


KEYRING: Final = "keyring"
"""The word for the system's keyring, where a file could be named."""
TokenProvider: TypeAlias = Callable[[], str | Awaitable[str]]
"""Gives a token that holds now; it is asked before each request, and once more where the server refuses the token. A
plain function runs in a thread."""


@lazy_dataclass(frozen=True)
class OAuth:
    """Signing in with OAuth 2.1: authorization code with PKCE, dynamic registration, refresh.

    Tokens that are kept are used and refreshed. If there are none, a person signs in while the server is opened: at a
    terminal, the browser opens and the address is printed. Where nobody can be asked, and in the middle of a run, the
    error says how to sign in (`journeyman mcp login`).
    """

    tokens: str | Path | None = field(default=None, repr=False)
    """Where tokens are kept: in a file that its owner alone can read; "keyring": in the system's keyring (the extra
    `keyring`); None: in `mcp-tokens.json` in the user's folder of settings."""
    _: KW_ONLY
    scopes: Sequence[str] = ()
    """The rights to ask for, where the server does not say which it wants."""
    client_id: str | None = None
    """The client that was registered by hand, for servers at which programs cannot register themselves."""
    client_secret: str | None = field(default=None, repr=False)
    """Its secret, if it has one."""
    port: int = 0
    """The port of 127.0.0.1 to which the browser comes back; 0: the one that was registered, or a free one."""
    open_address: Callable[[str], Awaitable[None] | None] | None = field(default=None, repr=False)
    """Brings a person to the address at which they sign in; a plain function runs in a thread. None: the terminal does
    it."""


@lazy_dataclass(frozen=True)
class Http:
    """A server at an address, spoken to over streamable HTTP."""

    url: str = field(repr=False)
    """The address of the server."""
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers that are sent with every request, for example `Authorization`."""
    auth: OAuth | TokenProvider | None = field(default=None, repr=False)
    """How requests are signed: by OAuth, or by a token that a function of yours gives. None: by `headers` alone."""
    only: Collection[str] | None = None
    """The tools to take, as the server names them; None for all."""
    without: Collection[str] = ()
    """The tools to leave out, as the server names them."""
    sampling: Sampler | None = field(default=None, repr=False)
    """Lets the server ask the model of the run that calls it: `journeyman.loop.ask_model`. None: it may not."""
    hidden: Collection[str] = field(default=(), repr=False)
    """Texts that no error may show, in addition to the values of `headers`."""

    @property
    def shown(self) -> str:
        """The address without what may be secret: user, password and query."""
        parts = urlsplit(self.url)
        bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        return scrub_secrets(bare, self.hidden)

    @property
    def identity(self) -> dict[str, str]:
        """The facts that stay the same as long as it is the same server."""
        return {"transport": "http", "url": self.shown}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no error may show."""
        parts = urlsplit(self.url)
        values = [*self.headers.values(), *(value.rpartition(" ")[2] for value in self.headers.values())]
        return (
            *(value for value in values if len(value) > 3),
            *filter(None, (parts.password, parts.query)),
            *([self.auth.client_secret] if isinstance(self.auth, OAuth) and self.auth.client_secret else ()),
            *self.hidden,
        )


Server: TypeAlias = Stdio | Http
"""A server of either kind."""
Target: TypeAlias = Server | Sequence[str] | str | Mapping[str, object]
"""A server; or the words of a command; or an address that begins with http:// or https://; or an entry of `mcp.json`,
such as `{"command": "npx", "args": ["…"]}`."""


def _may_be_secret(name: str, value: str) -> bool:
    return len(value) >= _LEAST_SECRET or (bool(value) and is_secret(name, value))


def to_servers(targets: Mapping[str, Target]) -> dict[str, Server]:
    """Return the servers by name. What `mcp.json` holds may be given as it is, also below `mcpServers`.

    Raises:
        DefinitionError: it lists everything that is wrong.
    """
    subject = "The list of MCP servers"
    given = _inner(targets)  # which may be anything: users' code may not be typed
    pairs = given.items() if is_dict(given) else ()
    named = {name: target for name, target in pairs if isinstance(name, str)}
    if not is_dict(given) or len(named) < len(given):
        hint = 'Pass a dict of servers by name: {"files": ["npx", "-y", "a-server"]}.'
        wrong = (
            "It is a dict whose keys are no names."
            if is_dict(given)
            else f"It is {type(given).__name__!r}, not a dict."
        )
        raise DefinitionError(subject, [Problem("INVALID_SERVERS", wrong, hint)])
    servers: dict[str, Server] = {}
    problems: list[Problem] = []
    for name, target in named.items():
        match target:
            case Stdio() | Http():
                servers[name] = target
                problems += _placeholders_in_code(name, target)
            case str():
                servers[name] = Http(target)
            case _ if is_mapping(target):
                try:
                    entries = _FILE.validate_python({name: dict(target)})
                except ValidationError as error:
                    problems += _faults(error)
                else:
                    read, found = _read_entries(entries, os.environ)
                    servers |= read
                    problems += found
            case _ if is_list_of_texts(target):
                servers[name] = Stdio(target[0] if target else "", tuple(target[1:]))
            case _:
                hint = 'Pass the words of a command, an address, Stdio(…), Http(…), or {"command": …, "args": […]}.'
                wrong = f"Server {name[:80]!r} is given as {type(target).__name__!r}."
                problems.append(Problem("INVALID_SERVER", wrong, hint))
    raise_problems(subject, [*problems, *_all_problems(servers)])
    return servers


def plain_name(name: str) -> str:
    """Return a name in the characters that every provider takes in the names of tools, and rules in theirs."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name) or "_"


def _all_problems(servers: Mapping[str, Server]) -> Iterator[Problem]:
    plain: dict[str, str] = {}
    for name, server in servers.items():
        yield from _problems_of_server(name, server)
        other = plain.setdefault(plain_name(name), name)
        if other != name:
            wrong = (
                f"The servers {other!r} and {name!r} have one name, {plain_name(name)}, where tools and rules use it."
            )
            yield Problem("SAME_SERVER_NAME", wrong, "Rename one.")


def _placeholders_in_code(name: str, server: Server) -> Iterator[Problem]:
    values = server.env if isinstance(server, Stdio) else {**server.headers, "url": server.url}
    for key, value in values.items():
        if "${" in value:
            hint = "Only a file of servers is filled in. In code, take the value from os.environ."
            yield Problem("UNFILLED_PLACEHOLDER", f"Server {name!r} would be sent {key!r} with '${{' in it.", hint)


def _problems_of_server(name: str, server: Server) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        hint = "Use 1 to 128 letters, digits, blanks and _ . : @ / + & ( ) -, the first a letter or digit."
        yield Problem("INVALID_SERVER_NAME", f"{name!r} cannot be the name of a server.", hint)
    if isinstance(server, Stdio) and not server.command:
        yield Problem("MISSING_COMMAND", f"Server {name!r} has no command.", "Give the program and its arguments.")
    if isinstance(server, Stdio):
        yield from _problems_of_box(name, server)
    if isinstance(server, Http) and not _is_address(server.url):
        hint = 'Give http://… or https://…; a command is a list of words: ["npx", "-y", "a-server"].'
        yield Problem("INVALID_URL", f"The address of server {name!r} is not an http:// or https:// URL.", hint)
    if isinstance(server, Http) and server.auth is not None:
        if any(key.lower() == "authorization" for key in server.headers):
            wrong = f"Server {name!r} has both auth and a header Authorization."
            yield Problem("INVALID_AUTH", wrong, "Leave one out.")
        if not isinstance(server.auth, OAuth) and not callable(server.auth):
            wrong = f"The auth of server {name!r} is {type(server.auth).__name__!r}."
            yield Problem("INVALID_AUTH", wrong, "Give OAuth(), or a function that returns a token.")


def _problems_of_box(name: str, server: Stdio) -> Iterator[Problem]:
    if isinstance(server.sandbox, str) and server.sandbox not in ("auto", "required"):
        hint = "Write 'auto' or 'required', or give a Box, a sandbox, or None."
        yield Problem("INVALID_SANDBOX", f"The sandbox of server {name!r} is {server.sandbox!r}.", hint)
    for need in server.needs:
        found = read_need(need)
        if found is None or found[0] in ("outside", "socket"):
            yield Problem("UNKNOWN_NEED", f"{need!r} of server {name!r} is no need.", _NEED_HINT)
        elif found[0] == "host" and (problem := host_problem(found[1].lower())) is not None:
            yield Problem("UNKNOWN_NEED", f"{need!r} of server {name!r} names no host.", problem.hint)
    if server.needs and not isinstance(server.sandbox, str) and not hasattr(server.sandbox, "holds"):
        hint = "Leave needs out: say it in the box."
        yield Problem("UNKNOWN_NEED", f"Server {name!r} has needs, and no box of its own.", hint)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_LEFT: Final = re.compile(r"\$\{[^}]{0,80}\}?")
_OF_OTHERS: Final = re.compile(
    r"(?:[A-Za-z]+\s+)?(\$[A-Z_][A-Z0-9_]*|\$env:\w+|%[A-Za-z_]\w*%|\{\{.*\}\}|<[^<>]*>|(?i:your[-_ ][\w -]*)"
    r"|\{(?:env|file|input)[:.].*\}|\$\(.*\))"
)
"""A value that is nothing but a placeholder as other programs write it, perhaps behind a word such as Bearer."""

_IN_OUR_WORDS: Final = {
    **dict.fromkeys(("httpUrl", "serverUrl"), "url"),
    **dict.fromkeys(("transport", "transportType"), "type"),
    **dict.fromkeys(("includeTools", "enabledTools", "enabled_tools", "allowedTools", "tools"), "only"),
    **dict.fromkeys(("excludeTools", "disabledTools", "disabled_tools"), "without"),
    "environment": "env",
    "auth": "oauth",
}
"""What other programs call the fields of a server."""
_IGNORED: Final = frozenset(
    (
        *("alwaysAllow", "autoApprove", "trust", "timeout", "initTimeout", "startupTimeout", "description", "name"),
        *("title", "version", "icon", "iconUrl", "gallery", "homepage", "author", "id", "metadata", "dev", "$schema"),
        *(
            "inputs",
            "globalShortcut",
            "projects",
            "comment",
            "_comment",
            "note",
            "notes",
            "bundled",
            "source",
            "settings",
        ),
    )
)
"""What concerns only the program that wrote the file."""
_RESTRICTS: Final = re.compile(
    r"deny|denied|block|exclu|disallow|disabl|forbid|restrict|read_?only|sandbox|allow|permi|polic|only|enabl|approv",
    re.IGNORECASE,
)
_SECTIONS: Final = ("mcpServers", "mcp_servers", "context_servers", "amp.mcpServers")
"""Under which names files list their servers; beside them `servers`, `mcp` and `mcp.servers`."""
_NEEDED: Final = frozenset(("envFile", "env_file", "headersHelper"))
"""What a server would lack if it were ignored."""
_TYPES: Final = {
    **dict.fromkeys(("stdio", "local"), "command"),
    **dict.fromkeys(("http", "streamablehttp", "remote"), "url"),
}
"""What a server of each type has, small letters only."""


_Scalar: TypeAlias = Annotated[
    str, BeforeValidator(lambda value: json.dumps(value) if isinstance(value, bool) else value)
]


class _OAuthEntry(BaseModel):
    """How to sign in at one server, as the file has it: in the words of the editors that have such an entry."""

    model_config = ConfigDict(extra="forbid")

    client_id: str | None = Field(default=None, validation_alias=AliasChoices("client_id", "clientId", "CLIENT_ID"))
    client_secret: str | None = Field(
        default=None, validation_alias=AliasChoices("client_secret", "clientSecret", "CLIENT_SECRET")
    )
    scopes: tuple[str, ...] = ()
    port: int = Field(default=0, validation_alias=AliasChoices("port", "callbackPort"), ge=0, le=65_535)
    enabled: bool = True


class _ServerEntry(BaseModel):
    """One server, as the file has it."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)

    type: str | None = None
    disabled: bool = False
    command: str = ""
    args: list[_Scalar] = Field(default_factory=list[str])
    env: dict[str, _Scalar] = Field(default_factory=dict[str, str])
    keep: list[str] = Field(default_factory=list[str])
    cwd: str | None = None
    url: str = ""
    headers: dict[str, _Scalar] = Field(default_factory=dict[str, str])
    oauth: _OAuthEntry | bool | None = None
    only: list[str] | None = None
    without: tuple[str, ...] = ()
    sandbox: Literal["auto", "required", "none"] = "auto"
    needs: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _translate(cls, given: object) -> object:
        if not is_str_dict(given):
            return given
        ours: dict[str, object] = {}
        entry = _in_one_form(given)
        for key, value in entry.items():
            name = _IN_OUR_WORDS.get(key, key)
            ours[key if name in entry or name in ours else name] = value  # of two with one meaning, one stays as it is
        if isinstance(is_enabled := ours.pop("enabled", None), bool):
            ours["disabled"] = not is_enabled or ours.get("disabled", False)
        elif is_enabled is not None:
            ours["enabled"] = is_enabled
        if ours.get("only") in ("*", ["*"]):
            del ours["only"]
        return ours


def _in_one_form(entry: dict[str, object]) -> dict[str, object]:
    """Return an entry with its command as a program and its arguments, where it is a list of words, or has a `path`."""
    command = entry.get("command")
    if is_list(command) and command and "args" not in entry:
        program, *words = command
        return {**entry, "command": program, "args": words}
    if is_str_dict(command) and "path" in command:
        inside = {key: value for key, value in command.items() if value is not None}
        program = inside.pop("path")
        return {**inside, **entry, "command": program}
    return entry


def _section(value: Mapping[str, object]) -> tuple[str, object] | None:
    """Return the part of a file that lists the servers, and its name. None: all of it does."""
    for name in _SECTIONS:
        if name in value:
            return name, value[name]
    nested = value.get("mcp")
    if is_dict(nested):
        if is_dict(listed := nested.get("servers")):
            return "mcp", listed
        if not any(isinstance(nested.get(key), str) for key in ("command", "url")):
            return "mcp", nested
    listed = value.get("servers")
    if is_dict(listed) and not any(isinstance(listed.get(key), str) for key in ("command", "url")):
        return "servers", listed
    return None


def _inner(value: object) -> object:
    """Return the servers of a file that has them under `mcpServers` or `servers`, as most do."""
    if not is_str_mapping(value):
        return value
    section = _section(value)
    if section is not None:
        return section[1]
    beside = [name for name, each in value.items() if str(name).startswith("$") and not isinstance(each, dict)]
    return {name: each for name, each in value.items() if name not in beside}


_FILE: Final = TypeAdapter[dict[str, _ServerEntry]](dict[str, _ServerEntry])


def load_servers(path: str | Path, *, environ: Mapping[str, str] | None = None) -> dict[str, Server]:
    """Read a file of servers, in the forms that desktop programs and editors use, too.

    `{"mcpServers": {"files": {"command": "npx", "args": ["…"]}, "docs": {"url": "https://…", "headers": {…}}}}`;
    `${NAME}` and `${NAME:-otherwise}` stand for environment variables, so that no secret need be in the file. What
    concerns only another program is ignored, with one line in the log; what restricts is honoured, or refused.

    Raises:
        DefinitionError: the file cannot be read, or has faults; lists every fault.
    """
    file = Path(path)
    try:
        content = _read_json(file.read_bytes())
        entries = _FILE.validate_json(to_json(_inner(content)))  # whose messages have the words of JSON
    except OSError as error:
        problem = Problem("UNREADABLE_SERVERS", f"It cannot be read: {error.strerror}.", "Check the path.")
        raise DefinitionError(f"The MCP configuration {file}", [problem]) from error
    except ValidationError as error:
        raise DefinitionError(f"The MCP configuration {file}", _faults(error)) from None  # it would show the values
    except ValueError as error:
        hint = "Correct the file. It is JSON, in which comments and a last comma may stand."
        problem = Problem("INVALID_ENTRY", f"At the top: Invalid JSON: {error}.", hint)
        raise DefinitionError(f"The MCP configuration {file}", [problem]) from None
    servers, problems = _read_entries(entries, os.environ if environ is None else environ)
    _log_ignored(file, content, {name: entries[name] for name in servers})
    raise_problems(f"The MCP configuration {file}", [*problems, *_all_problems(servers)])
    return servers


_ODDITIES: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)


def _read_json(raw: bytes) -> object:
    """Return what JSON holds, as editors write it: with comments, a comma behind the last item, and in UTF-16.

    Raises:
        ValueError: it is none, at a line; or a name stands in an object twice, of which one would be lost.
    """
    try:
        text = raw.decode(json.detect_encoding(raw))
    except UnicodeDecodeError as error:
        n_line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {n_line} is not in UTF-8") from None

    def blank(found: re.Match[str]) -> str:
        """Leave strings alone, and lines where they are."""
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    text = _LAST_COMMA.sub(blank, _ODDITIES.sub(blank, text))
    content: object = from_json(text)  # which bounds how deep it may be

    def check(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise ValueError(f"{twice[0][:80]!r} stands in one object twice")
        return dict(pairs)

    json.loads(text, object_pairs_hook=check)
    return content


def _read_entries(
    entries: Mapping[str, _ServerEntry], environ: Mapping[str, str]
) -> tuple[dict[str, Server], list[Problem]]:
    """Return the servers that are not disabled, and what is wrong with variables in them."""
    reading = _EntryReader(environ)
    servers = {name: reading.server(name, entry) for name, entry in entries.items() if not entry.disabled}
    return servers, reading.problems


def _oauth_of(entry: _OAuthEntry | bool | None, fill: Callable[[str, str], str]) -> OAuth | None:
    """Return how to sign in at a server of a file: by OAuth, if the server wants that and nothing else is said."""
    given = entry if isinstance(entry, _OAuthEntry) else _OAuthEntry(enabled=entry is not False)
    if not given.enabled:
        return None
    client_id = None if given.client_id is None else fill("oauth.client_id", given.client_id)
    secret = None if given.client_secret is None else fill("oauth.client_secret", given.client_secret)
    return OAuth(scopes=given.scopes, client_id=client_id, client_secret=secret, port=given.port)


def _faults(error: ValidationError) -> list[Problem]:
    hint = (
        "A server has command, args, env, keep, cwd, needs and sandbox, or url and headers; beside them only, type and "
        "disabled."
    )
    return [
        Problem("INVALID_ENTRY", f"At {'.'.join(map(str, each['loc'])) or 'the top'}: {each['msg']}.", hint)
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    ]


def _log_ignored(file: Path, content: object, entries: Mapping[str, _ServerEntry]) -> None:
    """Say in one line what of a file is not for us."""
    whole = content if is_str_dict(content) else {}
    section = _section(whole)
    beside = [key for key in whole if (key != section[0] if section is not None else str(key).startswith("$"))]
    inside = [(name, key) for name, entry in entries.items() for key in entry.model_extra or ()]
    names = [*beside, *[f"{name}.{key}" for name, key in inside]]
    if names:
        is_known = {key for _, key in inside} <= _IGNORED
        level = logging.INFO if is_known else logging.WARNING
        _log.log(level, "%s: ignored, as it concerns other programs: %s", file, ", ".join(names)[:500])


@lazy_dataclass()
class _EntryReader:
    """A reading of a file's entries: it makes servers of them, with the environment's values in them."""

    environ: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list[Problem])

    def server(self, name: str, entry: _ServerEntry) -> Server:
        self._check(name, entry)
        hidden: list[str] = []

        def fill(place: str, text: str) -> str:
            return self._fill(name, place, text, hidden.append)

        if entry.url:
            headers = {key: fill(f"headers.{key}", value) for key, value in entry.headers.items()}
            url = fill("url", entry.url)
            auth = None if "authorization" in map(str.lower, headers) else _oauth_of(entry.oauth, fill)
            return Http(url, headers=headers, auth=auth, only=entry.only, without=entry.without, hidden=hidden)
        return Stdio(
            fill("command", entry.command or "-"),
            [fill(f"args.{number}", each) for number, each in enumerate(entry.args)],
            env={key: fill(f"env.{key}", value) for key, value in entry.env.items()},
            keep=entry.keep,
            cwd=None if entry.cwd is None else fill("cwd", entry.cwd),
            sandbox=None if entry.sandbox == "none" else entry.sandbox,
            needs=tuple([fill(f"needs.{number}", each) for number, each in enumerate(entry.needs)]),
            only=entry.only,
            without=entry.without,
            hidden=hidden,
        )

    def _check(self, name: str, entry: _ServerEntry) -> None:
        others = entry.model_extra or {}
        kind = None if entry.type is None else entry.type.lower().replace("-", "").replace("_", "")
        if kind == "sse":
            hint = "Give the address at which it speaks streamable HTTP, often …/mcp, and the type http."
            wrong = f"Server {name!r} is of type sse, the transport before streamable HTTP, which is not spoken here."
            self.problems.append(Problem("INVALID_ENTRY", wrong, hint))
        elif kind is not None and kind not in _TYPES:
            self.problems.append(
                Problem("INVALID_ENTRY", f"Server {name!r} is of type {entry.type!r}.", "There are stdio and http.")
            )
        elif bool(entry.command) == bool(entry.url):
            unknown = f" It has also {', '.join(others)}." if others else ""
            hint = f"Give one of them: a program to start, or an address to call.{unknown}"
            self.problems.append(
                Problem("COMMAND_OR_URL", f"Server {name!r} has both command and url, or neither.", hint)
            )
        elif kind is not None and not getattr(entry, _TYPES[kind]):
            wrong = f"Server {name!r} is of type {entry.type}, and has no {_TYPES[kind]}."
            self.problems.append(Problem("COMMAND_OR_URL", wrong, "Correct the type, or leave it out."))
        for key in others:
            if key in _IN_OUR_WORDS:
                wrong = f"Server {name!r} has both {key} and {_IN_OUR_WORDS[key]}, which mean the same."
                self.problems.append(Problem("INVALID_ENTRY", wrong, "Leave one out."))
            elif key in _NEEDED or (key not in _IGNORED and _RESTRICTS.search(key)):
                hint = "Leave it out; only and without say which tools to take, and env holds ${NAME}."
                self.problems.append(
                    Problem("INVALID_ENTRY", f"Server {name!r} has {key}, which is not known here.", hint)
                )

    def _fill(self, name: str, place: str, text: str, hide: Callable[[str], None]) -> str:
        """Return a text with the environment's values. A placeholder that is none of ours is a problem."""
        around = [*_VARIABLE.split(text)[::3], *[found[2] or "" for found in _VARIABLE.finditer(text)]]
        left = next(filter(None, map(_LEFT.search, around)), None)
        whole = _OF_OTHERS.fullmatch(text.strip()) if place.startswith(("env.", "headers.")) else None
        shown = left[0] if left is not None else whole[1][:80] if whole is not None else None
        if shown is not None:
            wrong = f"Server {name!r} has {shown!r} at {place}, which nothing here fills in."
            self.problems.append(
                Problem("UNFILLED_PLACEHOLDER", wrong, "Write ${NAME}, and set the environment variable NAME.")
            )
        return _VARIABLE.sub(lambda found: self._value(name, found, hide), text)

    def _value(self, name: str, found: re.Match[str], hide: Callable[[str], None]) -> str:
        variable, otherwise = found[1], found[2]
        value = self.environ.get(variable)
        if value is None and otherwise is None:
            hint = f"Set it, or give a default: ${{{variable}:-otherwise}}."
            self.problems.append(
                Problem("MISSING_VARIABLE", f"Server {name!r} needs {variable}, which is not set.", hint)
            )
        if value and _may_be_secret(variable, value):
            hide(value)
        return value or otherwise or ""
