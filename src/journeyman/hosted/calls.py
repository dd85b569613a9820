"""Reads the calls of a provider's own tools from the blocks that it sent.

A block stays as it came, because the provider wants it back; this is a view of it. Nothing here raises, whatever a
block holds: what cannot be read is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import as_list, as_object, as_text, object_in
from journeyman.types import Block, JsonObject, Opaque, Text


@lazy_dataclass(frozen=True, kw_only=True)
class SearchHit:
    """One thing that a search found."""

    title: str = ""
    """The title of a page, or the name of a file."""
    url: str = ""
    """The address of a page; empty for a file."""
    text: str = ""
    """The words that were found there, if the provider tells them."""


@lazy_dataclass(frozen=True, kw_only=True)
class HostedCall:
    """A call that the provider ran by itself."""

    tool: str
    """`web_search`, `code_execution` or `file_search`; of any other tool, the provider's name for it."""
    provider: str
    """The provider that ran it."""
    id: str
    """The provider's id of the call; empty if it gives none."""
    asked: str
    """What was searched, with one query on each line; or the code that was run."""
    output: str = ""
    """The output of the code."""
    found: tuple[SearchHit, ...] = ()
    """The pages or files that it found."""
    error: str | None = None
    """Why the call failed, in the provider's word; None if it did not fail."""

    @property
    def is_untrusted(self) -> bool:
        """True when the result may be the words of strangers, which is so for everything but code."""
        return self.tool != "code_execution"

    @property
    def text(self) -> str:
        """Output and findings as one text."""
        lines = [" ".join([part for part in (each.title, each.url, each.text) if part]) for each in self.found]
        return "\n".join([part for part in (self.error or "", self.output, *lines) if part])


def hosted_calls(content: Iterable[Block], *, before: Iterable[Block] = ()) -> tuple[HostedCall, ...]:
    """Return the calls that have their result in `content`, in order.

    `before`: what the model said earlier in the same turn, which may have paused between a call and its result. A call
    without a result is left out. For a result without its call, nobody knows what was asked.
    """
    begun: dict[str, tuple[str, str]] = {}
    for block in before:
        if isinstance(block, Opaque):
            _take_call(object_in(block.json), begun)
    calls: list[HostedCall] = []
    cited: list[JsonValue] = []
    """A search by a search model of Chat Completions, which tells nothing more about it."""
    for block in content:
        if isinstance(block, Opaque):
            facts = object_in(block.json)
            grounded = [*_grounding_calls(facts, block.provider), *_calls_beside_answer(facts, block.provider)]
            named = {call.tool for call in grounded}  # these tell more of the same searches
            calls = [call for call in calls if call.tool not in named or call.provider != block.provider]
            calls += grounded
            if not _take_call(facts, begun) and (call := _finish(facts, block.provider, begun)) is not None:
                calls.append(call)
        elif isinstance(block, Text) and block.extra:
            cited += [as_object(each).get("url_citation") for each in as_list(block.extra.get("annotations"))]
    pages = _hits([page for page in cited if as_object(page)])
    # Where a call tells of the search, it tells of its pages, too.
    if pages and not calls:
        calls.append(HostedCall(tool="web_search", provider="", id="", asked="", found=pages))
    return tuple(calls)


# Each provider has its own names.
_NAMES: Final[Mapping[str, str]] = {
    "bash_code_execution": "code_execution",
    "text_editor_code_execution": "code_execution",
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_execution",
    "python": "code_execution",
    "code_interpreter": "code_execution",
    "search": "web_search",
    "GOOGLE_SEARCH_WEB": "web_search",
    "FILE_SEARCH": "file_search",
}
# OpenAI's word, Gemini's word, and none where no status is told.
_DONE: Final = ("completed", "OUTCOME_OK", "")


def _take_call(facts: JsonObject, begun: dict[str, tuple[str, str]]) -> bool:
    """Take in a block that is a call without its result; False if it is none."""
    match facts.get("type"):
        case "server_tool_use":  # Anthropic
            name = as_text(facts.get("name"))
            begun[as_text(facts.get("id"))] = (_NAMES.get(name, name), _query_of(as_object(facts.get("input"))))
        case "toolCall":  # Gemini
            call = as_object(facts.get("toolCall"))
            kind = as_text(call.get("toolType"))
            begun[as_text(call.get("id"))] = (_NAMES.get(kind, kind.lower()), _query_of(as_object(call.get("args"))))
        case "executableCode":
            code = as_object(facts.get("executableCode"))
            begun[as_text(code.get("id"))] = ("code_execution", as_text(code.get("code")))
        case _:
            return False
    return True


def _finish(facts: JsonObject, provider: str, begun: Mapping[str, tuple[str, str]]) -> HostedCall | None:
    kind = as_text(facts.get("type"))
    match kind:
        case "web_search_call" | "code_interpreter_call" | "file_search_call":
            return _item(facts, kind, provider)
        case "codeExecutionResult":
            result = as_object(facts.get("codeExecutionResult"))
            id, outcome = as_text(result.get("id")), as_text(result.get("outcome"))
            tool, asked = begun.get(id, ("code_execution", ""))
            error = None if outcome in _DONE else outcome
            output = as_text(result.get("output"))
            return HostedCall(tool=tool, provider=provider, id=id, asked=asked, output=output, error=error)
        case "toolResponse":
            response = as_object(facts.get("toolResponse"))
            id, named = as_text(response.get("id")), as_text(response.get("toolType"))
            tool, asked = begun.get(id, (_NAMES.get(named, named.lower()), ""))
            body = response.get("response")
            output = to_json(body).decode() if body else ""
            return HostedCall(tool=tool, provider=provider, id=id, asked=asked, output=output)
        # Anthropic names the block after its tool, so tools that are not known here are read, too.
        case _ if kind.endswith("_tool_result"):
            id, named = as_text(facts.get("tool_use_id")), kind.removesuffix("_tool_result")
            tool, asked = begun.get(id, (_NAMES.get(named, named), ""))
            output, found, error = _result_of_messages_api(facts.get("content"))
            return HostedCall(tool=tool, provider=provider, id=id, asked=asked, output=output, found=found, error=error)
        case _:
            return None


