"""A gate against instructions that hide in what tools bring in: prompt injection.

Once the model has read a result that is not trusted, whatever it writes may be that result's doing. From then on a call
that has consequences asks for approval, unless its arguments stood fixed before: in what the user said, in what trusted
tools told, or in what the model itself had written by then. A run that a call starts is as tainted as what it is told,
and what taints it taints the runs above.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from journeyman.errors import quoted, visible
from journeyman.gate import Allow, Ask, GateRequest, RunGate, Seen, Verdict
from journeyman.permission.capability import Capability, Classifier, classify, fits_name
from journeyman.types import JsonObject

_EGRESS: Final[frozenset[Capability]] = frozenset(("network", "exec"))
_SHOWN: Final = 300

_BEFORE: Final = frozenset(" \t\r\n\"'`<>()[]{},;:=|")
_AFTER: Final = frozenset(" \t\r\n\"'`<>()[]{},;|")
_STOPS: Final = frozenset(".:!?")


@dataclass(frozen=True, slots=True)
class Source:
    """What is not trusted, and when the model could first have read it."""

    name: str
    """The tool with its arguments, or what else the text is."""
    text: str
    after: int
    """The number of model calls by then: the calls that follow have read it."""
    is_from_below: bool = False
    """True when a run that a call started has read it, so that any result may hold it by now."""

    def __str__(self) -> str:
        shown = quoted(self.text[:_SHOWN])
        return f"{self.name}: {shown}{'…' if len(self.text) > _SHOWN else ''}"


class TaintGate:
    """Asks about calls with consequences that the model wrote after it had read what is not trusted.

    A call has consequences if its tool's effect is other than `pure`, or if it reaches out, as `fetch` does. What is
    not trusted are the results of tools with `untrusted=True`, and of those that `untrusted` names here.
    """

    def __init__(
        self,
        *,
        untrusted: Sequence[str] = (),
        exempt: Sequence[str] = (),
        trust_input: bool = True,
        classify: Classifier = classify,
    ) -> None:
        """`untrusted` and `exempt` name tools, perhaps with a `*` at the end: more that are not trusted, and those that
        are never asked about. `trust_input=False` takes the run's own input for untrusted: a mail to be answered."""
        self._untrusted: Final = tuple(untrusted)
        self._exempt: Final = tuple(exempt)
        self.trusts_input: Final = trust_input
        self._classify: Final = classify

    async def decide(self, request: GateRequest) -> Verdict:
        """Ask about every call with consequences: outside of a run, what the model has read is not known."""
        if not self.has_consequences(request):
            return Allow()
        return Ask(f"{request.tool_name}: what the model has read before this call is not known.")

    def for_run(self, path: tuple[str, ...]) -> RunGate:
        """Return the gate of one run."""
        return TaintedRun(self, None)

    def has_consequences(self, request: GateRequest) -> bool:
        """Tell whether a call does more than look."""
        if any(fits_name(pattern, request.tool_name) for pattern in self._exempt):
            return False
        return request.effect != "pure" or self._classify(request).capability in _EGRESS

    def is_untrusted(self, seen: Seen) -> bool:
        """Tell whether a result is not trusted."""
        return seen.untrusted or any(fits_name(pattern, seen.tool_name) for pattern in self._untrusted)


