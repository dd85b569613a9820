"""Answers as Markdown: cut into blocks while they grow, and laid out in a terminal."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from journeyman.cli.chat.view import Status
from journeyman.cli.show.lines import clean
from journeyman.cli.show.markdown import Block, Blocks, blocks, markdown_rows
from tests.cli.chat_agents import REPORT

CONSOLE = Console(file=io.StringIO(), force_terminal=True)
PIECES = st.sampled_from(
    [
        *(
            "# ",
            "- ",
            "1. ",
            "> ",
            "```",
            "```py\n",
            "~~~\n",
            "\n",
            "\n\n",
            "    ",
            "**",
            "`",
            "|",
            "|---|\n",
            "a | b\n",
        ),
        *(
            "[x](y)",
            "![p](q)",
            "<b>",
            "<!--",
            "&#x202e;",
            "&#27;",
            "\x1b[2J",
            "\r\n",
            "\t",
            "wörter",
            "漢字",
            "word ",
            "---\n",
        ),
        *("[x]: y\n", "\\", "*", "_", "http://a.b ", "🙂", "\u202e"),
    ]
)


def shown(text: str, width: int = 80) -> str:
    rows: list[str] = []
    for block in blocks(text):
        rows += [""] if rows and not block.goes_on else []
        rows += [row.plain for row in markdown_rows(block.text, CONSOLE, width)]
    return "\n".join(rows)


def pieces_of(text: str, size: int) -> list[Block]:
    cutter, found = Blocks(), list[Block]()
    for start in range(0, len(text), size):
        found += cutter.add(text[start : start + size])
    return [*found, *cutter.finish()]


def test_an_answer_is_laid_out_for_80_columns() -> None:
    assert shown(REPORT) == (
        "What I found\n\n"
        "There are two problems in src/app.py, and one of them matters:\n\n"
        " 1 total adds texts.\n   It should add numbers.\n 2 Nothing tests it.\n\n"
        "  def total(rows: list[int]) -> int:\n      return sum(rows)  # all\n\n"
        " file    lines\n ─────────────\n app.py    120\n\n"
        "▌ Shall I fix it?"
    )


def test_nothing_that_was_said_gets_lost() -> None:
    said = (
        "<thinking>\nhm\n</thinking>\n\n![a chart](chart.png) <b>x</b> [docs](https://a.example/b)\n\n[1]: https://only"
    )
    rows = shown(said)
    for word in (
        "<thinking>",
        "hm",
        "</thinking>",
        "![a chart](chart.png)",
        "<b>x</b>",
        "https://a.example/b",
        "https://only",
    ):
        assert word in rows


@given(st.lists(PIECES, max_size=30).map("".join), st.integers(8, 120))
@settings(max_examples=60, deadline=None)
def test_rows_are_never_wider_than_the_terminal_and_hold_no_control_characters(text: str, width: int) -> None:
    for block in blocks(text):
        for row in markdown_rows(block.text, CONSOLE, width):
            assert row.cell_len <= width
            assert row.plain == clean(row.plain)
            assert "\n" not in row.plain


@given(st.lists(PIECES, max_size=30).map("".join), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_how_an_answer_comes_does_not_change_what_is_shown(text: str, size: int) -> None:
    assert pieces_of(text, size) == list(blocks(text))


def test_only_the_block_that_grows_is_not_final() -> None:
    cutter = Blocks()
    assert list(cutter.add("One.\n\nTwo, **which")) == [Block("One.")]
    assert cutter.rest() == Block("Two, **which")
    assert list(cutter.add(" grows**.\n\n1. a\n\n2. b\n\n")) == [Block("Two, **which grows**.")]
    assert cutter.rest() is not None
    assert list(cutter.finish()) == [Block("1. a\n\n2. b\n\n")]


def test_long_code_is_cut_and_goes_on_as_code() -> None:
    code = "\n".join(f"line_{n} = {n}" for n in range(100))
    first, *others = blocks(f"```python\n{code}\n```\nThe end.")
    assert first.text.startswith("```python\nline_0 = 0\n")
    assert first.text.endswith("\n```")
    assert all(each.goes_on and each.text.startswith("```python\n") for each in others)
    assert re.findall(r"line_(\d+)", shown(f"```python\n{code}\n```")) == [str(n) for n in range(100)]


def test_a_line_that_never_ends_is_shown_as_it_comes() -> None:
    cutter = Blocks()
    found = [block.text for _ in range(3_000) for block in cutter.add("word ")]
    rest = cutter.rest()
    assert rest is not None
    assert len(rest.text) <= 4_000
    assert sum(each.count("word") for each in [*found, rest.text]) == 3_000


@pytest.mark.parametrize(
    ("width", "row"),
    [
        (80, "2 queued · sonnet · 12% of 200k · auto · 1 in the background · $0.1235"),
        (60, "2 queued · sonnet · 12% of 200k · auto · 1 in the background"),
        (38, "2 queued · sonnet · 12% of 200k · auto"),
        (10, "2 queued"),
    ],
)
def test_the_status_says_what_fits(width: int, row: str) -> None:
    status = Status(
        model="sonnet", used_tokens=24_800, window_tokens=200_000, cost=0.12345, mode="auto", n_queued=2, n_background=1
    )
    assert status.line(width).text == row


def test_the_status_does_not_say_what_is_not_known() -> None:
    assert Status(model="m").line(80).text == "m"
    assert Status(model="m", used_tokens=12_345).line(80).text == "m · 12.3k tokens"
    assert Status(model="m", used_tokens=9, window_tokens=1_000_000).line(80).text == "m · <1% of 1M"
    assert Status(model="m", used_tokens=170_000, window_tokens=200_000).line(80).style == "yellow"
