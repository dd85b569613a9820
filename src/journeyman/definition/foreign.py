"""The names that people bring from other libraries, each with the line to write here instead.

Those of classes and functions stand in `foreign.json`, which is read when something is refused, and not before:

- `arguments`, by class: the line, and the names for which it stands. `{}` in a line is the value that was given. The
  lines of a class that is named `within`, and the names that are its `own`, stand inside of that line, too;
- `elsewhere`: what to do about a name that no argument of the class stands for;
- `attributes`: what to write for an attribute that other libraries have;
- `renamed`, by package: its names of before, each with the one of now, and where that stands if not in the same
  package; `.name` is a name of the front page.

The words of the command line that are no longer used stand here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from pkgutil import get_data
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from pydantic_core import from_json

Work = TypeVar("Work", bound=Callable[..., Any])
Kind: TypeAlias = Literal["arguments", "elsewhere", "attributes"]
"""The kind of a foreign name: an argument that one of ours stands for, any other argument, or an attribute."""

UNNAMED: Final[Mapping[str, str]] = {"Agent": "Agent(name='assistant', model={})"}
"""By class: the line for an argument that is given without a name; for all others, that of the first argument."""

OLD_ARGUMENTS: Final[Mapping[str, str]] = {
    "host": "runtime",
    **dict.fromkeys(("at_once", "slots", "concurrency"), "max_concurrency"),
    "max_parallel": "max_tasks",
    "equip": "prepare",
    "dedup": "idempotency_key",
    "digest": "question_id",
    "linger_s": "suspend_after_s",
}
"""The arguments of before, of whatever class or function, each with the one of now."""

OLD_OPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("--at-once", "--slots", "--runs"), "is called --max-concurrency now"),
    "--continue": "is written --resume now, without an id",
    "--input-file": "is written < FILE now, as for any program",
    "--realtime": "is gone: a recording is shown at once",
    "--ask-store": "is gone: begin the run with --detach, and a worker does it and waits for its answers",
    "--reason": "stands behind stop now: journeyman tell RUN stop REASON",
    "--failed": "is written --status failed now",
    "--keep-failed": "is written --status done now",
    "--token": "is read from JOURNEYMAN_VIEW_TOKEN now, since all users of a machine see its command lines",
    "--cassette": "is called --out now",
    "--durable": "is for run, batch and serve; the store is named by --store",
}
"""The options of commands of before, each with what says the same now."""

OLD_COMMANDS: Final[Mapping[str, str]] = {
    "record": "cassette record FILE:AGENT [INPUT] --out FILE",
    "replay": "cassette replay CASSETTE [FILE:AGENT] [INPUT]",
    "test": "cassette test RUN [FILE:AGENT]",
    "tail": "show RUN --follow",
    "diff": "show RUN --diff OTHER",
    "queues": "runs --queues",
    **dict.fromkeys(("cancel", "stop"), "tell RUN stop [REASON]"),
    "steer": "tell RUN steer TEXT",
    "approve": "tell RUN approve QUESTION",
    "deny": "tell RUN approve QUESTION --deny WHY",
    "answer": "tell RUN answer QUESTION TEXT",
    "hold": "tell RUN hold",
    "release": "tell RUN release",
}
"""The commands of before, each with the one of now."""

OLD_SLASH_WORDS: Final[Mapping[str, str]] = {
    "/steer": "Type the text alone: while the agent works, it is said before its next model call.",
    "/abort": "Press Esc, or Ctrl-C.",
    "/tools": "In a shell: journeyman check FILE:AGENT.",
    "/export": "In a shell: journeyman export RUN; in Python, dump_messages(chat.messages).",
}
"""The words of a chat in the terminal of before, each with what does the same now."""
STREAM_CHANGED: Final = (
    "Each line of --stream says its class as type now, which was event, and leaves out the fields with their defaults."
)
"""The sentence for whoever reads the lines in the form of before."""
_OF_RUNTIME: Final = "Host is called Runtime now: run(…, runtime=Runtime(approver=…))."


@cache
def read_names() -> Mapping[str, Any]:
    """Return the tables of `foreign.json`, by their names."""
    return from_json(cast("bytes", get_data("journeyman.definition", "foreign.json")))


@cache
def foreign_names(kind: Kind, what: str) -> Mapping[str, str]:
    """Return what to write, or to do, for each foreign name of a class or a function of ours. In it, `{}` is the value
    that was given."""
    rows: Mapping[str, Any] = read_names()[kind].get(what, {})
    if kind != "arguments":
        return rows
    lines: dict[str, str] = {}
    for around, inner in rows.get("within", {}).items():
        own = {name: f"{name}={{}}" for name in read_names()[kind][inner]["own"].split()}
        lines |= {name: around.replace("{}", line) for name, line in {**own, **foreign_names(kind, inner)}.items()}
    return lines | {
        name: line for line, names in rows.items() if line not in ("own", "within") for name in names.split()
    }


def tell_new_name(package: str, old: str) -> str | None:
    """Return the sentence that says what a name of a package is called now; None for one that it never had."""
    for row in read_names()["renamed"].get(package, "").split(", "):
        before, _, now = row.partition(" ")
        if before == old:
            room, dot, now = now.rpartition(".")
            package = f"journeyman.{room}".rstrip(".") if dot else package
            how = f"stands in {package}" if now == old else f"is called {now}"
            return _OF_RUNTIME if old == "Host" else f"{old} {how} now: from {package} import {now}."
    return None


def refuse_old_arguments(function: Work) -> Work:
    """Let a function say what an argument of before is called now, in the `TypeError` of one that it does not know."""

    @wraps(function)
    def call(*given: object, **named: object) -> object:
        if (old := next(iter(named.keys() & OLD_ARGUMENTS.keys()), None)) is not None:
            raise TypeError(f"{function.__name__}() has no {old!r}. Write {OLD_ARGUMENTS[old]}=….")
        return function(*given, **named)

    return cast("Work", call)
