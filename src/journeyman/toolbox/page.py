"""A web page as a text to read: headings, paragraphs, lists, links and tables, without scripts and styles.

Every page, however odd, is read in one pass; what `html.parser` takes can grow with the square of the size.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Final
from urllib.parse import urljoin

_SKIPPED: Final = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "object"})
_BLOCKS: Final = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "dd", "details", "div"),
        *("dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header"),
        *("hr", "html", "main", "nav", "ol", "p", "section", "summary"),
        *("table", "tbody", "thead", "tfoot", "ul", "title"),
    )
)
_HEADINGS: Final = {f"h{n}": f"\n\n{'#' * n} " for n in range(1, 7)}
_BEFORE: Final = {
    **dict.fromkeys(_BLOCKS, "\n\n"),
    **_HEADINGS,
    **{"br": "\n", "li": "\n- ", "tr": "\n", "td": " | ", "th": " | "},
}
"""What stands in the text where an element begins."""
_RAW: Final = frozenset({"script", "style", "iframe"})
"""In these, nothing is a tag but their own end."""
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)((?:[^>\"']++|\"[^\"]*+\"|'[^']*+')*+)>")
_MARKUP = re.compile(r"<(?:/?[a-zA-Z]|[!?])")
_TAG_BEGUN = re.compile(r"</?[a-zA-Z]")
_ATTRIBUTE = re.compile(r"""(?<![^\s=>"'/])([^\s=>"'/]++)\s*+=\s*+("[^"]*"|'[^']*'|[^\s>]+)""")
_LONGEST_ATTRIBUTES: Final = 8_000
_SPACES = re.compile(r"[ \t\r\n\f]+")
_LONG_NUMBER = re.compile(r"&#[0-9]{8,};?")  # it is no character, and `unescape` fails at very long ones
_TEXT_CHARS: Final = 32_768
"""How much of a text is read at once: in between, other threads have their turn."""


def readable_text(html: str, url: str) -> str:
    """Return the text of a page; the targets of links are completed with the page's own `url`."""
    page = _Page(url)
    at = 0
    while at < len(html):
        at = _step(page, html, at)
    lines: list[str] = []
    for line in "".join(page.pieces).split("\n"):
        text = line.rstrip()
        if text or (lines and lines[-1]):
            lines.append(text)
    return "\n".join(lines).strip()


def _step(page: _Page, html: str, at: int) -> int:
    """Read what begins here: a tag, a comment or a text. Return where it ends.

    What has no end goes to that of the page, as in browsers.
    """
    if html.startswith("<!--", at):
        return _after(html, "-->", at + 4)
    if html.startswith(("<!", "<?"), at):
        return _after(html, ">", at)
    tag = _TAG.match(html, at)
    if tag is not None:
        return _read_tag(page, html, tag)
    if _TAG_BEGUN.match(html, at):
        return len(html)
    following = _MARKUP.search(html, at + 1)
    end = len(html) if following is None else following.start()
    if end - at > _TEXT_CHARS:
        end = (
            max(html.rfind(" ", at + 1, at + _TEXT_CHARS), at)
            if " " in html[at + 1 : at + _TEXT_CHARS]
            else at + _TEXT_CHARS
        )
    page.text(html[at:end])
    return end


def _read_tag(page: _Page, html: str, tag: re.Match[str]) -> int:
    closing, name, attributes = tag.groups()
    name = name.lower()
    if closing:
        page.end(name)
        return tag.end()
    page.start(name, attributes)
    if name not in _RAW:
        return tag.end()
    end = re.compile(f"</{name}", re.IGNORECASE).search(html, tag.end())
    return len(html) if end is None else end.start()


def _after(html: str, mark: str, at: int) -> int:
    found = html.find(mark, at)
    return len(html) if found < 0 else found + len(mark)


class _Page:
    def __init__(self, url: str) -> None:
        self.pieces: list[str] = []
        self._url = url
        self._n_skipped = 0
        """How many elements are open that hold nothing to read."""
        self._n_kept = 0
        """How many elements are open in which blanks count."""
        self._links: list[str | None] = []

    def start(self, tag: str, attributes: str) -> None:
        if tag in _SKIPPED:
            self._n_skipped += 1
        if self._n_skipped:
            return
        if tag == "a":
            target = _attribute(attributes, "href")
            self._links.append(target)
            self._add("[" if target else "")
        elif tag == "img":
            words = _attribute(attributes, "alt")
            self._add(f"[image: {words}]" if words else "")
        elif tag == "pre":
            self._n_kept += 1
            self._add("\n\n```\n")
        else:
            self._add(_BEFORE.get(tag, ""))

    def end(self, tag: str) -> None:
        if tag in _SKIPPED:
            self._n_skipped = max(0, self._n_skipped - 1)
        elif self._n_skipped:
            return
        elif tag == "a" and self._links:
            target = self._links.pop()
            self._add(f"]({self._complete(target)})" if target else "")
        elif tag == "pre" and self._n_kept:
            self._n_kept -= 1
            self._add("\n```\n\n")
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._add("\n\n")

    def text(self, data: str) -> None:
        if self._n_skipped:
            return
        words = unescape(_LONG_NUMBER.sub("\ufffd", data) if "&#" in data else data)
        if not self._n_kept:
            words = _SPACES.sub(" ", words)
            if words.startswith(" ") and self.pieces and self.pieces[-1].endswith(("\n", " ")):
                words = words[1:]
        self._add(words)

    def _add(self, text: str) -> None:
        if text:
            self.pieces.append(text)

    def _complete(self, target: str) -> str:
        try:
            return urljoin(self._url, target.strip())
        except ValueError:
            return target


def _attribute(attributes: str, name: str) -> str | None:
    for found in _ATTRIBUTE.finditer(attributes[:_LONGEST_ATTRIBUTES]):
        if found.group(1).lower() == name:
            return unescape(_LONG_NUMBER.sub("\ufffd", found.group(2)).strip("\"'"))
    return None
