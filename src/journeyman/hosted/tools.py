"""Hosted tools as settings, and which of them a model has.

The rule: what a model cannot do is refused before any call. A limit that the provider cannot take, such as a list of
domains, is refused too, and never left out in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, Final, Literal, TypeAlias, cast

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_list_or_tuple
from journeyman.definition.problems import (
    COUNT_OR_NONE,
    Kind,
    Problem,
    field_problems,
    is_one_of,
    none_or,
    value_problems,
)


@lazy_dataclass(frozen=True, kw_only=True)
class Location:
    """The rough place of the user, so that a search finds what is near."""

    city: str | None = None
    """The city, by its name."""
    region: str | None = None
    """The region or state, by its name."""
    country: str | None = None
    """The country as two letters, such as `DE`."""
    timezone: str | None = None
    """The name of the time zone in the IANA's list, such as `Europe/Berlin`."""


@lazy_dataclass(frozen=True, kw_only=True)
class WebSearch:
    """The model may search the web."""

    max_uses: int | None = None
    """How many searches one model call may make."""
    allowed_domains: tuple[str, ...] = ()
    """Only these domains and their subdomains are searched: `example.com`. Cannot be given together with
    `blocked_domains`."""
    blocked_domains: tuple[str, ...] = ()
    """Nothing from these domains is found."""
    location: Location | None = None
    """Where the user is, for results that depend on it."""
    context_size: Literal["low", "medium", "high"] | None = None
    """How much of what is found the model reads."""
    type: Literal["web_search"] = field(default="web_search", repr=False)


@lazy_dataclass(frozen=True, kw_only=True)
class CodeExecution:
    """The model may run code, in a container of the provider's."""

    type: Literal["code_execution"] = field(default="code_execution", repr=False)


@lazy_dataclass(frozen=True, kw_only=True)
class FileSearch:
    """The model may search files that were uploaded to the provider before."""

    stores: tuple[str, ...]
    """Where the files are: ids of vector stores (OpenAI), or names such as `fileSearchStores/…` (Gemini)."""
    max_results: int | None = None
    """How many passages one search finds at most."""
    type: Literal["file_search"] = field(default="file_search", repr=False)


HostedTool: TypeAlias = WebSearch | CodeExecution | FileSearch
"""What `ModelSettings.hosted` holds."""


@lazy_dataclass(frozen=True, kw_only=True)
class HostedToolSupport:
    """The hosted tools that a model has: for each tool, the options that it takes; None: the model does not have it."""

    web_search: frozenset[str] | None = None
    """The options of `WebSearch`."""
    code_execution: frozenset[str] | None = None
    """The options of `CodeExecution`."""
    file_search: frozenset[str] | None = None
    """The options of `FileSearch`."""
    beside_tools: bool = True
    """Whether an agent may have tools of its own as well."""

    def lack(self, tools: Iterable[HostedTool], *, has_tools: bool) -> tuple[str, str] | None:
        """Return what of `tools` the model lacks, and what to do; None if nothing. `has_tools`: others stand beside."""
        for tool in tools:
            taken: frozenset[str] | None = getattr(self, tool.type)
            if taken is None:
                return f"it has no hosted {tool.type}", f"Leave {type(tool).__name__}() out, or use another model."
            for each in fields(cast("Any", tool)):
                # There is no file search without stores, so nobody takes it without them.
                if each.name not in {*taken, "type", "stores"} and getattr(tool, each.name) not in (None, ()):
                    what = f"its hosted {tool.type} has no {each.name}"
                    return what, f"Leave {type(tool).__name__}.{each.name} out, or use another model."
            if has_tools and not self.beside_tools:
                what = f"it has no hosted {tool.type} beside other tools"
                return what, "Use another model, or give the search to a sub-agent without tools and typed output."
        return None

    @classmethod
    def common(cls, every: Sequence[HostedToolSupport]) -> HostedToolSupport:
        """Return the hosted tools that all of these models have."""
        return cls(
            web_search=_in_all([each.web_search for each in every]),
            code_execution=_in_all([each.code_execution for each in every]),
            file_search=_in_all([each.file_search for each in every]),
            beside_tools=all(each.beside_tools for each in every),
        )


