"""What must hold of a run whose process was killed, whenever that was: a pure function of its log and its outcome."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from pydantic import JsonValue

from tests.durable.crash_program import EFFECTS, MEANWHILE


class Line(NamedTuple):
    """One line of the log."""

    life: int
    word: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """All lives of one run."""

    lines: Sequence[Line]
    outcome: dict[str, Any]
    """What the last life wrote down."""

    def times(self, word: str, what: str) -> int:
        return sum([(each.word, each.what) == (word, what) for each in self.lines])

    @property
    def unknown(self) -> set[str]:
        """The calls of which the model was told that it is unknown whether they took effect."""
        return set(self.outcome["unknown"])


def faults(lives: Lives, undisturbed: Lives, *, loses_power: bool = False) -> Iterator[str]:
    """Yield what is wrong. `loses_power`: what was not on the disk was lost, so only what must not happen twice counts,
    and the end."""
    yield from _effect_faults(lives)
    if lives.outcome["status"] != "done" or lives.outcome["result"]["code"] != "SUCCESS":
        yield f"it ended as {lives.outcome['status']}: {lives.outcome['result']['error']}"
    yield from [f"the history: {each}" for each in lives.outcome["faults"]]
    if "recordings" in lives.outcome:
        found = lives.outcome["recordings"]
        if loses_power:  # a run that the store has lost, before anybody was told of it, may have left a recording
            found = [each for each in found if each["id"] == lives.outcome["id"] or each["status"] != "died"]
        yield from _recording_faults(lives, found)
    if loses_power:
        return
    yield from _repetitions(lives)
    yield from _unknown_faults(lives)
    if lives.times("ended", "done") > 1 or any(each.word == "ended" and each.what != "done" for each in lives.lines):
        yield "it ended more than once"
    if lives.outcome["stored"] != lives.outcome["result"]:
        yield f"its stored result is another one: {_first_difference(lives.outcome['result'], lives.outcome['stored'])}"
    yield from _cut_faults(lives, undisturbed)
    expected, told = [_without(each.outcome["result"], lives.unknown) for each in (undisturbed, lives)]
    if lives.outcome["cut"]:
        expected, told = _without_requests(expected), _without_requests(told)
    if expected != told:
        yield f"its result differs from that of an undisturbed run: {_first_difference(expected, told)}"
    missing = set(undisturbed.outcome["keys"]) - set(lives.outcome["keys"])
    more = set(lives.outcome["keys"]) - set(undisturbed.outcome["keys"])
    if not lives.unknown and (missing or more):
        yield f"its steps differ: {sorted(missing)} are missing, {sorted(more)} are more"


def _recording_faults(lives: Lives, found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with what a recorder on the same store has kept: a death takes its last moments, no more."""
    if [each["id"] for each in found] != [lives.outcome["id"]]:
        yield f"the run {lives.outcome['id']} has the recordings {found}"
        return
    status, events, why, cut = [found[0][name] for name in ("status", "events", "why", "cut")]
    kinds, words = Counter(each[-1] for each in events if len(each) == 2), [each.word for each in lives.lines]
    is_cut = "ended" in words and "died" in words[words.index("ended") :]
    told = status, kinds["RunSucceeded"]
    # What the last life had begun with, it has not written by then: an earlier one may have left, a moment ago.
    if told != ("done", 1) and not (is_cut and told in (("done", 0), ("running", 0))):
        yield f"its recording has ended as {told[0]}, and tells {told[1]} times that it has succeeded"
    if not 0 < (n_begun := kinds["RunStarted"] + kinds["RunResumed"]) <= lives.outcome["lives"]:
        yield f"its recording tells of {n_begun} lives, of {lives.outcome['lives']}"
    if why is not None or cut or {each[0] for each in events} != {"leader"}:
        yield f"its recording is not whole, or another's: {why}, requests {cut}, {events}"


def _effect_faults(lives: Lives) -> Iterator[str]:
    for id, effect in EFFECTS.items():
        n_done = lives.times("did", id)
        if effect == "once" and n_done > 1:
            yield f"{id}, which is `once`, was done {n_done} times"
        if n_done < 1 and id not in lives.unknown:
            yield f"{id} was never done"


def _repetitions(lives: Lives) -> Iterator[str]:
    """Yield what was done again though its step was stored."""
    stored = set[str]()
    for line in lives.lines:
        if line.word == "stored":
            stored.add(line.what)
        elif line.word == "did" and _VERDICTS.get(line.what, line.what) in stored:
            yield f"{line.what} was done again in life {line.life}, though it was stored"


