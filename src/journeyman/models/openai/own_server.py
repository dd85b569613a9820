"""A server of one's own, such as llama.cpp's or Ollama: which window it gives a model, and what its failures mean.

A service documents its windows, and such a server is started with one. So it is asked, by a GET when a run begins, and
the answer is kept for a minute. What it does not tell stays unknown, and a run never fails because of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import orjson

from journeyman.data import lazy_dataclass
from journeyman.errors import ProviderError
from journeyman.model import Part, Request, current_tap
from journeyman.models.answers import RequestedStream
from journeyman.models.openai.endpoint import Endpoint, Server
from journeyman.models.transport import HttpAnswer, Timeouts
from journeyman.narrowing import as_list, as_object, as_text
from journeyman.types import JsonObject
from journeyman.window import estimate_message, estimate_prefix

_PATIENCE_S: Final = 3.0  # a server on the same machine answers at once; one that does not must not hold up a run
_KEPT_S: Final = 60.0
_FACTS_BYTES: Final = 4 * 1024 * 1024
_FIRST_LOOK_S: Final = 0.05
_LONGEST_LOOK_S: Final = 1.0
_LEAST_ANSWER_TOKENS: Final = 64
_STARTS: Final[Mapping[Server, str]] = {
    "llama.cpp": "llama-server -m MODEL.gguf",
    "LM Studio": "lms server start",
    "Ollama": "ollama serve",
    "vLLM": "vllm serve MODEL",
}
_log = logging.getLogger("journeyman")
_progress = logging.getLogger("journeyman.progress")


def facts_timeouts(timeouts: Timeouts) -> Timeouts:
    """Return the timeouts for a question to a server about itself."""
    return Timeouts(connect_s=min(timeouts.connect_s, _PATIENCE_S), idle_s=min(timeouts.idle_s, _PATIENCE_S))


class Opening(Protocol):
    """A function that opens an address of the server."""

    def __call__(self, url: str, /, *, body: bytes | None) -> AbstractAsyncContextManager[HttpAnswer]: ...


@lazy_dataclass(eq=False)
class KnownServer:
    """The facts that a server has told about one of its models so far."""

    window_tokens: int | None = None
    """The most tokens of one conversation and its answer; None when it has not told."""
    has_tools: bool | None = None
    """Whether its template shows tools to the model; None when it has not told."""
    asked_at_s: float | None = None
    """When it answered last, or did not in time, by the monotonic clock."""
    is_told: bool = False
    """Whether somebody has been told that there are no tools."""


@lru_cache(maxsize=256)
def known_server(url: str, model: str) -> KnownServer:
    """Return the facts that this process knows of the model that is asked at `url`."""
    return KnownServer()


# -- what it tells ----------------------------------------------------------------------------------------------------


@lazy_dataclass(frozen=True, repr=False, eq=False)
class OwnServer:
    """The server of a model, as far as it is asked about the model."""

    endpoint: Endpoint
    name: str
    """The model's name."""
    base_url: str
    """The address that the endpoint's paths follow."""
    opening: Opening
    known: KnownServer
    """What it has told."""

    async def learn(self) -> None:
        """Ask the server for the window of the model, unless it is known and no older than a minute."""
        known, now_s = self.known, time.monotonic()
        if known.asked_at_s is not None and now_s - known.asked_at_s < _KEPT_S:
            return
        root = root_of(self.base_url)
        token = current_tap.set(None)  # it is no request to a model
        try:
            match self.endpoint.server:
                case "llama.cpp":  # the window of each slot
                    props = await _fetch_document(self.opening, f"{root}/props?model={quote(self.name, safe='')}")
                    window = _whole(as_object(props.get("default_generation_settings")).get("n_ctx"))
                    has_tools = as_object(props.get("chat_template_caps")).get("supports_tools")
                    known.has_tools = has_tools if isinstance(has_tools, bool) else known.has_tools
                case "Ollama":
                    window = await _ask_ollama(root, self.name, self.opening)
                case _:
                    window = await _ask_for_list(self.base_url, self.name, self.opening)
        except ProviderError as error:
            if error.kind in ("timeout", "stream_idle"):
                known.asked_at_s = now_s
            return
        finally:
            current_tap.reset(token)
        if window is not None and window > 0:
            known.window_tokens, known.asked_at_s = window, now_s

    def tell_no_tools(self, request: Request) -> None:
        """Log once that the model is not shown the tools of a request."""
        if self.known.has_tools is False and request.prefix.tools and not self.known.is_told:
            self.known.is_told = True
            _log.warning(
                "The chat template of %s:%s has no tools, so the model does not see those of the agent. Start the"
                " server with a template that has them (--chat-template-file), or take another model.",
                self.endpoint.provider,
                self.name,
            )