def _item(item: JsonObject, kind: str, provider: str) -> HostedCall:
    """Return the call of an item of the Responses API, which is call and result in one."""
    action, status = as_object(item.get("action")), as_text(item.get("status"))
    queries = _texts_in(item.get("queries")) or _texts_in(action.get("queries"))
    asked = "\n".join(queries) or _query_of({key: action[key] for key in action if key not in ("sources", "type")})
    outputs = [as_object(each) for each in as_list(item.get("outputs"))]
    return HostedCall(
        tool=_NAMES[kind],
        provider=provider,
        id=as_text(item.get("id")),
        asked=as_text(item.get("code")) or asked,
        output="\n".join([text for each in outputs if (text := as_text(each.get("logs")) or as_text(each.get("url")))]),
        found=_hits((*as_list(item.get("results")), *as_list(action.get("sources"))), text="text"),
        error=None if status in _DONE else status,
    )


def _result_of_messages_api(content: JsonValue) -> tuple[str, tuple[SearchHit, ...], str | None]:
    """Return output, findings and error of the Messages API's results."""
    if isinstance(content, list):
        return "", _hits(content), None
    told = as_object(content)
    if code := as_text(told.get("error_code")):
        return "", (), code
    output = "\n".join([text for name in ("stdout", "stderr", "content") if (text := as_text(told.get(name)))])
    returned = told.get("return_code")
    url = as_text(told.get("url"))
    return output, (SearchHit(url=url),) if url else (), f"return code {returned}" if returned else None


def _grounding_calls(facts: JsonObject, provider: str) -> Iterator[HostedCall]:
    """Give the searches that Gemini tells of beside its answer."""
    if facts.get("type") != "groundingMetadata":
        return
    told = as_object(facts.get("groundingMetadata"))
    chunks = [as_object(each) for each in as_list(told.get("groundingChunks"))]
    for tool, place, queries in (
        ("web_search", "web", told.get("webSearchQueries")),
        ("file_search", "retrievedContext", told.get("retrievalQueries")),
    ):
        found = _hits([chunk[place] for chunk in chunks if place in chunk], url="uri", text="text")
        if found or _texts_in(queries):
            asked = "\n".join(_texts_in(queries))
            yield HostedCall(tool=tool, provider=provider, id="", asked=asked, found=found)


def _calls_beside_answer(facts: JsonObject, provider: str) -> Iterator[HostedCall]:
    """Give the pages that Gemini has read, and the tools that Groq has run, of which they tell beside the answer."""
    for page in map(as_object, as_list(as_object(facts.get("urlContextMetadata")).get("urlMetadata"))):
        url, status = as_text(page.get("retrievedUrl")), as_text(page.get("urlRetrievalStatus"))
        error = None if status in ("", "URL_RETRIEVAL_STATUS_SUCCESS") else status
        found = (SearchHit(url=url),) if url else ()
        yield HostedCall(tool="url_context", provider=provider, id="", asked=url, found=found, error=error)
    for each in map(as_object, as_list(facts.get("executed_tools"))):
        kind = as_text(each.get("name")) or as_text(each.get("type"))
        results = (as_object(each.get("search_results")).get("results"), each.get("browser_results"))
        found = _hits([page for listed in results for page in as_list(listed)], text="content")
        codes = [as_text(as_object(code).get("text")) for code in as_list(each.get("code_results"))]
        yield HostedCall(
            tool=_NAMES.get(kind, kind),
            provider=provider,
            id="",
            asked=_query_in_json(as_text(each.get("arguments"))),
            output="\n".join([text for text in (as_text(each.get("output")), *codes) if text]),
            found=found,
        )


def _hits(told: Iterable[JsonValue], *, url: str = "url", text: str = "") -> tuple[SearchHit, ...]:
    """Return what a search found, from the objects in which it is told. `url` and `text` are the names of its address
    and of its words; no `text`: its words are not told."""
    found = map(as_object, told)
    return tuple(
        SearchHit(
            title=as_text(each.get("filename")) or as_text(each.get("title")),
            url=as_text(each.get(url)),
            text=as_text(each.get(text)) if text else "",
        )
        for each in found
    )


def _query_in_json(arguments: str) -> str:
    try:
        parsed = as_object(from_json(arguments))
    except ValueError:
        return arguments
    return _query_of(parsed) or arguments


def _query_of(arguments: JsonObject) -> str:
    queries = _texts_in(arguments.get("queries"))
    words = [as_text(arguments.get(name)) for name in ("query", "code", "command", "url", "pattern")]
    return "\n".join(queries or [word for word in words if word]) or (to_json(arguments).decode() if arguments else "")


def _texts_in(value: JsonValue) -> list[str]:
    return [each for each in as_list(value) if isinstance(each, str) and each]
