"""Short forms for people: durations, numbers, arguments; and text that is safe to show in a terminal.

Whatever a model, a tool or a file says may hold escape sequences that move the cursor or forge lines: `clean` takes
them out. Imports `types`.
"""

from __future__ import annotations

import re
from typing import Final

from pydantic_core import to_json

from journeyman.types import JsonObject, Usage

_LEAST_DOLLARS: Final = 0.00005  # what is less is $0.0000

_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\|$)|[ -/]*[0-~])", re.DOTALL)
_INVISIBLE: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Return `text` without escape sequences and control characters; line breaks stay."""
    return _INVISIBLE.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n"))).expandtabs(4)


def one_line(text: str, longest: int = 2_000) -> str:
    """Return `text`, clean and on one line, cut to `longest` characters."""
    flat = " ".join(clean(text[: 4 * longest]).split())
    return flat if len(flat) <= longest else f"{flat[:longest]}…"


def duration(seconds: float) -> str:
    """Say how long something took: `8 ms`, `1.2 s`, `3 min 05 s`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s"


def clock(seconds: float) -> str:
    """Say how long something has been going on, without a digit that races: `0.8 s`, `12 s`, `3 min 05 s`."""
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s" if seconds < 59.5 else duration(seconds)


def count(number: int, noun: str) -> str:
    """Say how many: `1 call`, `1,204 calls`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def tokens_in(usage: Usage) -> int:
    """Return all input tokens, cached or not."""
    return usage.total_tokens - usage.output_tokens


def short_usage(usage: Usage) -> str:
    """Say what one model call used, in the space beside a line."""
    least = "" if usage.exact else ">= "
    return f"{least}{tokens_in(usage):,} in, {usage.output_tokens:,} out"


def usage_sentence(usage: Usage | None) -> str:
    """Say what a run used and what it cost. What is not known is not given as 0."""
    if usage is None:
        return "tokens not counted"
    if usage.requests == 0 and usage.total_tokens == 0:
        return "no tokens used"
    least = "" if usage.exact else "at least "
    cached = f" ({usage.cache_read_tokens:,} from the cache)" if usage.cache_read_tokens else ""
    cost = "cost unknown" if usage.cost is None else f"{least}${usage.cost:.4f}"
    return f"{least}{tokens_in(usage):,} tokens in{cached}, {usage.output_tokens:,} out · {cost}{_cache_effect(usage)}"


def _cache_effect(usage: Usage) -> str:
    """Say what the cache saved, or cost more than it saved; nothing where that is unknown or too little to show."""
    saved = usage.cache_saved or 0.0
    if abs(saved) < _LEAST_DOLLARS:
        return ""
    return f", the cache saved ${saved:.4f}" if saved > 0 else f", ${-saved:.4f} more than without a cache"


def arguments(given: JsonObject) -> str:
    """Say what a call was given: the only text as it is, else names and values."""
    match list(given.items()):
        case []:
            return ""
        case [(_, str() as text)]:
            return one_line(text, 300)
        case pairs:
            return one_line(", ".join(f"{name}={_value(value)}" for name, value in pairs), 300)


def delegated(given: JsonObject) -> str:
    """Say what a call that delegates was given: to how many, to whom, or what else it says."""
    match given:
        case {"tasks": [_, *_] as tasks}:
            return f"{count(len(tasks), 'task')} at the same time"
        case {"chain": [_, *_] as steps}:
            return f"{count(len(steps), 'step')} one after the other"
        case {"agent": str(agent), "task": str(task)}:
            how = " in the background" if given.get("background") else ""
            return one_line(f"{agent}{how}: {task}", 300)
        case _:
            return arguments(given)


def _value(value: object) -> str:
    return to_json(value, fallback=repr).decode()
