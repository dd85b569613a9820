"""Where MCP servers are: programs to start and addresses to call, in code or in a file that lists them.

What the servers are given may be secret, so no repr and no error shows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, field
from pathlib import Path, PurePath
from typing import Annotated, Final, Literal, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from journeyman.data import lazy_dataclass
from journeyman.errors import DefinitionError, Problem
from journeyman.processes import is_secret
from journeyman.tools.redaction import without_secrets

_LEAST_SECRET: Final = 8  # shorter values are not hidden unless their name tells: they would be found in ordinary words
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@lazy_dataclass(frozen=True)
class Stdio:
    """A server that is a program: started here, and spoken to over its standard input and output."""

    command: str
    """The program to start."""
    args: Sequence[str] = field(default=(), repr=False)
    """What it is started with."""
    _: KW_ONLY
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Environment variables for the server, in addition to those of this process that do not look like secrets."""
    keep: Collection[str] = ()
    """Names of environment variables of this process that the server gets although they look like secrets."""
    cwd: str | Path | None = None
    """The folder in which the server is started. None: the current folder of this process."""
    only: Collection[str] | None = None
    """The tools to take, as the server names them; None for all."""
    hidden: Collection[str] = field(default=(), repr=False)
    """Texts that no error may show, in addition to the values of `env` and `keep`."""
    grace_s: float = 2.0
    """How many seconds the server has to end by itself, and again after it was asked to end."""

    @property
    def identity(self) -> dict[str, str]:
        """What does not change while it is the same server."""
        return {"transport": "stdio", "program": PurePath(self.command).name}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no error may show."""
        kept = {name: os.environ[name] for name in self.keep if name in os.environ}
        values = [value for name, value in {**self.env, **kept}.items() if _may_be_secret(name, value)]
        return (*values, *self.hidden)


@lazy_dataclass(frozen=True)
class Http:
    """A server at an address, spoken to over streamable HTTP."""

    url: str = field(repr=False)
    """The address of the server."""
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers that are sent with every request, for example `Authorization`."""
    only: Collection[str] | None = None
    """The tools to take, as the server names them; None for all."""
    hidden: Collection[str] = field(default=(), repr=False)
    """Texts that no error may show, in addition to the values of `headers`."""

    @property
    def shown(self) -> str:
        """The address without what may be secret: user, password and query."""
        parts = urlsplit(self.url)
        bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        return scrubbed(bare, self.hidden)

    @property
    def identity(self) -> dict[str, str]:
        """What does not change while it is the same server."""
        return {"transport": "http", "url": self.shown}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no error may show."""
        parts = urlsplit(self.url)
        values = [*self.headers.values(), *(value.rpartition(" ")[2] for value in self.headers.values())]
        return (
            *(value for value in values if len(value) > 3),
            *filter(None, (parts.password, parts.query)),
            *self.hidden,
        )


Server: TypeAlias = Stdio | Http
"""A server of either kind."""
Target: TypeAlias = Server | Sequence[str] | str | Mapping[str, object]
"""A server; or the words of a command; or an address that begins with http:// or https://; or an entry of `mcp.json`,
such as `{"command": "npx", "args": ["…"]}`."""


def scrubbed(text: str, secrets: Collection[str]) -> str:
    """Return the text with every secret in it replaced by `***`, and without what looks like another."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return without_secrets(text)


def _may_be_secret(name: str, value: str) -> bool:
    return len(value) >= _LEAST_SECRET or (bool(value) and is_secret(name, value))


def to_servers(targets: Mapping[str, Target]) -> dict[str, Server]:
    """Return the servers by name. What `mcp.json` holds may be given as it is, also below `mcpServers`.

    Raises:
        DefinitionError: it lists everything that is wrong.
    """
    subject = "The list of MCP servers"
    # users' code may not be typed
    given: object = _inner(dict(targets)) if isinstance(cast("object", targets), Mapping) else targets
    named = cast("dict[str, object]", given) if isinstance(given, dict) else {}
    if named is not given or not all(isinstance(name, str) for name in cast("dict[object, object]", named)):
        hint = 'Pass a dict of servers by name: {"files": ["npx", "-y", "a-server"]}.'
        wrong = (
            "It is a dict whose keys are no names."
            if named
            else f"It is {type(cast('object', given)).__name__!r}, not a dict."
        )
        raise DefinitionError(subject, [Problem("INVALID_SERVERS", wrong, hint)])
    servers: dict[str, Server] = {}
    problems: list[Problem] = []
    for name, target in named.items():
        match target:
            case Stdio() | Http():
                servers[name] = target
            case str():
                servers[name] = Http(target)
            case Mapping():
                try:
                    entries = _FILE.validate_python({name: dict(cast("Mapping[str, object]", target))})
                except ValidationError as error:
                    problems += _faults(error)
                else:
                    read, found = _read(entries, os.environ)
                    servers |= read
                    problems += found
            case list() | tuple() if all(isinstance(word, str) for word in cast("Sequence[object]", target)):
                words = cast("Sequence[str]", target)
                servers[name] = Stdio(words[0] if words else "", tuple(words[1:]))
            case _:
                hint = 'Pass the words of a command, an address, Stdio(…), Http(…), or {"command": …, "args": […]}.'
                wrong = f"Server {name[:80]!r} is given as {type(target).__name__!r}."
                problems.append(Problem("INVALID_SERVER", wrong, hint))
    problems += [each for name, server in servers.items() for each in _problems(name, server)]
    if problems:
        raise DefinitionError(subject, problems)
    return servers


