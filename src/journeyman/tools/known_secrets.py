"""Secrets that are known by their very text: values of variables that commands do not get, what hidden files hold, and
what a program names. They are found as they are, and as JSON, URLs, HTML, base64 and hex write them.

There is one collection for the process, as there is one environment: every place that writes texts down asks it.
"""

from __future__ import annotations

import html
import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, quote_plus

from journeyman.errors import DefinitionError, Problem
from journeyman.machine.environment import PASSED, is_secret

MARK: Final = "[redacted]"
LEAST_NAMED: Final = 3
"""The fewest characters of a secret that a program names: a shorter one stands in other texts as well."""
_COMMON: Final = re.compile(
    r"the|and|for|you|not|are|was|but|all|can|has|had|her|his|one|our|out|who|get|new|now|see|two|way|use|that|with|this"
    r"|from|have|they|will|your|what|when|there|been|more|than|them|some|time|into|only|other|which|true|false|null|none"
    r"|name|text|type|user|root|admin|test|data|file|path|code|error|model|tool|agent|input|output|message|content|role"
    r"|password|secret|token|string|number|object|array|default|localhost|production|development",
    re.IGNORECASE,
)
"""Words that so many texts hold that nothing could be read without them."""
_LEAST_VALUE: Final = 8
"""The fewest characters of a value of a variable or of a hidden file: a shorter one is a word that others hold too."""
_LEAST_LINE: Final = 12
_LEAST_MADE: Final = 12
_MOST_FILE_BYTES: Final = 65_536
_MOST_FILES: Final = 50
_MOST_VALUES: Final = 500
"""The most values of hidden files that are known: each is looked for in every text."""
_PUBLIC: Final = re.compile(
    r"GITHUB_|CI_|GITLAB_|RUNNER_|KUBERNETES_|SYSTEMD_|XDG_|DBUS_|SSH_|VSCODE_|TERM_|LESS|LS_|WSL|npm_|PYTEST|JOURNEYMAN_"
    r"|GIT_|HOST|MAIL\Z|MANAGERPID|INVOCATION_ID|_\Z|\w*(?:VERSION|ARCH|TYPE|PLATFORM|COMMIT|BRANCH|SHA\d*)\Z"
)
"""The names of variables whose values are no secret, unless their name or look says so."""
_MADE: Final = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])(?!/|~|\.|[\w.+-]+://[^@]*\Z|[\w.-]+\.[a-z]{2,}(?::\d+)?\Z)\S+")
"""A value that may be made by chance: no path, no address, no name of a host, no sentence."""
_VALUE: Final = re.compile(
    r"\s*(?:export\s+)?[\"']?(?P<name>[\w.-]{1,64})[\"']?\s*[:=]\s*[\"']?(?P<value>.*?)[\"']?,?\s*"
)
_WORDS_ONLY: Final = re.compile(r"[A-Za-z _-]{1,20}|[\d.,:/-]+|true|false|null|none", re.IGNORECASE)


class KnownSecrets:
    """The secrets of a process that are known by their text. It may be used from several threads."""

    def __init__(self) -> None:
        self._named: dict[str, None] = {}
        self._of_files: dict[tuple[str, int, int], tuple[str, ...]] = {}
        """The values in hidden files, by the path, the time and the size of a file."""
        self._environment: Mapping[Any, Any] = {}
        self._adding: Final = Lock()
        self._is_old = True
        self._forms: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        """The pattern that matches one of them in any of its forms; None if none is known."""
        self.version = 0
        """A number that grows when other secrets are known."""

    def hide(self, values: Iterable[str]) -> None:
        """Take these texts for secrets from now on.

        Raises:
            DefinitionError: one is too short, or a common word.
        """
        named = list(values)
        refuse_short(named)
        with self._adding:
            self._named.update(dict.fromkeys(named))
            self._is_old = True

    def hide_files(self, paths: Iterable[str]) -> None:
        """Take what these files hold for secrets, and what files directly in these folders do."""
        for path in list(_files_of(paths))[:_MOST_FILES]:
            try:
                facts = Path(path).stat()
                key = (path, facts.st_mtime_ns, facts.st_size)
                if key in self._of_files or facts.st_size > _MOST_FILE_BYTES:
                    continue
                text = Path(path).read_text(encoding="utf-8", errors="strict")
            except (OSError, UnicodeDecodeError):  # what cannot be read here is told by nobody; bytes are no text
                continue
            with self._adding:
                self._of_files[key] = tuple(dict.fromkeys(_values_of(text)))
                self._is_old = True

    def current(self) -> re.Pattern[str] | None:
        """Return the pattern for the secrets of this moment: programs set variables as they go."""
        # As it is stored: reading each variable would take longer than looking through a short text.
        stored: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
        if self._is_old or stored != self._environment:
            with self._adding:
                self._environment = dict(stored)
                self._is_old = False
                of_files = [value for values in self._of_files.values() for value in values][:_MOST_VALUES]
                values = {*self._named, *of_files, *_values_of_environment()}
                forms = tuple(sorted({form for value in values for form in _forms(value)}))
                if forms != self._forms:
                    self._forms = forms
                    self.pattern = re.compile(_pattern_of(forms)) if forms else None
                    self.version += 1
        return self.pattern

    def mark(self, text: str) -> str:
        """Return a text in which a mark stands for each of them."""
        pattern = self.current()
        return text if pattern is None or pattern.search(text) is None else pattern.sub(_mark_of, text)

    def mark_bytes(self, data: bytes) -> bytes:
        """Return JSON in which a mark stands for each of them."""
        if self.current() is None:
            return data
        text = data.decode("utf-8", "surrogateescape")
        marked = self.mark(text)
        return data if marked is text else marked.encode("utf-8", "surrogateescape")

    def held_from(self, text: str) -> int:
        """Return where the end of a text begins that may be the beginning of one of them; its length if nowhere."""
        if self.current() is None:
            return len(text)
        forms = self._forms
        longest = max(map(len, forms))
        for start in range(max(0, len(text) - longest + 1), len(text)):
            end = text[start:]
            at = bisect_left(forms, end)
            if at < len(forms) and forms[at].startswith(end) and forms[at] != end:
                return start
        return len(text)


known_secrets: Final = KnownSecrets()


def hide_values(*values: str) -> None:
    """Take these texts for secrets in the whole process: whatever is written down, sent to a client or told in an error
    from now on shows a mark instead, also where they are encoded as base64, hex, or for JSON or a URL.

    Raises:
        DefinitionError: one has less than 3 characters, or is a common word.
    """
    known_secrets.hide(values)


def refuse_short(values: Iterable[object]) -> None:
    """Refuse texts that cannot be taken out of others, because they are too short or common words.

    Raises:
        DefinitionError: one is.
    """
    for value in values:
        word = value.strip() if isinstance(value, str) else None
        if word is None or (len(word) >= LEAST_NAMED and _COMMON.fullmatch(word) is None):
            continue
        what = f"A text of {len(word)} characters" if len(word) < LEAST_NAMED else f"The word {word!r}"
        told = f"{what} cannot be taken out: too many texts hold it that are no secret."
        hint = f"Give at least {LEAST_NAMED} characters and no common word, or a pattern with what stands around it."
        raise DefinitionError("Secrets", [Problem("SECRET_TOO_SHORT", told, hint)])


class TextStream:
    """A text that comes in pieces, without known secrets: what may be the beginning of one waits for the next piece."""

    def __init__(self, known: KnownSecrets = known_secrets) -> None:
        self._known = known
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take in a piece, and return what may be shown now."""
        text = self._known.mark(self._held + piece)
        at = self._known.held_from(text)
        self._held = text[at:]
        return text[:at]

    def flush(self) -> str:
        """Return what was held back, once nothing more comes: a mark, if it may be a good part of a secret."""
        held, self._held = self._held, ""
        return MARK if len(held) >= _LEAST_VALUE else held


def _mark_of(found: re.Match[str]) -> str:
    """Return what stands for a secret: in quotes, where it is a number in JSON."""
    if not found[0].isdecimal():
        return MARK
    before, after = found.string[: found.start()].rstrip()[-1:], found.string[found.end() :].lstrip()[:1]
    return f'"{MARK}"' if before in (":", "[", ",") and after in (",", "}", "]") else MARK


def _values_of_environment() -> Iterator[str]:
    for name, value in os.environ.items():
        if len(value) < _LEAST_VALUE or value == MARK:
            continue
        if is_secret(name, value) or (
            name not in PASSED and _PUBLIC.match(name) is None and len(value) >= _LEAST_MADE and _MADE.fullmatch(value)
        ):
            yield value


def _files_of(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                yield from sorted(each.path for each in entries if each.is_file())
        elif os.path.isfile(path):
            yield path


def _values_of(text: str) -> Iterator[str]:
    """Give the texts of a hidden file that say something: its long lines, and values behind a name."""
    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare[0] in "#;" or bare.startswith("-----") or _WORDS_ONLY.fullmatch(bare):
            continue
        found = _VALUE.fullmatch(line)
        if found is None:
            if len(bare) >= _LEAST_LINE:
                yield bare
        elif len(found["value"]) >= _LEAST_VALUE and (
            is_secret(found["name"], "") or _WORDS_ONLY.fullmatch(found["value"]) is None
        ):
            yield found["value"]


def _forms(value: str) -> Iterator[str]:
    """Give a secret as it is, and as it stands in URLs, HTML, base64 and hex; each also inside of JSON, and of JSON in
    a text of JSON."""
    for form in (value, quote(value, safe=""), quote(value), quote_plus(value), html.escape(value)):
        for is_ascii in (True, False):
            once = json.dumps(form, ensure_ascii=is_ascii)[1:-1]
            yield from (form, once, json.dumps(once, ensure_ascii=is_ascii)[1:-1])
    data = value.encode("utf-8", "surrogateescape")
    if len(data) < _LEAST_VALUE:
        return
    yield from (data.hex(), data.hex().upper())
    for before in range(3):
        # Of three places where it may begin, and without the characters that hold something else as well.
        first, last = (0, 2, 3)[before], (len(data) + before) * 8 // 6
        padded = b"\0" * before + data
        yield b64encode(padded).decode()[first:last]
        yield urlsafe_b64encode(padded).decode()[first:last]


def _pattern_of(forms: Iterable[str]) -> str:
    """Return a pattern that matches one of sorted texts, the longest first. They are tried letter by letter, so that
    many take hardly longer than few."""
    grouped: dict[str, list[str]] = {}
    for form in forms:
        grouped.setdefault(form[:1], []).append(form[1:])
    made: list[str] = []
    for first, rests in grouped.items():
        if not first:
            continue
        # They are sorted: what the first and the last have in common, all have.
        pairs = zip(rests[0], rests[-1], strict=False)
        n_common = next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(rests[0]), len(rests[-1])))
        begun = first + rests[0][:n_common]
        inner = _pattern_of(dict.fromkeys([each[n_common:] for each in rests]))
        is_optional = len(rests[0]) == n_common
        made.append(f"{re.escape(begun)}(?:{inner}){'?' if is_optional else ''}" if inner else re.escape(begun))
    return "|".join(made)
