"""Docstrings: what goes to the model as the description, and what as the description of a parameter."""

import inspect
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.tools.signature import Described, describe


def google() -> None:
    """Send a letter.

    It cannot be taken back.

    Args:
        to (str): the address,
            with the country.

            And the planet.
        stamps: how many: at least one.

    Raises:
        LookupError: nobody lives there.
    """


def numpy() -> None:
    """Send a letter.

    It cannot be taken back.

    Parameters
    ----------
    to : str
        the address,
        with the country.

        And the planet.
    stamps : int, optional
        how many: at least one.

    Raises
    ------
    LookupError
        nobody lives there.
    """


def sphinx() -> None:
    """Send a letter.

    It cannot be taken back.

    :param str to: the address,
        with the country. And the planet.
    :param stamps: how many: at least one.
    :type stamps: int
    :raises LookupError: nobody lives there.
    """


@pytest.mark.parametrize(
    ("function", "rest"),
    [
        (google, "Raises:\n    LookupError: nobody lives there."),
        (numpy, "Raises\n------\nLookupError\n    nobody lives there."),
        (sphinx, ":raises LookupError: nobody lives there."),
    ],
)
def test_the_parameter_section_goes_to_the_parameters_and_the_rest_stays(function: object, rest: str) -> None:
    assert describe(inspect.getdoc(function)) == Described(
        f"Send a letter.\n\nIt cannot be taken back.\n\n{rest}",
        {"to": "the address, with the country. And the planet.", "stamps": "how many: at least one."},
    )


@pytest.mark.parametrize(
    ("docstring", "description", "parameters"),
    [
        (None, "", {}),
        ("", "", {}),
        ("  One line. ", "One line.", {}),
        ("Args are a word:\n\nand this is prose.", "Args are a word:\n\nand this is prose.", {}),
        ("Args: none.", "Args: none.", {}),
        ("Args:\n    a: only this", "", {"a": "only this"}),
        ("Args:", "", {}),
        ("Do.\n\nArgs:\n    a: one\nAfter it.", "Do.\n\nAfter it.", {"a": "one"}),
        ("Do.\n\nArgs:\n    a: one\n\nKeyword Args:\n    b: two", "Do.", {"a": "one", "b": "two"}),
        ("Do.\n\nParameters:\n    a: one", "Do.", {"a": "one"}),
        ("Do.\n\nParameters\n----------\na, b : int\n    both", "Do.", {"a": "both", "b": "both"}),
        ("Do.\n\nNotes\n-----\nParameters matter.", "Do.\n\nNotes\n-----\nParameters matter.", {}),
        (":param a: one\n:param b:\n:returns: c", ":returns: c", {"a": "one"}),
        (":param a: one\n\n    And more.\n\n:returns: c", ":returns: c", {"a": "one And more."}),
    ],
)
def test_odd_docstrings(docstring: str | None, description: str, parameters: dict[str, str]) -> None:
    assert describe(docstring) == Described(description, parameters)


def test_a_bad_line_in_a_section_is_passed_over_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        described = describe("Do.\n\nArgs:\n    a: one\n    no colon here\n    b: two")
    assert described.parameters == {"a": "one", "b": "two"}
    assert caplog.records == []


@pytest.mark.fuzz
@given(
    st.lists(
        st.sampled_from(["Args:", "Parameters", "-----", ":param a: b", "    a: b", "  a", "", "x", "    a : int"])
        | st.text(),
        max_size=12,
    )
)
def test_any_text_can_be_taken_apart(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert all(name.strip("*") in text for name in describe(text).parameters)


SECTIONS = [
    "Args:\n    title (str) : In its own language.\n    page (int) : Counts from 1.",
    "Args:\n    title : In its own language.\n    page: Counts from 1.",
    "Args:\n    title - In its own language.\n    page (int) -- Counts from 1.",
    "Args:\n    - title: In its own language.\n    - page (int): Counts from 1.",
    "Args:\n    * `title` (str): In its own language.\n    * **page**: Counts from 1.",
    "Args:\n\n    title: In its own language.\n\n    page (dict(a, b)): Counts from 1.",
    "Args:\n  title: In its own\n     language.\n  page: Counts from 1.",
    "Parameters\n----------\ntitle: str\n    In its own language.\npage : int\n    Counts from 1.",
    ":param title: In its own language.\n:type title: str\n:param int page: Counts from 1.",
]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_that_is_a_little_off_is_read(section: str) -> None:
    described = describe(f"Fetch a page.\n\n{section}", ["title", "page"])
    assert described.parameters == {"title": "In its own language.", "page": "Counts from 1."}
    assert described.description == "Fetch a page."


UNREADABLE = [
    "Args:\ntitle: In its own language.\npage: Counts from 1.",
    "Args:\n    title, page: In its own language. Counts from 1.",
    "Args:\n    the title: In its own language.\n    page = Counts from 1.",
    "Args:\n    In its own language. Counts from 1.",
    "Args:\n    titel: In its own language.\n    page: Counts from 1.",
    "Parameters\n----------\nIn its own language. Counts from 1.",
    ":param title - In its own language.\n:param page - Counts from 1.",
    "@param title In its own language.\n@param page Counts from 1.",
    "Args:\n    others:\n        In its own language. Counts from 1.",
    ":param others:\n    In its own language. Counts from 1.",
    "Inputs:\n    title: In its own language.\n    page: Counts from 1.",
]


@pytest.mark.parametrize("section", UNREADABLE)
def test_what_cannot_be_read_stays_in_the_description(section: str) -> None:
    described = describe(f"Fetch a page.\n\n{section}", ["title", "page"])
    told = f"{described.description} {described.parameters}"
    assert "In its own language." in told
    assert "Counts from 1." in told
