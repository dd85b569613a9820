"""A gate against instructions that hide in what tools bring in: prompt injection.

Once the model has read a result that is not trusted, whatever it writes may be that result's doing. From then on a call
that has consequences asks for approval, unless its arguments were fixed before: in what the user said, in what trusted
tools returned, or in what the model itself had written by then. A short value occurs everywhere by chance, so it counts
as the user's only if it stands beside the name of its parameter. A run that a call starts is as tainted as its task,
and what taints this run taints the runs above it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from journeyman.definition.problems import explain_arguments
from journeyman.errors import quoted, visible, with_its_end
from journeyman.gate import Allow, Ask, GateRequest, RunGate, Seen, Verdict
from journeyman.permission.capability import Capability, Classifier, classify, fits_name
from journeyman.permission.programs import take_apart
from journeyman.texts import shorten
from journeyman.types import JsonObject

_EGRESS: Final[frozenset[Capability]] = frozenset(("network", "exec"))
_SHOWN: Final = 300

_BEFORE: Final = frozenset(" \t\r\n\"'`<>()[]{},;:=|")
_AFTER: Final = frozenset(" \t\r\n\"'`<>()[]{},;|")
_STOPS: Final = frozenset(".:!?")

_LONG: Final = 6
"""A value with so many letters and digits does not occur by chance."""
_MOST_VALUES: Final = 200
"""The most values of one call that are looked for. A call with more is asked about."""
_MOST_PLACES: Final = 200
"""The most places of one text where a value is looked for."""
_HARMLESS: Final = 100
"""A whole number below this tells nobody anything: it is a page, or how many."""
_MOST_HARMLESS: Final = 8
"""How many values of one call may be there only because each tells little: very many together are a text."""

_NAMES: Final = re.compile(r"[^\s\"'`<>|&;:,()\[\]{}=/\\!?]+")
"""The names of files in a text, and all of its other words."""

_LINE_NAMES: Final = re.compile(r"^(?:[^\n:]*/)?([^\s\"'`<>|&;:,()\[\]{}=/\\!?]+)(?=:|$)", re.MULTILINE)
"""The names of files that lines begin with, or consist of."""
_LONGEST_FILE_NAME: Final = 255  # NAME_MAX of the usual file systems

_Weight: TypeAlias = Literal["nothing", "a look outside", "consequences"]


@dataclass(frozen=True, slots=True)
class TaintSource:
    """An untrusted text with the tool or input that it came from, and when the model could first have read it."""

    name: str
    """The tool with its arguments, or what else the text is."""
    text: str
    after: int
    """The number of model calls by then: the calls that follow have read it."""
    is_from_below: bool = False
    """True when a run that a call started has read it, so that any result may hold it by now."""
    is_description: bool = False
    """True when it is what a stranger says of a tool, and no result of one."""

    def __str__(self) -> str:
        return f"{self.name}: {quoted(shorten(self.text, _SHOWN))}"


@explain_arguments
class TaintGate:
    """Asks about calls with consequences that the model wrote after it had read what is not trusted.

    A call has consequences if its tool's effect is not `pure`, or if it reaches out, as `fetch` does; a call that only
    reads inside has none. Not trusted are the results of tools with `untrusted=True` and of those that `untrusted`
    names here, descriptions that come from outside, and results of reading a file that an earlier call wrote with
    arguments from such a source. The gate remembers these files for all of its runs, as long as it lives.
    """

    def __init__(
        self,
        *,
        untrusted: Sequence[str] = (),
        exempt: Sequence[str] = (),
        trust_input: bool = True,
        classify: Classifier = classify,
    ) -> None:
        """`untrusted` names more tools whose results are not trusted, and `exempt` names tools that are never asked
        about; a name may end with `*`. `trust_input=False` treats the run's own input as untrusted, such as a mail that
        is to be answered. `classify` says what a call would do; a call that it classifies as `read` is never asked
        about."""
        self._untrusted: Final = tuple(untrusted)
        self._exempt: Final = tuple(exempt)
        self.trusts_input: Final = trust_input
        self._classify: Final = classify
        self._spoilt: Final[set[str]] = set()
        """The names of files that hold what may come from something untrusted."""
        self._perhaps: Final[set[str]] = set()
        """Words of commands that may be the names of such files, as `todo` in `… | tee todo`: any word may be one."""

    async def decide(self, request: GateRequest) -> Verdict:
        """Ask about every call with consequences: outside of a run, what the model has read is not known."""
        if not self.has_consequences(request):
            return Allow()
        return Ask(f"{request.tool_name}: what the model has read before this call is not known.")

    def for_run(self, path: tuple[str, ...]) -> RunGate:
        """Return the gate of one run. Below another whose reading this gate does not know, the task is not trusted."""
        return TaintedRun(self, None, trusts_input=self.trusts_input and len(path) < 2)

    def has_consequences(self, request: GateRequest) -> bool:
        """Tell whether a call does more than look inside."""
        return self.weight(request) != "nothing"

    def weight(self, request: GateRequest) -> _Weight:
        """Say what a call can do. `a look outside`: nothing, but its arguments reach others."""
        if any(fits_name(pattern, request.tool_name) for pattern in self._exempt):
            return "nothing"
        capability = self._classify(request).capability
        if capability == "read" or (request.effect == "pure" and capability not in _EGRESS):
            return "nothing"
        return "a look outside" if capability == "network" and request.effect != "once" else "consequences"

    def is_untrusted(self, seen: Seen) -> bool:
        """Tell whether a result is not trusted."""
        return seen.untrusted or any(fits_name(pattern, seen.tool_name) for pattern in self._untrusted)

    def spoil(self, request: GateRequest) -> None:
        """Remember the files that a call may write, whose arguments may come from something untrusted."""
        action = self._classify(request)
        if action.capability == "write":
            self._spoilt.update([names[-1].rstrip(".") for names in map(_NAMES.findall, action.paths) if names])
        elif action.command is not None:  # what follows a `>`, and what looks like a file
            written = [found for part in action.command.split(">")[1:] for found in _NAMES.findall(part)[:1]]
            self._spoilt.update([*written, *[name for name in _NAMES.findall(action.command) if "." in name]])
            reading = take_apart(action.command)
            self._perhaps.update(_NAMES.findall(action.command) if reading.unread else [])
            for words in reading.commands:
                values = [word.text for word in words[1:] if len(word.text) <= _LONGEST_FILE_NAME]
                self._perhaps.update([name for value in values for name in _NAMES.findall(value)[-1:]])

    def is_spoilt(self, seen: Seen) -> bool:
        """Tell whether a result may hold what an earlier call wrote into a file, here or in another run."""
        if not self._spoilt and not self._perhaps:
            return False
        given = [
            name
            for _, value in _named_values(seen.arguments)
            if isinstance(value, str)
            for name in _NAMES.findall(value)
        ]
        named = [name.rstrip(".") for name in (*given, *_NAMES.findall(seen.text))]
        # A word is the name of a file where a call names it, or where a line begins with it, as grep's do.
        perhaps = {*given, *_LINE_NAMES.findall(seen.text)}
        return not self._spoilt.isdisjoint(named) or not self._perhaps.isdisjoint(perhaps)


class TaintedRun:
    """A gate's memory of one run: the untrusted texts that it read, and the values that were fixed before the first."""

    def __init__(self, gate: TaintGate, above: TaintedRun | None, *, trusts_input: bool) -> None:
        self._gate: Final = gate
        self._above: Final = above
        self._trusts_input: Final = trusts_input
        self._lineage: Final[tuple[TaintedRun, ...]] = (self, *(() if above is None else above._lineage))
        """This run and those above it."""
        self._sources: list[TaintSource] = []
        self._n_model_calls = 0
        """How many model calls the run had made when it was last heard of."""
        self._said: list[str] = []
        """What the user said."""
        self._wrote: list[str] = []
        """What the model wrote before it had read anything that is not trusted."""
        self._told: list[str] = []
        """What trusted tools told."""
        self._written: set[tuple[str, str, str]] = set()
        """The tool, name and JSON of each value in earlier calls."""
        self._calls: set[str] = set()
        """The digests of earlier calls."""
        self._spoiling: dict[str, GateRequest] = {}
        """The calls by id that were asked about, and spoil the files that they write."""

    async def decide(self, request: GateRequest) -> Verdict:
        self._n_model_calls = max(self._n_model_calls, request.n_model_calls)
        sources = self._read_before(request.n_model_calls)
        weight = self._gate.weight(request) if sources else "nothing"
        if weight == "a look outside" and request.effect == "pure":
            # Whoever declared the tool pure knows that its server reads the arguments; so far it has only described it.
            sources = [each for each in sources if not each.is_description]
        self._spoiling.pop(request.tool_use_id, None)
        if not sources or self._is_fixed(request.tool_name, request.arguments, request.digest, weight):
            return Allow()
        self._spoiling[request.tool_use_id] = request
        if weight == "nothing":
            return Allow()
        source = next((each for each in sources if each.after), sources[0])
        others = f" (and {len(sources) - 1} more)" if len(sources) > 1 else ""
        return Ask(
            f"{request.tool_name} {_words_of(request.arguments)}: the model wrote this after it had read what is not"
            f" trusted: {source}{others}"
        )

    def hear(self, text: str) -> None:
        above = self._above
        if above is None and not self._trusts_input:
            self._taint(TaintSource("the input", text, 0))
        elif above is not None and above._sources and not (_is_long(text) and above._fixes(text)):
            self._sources.append(replace(above._sources[0], after=0))
        else:
            self._said.append(text)

    def see(self, seen: Seen) -> None:
        self._n_model_calls = max(self._n_model_calls, seen.n_model_calls)
        made = GateRequest(path=(), tool_use_id="", tool_name=seen.tool_name, arguments=seen.arguments, effect="once")
        digest = made.digest
        is_clean = not self._read_before(seen.n_model_calls)
        spoiling = self._spoiling.pop(seen.tool_use_id, None)
        if spoiling is not None and seen.may_have_run:
            self._gate.spoil(spoiling)
        if self._gate.is_untrusted(seen) or (spoiling is None and self._gate.is_spoilt(seen)):
            name = f"{seen.tool_name} {_words_of(seen.arguments)}"
            self._taint(TaintSource(name, seen.text, seen.n_model_calls, is_description=seen.is_description))
        elif not any(source.is_from_below and source.after <= seen.n_model_calls for source in self._sources) and (
            is_clean or self._is_fixed(seen.tool_name, seen.arguments, digest, "nothing")
        ):
            self._told.append(seen.text)  # it is the tool's own doing, and not that of something untrusted
        if is_clean:
            self._note(seen, digest)

    def for_run(self, path: tuple[str, ...]) -> RunGate:
        return TaintedRun(self._gate, self, trusts_input=True)

    def _taint(self, source: TaintSource) -> None:
        self._sources.append(source)
        above = self._above
        if above is not None:
            above._taint(replace(source, after=above._n_model_calls, is_from_below=True))

    def _read_before(self, n_model_calls: int) -> list[TaintSource]:
        """Return what the model had read when it made a certain model call. 0: it is not known when."""
        return [each for each in self._sources if not n_model_calls or each.after < n_model_calls]

    def _note(self, seen: Seen, digest: str) -> None:
        """Remember what the model wrote before it read anything that is not trusted."""
        self._calls.add(digest)
        for name, value in _named_values(seen.arguments):
            self._written.add((seen.tool_name, name, json.dumps(value)))
            if isinstance(value, str):
                self._wrote.append(value)

    def _is_fixed(self, tool_name: str, arguments: JsonObject, digest: str, weight: _Weight) -> bool:
        if any(digest in run._calls for run in self._lineage):
            return True
        leaves = list(_named_values(arguments))
        if not leaves:
            return weight != "consequences" or (_is_long(tool_name) and _stands_in_any(tool_name, self._all_said()))
        if len(leaves) > _MOST_VALUES:
            return False
        written = [run._written for run in self._lineage]
        new = [
            (name, value)
            for name, value in leaves
            if not any((tool_name, name, json.dumps(value)) in each for each in written)
        ]
        if weight == "consequences":
            return all(self._is_fixed_for_good(name, value) for name, value in new)
        said = self._all_said()
        told = [value for _, value in new if not (value in said or self._fixes(_text_of_value(value)))]
        return len(told) <= _MOST_HARMLESS and all(map(_tells_nothing, told))

    def _is_fixed_for_good(self, name: str, value: object) -> bool:
        """Tell whether a value of a call with consequences is what the user, or a trusted tool, has named for it."""
        text = _text_of_value(value)
        if _is_long(text):
            return self._fixes(text)
        answer = {text, f"{text}."} - {".", ""}
        return any(said.strip() in answer or _is_beside(name, value, said) for said in self._all_said())

    def _all_said(self) -> list[str]:
        return [text for run in self._lineage for text in run._said]

    def _fixes(self, value: str) -> bool:
        """Tell whether the user named a value, the model did before, or a trusted tool one that nothing else names."""
        wrote = [text for run in self._lineage for text in run._wrote]
        if _stands_in_any(value, self._all_said()) or _stands_in_any(value, wrote):
            return True
        sources = [source.text for run in self._lineage for source in run._sources]
        told = [text for run in self._lineage for text in run._told]
        return _stands_in_any(value, told) and not any(value in text for text in sources)