class TaintedRun:
    """What one run has read, and what stood fixed before it read something untrusted."""

    def __init__(self, gate: TaintGate, above: TaintedRun | None) -> None:
        self._gate: Final = gate
        self._above: Final = above
        self._lineage: Final[tuple[TaintedRun, ...]] = (self, *(() if above is None else above._lineage))
        """This run and those above it."""
        self._sources: list[Source] = []
        self._n_model_calls = 0
        """How many model calls the run had made when it was last heard of."""
        self._texts: list[str] = []
        """The texts that stood fixed."""
        self._scalars: set[tuple[str, str, str]] = set()
        """The tool, name and JSON of each number, boolean and null in earlier calls."""
        self._calls: set[str] = set()
        """The digests of earlier calls."""

    async def decide(self, request: GateRequest) -> Verdict:
        self._n_model_calls = max(self._n_model_calls, request.n_model_calls)
        if not self._sources or not self._gate.has_consequences(request):
            return Allow()
        sources = self._read_before(request.n_model_calls)
        if not sources or self._is_fixed(request.tool_name, request.arguments, request.digest):
            return Allow()
        others = f" (and {len(sources) - 1} more)" if len(sources) > 1 else ""
        return Ask(
            f"{request.tool_name} {_shown(request.arguments)}: the model wrote this after it had read what is not"
            f" trusted: {sources[0]}{others}"
        )

    def hear(self, text: str) -> None:
        above = self._above
        if above is None and not self._gate.trusts_input:
            self._taint(Source("the input", text, 0))
        elif above is not None and above._sources and not above._fixes(text):
            self._sources.append(replace(above._sources[0], after=0))
        else:
            self._texts.append(text)

    def see(self, seen: Seen) -> None:
        self._n_model_calls = max(self._n_model_calls, seen.n_model_calls)
        made = GateRequest(path=(), tool_use_id="", tool_name=seen.tool_name, arguments=seen.arguments, effect="once")
        digest = made.digest
        is_clean = not self._read_before(seen.n_model_calls)
        if self._gate.is_untrusted(seen):
            self._taint(Source(f"{seen.tool_name} {_shown(seen.arguments)}", seen.text, seen.n_model_calls))
        elif not any(source.is_from_below and source.after <= seen.n_model_calls for source in self._sources) and (
            is_clean or self._is_fixed(seen.tool_name, seen.arguments, digest)
        ):
            self._texts.append(seen.text)  # it is the tool's own doing, and not that of something untrusted
        if is_clean:
            self._note(seen, digest)

    def for_run(self, path: tuple[str, ...]) -> RunGate:
        return TaintedRun(self._gate, self)

    # -- what taints

    def _taint(self, source: Source) -> None:
        self._sources.append(source)
        above = self._above
        if above is not None:
            above._taint(replace(source, after=above._n_model_calls, is_from_below=True))

    def _read_before(self, n_model_calls: int) -> list[Source]:
        """Return what the model had read when it made a certain model call. 0: it is not known when."""
        return [each for each in self._sources if not n_model_calls or each.after < n_model_calls]

    # -- what stood fixed

    def _note(self, seen: Seen, digest: str) -> None:
        """Remember what the model wrote before it read anything that is not trusted."""
        self._calls.add(digest)
        for name, value in _leaves(seen.arguments):
            if isinstance(value, str):
                self._texts.append(value)
            else:
                self._scalars.add((seen.tool_name, name, json.dumps(value)))

    def _is_fixed(self, tool_name: str, arguments: JsonObject, digest: str) -> bool:
        if any(digest in run._calls for run in self._lineage):
            return True
        leaves = list(_leaves(arguments))
        if not leaves:
            return self._fixes(tool_name)
        return all(self._is_leaf_fixed(tool_name, name, value) for name, value in leaves)

    def _is_leaf_fixed(self, tool_name: str, name: str, value: object) -> bool:
        if isinstance(value, str):
            return not value or self._fixes(value)
        text = json.dumps(value)
        if any((tool_name, name, text) in run._scalars for run in self._lineage):
            return True
        return not isinstance(value, bool) and value is not None and self._fixes(text, shortest=1)

    def _fixes(self, value: str, *, shortest: int = 2) -> bool:
        fixed = (text for run in self._lineage for text in run._texts)
        return any(value == text or (len(value) >= shortest and _stands_in(value, text)) for text in fixed)


def _leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Give every value in a call's arguments, each with the name of its place; and the names inside of objects."""
    if isinstance(value, dict):
        for key, each in value.items():  # pyright: ignore[reportUnknownVariableType] - JSON
            if name:
                yield f"{name}.", str(key)  # pyright: ignore[reportUnknownArgumentType] - JSON
            yield from _leaves(each, f"{name}.{key}")  # pyright: ignore[reportUnknownArgumentType] - JSON
    elif isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType] - JSON
            yield from _leaves(each, name)  # pyright: ignore[reportUnknownArgumentType] - JSON
    else:
        yield name, value


def _stands_in(value: str, text: str) -> bool:
    """Tell whether a value stands in a text by itself, and not as a part of a longer word or path."""
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        after = text[end + 1 : end + 2] if text[end : end + 1] in _STOPS else text[end : end + 1]
        if (start == 0 or text[start - 1] in _BEFORE) and (not after or after in _AFTER):
            return True
        start = text.find(value, start + 1)
    return False


def _shown(arguments: JsonObject) -> str:
    text = visible(arguments, indent=None)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
