"""Taking secrets out of what is recorded.

Every secret becomes the same mark, whatever it was found by, so that a conversation recorded on one machine is the same
on another. Redacting twice changes nothing more: what is replayed was redacted, and is redacted again when the model is
asked. Imports `types`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote

from pydantic import JsonValue

Secret: TypeAlias = str | re.Pattern[str] | Callable[[str], str]
"""What else to take out: a text, everything that a pattern matches, or a function from a text to a text, which must
change nothing when it is applied to its own result."""

MARK: Final = "[redacted]"

_KEYS: Final = (
    r"sk-ant-[\w-]{10,}",  # Anthropic
    r"sk-or-[\w-]{20,}",  # OpenRouter
    r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]*\d[A-Za-z0-9_-]{16,}",  # OpenAI, and many that imitate it
    r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}",  # Stripe
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",  # AWS
    r"AIza[\w-]{35}",  # Google
    r"ya29\.[\w-]{20,}",
    r"gh[pousr]_[A-Za-z0-9]{30,}",  # GitHub
    r"github_pat_\w{22,}",
    r"glpat-[\w-]{20,}",  # GitLab
    r"xox[abeoprs]-[\w-]{10,}",  # Slack
    r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"gsk_[A-Za-z0-9]{30,}",  # Groq
    r"xai-[A-Za-z0-9]{30,}",  # xAI
    r"pplx-[A-Za-z0-9]{30,}",  # Perplexity
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-[\w-]{50,}",
    r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+",  # JSON web tokens
)

# Each with one group: what stays in front of the secret.
_KNOWN: Final = tuple(
    re.compile(pattern, re.DOTALL | (re.IGNORECASE if is_any_case else re.NOFLAG))
    for pattern, is_any_case in (
        (r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|$)", False),
        (r"(\b(?:proxy-)?authorization\\?[\"']?\s*[:=]\s*\\?[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"',;\\]+", True),
        (r"(\bx-(?:api|goog-api|auth)-(?:key|token)\\?[\"']?\s*[:=]\s*\\?[\"']?)[^\s\"',;\\]+", True),
        (r"(\bbearer\s+)(?=[a-z._~+/=-]*\d)[\w.~+/=-]{8,}", True),
        (r"(\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:)[^\s/@\"']+(?=@)", True),
        (rf"()(?<![A-Za-z0-9_-])(?:{'|'.join(_KEYS)})", False),
    )
)

_SECRET_FIELD: Final = re.compile(
    r"(?:proxy-)?authorization|(?:set-)?cookie|(?:x[-_])?api[-_]?key|passw(?:or)?d|passphrase"
    r"|(?:client|app)[-_]?secret|secret(?:[-_]?access)?[-_]?key|(?:access|refresh|auth|bearer|session)[-_]?token|private[-_]?key",
    re.IGNORECASE,
)
_SECRET_VARIABLE: Final = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?:_|$|\d)", re.IGNORECASE
)
_SHORTEST_VALUE: Final = 8
"""A shorter value of a variable is a word that other texts hold as well."""

_JSON_TEXTS: Final = frozenset({"input_json", "json"})
"""The fields that hold JSON as a text."""


class Redactor:
    """Takes secrets out of texts and JSON.

    The values of environment variables are those of the moment, since programs set them as they go.
    """

    def __init__(self, more: Sequence[Secret] = (), *, known: bool = True) -> None:
        """With `known=False`, only what `more` says is taken out."""
        self._more = tuple(more)
        self._known = _KNOWN if known else ()
        self._looks_at_environment = known
        self._values: tuple[str, ...] = ()
        self._of_values: re.Pattern[str] | None = None

    def redacted(self, value: JsonValue) -> JsonValue:
        """Return `value` without secrets, wherever in it they are."""
        self._look_at_environment()
        return self._json(value)

    def redacted_text(self, text: str) -> str:
        """Return `text` without secrets."""
        self._look_at_environment()
        return self._text(text)

    def redacted_json_text(self, text: str) -> str:
        """Return a text that holds JSON without the secrets in it: unchanged if there are none."""
        self._look_at_environment()
        return self._json_text(text)

    def _look_at_environment(self) -> None:
        values = tuple(sorted(_secret_values(os.environ))) if self._looks_at_environment else ()
        if values != self._values:
            forms = sorted({form for value in values for form in _forms(value)}, key=len, reverse=True)
            self._values = values
            self._of_values = re.compile("|".join(map(re.escape, forms))) if forms else None

    def _json(self, value: JsonValue, field: str = "") -> JsonValue:
        match value:
            case str() if value and _SECRET_FIELD.fullmatch(field):
                return MARK
            case str():
                return self._json_text(value) if field in _JSON_TEXTS else self._text(value)
            case dict():
                return {self._text(key): self._json(item, key) for key, item in value.items()}
            case list():
                return [self._json(item, field) for item in value]
            case _:
                return value

    def _json_text(self, text: str) -> str:
        try:
            value: JsonValue = json.loads(text)
        except (ValueError, RecursionError):
            return self._text(text)
        redacted = self._json(value)
        return text if redacted == value else json.dumps(redacted, ensure_ascii=False)

    def _text(self, text: str) -> str:
        if self._of_values is not None:
            text = self._of_values.sub(MARK, text)
        for pattern in self._known:
            text = pattern.sub(rf"\g<1>{MARK}", text)
        for secret in self._more:
            text = _without(secret, text)
        return text


def _without(secret: Secret, text: str) -> str:
    if isinstance(secret, str):
        return text.replace(secret, MARK) if secret else text
    return secret.sub(MARK, text) if isinstance(secret, re.Pattern) else secret(text)


def _secret_values(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if len(value) >= _SHORTEST_VALUE and value != MARK and _SECRET_VARIABLE.search(name):
            yield value


def _forms(value: str) -> Iterator[str]:
    """Give a secret as it is, as it stands inside JSON, and as it stands in a URL."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value, safe="")