def _tells_nothing(value: object) -> bool:
    """Tell whether a value tells nobody anything, whoever chose it."""
    if value in (None, "", [], {}) or isinstance(value, bool):
        return True
    return isinstance(value, int) and abs(value) < _HARMLESS


def _named_values(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Give every value in a call's arguments, each with the name of its place: `a.b` is in an object, `a[]` in a list.

    The names inside of objects are values, too: it may be the model that chose them. So are empty lists and objects.
    """
    if isinstance(value, dict) and (value or not name):
        for key, each in value.items():  # pyright: ignore[reportUnknownVariableType] - JSON
            if name:
                yield f"{name}.", str(key)  # pyright: ignore[reportUnknownArgumentType] - JSON
            yield from _named_values(each, f"{name}.{key}")  # pyright: ignore[reportUnknownArgumentType] - JSON
    elif isinstance(value, list) and value:
        for each in value:  # pyright: ignore[reportUnknownVariableType] - JSON
            yield from _named_values(each, f"{name}[]")  # pyright: ignore[reportUnknownArgumentType] - JSON
    else:
        yield name, value


def _text_of_value(value: object) -> str:
    """Return a value as people write it: 30 for 30.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)


def _is_long(text: str) -> bool:
    """Tell whether a value is too long to occur by chance. Of a number, only its digits count."""
    return sum([each.isalnum() for each in _ZEROS.sub("", text)]) >= _LONG


