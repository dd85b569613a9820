"""From the events of background work and of teams to lines: what began and ended, who wrote what to whom.

They belong to no iteration: what they are about goes on beside the runs. Read `tree.py` next. Imports `events`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from journeyman.cli.show.lines import Line, Mark
from journeyman.cli.show.words import duration, one_line
from journeyman.events.run import (
    MailDelivered,
    MailReturned,
    MailSent,
    MemberChanged,
    TaskEnded,
    TaskMessaged,
    TaskStarted,
)
from journeyman.events.task import TaskInfo, TaskStatus

Aside: TypeAlias = TaskStarted | TaskMessaged | TaskEnded | MailSent | MailDelivered | MailReturned | MemberChanged

ASIDES: Final = (TaskStarted, TaskMessaged, TaskEnded, MailSent, MailDelivered, MailReturned, MemberChanged)

_MARKS: Final[dict[TaskStatus, Mark]] = {
    "running": "background",
    "completed": "done",
    "failed": "failed",
    "killed": "stopped",
}
_ENDS: Final[dict[TaskStatus, str]] = {
    "running": "goes on",
    "completed": "has ended",
    "failed": "failed",
    "killed": "was stopped",
}
_MAIL_ROWS: Final = 3
_RESULT_ROWS: Final = 2


def lines_aside(event: Aside) -> Iterator[Line]:  # noqa: C901, PLR0912 - a table
    """Give the lines that `event` adds. What a reader of the others knows already adds none."""
    match event:
        case TaskStarted(info=info):
            if info.identity is None:  # a member is told of by its team
                yield Line(mark="background", name=info.id, text=f"{_subject(info)} · in the background")
        case TaskMessaged(id=id, text=text, delivery=delivery):
            lost = "" if delivery == "queued" else f" (not read: {delivery})"
            yield Line(mark="mail" if not lost else "warning", name=f"to {id}", text=one_line(text) + lost)
        case TaskEnded(info=info):
            if info.identity is None:
                yield from _ended(info)
        case MailSent(mail=mail):
            if mail.kind == "message":
                text = one_line(mail.text)
                yield Line(mark="mail", name=f"{mail.sender} to {mail.to}", text=text, rows=_MAIL_ROWS)
        case MailReturned(letter=letter):
            if letter.mail.kind == "message":
                name = f"{letter.mail.sender} to {letter.mail.to}"
                text = f"not delivered ({letter.reason}): {one_line(letter.mail.text)}"
                yield Line(mark="warning", name=name, text=text, rows=_MAIL_ROWS)
        case MemberChanged():
            yield from _changed(event)
        case MailDelivered():
            pass


def _subject(info: TaskInfo) -> str:
    what = one_line(info.description or info.command)
    return f"{info.agent}: {what}" if info.agent else what


def _ended(info: TaskInfo) -> Iterator[Line]:
    yield Line(
        mark=_MARKS[info.status],
        name=info.id,
        text=f"{_subject(info)} · {_ENDS[info.status]}",
        note=duration(info.duration_s),
    )
    if info.error:
        yield Line(indent=2, mark="bar", text=one_line(info.error), style="red", rows=_RESULT_ROWS)


def _changed(event: MemberChanged) -> Iterator[Line]:
    if event.liveness != "gone":
        return
    if event.error:
        yield Line(mark="failed", name=event.name, text=f"is gone: {one_line(event.error)}", rows=_RESULT_ROWS)
    else:
        yield Line(mark="stopped", name=event.name, text="is gone")