async def _ask_ollama(root: str, model: str, opening: Opening) -> int | None:
    """Return the window with which the model is loaded, or else that of its own file. What it was trained with is no
    answer: the server cuts a conversation at its own window, in silence."""
    names = {model, f"{model}:latest"}
    for each in map(as_object, as_list((await _fetch_document(opening, f"{root}/api/ps")).get("models"))):
        if each.get("name") in names and (window := _whole(each.get("context_length"))) is not None:
            return window
    shown = await _fetch_document(opening, f"{root}/api/show", orjson.dumps({"model": model}))
    lines = [line.split() for line in as_text(shown.get("parameters")).splitlines()]
    sizes = [words[1] for words in lines if len(words) == 2 and words[0] == "num_ctx"]
    return int(sizes[0]) if sizes and sizes[0].isdecimal() else None


async def _ask_for_list(base_url: str, model: str, opening: Opening) -> int | None:
    """Return the window by the list of the models: as vLLM writes it, or as LM Studio does for one that is loaded."""
    for url in (f"{base_url}/models", f"{root_of(base_url)}/api/v0/models"):
        for each in map(as_object, as_list((await _fetch_document(opening, url)).get("data"))):
            told = (_whole(each.get(name)) for name in ("max_model_len", "loaded_context_length"))
            if each.get("id") == model and (window := next(filter(None, told), None)) is not None:
                return window
    return None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def root_of(base_url: str) -> str:
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix("/v1"), query="", fragment=""))


async def _fetch_document(opening: Opening, url: str, body: bytes | None = None) -> JsonObject:
    """Return the object that is at an address; an empty one if there is none.

    Raises:
        ProviderError: there was no answer, or not all of it.
    """
    async with opening(url, body=body) as answer:
        if answer.status != 200:
            return {}
        data = await answer.body(_FACTS_BYTES)
    try:
        return as_object(orjson.loads(data))
    except orjson.JSONDecodeError:
        return {}


# -- a request --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, repr=False, eq=False)
class PatientStream(AbstractAsyncContextManager[AsyncIterator[Part]]):
    """A request to a server of one's own, which waits while that loads its model.

    For as long as whoever asks waits: a large model takes minutes, and a run has a limit of its own.
    """

    server: OwnServer
    make: Callable[[], RequestedStream]
    """Makes the request; again after each wait."""
    take_in: Callable[[], None]
    """Takes what the server has told into the facts of the model."""
    _stream: RequestedStream = field(init=False)

    async def __aenter__(self) -> AsyncIterator[Part]:
        while True:
            self._stream = self.make()
            try:
                return await self._stream.__aenter__()
            except ProviderError as error:
                if error.status != 503 or error.type != "unavailable_error":  # as llama.cpp's says that it loads
                    endpoint = self.server.endpoint
                    variable = endpoint.base_url_variable  # None: the server is started by whoever asks it
                    if endpoint.server and variable and error.kind == "network" and error.status is None:
                        how = f"Start it: {_STARTS[endpoint.server]}, or set {variable}."
                        error.hint = f"Is {endpoint.server} running? {how}"
                    raise
            await self._wait()

    async def __aexit__(self, *raised: object) -> None:
        await self._stream.__aexit__(*raised)

    async def _wait(self) -> None:
        """Wait until the server has loaded its model, or is gone."""
        server, delay_s = self.server, _FIRST_LOOK_S
        _progress.info("%s:%s is waited for: its server loads the model.", server.endpoint.provider, server.name)
        token = current_tap.set(None)
        try:
            while await _status(server.opening(f"{root_of(server.base_url)}/health", body=None)) == 503:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _LONGEST_LOOK_S)
        finally:
            current_tap.reset(token)
        await asyncio.sleep(delay_s)  # a proxy may answer for the server that still loads
        await server.learn()
        self.take_in()


async def _status(opening: AbstractAsyncContextManager[HttpAnswer]) -> int | None:
    try:
        async with opening as answer:
            return answer.status
    except ProviderError:
        return None


def fit_answer(request: Request, window_tokens: int | None, max_tokens: int) -> Request:
    """Return the request with no longer an answer than the window leaves: some servers refuse what is longer."""
    if window_tokens is None:
        return request
    used = estimate_prefix(request.prefix) + sum(map(estimate_message, request.messages))
    left = max(window_tokens - window_tokens // 50 - used, _LEAST_ANSWER_TOKENS)
    return request if max_tokens <= left else replace(request, max_tokens=left)
