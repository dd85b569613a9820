"""From a name such as `anthropic:claude-sonnet-5-5` to a `Model`, and from a place to a `Session` or to `Records`.

The part before the colon names the provider: one of the table below, or one that an installed package offers as an
entry point of the group `journeyman.models`: a function `(name, **options) -> Model`. A provider's module is imported
when its first model is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from journeyman.errors import ModelUnavailable, Problem
from journeyman.model import Model

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from journeyman.journal import OpenRecords
    from journeyman.session import Session
    from journeyman.types import Audio, Document, Image

__all__ = ["Connected", "connect"]

Maker: TypeAlias = Callable[..., Model]

GROUP: Final = "journeyman.models"
"""The entry point group for providers of other packages."""

_PROVIDERS: Final[Mapping[str, str]] = {
    "anthropic": "journeyman.models.anthropic.client:from_environment",
    "bedrock": "journeyman.models.anthropic.client:on_bedrock",
    "bridge": "journeyman.models.bridge.model:from_name",
    "github": "journeyman.models.openai.names:refuse_github",
    "google": "journeyman.models.google.model:from_environment",
    "local": "journeyman.models.local.model:from_name",
    "vertex-anthropic": "journeyman.models.anthropic.client:on_vertex",
    "vertex-google": "journeyman.models.google.model:on_vertex",
}

# The prefixes of `journeyman.models.openai.names`, known without that module.
_OPENAI_STYLE: Final = frozenset(
    {
        *("azure", "azure-responses", "cerebras", "cohere", "deepseek", "fireworks", "groq", "huggingface"),
        *("llama-cpp", "lm-studio", "mistral", "ollama", "openai", "openai-chat", "openrouter", "perplexity"),
        *("together", "vllm", "xai"),
    }
)

# What to install for a package that a provider of the table needs; for any other, the package itself.
_EXTRAS: Final[Mapping[str, str]] = {"pydantic_ai": "'journeyman[providers]'"}


class Connected(Model, Protocol):
    """A model that was connected by name. Its connections belong to the event loop, and all runs in that loop share
    them.

    `async with connect("…") as model:` gives the model with connections of its own; leaving the block closes them.
    """

    async def __aenter__(self) -> Model: ...

    async def __aexit__(self, *raised: object) -> None: ...


class Fetch(Protocol):
    """A function that returns a file of the web with its bytes in place of its address."""

    async def __call__(self, block: Image | Document | Audio, /, *, max_bytes: int) -> Image | Document | Audio: ...


_FORM: Final = re.compile(r"[A-Za-z][\w.-]*:\S+")


def name_problem(name: str) -> Problem | None:
    """Return the fault in the form of a model's name, without looking for its provider; None if it has none."""
    if _FORM.fullmatch(name):
        return None
    return Problem(
        "INVALID_MODEL_NAME",
        f"The model name {name!r} is not of the form 'provider:model'.",
        "Write the provider, a colon and the model, such as 'anthropic:claude-sonnet-5-5'.",
    )


def connect(name: str, **options: object) -> Connected:
    """Return the model called `name`. The options are those of its provider; the environment gives what is left out.

    Raises:
        ModelUnavailable: the name is malformed, its provider is unknown, or a package or a key is missing.
    """
    if problem := name_problem(name):
        raise ModelUnavailable(problem.message, model=name, hint=problem.hint)
    provider, _, model = name.partition(":")
    try:
        maker = _maker(provider)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "journeyman":
            raise ModelUnavailable(
                f"The model {name!r} needs the module {error.name}, which is missing in this installation.",
                model=name,
                hint="Tell what froze or copied this program to take all of journeyman; PyInstaller:"
                " --collect-all journeyman. Or install journeyman again.",
            ) from error
        missing = (error.name or str(error)).partition(".")[0]
        raise ModelUnavailable(
            f"The model {name!r} needs the package {missing!r}, which is not installed.",
            model=name,
            hint=f"Install it: pip install {_EXTRAS.get(missing, missing)}",
        ) from error
    if maker is None:
        known = sorted({*_PROVIDERS, *_OPENAI_STYLE, *(entry_point.name for entry_point in _load_entry_points())})
        close = get_close_matches(provider, known, n=1)
        meant = f"Did you mean '{close[0]}:{model}'? " if close else ""
        bridged = f"Others may be reached over the bridge, as 'bridge:{provider}:{model}'."
        hint = f"{meant}Known providers: {', '.join(known)}. {bridged}"
        raise ModelUnavailable(f"No provider is called {provider!r}.", model=name, hint=hint)
    made = maker(model, **options)
    if hasattr(made, "__aenter__"):
        return cast("Connected", made)
    held_open: Callable[[Model], Connected] = import_module("journeyman.models.wrappers").HeldOpen
    return held_open(made)  # a model of another package


def connect_session(
    place: str | os.PathLike[str], id: str | None, *, agent: str, any_agent: bool = False, create: bool = False
) -> Session:
    """Return the session with this id, or a new one: `place` is a file, `sqlite:PATH`, or `postgresql://…`. `create`
    makes the session with this id if there is none.

    Raises:
        StoreError: there is no such session, the store cannot be opened, or there are no stores of that kind.
    """
    find_store: Callable[..., str | os.PathLike[str]] = import_module("journeyman.store.address").find_store
    found = find_store(place)
    module = "journeyman.store.postgres" if isinstance(found, str) else "journeyman.store.store"
    opener: Callable[..., Session] = import_module(module).open_session
    return opener(found, id, agent=agent, any_agent=any_agent, create=create)


def connect_fetch() -> Fetch:
    """Return the function that fetches a file from the web: see `toolbox.download_media`."""
    return import_module("journeyman.toolbox.fetch").download_media


def recorder_at(path: str | os.PathLike[str], *, is_for_one: bool = False) -> OpenRecords:
    """Return a recorder that records runs in the store at `path`; `is_for_one`: it is closed with the first that ends.

    Raises:
        StoreError: the store cannot be opened.
    """
    opener: Callable[..., OpenRecords] = import_module("journeyman.record.recorder").Recorder
    return opener(path, is_for_one=is_for_one)


def _maker(provider: str) -> Maker | None:
    if provider in _OPENAI_STYLE:
        return partial(import_module("journeyman.models.openai.names").make_model, provider)
    if target := _PROVIDERS.get(provider):
        module, _, function = target.partition(":")
        return getattr(import_module(module), function)
    for entry_point in _load_entry_points():
        if entry_point.name == provider:
            return entry_point.load()
    return None


def _load_entry_points() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to load, and few runs look a provider up

    return entry_points(group=GROUP)