def _problems(name: str, server: Server) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        hint = "Use 1 to 64 of the characters a-z, A-Z, 0-9, _, . and -, the first a letter or digit."
        yield Problem("INVALID_SERVER_NAME", f"{name!r} cannot be the name of a server.", hint)
    if isinstance(server, Stdio) and not server.command:
        yield Problem("MISSING_COMMAND", f"Server {name!r} has no command.", "Give the program and its arguments.")
    if isinstance(server, Http) and not _is_address(server.url):
        hint = 'Give http://… or https://…; a command is a list of words: ["npx", "-y", "a-server"].'
        yield Problem("INVALID_URL", f"The address of server {name!r} is not an http:// or https:// URL.", hint)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


# -- the file ---------------------------------------------------------------------------------------------------------

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
T = TypeVar("T", str, dict[str, str], list[str])


class _Entry(BaseModel):
    """One server, as the file has it."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    type: Literal["stdio", "http", "streamable-http", "streamableHttp", None] = None
    disabled: bool = False
    command: str = ""
    args: list[str] = Field(default_factory=list[str])
    env: dict[str, str] = Field(default_factory=dict[str, str])
    keep: list[str] = Field(default_factory=list[str])
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    only: list[str] | None = None


def _inner(value: object) -> object:
    """Return the servers of a file that has them under `mcpServers`, as most do."""
    return value["mcpServers"] if isinstance(value, dict) and set(value) == {"mcpServers"} else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON that is checked next


_FILE: Final = TypeAdapter[dict[str, _Entry]](Annotated[dict[str, _Entry], BeforeValidator(_inner)])


def load_servers(path: str | Path, *, environ: Mapping[str, str] | None = None) -> dict[str, Server]:
    """Read a file of servers, in the form that desktop programs use, too.

    `{"mcpServers": {"files": {"command": "npx", "args": ["…"]}, "docs": {"url": "https://…", "headers": {…}}}}`;
    `${NAME}` and `${NAME:-otherwise}` stand for environment variables, so that no secret need be in the file.

    Raises:
        DefinitionError: the file cannot be read, or has faults; lists every fault.
    """
    file = Path(path)
    try:
        entries = _FILE.validate_json(file.read_bytes())
    except OSError as error:
        problem = Problem("UNREADABLE_SERVERS", f"It cannot be read: {error.strerror}.", "Check the path.")
        raise DefinitionError(f"The MCP configuration {file}", [problem]) from error
    except ValidationError as error:
        raise DefinitionError(f"The MCP configuration {file}", _faults(error)) from None  # it would show the values
    servers, problems = _read(entries, os.environ if environ is None else environ)
    problems += [each for name, server in servers.items() for each in _problems(name, server)]
    if problems:
        raise DefinitionError(f"The MCP configuration {file}", problems)
    return servers


def _read(entries: Mapping[str, _Entry], environ: Mapping[str, str]) -> tuple[dict[str, Server], list[Problem]]:
    """Return the servers that are not disabled, and what is wrong with variables in them."""
    reading = _Reading(environ)
    servers = {name: reading.server(name, entry) for name, entry in entries.items() if not entry.disabled}
    return servers, reading.problems


def _faults(error: ValidationError) -> list[Problem]:
    hint = "A server has command, args, env, keep and cwd, or url and headers; beside them only, type and disabled."
    return [
        Problem("INVALID_ENTRY", f"At {'.'.join(map(str, each['loc'])) or 'the top'}: {each['msg']}.", hint)
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    ]


@lazy_dataclass()
class _Reading:
    """Turns entries into servers, with the environment's values in them."""

    environ: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list[Problem])

    def server(self, name: str, entry: _Entry) -> Server:
        if bool(entry.command) == bool(entry.url):
            hint = "Give one of them: a program to start, or an address to call."
            self.problems.append(
                Problem("COMMAND_OR_URL", f"Server {name!r} has both command and url, or neither.", hint)
            )
        hidden: list[str] = []

        def filled(text: str) -> str:
            return _VARIABLE.sub(lambda found: self._value(name, found, hidden.append), text)

        if entry.url:
            headers = {key: filled(value) for key, value in entry.headers.items()}
            return Http(filled(entry.url), headers=headers, only=entry.only, hidden=hidden)
        return Stdio(
            filled(entry.command or "-"),
            [filled(each) for each in entry.args],
            env={key: filled(value) for key, value in entry.env.items()},
            keep=entry.keep,
            cwd=None if entry.cwd is None else filled(entry.cwd),
            only=entry.only,
            hidden=hidden,
        )

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
