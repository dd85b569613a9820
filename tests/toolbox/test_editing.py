"""The tool `edit`: how the old text is found, what stands there afterwards, and what it says when it is not there."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from journeyman.toolbox.edit import find, replace_matches
from journeyman.toolbox.files import decode_text
from tests.play import existing
from tests.toolbox.player import Player


def edited(text: str, old: str, new: str, *, every: bool = False) -> tuple[str, str]:
    """Return how the old text was found, and the text after the edit."""
    found = existing(find(text, old, new, every=every))
    assert every or len(found.matches) == 1
    return found.how, replace_matches(text, found.matches)


# The very text, whatever its line endings. Then quotes, dashes and blanks may differ, and lines that do not change stay
# as they are. Then the indentation may differ, and the new text is moved.
FOUND: dict[str, list[tuple[str, str, str, str]]] = {
    "exact": [
        ("a b c", "b", "x", "a x c"),
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\nb\r\nc\n", "a\nb", "x\ny", "x\ny\r\nc\n"),
        ("a\nb\r\nc", "b\nc", "b\nx\nc", "a\nb\r\nx\r\nc"),
        ("a\r\nb\r\n", "\nb", "", "a\r\n"),
        ("a.b", ".", r"\1", r"a\1b"),
        ("x\r\ny", "y", "y\nz", "x\r\ny\r\nz"),
    ],
    "tolerant": [
        ("say \u201chi\u201d, it\u2019s \u2013 fine", 'say "hi", it\'s - fine', "bye", "bye"),
        ("a\u00a0b", "a b", "c", "c"),
        ("one  \ntwo\t\nthree", "one\ntwo\nthree", "one\n2\nthree", "one  \n2\nthree"),
        ("one\ntwo", "one  \ntwo ", "one\n2", "one\n2"),
        (
            "\u201ckept\u201d\nold\n\u2018kept\u2019",
            "\"kept\"\nold\n'kept'",
            "\"kept\"\nnew\n'kept'",
            "\u201ckept\u201d\nnew\n\u2018kept\u2019",
        ),
        ("\u201ca\u201d\r\nb\r\n", '"a"\nb', '"a"\nc\nd', "\u201ca\u201d\r\nc\r\nd\r\n"),
    ],
    "indented": [
        (
            "class A:\n    def f(self):\n        return 1\n",
            "def f(self):\n    return 1",
            "def f(self):\n    if x:\n        return 2\n    return 1",
            "class A:\n    def f(self):\n        if x:\n            return 2\n        return 1\n",
        ),
        (
            "if a:\n    b()\n\tc()\n",
            "    if a:\n        b()\n    \tc()\n",
            "    if a:\n        b()\n        if c:\n            d()\n  e()\n\tf()\n",
            "if a:\n    b()\n    if c:\n        d()\ne()\nf()\n",
        ),
        ("\tif a:\n\t    b()\n", "if a:\n    b()\n", "if a:\n    c()\nd()\n", "\tif a:\n\t    c()\n\td()\n"),
        ("  {\n      x\n  }\n", "{\n    x\n}", "{\n    y\n}", "  {\n      y\n  }\n"),
        ("  a\r\n\r\n  b\r\n", "a\n\nb", "a\n\nc", "  a\r\n\r\n  c\r\n"),
    ],
}


@pytest.mark.parametrize(("how", "case"), [(how, case) for how, cases in FOUND.items() for case in cases])
def test_the_old_text_is_found_in_the_first_way_that_finds_it(how: str, case: tuple[str, str, str, str]) -> None:
    text, old, new, after = case
    assert edited(text, old, new) == (how, after)


ADDED = "def f(a, b):\n    total = a + b\n    print('the total is', total)\n    return total\n"


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("if a:\n    b\n    c\n", "if a:\n  b\nc"),
        ("if a:\n    b\n", "if a:\n  b"),
        ("if a:\n\tb\n", "if a:\n    b"),
        ("\tif a:\n\t\tb\n", "    if a:\n        b"),
        (ADDED, ADDED.replace("the total", "total")),
    ],
)
def test_lines_that_are_not_all_moved_by_the_same_blanks_or_only_similar_are_no_match(text: str, old: str) -> None:
    assert find(text, old, "x", every=False) is None


def test_more_than_one_place_is_found_also_where_they_overlap() -> None:
    found = existing(find("aaa", "aa", "b", every=False))
    assert [match.start for match in found.matches] == [0, 1]
    assert edited("aaaa", "aa", "b", every=True) == ("exact", "bb")


async def write(player: Player, folder: Path, text: str) -> None:
    (folder / "a.py").write_text(text)
    await player.text("read", path="a.py")


async def test_a_text_that_is_there_twice_must_be_made_unique_or_replaced_everywhere(
    player: Player, folder: Path
) -> None:
    await write(player, folder, "x = 1\ny = 2\nx = 1\n")
    change = {"path": "a.py", "old_text": "x = 1", "new_text": "x = 3"}
    assert await player.refused("edit", **change) == (
        "old_text is in a.py 2 times, from lines 1, 3. Give more of the lines around the one that you mean, "
        "or replace_all=true."
    )
    assert await player.text("edit", **change, replace_all=True) == "Edited a.py: 2 places, from line 1."
    assert (folder / "a.py").read_text() == "x = 3\ny = 2\nx = 3\n"


async def test_a_tolerant_edit_says_so_and_shows_what_stands_there(player: Player, folder: Path) -> None:
    await write(player, folder, "def f():\n    if x:\n        y()\n")
    assert await player.text("edit", path="a.py", old_text="if x:\n    y()", new_text="if x:\n    z()") == (
        "Edited a.py: 1 place, at line 2. The old text was found with another indentation; the new text was moved "
        "accordingly. It now reads:\n2\t    if x:\n3\t        z()"
    )


async def test_a_text_that_is_not_there_shows_what_is_similar(player: Player, folder: Path) -> None:
    await write(player, folder, "import os\n\ndef load(path):\n    return open(path).read()\n\nx = 1\n")
    similar = "87% similar, from line 3:\n3\tdef load(path):\n4\t    return open(path).read()"
    numbered = similar.replace("87%", "84%")
    blanks = similar.replace("87% similar", "The same words with other blanks")
    for old, text in (
        ("def load(name):\n    return open(name).read()", f". The most similar there:\n{similar}"),
        ("completely different words", ", nor anything like it. Read the file again."),
        ("1\timport os\n2\t", ". Give it without the line numbers."),
        ("def load(path):\n\treturn open(path).read()", f". The most similar there:\n{blanks}"),
        ("1\tdef load(name):\n    return open(name).read()", f". The most similar there:\n{numbered}"),
    ):
        told = await player.refused("edit", path="a.py", old_text=old, new_text="x")
        assert told == f"old_text is not in a.py{text}"


async def test_of_similar_blocks_the_three_most_similar_are_shown(player: Player, folder: Path) -> None:
    blocks = [
        f"def total(a, b):\n    print('{word}', a + b)\n    return a + b" for word in ("x y z", "x y", "x", "x y z q")
    ]
    await write(player, folder, "\n\n".join(blocks))
    old = "def total(a, b):\n    print('x y z w', a + b)\n    return a + b"
    told = await player.refused("edit", path="a.py", old_text=old, new_text="pass")
    shares = [line for line in told.split("\n") if "similar, from" in line]
    assert shares == [f"{share}% similar, from line {line}:" for share, line in ((98, 1), (96, 13), (96, 5))]
    assert "\n13\tdef total(a, b):\n14\t    print('x y z q', a + b)\n15\t    return a + b\n" in told


async def test_an_edit_that_would_change_nothing_is_refused(player: Player, folder: Path) -> None:
    await write(player, folder, "x\n")
    for old, text in (
        ("", "old_text is empty. Give the text to replace; to make a new file, write it."),
        ("x", "old_text and new_text are the same, so there is nothing to change."),
    ):
        assert await player.refused("edit", path="a.py", old_text=old, new_text="x") == text
    await write(player, folder, "\u201cx\u201d\n")  # the tolerant search finds what the new text says
    told = await player.refused("edit", path="a.py", old_text='"x"', new_text="\u201cx\u201d")
    assert told == "a.py is already as it would be after this edit."


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("x = 1\n" * 20_000, "x = 1\n" * 500 + "y"),
        (" " * 50_000, " " * 3_000 + "x"),
        ("a\n" * 20_000, "a\nb\na"),
        ("begin\n" + "x\n" * 30_000 + "end\n", "begin\n" + "y\n" * 1_000 + "end"),
        ("(" * 19_000, ")" + "(" * 18_000),
        ("".join(f"value_{n} = compute({n}, {n % 7})\n" for n in range(40_000)), "value = compute(1)\nnothing\nat all"),
    ],
)
async def test_a_text_that_is_hard_to_search_is_searched_to_the_end(
    player: Player, folder: Path, text: str, old: str
) -> None:
    (folder / "a.py").write_text(text)
    for offset in range(1, max(2, text.count("\n") + 1), 1_000):
        await player.result("read", path="a.py", offset=offset)
    # To compare each line, or character, with each would not end within the time of a test.
    assert "old_text is" in await player.refused("edit", path="a.py", old_text=old, new_text="x")


PIECES = st.sampled_from(
    [
        *("  ", "\t", "\n", "\r\n", "\n", "    x\n", "\r", "\n\n", *"ab{}();="),
        *("\u201c", '"', "\u2019", "'", "\u2013", "\u00a0", "ü", "\udcff"),
    ]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join)


@given(text=TEXTS, new=TEXTS, every=st.booleans(), data=st.data())
def test_an_edit_never_changes_a_byte_outside_of_its_match(
    text: str, new: str, every: bool, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    there = text[start:end]
    old = data.draw(st.sampled_from(sorted([there, there.strip(), straight(there)])))
    assume(old)
    found = find(text, old, new, every=every)
    if found is None:
        return
    matches = found.matches if every else found.matches[:1]
    after = replace_matches(text, matches)
    begin, finish = matches[0].start, matches[-1].end
    assert after.startswith(text[:begin])
    assert after.endswith(text[finish:])
    assert len(after) == len(text) + sum(len(match.replacement) - (match.end - match.start) for match in matches)
    for one, following in pairwise(matches):
        assert one.end <= following.start
        assert text[one.end : following.start] in after


def straight(text: str) -> str:
    return text.translate({ord("\u201c"): '"', ord("\u2019"): "'", ord("\u2013"): "-", 0xA0: " "})


@given(text=TEXTS, data=st.data())
def test_what_is_there_as_it_is_is_found_as_it_is(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    old = text[start:end].replace("\r\n", "\n")
    assume(old and "\r\n" not in old and not old.startswith("\r") and text[end - 1 : end + 1] != "\r\n")
    assume(not (start and text[start - 1 : start + 1] == "\r\n"))
    found = existing(find(text, old, "new", every=False))
    assert (found.how, (start, end) in [(match.start, match.end) for match in found.matches]) == ("exact", True)


@given(data=st.binary(max_size=60) | st.text(max_size=30).map(lambda text: text.encode("utf-16")))
def test_reading_a_text_and_writing_it_again_gives_the_same_bytes(data: bytes) -> None:
    found = decode_text(data)
    if found is None:
        reject()
    text, coding = found
    assert coding.encode(text) == data
