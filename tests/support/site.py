"""Build the site: `make site`. Pages and navigation come from docs/, the reference from docstrings.

Whatever is doubtful fails: a warning of the builder, a link or an anchor of the built pages that leads nowhere, and
anything that a page would fetch from another host.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hatch_build import replace_links, repository_link, site_url
from tests.support import pages, public, signatures
from tests.support.reference import described

DOCS = pages.ROOT / "docs"
WORK = pages.ROOT / ".cache" / "site"
BUILT = WORK / "site"
WITH_ITS_MODULE = "\n    options:\n      show_root_full_path: true"
"""For names that are not met in programs: a reader may have to import them."""
UNPUBLISHED = {DOCS / "contributing" / "names.md", DOCS / "contributing" / "migration.md"}
"""What compares our words with those of two documents that readers of the site do not have."""
_SOURCE = """
# Not as `repo_url`: pages would ask that host for the number of stars.
[[project.extra.social]]
icon = "fontawesome/brands/github"
link = "{address}"
name = "The source"
"""
_WORKER_ELSEWHERE = "https://unpkg.com/iframe-worker/shim"


def staged(page: Path, docs: Path = DOCS, *, address: str = pages.ADDRESS) -> str:
    """Return the page with links to the repository, or with none, in place of those that leave the site."""

    def outward(link: str, is_picture: bool) -> str | None:
        name, mark, heading = link.partition("#")
        target = (page.parent / name).resolve()
        if is_of_the_site(target, docs):
            return link
        place = f"{target.relative_to(pages.ROOT).as_posix()}{mark}{heading}"
        return repository_link(address, place, is_picture=is_picture)

    return replace_links(page.read_text(encoding="utf-8"), outward)


def with_examples(text: str, page: Path, *, address: str = pages.ADDRESS) -> str:
    """Add to each name of the reference where a program uses it, or else its module."""

    def example(directive: re.Match[str]) -> str:
        shown = [each for each in public.shown_on().get(directive[1], []) if each != page]
        links = [link for link in (link_to(each, page, address=address) for each in shown) if link][:3]
        shown_with = WITH_ITS_MODULE if page == signatures.PAGE else ""
        return directive[0] + shown_with + (f"\n\nUsed in a program: {', '.join(links)}." if links else "")

    return public.DIRECTIVE.sub(example, text)


def link_to(target: Path, page: Path, *, address: str) -> str | None:
    """Return a link from a page to another one; None to one that readers of the site cannot reach."""
    if is_of_the_site(target):
        return f"[{title(target)}]({Path(os.path.relpath(target, page.parent)).as_posix()})"
    place = repository_link(address, target.relative_to(pages.ROOT).as_posix())
    return f"[{title(target)}]({place})" if place else None


def is_of_the_site(target: Path, docs: Path = DOCS) -> bool:
    return target.is_relative_to(docs) and target not in UNPUBLISHED


def title(page: Path) -> str:
    return pages.headings(page)[0][1].replace("`", "")


def all_pages() -> list[Path]:
    return sorted({*DOCS.rglob("*.md")} - UNPUBLISHED)


def sections(index: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield each heading below the title of an index with the pages that are linked there, none of them twice."""
    seen: set[Path] = {index}
    for _, heading in pages.headings(index)[1:]:
        below = re.split(r"^#+ ", pages.section(index, heading), maxsplit=1, flags=re.MULTILINE)[0]
        linked = [(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#\s]+\.md)[)#]", below)]
        fresh = [page for page in dict.fromkeys(linked) if page not in seen and page.is_relative_to(DOCS)]
        seen.update(fresh)
        if fresh:
            yield heading, fresh


def contents() -> Iterator[tuple[str, list[Path]]]:
    """Yield what docs/index.md lists, and each index below it in front of its last section, for contributors."""
    *groups, for_contributors = sections(DOCS / "index.md")
    yield from groups
    for index in sorted(DOCS.glob("*/index.md")):
        yield from sections(index)
    yield for_contributors


def navigation() -> str:
    """Return the site's navigation, as the configuration wants it: the order is that of docs/index.md."""
    rows = ['  { "Start" = "index.md" },']
    for heading, below in contents():
        entries = ", ".join(f'{{ "{title(page)}" = "{page.relative_to(DOCS).as_posix()}" }}' for page in below)
        rows.append(f'  {{ "{heading}" = [{entries}] }},')
    return "nav = [\n" + "\n".join(rows) + "\n]\n"


def stage() -> None:
    """Copy what the builder reads into a folder of its own, for it removes what stands beside its configuration."""
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(DOCS, WORK / "docs", ignore=shutil.ignore_patterns("*.md", "zensical.toml"))
    for page in all_pages():
        copy = WORK / "docs" / page.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(with_examples(staged(page), page), encoding="utf-8")
    (WORK / "zensical.toml").write_text(configuration(), encoding="utf-8")


def configuration(address: str = pages.ADDRESS) -> str:
    """Return what the builder is told: docs/zensical.toml, the navigation, and the address of the project."""
    text = (DOCS / "zensical.toml").read_text(encoding="utf-8")
    home = f'site_url = "{site_url(address)}"\n' if address else ""
    with_navigation = text.replace("[project]\n", f"[project]\n{home}{navigation()}", 1)
    return with_navigation + (_SOURCE.format(address=address) if address else "")


def keep_at_home(html: str) -> str:
    """Let a page load the worker of its search from the site; the builder names one on another host."""
    bundle = re.search(r'src="([^"]*)assets/javascripts/bundle', html)
    return html.replace(_WORKER_ELSEWHERE, f"{bundle[1] if bundle else ''}worker-in-a-frame.js")


def write_texts() -> None:
    """Put each page as Markdown beside its HTML, with the reference written out, and `llms.txt` as their list."""
    for page in all_pages():
        text = (WORK / "docs" / page.relative_to(DOCS)).read_text(encoding="utf-8").replace(WITH_ITS_MODULE, "")
        text = public.DIRECTIVE.sub(lambda directive: described(directive[1]), text)
        (BUILT / page.relative_to(DOCS)).write_text(text, encoding="utf-8")
    site = tomllib.loads((DOCS / "zensical.toml").read_text(encoding="utf-8"))["project"]
    rows = ["# journeyman", "", f"> {site['site_description']} A Python library. Each page below is Markdown."]
    for heading, below in contents():
        links = [f"- [{title(page)}]({site_url(pages.ADDRESS)}{page.relative_to(DOCS).as_posix()})" for page in below]
        rows += ["", f"## {heading}", "", *links]
    (BUILT / "llms.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")


class Built(HTMLParser):
    """A built page: where its links lead, what it loads, and the anchors that it has."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {"", "__top"}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given.get("id", ""), given.get("name", "")}
        if given.get("data-md-component") == "source":  # it counts stars as soon as the page is read
            self.loaded.append(given.get("href", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in {"stylesheet", "icon", "preconnect", "preload", "modulepreload"}:
            self.loaded.append(given.get("href", ""))
        elif tag in {"script", "img", "iframe", "source"} and "src" in given:
            self.loaded.append(given["src"])


def faults(site: Path) -> list[str]:
    """Return each link of the site's pages that leads nowhere, and all that they would load from another host."""
    built = {path: Built(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [fault for path, page in built.items() for fault in _faults_of(path, page, built)]
    styles = [(path, path.read_text(encoding="utf-8")) for path in site.rglob("*.css")]
    return found + [
        f"{path.relative_to(site)}: fetches {url}"
        for path, text in styles
        for url in re.findall(r"url\([\"']?(https?:[^)\"']+)", text)
    ]


def _faults_of(path: Path, page: Built, built: dict[Path, Built]) -> Iterator[str]:
    for link in dict.fromkeys((*page.links, *page.loaded)):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if link in page.loaded and parts.scheme != "data":
                yield f"{path.name}: loads {link}"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        if path.name != "404.html" and not target.is_file():
            yield f"{path.name}: {link} leads to no file"
        elif target in built and unquote(parts.fragment) not in built[target].anchors:
            yield f"{path.name}: {link} leads to no heading"


def main() -> int:
    stage()
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(WORK / "zensical.toml")]
    done = subprocess.run(build, cwd=WORK, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"{done.stdout}\n{done.stderr}\n")
        return 1
    for page in BUILT.rglob("*.html"):
        page.write_text(keep_at_home(page.read_text(encoding="utf-8")), encoding="utf-8")
    write_texts()
    found = faults(BUILT)
    sys.stderr.writelines(f"{fault}\n" for fault in found)
    sys.stdout.write(f"{len(all_pages())} pages in {BUILT.relative_to(pages.ROOT)}, {len(found)} faults\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
