"""The sources of the viewer: no module of them needs itself by way of others, and its types are those of Python."""

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tools import viewer_types

SOURCES = Path(__file__).parents[2] / "viewer" / "src"
IMPORT = re.compile(r'^(?:import|export)\b[^;]*?from "(\.[^"]*)";', re.MULTILINE)


def imports(sources: Mapping[Path, str]) -> dict[Path, set[Path]]:
    """Return the modules that each module imports, for types as well."""
    modules = {path.with_suffix(""): path for path in sources}
    named = {path: {(path.parent / name).resolve() for name in IMPORT.findall(text)} for path, text in sources.items()}
    return {path: {modules[each.with_suffix("")] for each in found} for path, found in named.items()}


def test_no_module_of_the_viewer_stands_in_a_circle() -> None:
    sources = {path.resolve(): path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.ts*")}
    needed = imports(sources)
    assert len(needed) > 30
    TopologicalSorter(needed).prepare()
    run, pane = (SOURCES.resolve() / "views" / name for name in ("run.tsx", "pane.tsx"))
    planted = {**sources, pane: sources[pane] + '\nimport { RunPage } from "./run";\n'}
    with pytest.raises(CycleError):
        TopologicalSorter(imports(planted)).prepare()
    assert pane in imports({**sources, run: f'import type {{ A }} from "./pane";\n{sources[run]}'})[run]


def test_the_types_of_the_page_are_those_of_the_classes_that_are_sent() -> None:
    assert viewer_types.PAGE.read_text(encoding="utf-8") == viewer_types.written(), "make fix writes them anew"
    with pytest.raises(TypeError, match="has no type of the page yet"):
        viewer_types.type_of(set[str])


def repeated(style: str) -> list[list[str]]:
    """Return the rules that say the same, in any order, as another one at the top or in the same at-rule."""
    found: dict[tuple[str, ...], list[str]] = {}
    for start, selectors, body in re.findall(r"^( *)([^\s@{}/][^{}]*) \{\n((?:.*;.*\n)+) *\}", style, re.MULTILINE):
        key = (start, *sorted(line.strip() for line in body.splitlines()))
        found.setdefault(key, []).append(" ".join(selectors.split()))
    return [rules for rules in found.values() if len(rules) > 1]


def test_no_two_rules_of_the_style_say_the_same() -> None:
    style = (SOURCES / "style.css").read_text(encoding="utf-8")
    assert style.count("{\n") > 400
    assert repeated(style) == []
    planted = (
        "a,\nb {\n  top: 0;\n  left: 0;\n}\ni {\n  left: 0;\n  top: 0;\n}\n",
        "@media x {\n  u {\n    left: 0;\n    top: 0;\n  }\n}\n",
    )
    assert repeated("".join(planted)) == [["a, b", "i"]]
