"""The reference has every public name once, with a docstring and a program that uses it; its blocks run."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import fields
from inspect import getsource, isfunction
from pathlib import Path
from textwrap import dedent
from types import FunctionType
from typing import get_args

import griffe
import pytest

from journeyman import Event, errors
from tests.support import pages, public, signatures
from tests.support.reference import VALUE_CLASSES, described, final, package
from tests.support.value_classes import SENTENCES
from tests.test_docs import leads_somewhere


@pytest.fixture(scope="module", autouse=True)
def _package() -> None:
    """Read the package once, before the first test, whichever that is."""
    package()


@functools.cache
def names() -> list[str]:
    """Return the public names, sorted. To look for them takes seconds: not while tests are collected."""
    return sorted({*public.homes().values()})


def test_every_public_name_is_in_the_reference_once_and_nothing_else_is() -> None:
    pages_of_names = [page for page in public.reference_pages() if page != signatures.PAGE]
    found = [name for page in pages_of_names for name in public.DIRECTIVE.findall(page.read_text(encoding="utf-8"))]
    assert sorted(found) == names()


def test_every_type_that_is_met_only_in_signatures_has_an_entry_and_nothing_else_has() -> None:
    found = public.DIRECTIVE.findall(signatures.PAGE.read_text(encoding="utf-8"))
    assert sorted(found) == sorted(signatures.named_only_in_signatures())


def test_every_type_that_is_met_only_in_signatures_has_a_docstring() -> None:
    assert [name for name in signatures.named_only_in_signatures() if not has_docstring(name)] == []


def test_every_public_name_is_used_in_a_program_that_the_tests_run() -> None:
    assert [name for name in names() if not public.shown_on().get(name)] == []


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in names() if not has_docstring(name)] == []


def has_docstring(name: str) -> bool:
    return package()[name.removeprefix("journeyman.")].has_docstring


def test_the_reference_has_every_field_of_an_event() -> None:
    said = {event: described(f"journeyman.events.{event.__name__}") for event in get_args(Event)}
    assert [
        f"{event.__name__}.{field.name}"
        for event, text in said.items()
        for field in fields(event)
        if f"- `{field.name}: " not in text
    ] == []


def test_every_field_and_method_of_the_reference_has_a_sentence() -> None:
    assert [
        f"{name}.{member.name}"
        for name in (*names(), *signatures.named_only_in_signatures())
        for member in public_members(name)
        if not member.has_docstring
    ] == []


def public_members(name: str) -> Iterator[griffe.Object]:
    described_class = final(package()[name.removeprefix("journeyman.")])
    for member in described_class.all_members.values() if isinstance(described_class, griffe.Class) else ():
        if not member.name.startswith("_") and member.name != "model_config":
            yield final(member)


def test_a_sentence_that_stands_beside_the_source_is_needed_there() -> None:
    assert [
        f"{name}.{field}"
        for name, sentences in SENTENCES.items()
        for field in (sentences if name not in {"aliases", "hidden", "ports"} else ())
        if f"{name}.{field}" not in VALUE_CLASSES.given
    ] == []


def test_what_is_hidden_from_the_reference_is_there_and_not_in_it() -> None:
    hidden = {f"hidden {name}.{member}" for name, those in SENTENCES["hidden"].items() for member in those}
    assert hidden - VALUE_CLASSES.given == set()
    assert "prepare_request" not in described("journeyman.models.google.GoogleModel")


def test_what_a_public_name_raises_itself_is_in_its_docstring() -> None:
    silent = [
        f"{name}: {function.__name__} raises {raised}"
        for name in names()
        for function in functions_of(public.public_objects()[name])
        if "Raises" not in what_is_said(function, public.public_objects()[name])
        for raised in own_errors(function)
    ]
    assert silent == []


def functions_of(value: object) -> list[FunctionType]:
    return [value] if isfunction(value) else [*constructors_and_methods(value)]


def what_is_said(function: FunctionType, value: object) -> str:
    return f"{function.__doc__} {value.__doc__ if function.__name__.startswith('__') else ''}"


def constructors_and_methods(kind: object) -> Iterator[FunctionType]:
    """Yield what a class of ours defines and describes; a method without a docstring keeps the contract of its port."""
    for name, member in vars(kind).items() if isinstance(kind, type) and is_ours(kind) else ():
        is_constructor = name in {"__init__", "__post_init__"}
        if isfunction(member) and (is_constructor or (not name.startswith("_") and member.__doc__)):
            yield member


def is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "journeyman"


def own_errors(function: FunctionType) -> set[str]:
    """Return the errors of ours that a function raises in its own body."""
    try:
        tree = ast.parse(dedent(getsource(function)))
    except (OSError, SyntaxError, TypeError):  # compiled by `dataclass`, or `lazy_dataclass`
        return set()
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    names = {node.func.id for node in raised if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return {name for name in names if public.is_error(getattr(errors, name, None))}


def test_a_value_class_is_described_with_its_constructor() -> None:
    text = described("journeyman.compaction.Compaction")
    assert "class Compaction(strategies: Sequence[AnyStrategy] = (), *, reserve_tokens: int | None = None" in text


def test_a_function_is_described_with_its_signature_and_what_it_raises() -> None:
    text = described("journeyman.run_many")
    assert "max_concurrency: int = 16" in text
    assert "Raises:\n    DefinitionError:" in text


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize("page", public.reference_pages(), ids=pages.page_name)
def test_the_blocks_of_a_reference_page_run_and_print_what_it_shows(page: Path) -> None:
    pages.run_page(page)


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", public.reference_pages(), ids=pages.page_name)
def test_every_link_of_a_reference_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert [target for target in pages.links(page) if not leads_somewhere(page, target)] == []


def test_every_reference_page_is_linked_from_its_index() -> None:
    index = public.REFERENCE / "index.md"
    assert [page.name for page in public.reference_pages() if page.name not in {*pages.links(index), "index.md"}] == []


def test_a_program_that_imports_a_name_and_does_not_use_it_is_no_example(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nfrom journeyman import Agent, run as go\n\ngo(1)\n```\n", encoding="utf-8")
    assert public.used_on(page) == {"journeyman.run"}


def test_no_page_of_the_reference_is_too_long_to_be_read() -> None:
    lengths = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in public.reference_pages()}
    assert {name: length for name, length in lengths.items() if length > 350} == {}