def _stands_in_any(value: str, texts: Iterable[str]) -> bool:
    return any(_stands_in(value, text) for text in texts)


def _stands_in(value: str, text: str) -> bool:
    """Tell whether a value stands in a text by itself, and not as a part of a longer word or path."""
    start = text.find(value) if value else -1
    for _ in range(_MOST_PLACES):
        if start < 0:
            return False
        if (start == 0 or text[start - 1] in _BEFORE) and _ends_at(start + len(value), text):
            return True
        start = text.find(value, start + 1)
    return False


def _ends_at(end: int, text: str) -> bool:
    """Tell whether a word or a path ends at this place of a text."""
    after = text[end + 1 : end + 2] if text[end : end + 1] in _STOPS else text[end : end + 1]
    return not after or after in _AFTER


_EXACT: Final = 2**53
_ZEROS: Final = re.compile(r"\.0{1,9}$")
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_]+")
_KINDS: Final = frozenset(("id", "ids", "no", "nr", "number", "name", "code"))
"""Words at the end of a name that say only what kind of a value it is: an `account_id` is an account."""
_SMALL: Final = frozenset(
    ("as", "at", "by", "for", "from", "in", "is", "of", "on", "per", "than", "till", "to", "with")
)
"""Names that are everyday words: a number after one of these means anything."""
_LINK: Final = r"[\"'`]?(?P<sign>\s{0,3}[:=#]|\s{1,3}(?:of|is|no\.?|nr\.?|number|id|called|named)(?=\s))?\s{0,3}"
_OPENING: Final = "[\"'`(<$€£¥]?"
_FRACTION: Final = re.compile(r"[.,]\d")
_LONGEST_NAME: Final = 64


