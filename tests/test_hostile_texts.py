"""Texts and patterns of strangers that would take for ever to read: pages, commands' output, secrets, mail, globs."""

import re
from collections.abc import Callable
from random import Random

import pytest

from journeyman.models.sse import Parser, TooLarge
from journeyman.permission.rules import path_regex
from journeyman.team.mail import _MARK  # pyright: ignore[reportPrivateUsage] - what keeps mail from faking a frame
from journeyman.texts import plain
from journeyman.toolbox.fetch import readable_text
from journeyman.toolbox.walk import compile_pattern
from journeyman.tools.redaction import Redactor
from tests.support.stopwatch import STALL_S, longest_stall

ADDRESS = "http://127.0.0.1/"


def streamed(data: bytes, size: int = 16_384) -> None:
    parser = Parser(32 * 1024 * 1024)
    try:
        for start in range(0, len(data), size):
            parser.feed(data[start : start + size])
    except TooLarge:
        return


def redacted(text: str) -> str:
    return Redactor().redacted_text(text)


def globbed(pattern: str, path: str) -> bool:
    return compile_pattern(pattern)(path)


def ruled(pattern: str, path: str) -> bool:
    return path_regex(pattern, below=True).fullmatch(path) is not None


STALLING: dict[str, Callable[[], object]] = {
    "the name of an event in a comment": lambda: streamed(b": " + b"event: " * 20_000, 1 << 20),
    "an event begun in every line": lambda: streamed(b"event: x\n" * 30_000, 1 << 20),
    "chunks that begin with an empty line": lambda: streamed((b"\n:" + b"a" * 78) * 8_000, 80),
    "very many lines of comments": lambda: streamed(b":\n" * 2_000_000 + b"\n\n", 1 << 20),
    "a line that is written over, after a long one": lambda: plain("a" * 60_000 + "\n\rb"),
    "many lines written over": lambda: plain("a\r" * 60_000 + "\n" + "b" * 60_000),
    "sequences that do not end": lambda: plain("\x1b]" * 60_000),
    "blanks after a sign": lambda: _MARK.sub("", "<" + " " * 30_000),
    "an address that never comes": lambda: redacted("a-" * 30_000),
    "names with dots": lambda: redacted("eyJaaaaaaaaa." * 3_000),
    "headers without a value": lambda: redacted("authorization" + " " * 30_000),
    "keys that are begun": lambda: redacted("sk-" * 10_000 + "-----BEGIN " * 3_000),
    "an address in an address": lambda: redacted("a://" * 10_000 + "a://a:" * 5_000),
    "stars in a name": lambda: globbed("*a" * 20 + "z", "a" * 250),
    "stars for folders": lambda: globbed("**/a/" * 12 + "z", "a/" * 200),
    "three stars for folders": lambda: globbed("a/***/" * 12 + "z", "a/" * 400),
    "stars in choices": lambda: globbed("{*a,*b}" * 12 + "z", "ab" * 120),
    "a rule with stars in a name": lambda: ruled("/" + "*a" * 20 + "z", "/" + "a" * 250),
    "a rule with stars for folders": lambda: ruled("/**/a" * 12 + "/z", "/a" * 400),
    "a rule with nothing but stars": lambda: ruled("/**" * 30 + "/z", "/a" * 400),
    "a rule with three stars": lambda: ruled("/a/***" * 9 + "/b", "/a" * 1_000),
}


@pytest.mark.parametrize("work", STALLING.values(), ids=STALLING)
async def test_a_text_of_a_stranger_does_not_stop_the_loop(work: Callable[[], object]) -> None:
    assert await longest_stall(work) < STALL_S


HOSTILE_PAGES = {
    "a tag without a value": ("<a " + "a" * 7_900 + ">") * 20,
    "entities": "&amp " * 40_000,
    "words": "a " * 200_000,
    "a number that is no character": "&#" + "9" * 5_000 + "; <a href='&#" + "9" * 5_000 + "'>",
    "signs": "<" * 200_000,
    "paragraphs": "<p>a" * 40_000,
    "quotes that do not end": '<a "' * 50_000,
    "comments that do not end": "<!--" * 50_000,
    "scripts": "<script>" * 20_000,
}


@pytest.mark.parametrize("html", HOSTILE_PAGES.values(), ids=HOSTILE_PAGES)
async def test_a_page_of_a_stranger_does_not_stop_the_loop(html: str) -> None:
    from asyncio import to_thread  # noqa: PLC0415 - as the tool does

    assert await longest_stall(lambda: to_thread(readable_text, html, ADDRESS)) < STALL_S


def test_what_is_read_of_a_page_does_not_depend_on_how_it_is_cut() -> None:
    text = " ".join(f"word{number} &amp; more" for number in range(6_000))
    assert readable_text(f"<p>{text}</p>", ADDRESS) == text.replace("&amp;", "&")
    assert readable_text("<p>" + "a" * 100_000 + "</p>", ADDRESS) == "a" * 100_000
    assert readable_text("<p>a</p>\n\n\n<p>b</p><pre>c\n\n\n\nd</pre>", ADDRESS) == "a\n\nb\n\n```\nc\n\nd\n```"
    assert (
        readable_text("a &#99999999999; b <a href='x&#38;y' title=z>c</a>", ADDRESS) == f"a \ufffd b [c]({ADDRESS}x&y)"
    )


def test_output_looks_as_it_would_on_a_screen() -> None:
    assert plain("10%\r20%\rdone\nnext\r\nlast\r") == "done\nnext\nlast"


def test_an_address_with_a_password_is_redacted_whatever_stands_before_it() -> None:
    for before in ("", "see ", "a-b-", "x.", "DATABASE_URL="):
        assert redacted(f"{before}postgres://me:sesame@host/db") == f"{before}postgres://me:[redacted]@host/db"


def by_trying(pattern: str, path: str, *, below: bool) -> bool:
    """Match as the words of the documentation say, by trying everything."""
    names, parts = path.split("/")[1:], [part for part in pattern.split("/")[1:] if part]
    names = [] if names == [""] else names

    def fits(parts: list[str], names: list[str]) -> bool:
        if not parts:
            return below or not names
        if parts[0] == "**":
            return fits(parts[1:], names) or (bool(names) and fits(parts, names[1:]))
        if not names:
            return False
        name = "".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in parts[0])
        return re.fullmatch(name, names[0]) is not None and fits(parts[1:], names[1:])

    return fits(parts, names)


PARTS = ("**", "a", "b", "*", "?", "a*", "*b", "a*b", "*a*", "ab", "***", "a**b", "a?*b")


def test_a_rule_for_paths_matches_what_trying_everything_does() -> None:
    random, found = Random(7), 0
    for _ in range(2_000):
        pattern = "/" + "/".join(random.choices(PARTS, k=random.randint(1, 6)))
        names = ["".join(random.choices("ab", k=random.randint(1, 3))) for _ in range(random.randint(1, 6))]
        for below in (True, False):
            path = "/" + "/".join(names)
            expected = by_trying(pattern, path, below=below)
            assert (path_regex(pattern, below=below).fullmatch(path) is not None) == expected, (pattern, path)
            found += expected
    assert found > 300
