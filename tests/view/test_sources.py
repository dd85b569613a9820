"""The sources of the viewer: no module of them needs, by way of others, itself."""

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

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