_VERDICTS = {"verdict Hi": "attempt/1/verdict/0", "verdict Hello, all.": "attempt/2/verdict/0"}


def _unknown_faults(lives: Lives) -> Iterator[str]:
    """Yield what is told as unknown though nobody killed it: only a call that was begun, and not known as done, is."""
    last = max([each.life for each in lives.lines])
    for id in lives.unknown:
        if EFFECTS.get(id) != "once":
            yield f"{id} is told as unknown, and is not `once`"
        if not any(each.word == "begins" and each.what == id and each.life < last for each in lives.lines):
            yield f"{id} is told as unknown, and was not begun in an earlier life"
    n_killed = sum([each.word == "died" for each in lives.lines])
    if len(lives.unknown) > _MOST_AT_ONCE * n_killed:
        yield f"{sorted(lives.unknown)} are told as unknown after {n_killed} kills"


_MOST_AT_ONCE = 3
"""So many `once` calls are under way at the same time, at most."""


def _cut_faults(lives: Lives, undisturbed: Lives) -> Iterator[str]:
    """Yield what is wrong with the model calls that count as cut: of each death that the store can know of, but the
    first of those, the calls that were asked."""
    n_cut, deaths = lives.outcome["cut"], [each.what for each in lives.lines if each.word == "died"]
    asked = [each for each in [*_deaths_of_holders(lives)][1:] if each.startswith("after model")]
    if not len(asked) <= n_cut <= _MOST_AT_ONCE * max(0, len(deaths) - 1):
        yield f"{n_cut} model calls count as cut by the deaths {deaths}"
    usage, expected = [each.outcome["result"]["usage"] for each in (lives, undisturbed)]
    if usage["requests"] != expected["requests"] + n_cut or usage["exact"] is bool(n_cut):
        yield f"its usage is {usage}, with {n_cut} model calls that count as cut"


def _deaths_of_holders(lives: Lives) -> Iterator[str]:
    """Yield where those lives died that held the run, unless the next one gave it back before it had stored anything:
    any other death leaves no trace in the store."""
    is_held, stored, last = False, set[str](), ""
    for line in lives.lines:
        is_news = line.word == "stored" and line.what not in stored
        is_death = line.word == "died" and is_held
        if last and (is_news or is_death):
            yield last
            last = ""
        if line.word == "status":
            is_held = line.what == "running"
            last = last if is_held else ""
        elif is_news:
            stored.add(line.what)
        elif is_death:
            last = line.what
    if last:
        yield last


def _without_requests(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the result without what each use says of requests of which nothing is known, to models too."""
    match value:
        case dict():
            fields = cast("dict[str, Any]", value)
            return {key: _without_requests(each) for key, each in fields.items() if key not in ("requests", "exact")}
        case list():
            return [_without_requests(each) for each in cast("list[Any]", value)]
        case str():
            return value.replace(',"exact":false', "")
        case _:
            return value


def _without(document: dict[str, Any], unknown: set[str]) -> dict[str, Any]:
    """Return the result without what is allowed to differ: what is said of the calls whose outcome is unknown."""
    if not unknown:
        return document
    by_tool = Counter(re.sub(r"\d", "", id) for id in unknown)
    kept = dict(document)
    kept["history"] = [
        {**message, "content": [each for block in message["content"] if (each := _block(block, unknown)) is not None]}
        for message in document["history"]
    ]
    tools = {name: dict(stats) for name, stats in document["tools"].items()}
    for name, stats in tools.items():
        errors = dict(stats["errors"])
        n_unknown = errors.pop("interrupted", 0)
        if n_unknown <= by_tool[name]:
            stats |= {"succeeded": stats["succeeded"] + n_unknown, "errors": errors}
    kept["tools"] = tools
    return kept


def _block(block: dict[str, Any], unknown: set[str]) -> dict[str, Any] | None:
    if block.get("tool_use_id") in unknown:
        return {"tool_use_id": block["tool_use_id"]}
    if block.get("text") in [
        MEANWHILE[id] for id in unknown if id in MEANWHILE
    ]:  # who was killed there may have said nothing
        return None
    return block


def _first_difference(one: JsonValue, other: JsonValue, at: str = "") -> str:
    match one, other:
        case dict(), dict():
            pairs = [(key, one.get(key), other.get(key)) for key in {**one, **other}]
        case list(), list() if len(one) == len(other):
            pairs = [(str(number), *each) for number, each in enumerate(zip(one, other, strict=True))]
        case _:
            return f"at {at}: {one!r:.600} and {other!r:.600}"
    return next(
        (_first_difference(first, second, f"{at}/{key}") for key, first, second in pairs if first != second), ""
    )