def _in_all(options: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    known = [each for each in options if each is not None]
    if not known or len(known) < len(options):
        return None
    return frozenset([name for name in known[0] if all(name in each for each in known)])


# A path may follow: Anthropic searches parts of a site.
_DOMAIN: Final = re.compile(r"[\w*-]+(\.[\w-]+)+(/[^\s?#]*)?")
_LISTS: Final = ("allowed_domains", "blocked_domains", "stores")


def own_tools(tools: Sequence[HostedTool]) -> tuple[HostedTool, ...]:
    """Return tools that nobody else can change: the lists in them, which have been checked, as tuples."""
    return tuple(
        [
            replace(cast("Any", tool), **{name: tuple(getattr(tool, name)) for name in _LISTS if hasattr(tool, name)})
            for tool in tools
        ]
    )


def hosted_problems(tools: object) -> Iterator[Problem]:
    """Give what is wrong with `ModelSettings.hosted`."""
    if not is_list_or_tuple(tools):
        yield Problem(
            "INVALID_HOSTED", f"settings.hosted is {tools!r}.", "Pass a tuple of hosted tools: (WebSearch(),)."
        )
        return
    seen: set[str] = set()
    for tool in tools:
        if not isinstance(tool, WebSearch | CodeExecution | FileSearch):
            hint = f"Pass {tool.__name__}(…), with its parentheses." if isinstance(tool, type) else _WANTED
            yield Problem("INVALID_HOSTED", f"settings.hosted has {tool!r}, which is not a hosted tool.", hint)
            continue
        if tool.type in seen:
            yield Problem(
                "INVALID_HOSTED", f"settings.hosted has {type(tool).__name__} twice.", "Pass one, with all options."
            )
        seen.add(tool.type)
        if isinstance(tool, WebSearch):
            yield from _search_problems(tool)
        elif isinstance(tool, FileSearch):
            yield from field_problems("INVALID_HOSTED", "FileSearch.", tool, _FILE_SEARCH)


_WANTED: Final = "Pass WebSearch(), CodeExecution() or FileSearch(stores=…)."


def _search_problems(tool: WebSearch) -> Iterator[Problem]:
    yield from value_problems("INVALID_HOSTED", "WebSearch.max_uses", tool.max_uses, COUNT_OR_NONE)
    for name in _LISTS[:2]:
        domains: Sequence[str] = getattr(tool, name)
        wrong: list[object] = [domains]
        if _are_texts(domains):
            wrong = [each for each in domains if not _DOMAIN.fullmatch(each)]
        for each in wrong:
            hint = "Pass domains without 'https://' in a tuple, such as ('example.com',)."
            yield Problem("INVALID_HOSTED", f"WebSearch.{name} has {each!r}, which is not a domain.", hint)
    if tool.allowed_domains and tool.blocked_domains:
        what = "WebSearch has both allowed_domains and blocked_domains."
        yield Problem("INVALID_HOSTED", what, "Pass one of the two: what is not allowed is blocked anyway.")
    yield from field_problems("INVALID_HOSTED", "WebSearch.", tool, _WEB_SEARCH)


def _are_texts(value: object) -> bool:
    texts = value if is_list_or_tuple(value) else (None,)
    return all(isinstance(each, str) and each.strip() for each in texts)


def _is_place(value: object) -> bool:
    parts: list[object] = [getattr(value, name, 0) for name in ("city", "region", "country", "timezone")]
    return isinstance(value, Location) and all(part is None or isinstance(part, str) for part in parts)


_WEB_SEARCH: Final[Mapping[str, Kind]] = {
    "context_size": (is_one_of(None, "low", "medium", "high"), "Pass 'low', 'medium' or 'high'."),
    "location": (none_or(_is_place), "Pass Location(country='DE', city='Berlin')."),
}
_FILE_SEARCH: Final[Mapping[str, Kind]] = {
    "max_results": COUNT_OR_NONE,
    "stores": (lambda value: bool(value) and _are_texts(value), "Pass the ids of the stores to search: ('vs_1',)."),
}
