"""What a command gets to know of this process's environment: everything but what looks like a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Final

_SECRET_NAME = re.compile(
    r"KEY(?!BOARD|MAP)|TOKEN(?!IZER)|SECRET|PASSW|PASSPHRASE|_PWD\Z|CREDENTIAL|AUTH(?!OR)|PRIVATE|COOKIE|SESSION_ID|DSN"
    r"|CONNECTION_STRING|WEBHOOK",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@"  # a URL with a password
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(?:sk|rk|pk)[-_][A-Za-z0-9_-]{16,}"
    r"|\b(?:ghp|gho|ghs|ghu|glpat|github_pat|xox[abprs])[-_][A-Za-z0-9_-]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\."  # a signed token
)

QUIET: Final[Mapping[str, str]] = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
"""So that no program waits for a person, or writes for one's screen."""


def is_secret(name: str, value: str) -> bool:
    """Tell whether a variable looks like a secret, by its name or by its value."""
    return _SECRET_NAME.search(name) is not None or _SECRET_VALUE.search(value) is not None


def filtered(keep: Collection[str]) -> dict[str, str]:
    """Return the environment of this process without its secrets, but with those that shall be kept."""
    return {name: value for name, value in os.environ.items() if name in keep or not is_secret(name, value)}
