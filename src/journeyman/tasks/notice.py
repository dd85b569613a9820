"""What a model reads when background work has ended: one block, every field escaped, for none of them is trusted.

Imports `task_events`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from journeyman.events.task import NOTICE, TaskInfo

LONGEST: Final = 10_000
"""How many characters of a field are told. All of a result is in `TaskInfo.result`."""

_WORDS: Final = {"completed": "completed", "failed": "failed: {error}", "killed": "was stopped"}
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def notice(info: TaskInfo) -> str:
    """Return the notification of a task that has ended."""
    fields = "\n".join(f"<{name}>{value}</{name}>" for name, value in _fields(info))
    return f"{NOTICE}\n{fields}\n{NOTICE.replace('<', '</')}"


def _fields(info: TaskInfo) -> Iterator[tuple[str, str]]:
    yield "task-id", escaped(info.id)
    yield "type", info.kind
    yield "status", info.status
    yield "summary", escaped(_summary(info))
    for name, value in (
        ("agent", info.agent),
        ("member", info.identity.id if info.identity else ""),
        ("command", info.command),
        ("exit-code", info.exit_code),
        ("error", info.error),
        # What a command wrote is read through a tool, whose results gates can tell from what the user says.
        ("result", None if info.kind == "shell" else info.result),
    ):
        if value is not None and value != "":
            yield name, escaped(str(value))
    for text in info.undelivered:
        yield "unread-message", escaped(text)
    if info.kind == "agent":
        yield "usage", _usage(info)
    if info.output_path is not None:
        yield "output-file", escaped(info.output_path)


def _summary(info: TaskInfo) -> str:
    kind = "Agent" if info.kind in ("agent", "member") else "Task"
    subject = info.description or info.agent or info.command or info.id
    return f'{kind} "{_cut(subject, 200)}" {_WORDS[info.status].format(error=info.error or "unknown error")}'


def _usage(info: TaskInfo) -> str:
    return (
        f"<total-tokens>{info.usage.total_tokens}</total-tokens><tool-uses>{info.n_calls}</tool-uses>"
        f"<duration-ms>{round(info.duration_s * 1000)}</duration-ms>"
    )


def escaped(text: str) -> str:
    """Return a text that can neither end its element nor begin another, cut if it is very long."""
    text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", _cut(text.replace("\r\n", "\n"), LONGEST))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} more characters)"
