"""The chat's main screens at 40, 80 and 120 columns: sub-agents at work and after, a command, the row at the bottom.

The screens are in `screens`, one file for each width, without what differs each time. The page on the chat in the
terminal shows those of 80 columns.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Warm, timeless
from tests.cli.terminal import Terminal, terminal

pytestmark = pytest.mark.timeout(60)
LEAD = f"{Path(__file__).parent / 'screen_agents.py'}:lead"
SCREENS = Path(__file__).parent / "screens"
DOCS = Path(__file__).parents[2] / "docs" / "cli-chat.md"
TITLES = (
    "sub-agents at work, and a text that waits",
    "one of them has finished",
    "the answer",
    "a command that goes on",
    "the command has ended",
)
COLOURS = {*range(31, 37), 39, 90}
"""Colours of the terminal's own that can be read on light and on dark: not black, not white, none behind the text."""


def steady(text: str) -> str:
    """Return the screen from what was said last on, without what differs each time: times, and what turns."""
    text = re.sub("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠸", text[max(text.rfind("> What"), text.rfind("> Run")) :])
    text = re.sub(r" ·\s+[\d.]+ m?s$", "", text, flags=re.MULTILINE)
    text = re.sub(r" · [\d.]+ m?s +", lambda found: " " * len(found[0]), text)
    text = timeless(re.sub(r"\w*…(?= +[\d.]+ m?s$)", "…", text, flags=re.MULTILINE))
    return "\n".join(row.rstrip() for row in text.split("\n"))


def screens(chat: Terminal, folder: Path) -> Iterator[str]:
    """Play the chat, and give each of its main screens."""

    def when(sign: str, cost: str) -> str:
        """Wait for `sign`, and for the cost at the bottom, where there is room for it."""

        def is_there(shown: str) -> bool:
            rows = shown.splitlines()
            is_whole = any(row.startswith(">") for row in rows[-3:-1])  # it is drawn row by row
            return sign in shown and (cost in rows[-1] or "queued" in rows[-1]) and "sonnet" in rows[-1] and is_whole

        return chat.wait_for(is_there)

    chat.see("/help")
    chat.type("What do we order?")
    chat.wait_for(lambda shown: shown.count(" · read_list") == 2 and "28,200" in shown)
    chat.type("In one table, please.", "queued: In one table, please.")
    yield when("1 queued", "$0.0990")
    (folder / "stock").write_bytes(b"")
    yield when("1 sub-agent at work · 37,600", "$0.1320")
    (folder / "prices").write_bytes(b"")
    yield when("400 out · $0.1980", "$0.1980")
    chat.type("Run seq 1 30; cat door; seq 31 40", "│ 30")
    yield when("running bash · 9,400", "$0.2310")
    (folder / "door").write_bytes(b"")
    yield when("out · $0.0660", "$0.2640")


def played(warm: Warm, folder: Path, columns: int, **env: str) -> tuple[str, str]:
    """Return the main screens with their titles, and all that was written."""
    folder.mkdir(exist_ok=True)
    for name in ("prices", "stock", "door"):
        os.mkfifo(folder / name)
    around: dict[str, Any] = {"XDG_DATA_HOME": str(folder / "data"), **env}
    words = ("chat", LEAD, "--mode", "trust")
    with terminal(*words, folder=folder, columns=columns, rows=40, start=warm.start, **around) as chat:
        found = dict(zip(TITLES, map(steady, screens(chat, folder)), strict=True))
        chat.press(b"\x04")
        assert chat.end() == 0
    assert max(len(row) for row in chat.text.splitlines()) <= columns
    return "\n".join(f"--- {title}\n\n{text}\n" for title, text in found.items()), chat.output


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_main_screens_are_those_that_were_looked_at(warm: Warm, tmp_path: Path, columns: int) -> None:
    shown, _ = played(warm, tmp_path, columns)
    assert shown == (SCREENS / f"{columns}-columns.txt").read_text(encoding="utf-8")


def test_the_page_on_the_chat_shows_the_main_screens() -> None:
    page, kept = (each.read_text(encoding="utf-8") for each in (DOCS, SCREENS / "80-columns.txt"))
    shown = [steady(block) for block in re.findall(r"```console\n(> (?:What|Run) .*?)\n```", page, re.DOTALL)]
    assert len(shown) == 4
    assert [block for block in shown if f"\n\n{block}\n" not in kept] == []


def test_a_light_and_a_dark_terminal_differ_in_nothing_but_their_own_colours(warm: Warm, tmp_path: Path) -> None:
    light, drawn = played(warm, tmp_path / "light", 80, COLORFGBG="0;15")
    dark, drawn_too = played(warm, tmp_path / "dark", 80, COLORFGBG="15;0", COLORTERM="truecolor")
    assert light == dark
    for output in (drawn, drawn_too):
        codes = {int(code or 0) for each in re.findall(r"\x1b\[([0-9;]*)m", output) for code in each.split(";")}
        assert {code for code in codes if code > 29} <= COLOURS
        assert {31, 32, 36} & codes, "there are colours at all"
