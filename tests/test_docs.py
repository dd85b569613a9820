"""README and docs say what is true: every block runs and prints what the page shows, every link leads somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import PAGES, page_name, run_page


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page: Path) -> None:
    run_page(page)
