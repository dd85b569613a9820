"""A line for every decision of a permission: when, in which mode, about what, and why. Imports `capability`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from journeyman.permission.capability import Capability


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One decision about one call."""

    time: float
    """Seconds since 1970."""
    mode: str
    path: tuple[str, ...]
    """The run that wanted the call, from the root down."""
    tool: str
    capability: Capability
    summary: str
    """What it would have done, in at most 200 characters."""
    digest: str
    """Of tool and arguments."""
    decision: Literal["allow", "deny", "rewrite", "stop", "unanswered"]
    reason: str


class AuditLog:
    """A file with one JSON line for each decision, readable by its owner only."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __call__(self, entry: AuditEntry) -> None:
        """Append the entry.

        Raises:
            OSError: it cannot be written. The call is then denied.
        """
        line = f"{json.dumps(asdict(entry))}\n".encode()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.write(file, line) != len(line):
                raise OSError(f"the audit log {self.path} took only a part of an entry")
        finally:
            os.close(file)


Audit = Callable[[AuditEntry], None]
"""Takes every decision. What it raises denies the call."""
