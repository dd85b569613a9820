"""The words that were decided on: one plain word for one thing, in pages, docstrings and messages alike."""

import re
from functools import cache

import pytest

from tests.support import pages

SAY = {
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again",
    r"as ever": "as always",
    r"but for": "except",
    r"for ever": "forever",
    r"in mid-\w+": "in the middle of",
    r"likewise": "in the same way",
    r"stead": "instead",
    r"till": "until",
    r"time-outs?": "timeout",
    r"all the same(?! (length|size|time))": "anyway, still",
    r"come to an end": "end, finish",
    r"(?:there|where|here)(?:by|in|of|upon)": "by this, in which, of which",
    r"upon(?! a time)": "on",
    r"utili[sz](e|es|ed|ing)": "use",
    r"leverag(e|es|ed|ing)": "use",
    r"(simply|easily)": "nothing: it is either simple or it is not",
    r"(can|may) not only": "can also",
    r"(e\.g\.|i\.e\.|etc\.)": "for example, that is, and so on",
}
"""What is not said, as a pattern, and what is said in its place."""

EXEMPT = {
    "src/journeyman/durable/records.py": {"anew"},  # stands in stores
    "src/journeyman/permission/taint.py": {"till"},  # a word to look for
}


def unreleased(changelog: str) -> str:
    """Return what users have not read yet."""
    _, entries, *_ = re.split(r"^## ", changelog, flags=re.MULTILINE)
    return entries


@cache
def texts() -> dict[str, str]:
    """Return what is held to these words, by its name."""
    paths = (*pages.PAGES, *(pages.ROOT / "src").rglob("*.py"))
    read = {pages.page_name(path): path.read_text(encoding="utf-8").lower() for path in paths}
    return read | {"CHANGELOG.md": unreleased((pages.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")).lower()}


def said(pattern: str, text: str) -> list[str]:
    """Return where `text`, in small letters, says it; sentences end and lines break where they like."""
    found = re.finditer(
        pattern.replace(" ", r"\s+") + r"(?![\w-])", text
    )  # what stands before is slow to look at first
    return [
        " ".join(each[0].split()) for each in found if not re.match(r"[\w.-]", text[each.start() - 1 : each.start()])
    ]


@pytest.mark.parametrize("pattern", SAY)
def test_pages_and_messages_say_the_word_that_was_decided_on(pattern: str) -> None:
    found = {
        name: words for name, text in texts().items() if (words := {*said(pattern, text)} - EXEMPT.get(name, set()))
    }
    assert found == {}, f"Say instead: {SAY[pattern]}."


def test_a_planted_word_is_found_also_where_the_line_breaks() -> None:
    assert said(r"but for", "all but\n    for one.") == ["but for"]
    assert said(r"mend(s|ed|ing)?", "recommended, amended: it mends itself.") == ["mends"]


def test_only_what_is_not_released_yet_is_held_to_the_words() -> None:
    assert unreleased("# Changelog\n\n## [2] - Unreleased\n\nNow.\n\n## [1]\n\nThen.\n").endswith("Now.\n\n")