def _is_beside(name: str, value: object, text: str) -> bool:
    """Tell whether a text names a value for a parameter: "account 7", "account: 7", "an amount of 30", "12 copies"."""
    words = [each.lower() for each in _WORDS.findall(name.rpartition(".")[2])]
    if not words or value in ("", [], {}) or len(name) > _LONGEST_NAME:
        return False
    forms = _forms(value)
    counts = isinstance(value, int) and not isinstance(value, bool) and not name.endswith("[]")
    short = words[:-1] if len(words) > 1 and words[-1] in _KINDS else words
    for chosen in {tuple(words), tuple(short)}:
        needs_sign = len(chosen) == 1 and chosen[0] in _SMALL and not re.search(r"[^\W\d_]", forms[0])
        called = r"[\s_-]?".join(map(re.escape, chosen))
        for found in re.finditer(rf"(?<![^\W_])(?i:{called})(?![^\W_])(?P<link>{_LINK}{_OPENING})", text):
            if found["link"] and (found["sign"] or not needs_sign):
                ends = [found.end() + len(form) for form in forms if text.startswith(form, found.end())]
                if any(_ends_at(end, text) and not _FRACTION.match(text, end) for end in ends):
                    return True
            before = text[max(0, found.start() - _LONGEST_NAME) : found.start()].split(" ")
            if counts and chosen[-1].endswith("s") and before[-1:] == [""] and {*before[-2:-1]} & {*forms}:
                return True
    return False


def _forms(value: object) -> list[str]:
    """Give the ways in which a text may write a value."""
    forms = [_text_of_value(value)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        forms.append(f"{value:,}")
        if round(value, 2) == value:
            forms += [f"{value:.2f}", f"{value:,.2f}"]
    return forms


def _words_of(arguments: JsonObject) -> str:
    return with_its_end(visible(arguments, indent=None), _SHOWN)
