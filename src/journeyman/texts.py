"""Texts for those who read them: people at a screen, and models with little room.

A cut can always be seen, and it falls between characters.
"""

from __future__ import annotations

import re
import signal

from journeyman.errors import count


def shorten(text: str, longest: int) -> str:
    """Return a text, or the beginning of a longer one and `…`."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def shorten_line(text: str, longest: int = 300) -> str:
    """Return a text on one line, or its beginning and `…`. Of one of megabytes, the rest is not looked at."""
    flat = " ".join(text[: 2 * longest].split())
    return flat if len(flat) <= longest and len(text) <= 2 * longest else f"{flat[:longest]}…"


def without_middle(text: str, n_head: int, n_tail: int) -> str:
    """Return a text, or the beginning and the end of a longer one, with a line that says how much is left out."""
    n_left_out = len(text) - n_head - n_tail
    if n_left_out <= 0:
        return text
    return f"{text[:n_head]}\n[… {count(n_left_out, 'character')} left out …]\n{text[len(text) - n_tail :]}"


_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_OVERWRITTEN = re.compile(r"^[^\n]*\r(?!\n|\Z)", re.MULTILINE)  # each line is looked at from its beginning only


def plain(text: str) -> str:
    """Return the text as a screen would show it in the end: without colors, and without lines written over."""
    if "\x1b" in text:
        text = _SEQUENCE.sub("", text)
    if "\r" in text:
        # Line ends of Windows are no line that is written over.
        text = _OVERWRITTEN.sub("", text.replace("\r\n", "\n")).replace("\r", "")
    return text


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGKILL`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
