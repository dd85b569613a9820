"""What the build adds to pyproject.toml: the addresses of the project, and the README as a package index shows it.

`address` in `[tool.hatch.metadata.hooks.custom]` is the one place that says where the repository can be read. Links are
relative in every page; they become whole addresses where a page is shown away from the repository. As long as there is
no address, the words of such a link stay and the link goes: nothing leads to a place that nobody can reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface

FENCED = re.compile(r"^( *)(```+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


class CustomMetadataHook(MetadataHookInterface):
    """The hook that hatchling calls when it builds a wheel or a source distribution."""

    def update(self, metadata: dict[str, Any]) -> None:
        config = cast("Mapping[str, str]", self.config)  # pyright: ignore[reportUnknownMemberType] - hatchling: `dict`
        address = config["address"]
        page = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_whole_links(page, address)}
        metadata["urls"] = project_urls(address)


def project_urls(address: str) -> dict[str, str]:
    """Return the addresses that a package index shows beside the package; none where the project has no home."""
    if not address:
        return {}
    return {
        "Documentation": site_url(address),
        "Source": address,
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def site_url(address: str) -> str:
    """Return where GitHub shows the site of a repository; "" if it has no address."""
    if not address:
        return ""
    owner, name = urlsplit(address).path.strip("/").split("/")
    return f"https://{owner}.github.io/{name}/"


def with_whole_links(readme: str, address: str) -> str:
    """Return the README with whole addresses in place of relative links, so that it can be shown anywhere."""
    return replace_links(readme, lambda path, is_picture: repository_link(address, path, is_picture=is_picture))


def repository_link(address: str, path: str, *, is_picture: bool = False) -> str | None:
    """Return where a file of the repository is read; None where the project has no home."""
    return f"{address}/{'raw' if is_picture else 'blob'}/main/{path}" if address else None


def replace_links(page: str, find_target: Callable[[str, bool], str | None]) -> str:
    """Return a Markdown page with other targets of its relative links. Those in code, and to a heading, stay.

    `find_target` gets the target, and whether it is a picture. Where it returns None, a link becomes its words, and a
    picture goes.
    """
    blocks = [found.span() for found in FENCED.finditer(page)]

    def replace(link: re.Match[str]) -> str:
        mark, words, target = link.groups()
        is_code = any(start <= link.start() < end for start, end in blocks)
        if is_code or target.startswith("#") or urlsplit(target).scheme:
            return link[0]
        found = find_target(target, bool(mark))
        if found is None:
            return "" if mark else words
        return f"{mark}[{words}]({found})"

    return LINK.sub(replace, page)
