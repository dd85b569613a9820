"""How texts are shortened: a cut can be seen, and nothing is cut that fits."""

import pytest

from journeyman.texts import shorten, shorten_line, without_middle


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("four", "four"),
        ("fives", "five…"),
        ("a\n  b", "a b"),
        pytest.param("\n" * 9, "…", id="blanks of which the end is not looked at"),
        pytest.param("a b c d e", "a b …", id="words"),
    ],
)
def test_a_text_is_shortened_to_one_line(text: str, shown: str) -> None:
    assert shorten_line(text, 4) == shown
    assert shorten(" ".join(text.split()), 4) == shown or not text.strip()


def test_a_long_text_loses_its_middle_and_says_how_much() -> None:
    assert without_middle("abcdef", 3, 3) == "abcdef"
    assert without_middle("abcdefg", 3, 3) == "abc\n[… 1 character left out …]\nefg"
    assert without_middle("a" * 2_000, 1, 0) == "a\n[… 1,999 characters left out …]\n"
