"""What the site is built from and checked with; `make site` builds it."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support import pages, public, site

HOME = "https://github.com/someone/somewhere"


@pytest.mark.parametrize(
    ("address", "said"), [(HOME, f"]({HOME}/blob/main/examples/01_hello.py)"), ("", "| 01_hello.py | ")]
)
def test_links_that_leave_the_docs_lead_to_the_repository_or_become_words_and_others_stay(
    address: str, said: str
) -> None:
    text = site.staged(site.DOCS / "index.md", address=address)
    assert said in text
    assert "](tutorial.md)" in text
    assert "](../" not in text


def test_a_page_that_the_site_does_not_have_is_outside_of_it() -> None:
    page = site.DOCS / "contributing" / "requirements.md"
    assert f"]({HOME}/blob/main/docs/contributing/migration.md#additional-tools)" in site.staged(page, address=HOME)
    assert "migration.md" not in site.staged(page, address="")
    assert site.UNPUBLISHED & {*site.all_pages()} == set()
    assert all(page.is_file() for page in site.UNPUBLISHED)


def test_a_link_in_a_code_block_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n```text\n[a](../b)\n```\n", encoding="utf-8")
    assert site.staged(page, tmp_path) == page.read_text(encoding="utf-8")


def test_every_page_has_its_place_in_the_navigation() -> None:
    listed: list[str] = []
    for group in tomllib.loads(site.navigation())["nav"]:
        for entries in group.values():
            listed += [entries] if isinstance(entries, str) else [path for entry in entries for path in entry.values()]
    assert sorted(listed) == [page.relative_to(site.DOCS).as_posix() for page in site.all_pages()]


def test_the_navigation_has_the_groups_of_the_index_below_its_title() -> None:
    groups = [heading for heading, _ in site.contents()]
    assert groups[0] == "Start here"
    assert groups[-2:] == ["Reference pages", "For contributors"]
    assert dict(site.contents())["Start here"][0] == site.DOCS / "tutorial.md"


def test_a_blank_line_stands_before_each_heading_for_a_table_would_take_it_in() -> None:
    glued = [
        f"{page.name}: {line}"
        for page in site.all_pages()
        for line in re.findall(r"(?<!\n)\n(#+ .*)", pages.prose(page))
    ]
    assert glued == []


def test_a_name_of_the_reference_is_followed_by_the_pages_that_use_it() -> None:
    page = site.DOCS / "reference" / "chats.md"
    assert "::: journeyman.Chat\n\nUsed in a program: " in site.with_examples("::: journeyman.Chat\n", page)


def test_the_reference_names_no_page_that_its_readers_cannot_reach() -> None:
    every = "\n".join(f"::: {name}" for name in sorted(public.shown_on()))
    page = site.DOCS / "reference" / "journeyman.md"
    here, away = site.with_examples(every, page, address=""), site.with_examples(every, page, address=HOME)
    unpublished = sorted(path.name for path in site.UNPUBLISHED)
    assert [name for name in ("README.md", *unpublished) if name in here] == []
    assert f"]({HOME}/blob/main/README.md)" in away


def test_a_type_that_no_program_imports_is_shown_with_its_module() -> None:
    directive = "::: journeyman.agent.Maker"
    shown = site.with_examples(directive, site.signatures.PAGE)
    assert shown == f"{directive}\n    options:\n      show_root_full_path: true"


def test_the_site_has_the_address_of_the_project_if_that_has_one() -> None:
    configured = tomllib.loads(site.configuration(HOME))["project"]
    assert configured["site_url"] == "https://someone.github.io/somewhere/"
    assert [each["link"] for each in configured["extra"]["social"]] == [HOME]
    homeless = tomllib.loads(site.configuration(""))["project"]
    assert {"site_url", "extra"} & homeless.keys() == set()


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="b.html">', "page.html: b.html leads to no file"),
        ('<a href="#b">', "page.html: #b leads to no heading"),
        ('<a href="page.html#b">', "page.html: page.html#b leads to no heading"),
        ('<script src="https://cdn.example/a.js"></script>', "page.html: loads https://cdn.example/a.js"),
        ('<link rel="stylesheet" href="https://f.example/f.css">', "page.html: loads https://f.example/f.css"),
        ('<a href="https://h.example/us" data-md-component="source">', "page.html: loads https://h.example/us"),
        ('<h1 id="a"></h1><a href="page.html#a"><a href="https://example.org/">', None),
    ],
)
def test_a_planted_fault_of_a_built_page_is_found(html: str, fault: str | None, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    assert site.faults(tmp_path) == ([fault] if fault else [])


def test_a_style_that_fetches_a_font_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@font-face { src: url(https://fonts.example/a.woff) }", encoding="utf-8")
    assert site.faults(tmp_path) == ["a.css: fetches https://fonts.example/a.woff"]


def test_the_search_of_a_page_that_is_opened_from_a_folder_loads_nothing_from_elsewhere() -> None:
    html = (
        '<script src="https://unpkg.com/iframe-worker/shim"></script><script src="../assets/javascripts/bundle.1.js">'
    )
    kept = site.keep_at_home(html)
    assert site.Built(kept).loaded == ["../worker-in-a-frame.js", "../assets/javascripts/bundle.1.js"]
    assert (site.DOCS / "worker-in-a-frame.js").is_file()


def test_the_title_of_a_page_is_its_first_heading() -> None:
    assert site.title(pages.ROOT / "docs" / "tools.md") == "Tools"
