"""`journeyman run`, and what the other commands that run an agent do as it does.

A run is shown as it goes, stopped by Ctrl-C, and ends with its result on stdout and an exit code. Stdout is for the
result alone: whatever else is printed, by the agent's file, its tools or the programs that they start, goes to stderr.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from cyclopts import Parameter
from pydantic import JsonValue
from pydantic_core import from_json, to_json

from journeyman.agent import Agent, Host
from journeyman.cancel import Abort
from journeyman.cli.app import Mistake
from journeyman.cli.opening import OPENING_S, AgentLoop
from journeyman.cli.show.lines import EMPTY, Line, clean, one_line
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.outline import Outline
from journeyman.cli.show.screen import Interrupt, PlainScreen, Screen, open_screen, print_error, stderr_console
from journeyman.connect import connect
from journeyman.endings import Ending, ErrorCode, InvalidInputContext, ModelUnavailableContext
from journeyman.errors import InvalidArguments, ModelUnavailable, NotRecorded, count, visible_json
from journeyman.events import Event, Listener
from journeyman.loop.attempts import run as run_agent
from journeyman.result import Failure, Metadata, Result, plain_output
from journeyman.types import Usage

if TYPE_CHECKING:
    from journeyman.models.cassette.cassette import Cassette

Flag = Annotated[bool, Parameter(negative=())]
_SUCCESS, _FAILURE = 0, 1
_MISS_ROWS: Final = 30
_STDOUT: Final = 1
_STDERR: Final = 2


def run(  # noqa: PLR0913 - one for each option, all by name
    target: Annotated[str, Parameter(name="FILE:AGENT")],
    input: str | None = None,
    /,
    *,
    input_file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    model: str | None = None,
    json: Flag = False,
    quiet: Flag = False,
    tree: Flag = False,
    debug: Flag = False,
    durable: Flag = False,
    store: str | None = None,
    id: str | None = None,
    detach: Flag = False,
    mcp: Path | None = None,
    pins: Path | None = None,
    timeout: float = OPENING_S,
) -> int:
    """Run an agent, and print what it hands in.

    The result goes to stdout: a text as it is, anything else as JSON. Everything else goes to stderr.

    Args:
        target: A Python file or a module, a colon, and the agent in it, or the function or context manager that gives
            one: agents.py:analyst. Where there is one agent only, the file is enough.
        input: The agent's input: a text as it is; for any other input type JSON.
        input_file: Read the input from this file; - is stdin.
        model: Use this model instead of the agent's, for example anthropic:claude-sonnet-5-5.
        json: Print one JSON document: the result, usage, attempts and history.
        quiet: Print nothing but the result, or the error.
        tree: At the end, print the whole tree: runs, attempts, iterations, calls, and what each used.
        debug: Show the traceback of whatever the agent's own code raises, also where the run goes on.
        durable: Keep each finished step, so that the run can go on after the death of its process.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
        id: A name for the durable run. One that is there goes on, or its stored result is printed.
        detach: Only store the durable run, and print its id.
        mcp: Give the agent the tools of the MCP servers in this file, too: mcp.json, as desktop programs have it.
        pins: Refuse tools that are not as `journeyman mcp pin` has pinned them in this file.
        timeout: How many seconds a function or context manager may take to give the agent.
    """
    given = {"--store": store is not None, "--id": id is not None, "--detach": detach}
    _check_options(durable=durable, given=[name for name, is_given in given.items() if is_given], mcp=mcp is not None)
    stdout = Stdout(drop_others=quiet)
    with AgentLoop(timeout) as loop:
        job = Job(
            text=read_text(input, input_file),
            agent=loop.agent(target, mcp=mcp, pins=pins),
            loop=loop,
            stdout=stdout,
            check=f"journeyman check {target}",
            model=model,
            json=json,
            quiet=quiet,
            tree=tree,
            debug=debug,
        )
        if durable:  # what else it needs is imported for it alone
            return resolve_name("journeyman.cli.durable:begin")(job, target, store=store, id=id, detach=detach)
        return perform(job)


def _check_options(*, durable: bool, given: Sequence[str], mcp: bool) -> None:
    """Raise a `Mistake` if options do not go together; `given` are those of durable runs."""
    if given and not durable:
        raise Mistake(f"{given[0]} is for a durable run.", "Add --durable.")
    if durable and mcp:
        raise Mistake("--mcp is not for a durable run: it would go on without these tools.", "Give them in code.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command line asks for."""

    agent: Agent[Any, Any, Any]
    text: str
    """The input, not yet parsed."""
    stdout: Stdout
    loop: AgentLoop
    """Where the agent is open."""
    check: str
    """The command that shows what input the agent takes."""
    model: str | None = None
    """The model to use instead of the agent's own."""
    json: bool = False
    quiet: bool = False
    tree: bool = False
    """Whether the whole tree is printed at the end, also if `quiet`."""
    debug: bool = False
    """Whether tracebacks of what the user's code raised are shown."""
    notice: str = ""
    """The first line to show."""
    cassette: Cassette | None = None
    """What records the run, or replays it."""


def perform(job: Job) -> int:
    """Run the agent, print its result, and return the exit code."""
    screen = open_screen(quiet=job.quiet)
    try:
        if job.notice:
            screen.say([Line(text=job.notice, rows=3), EMPTY])
        with log_shown(screen.say, debug=job.debug):
            return _perform(job, screen)
    finally:
        screen.close()


def _perform(job: Job, screen: Screen) -> int:
    try:
        value, host = parse_input(job.agent, job.text), _host(job)
    except (InvalidArguments, ModelUnavailable) as error:
        return present(job, screen, not_started(error))
    abort = Abort()
    interrupt = Interrupt(abort, screen.stopping)
    outline = Outline() if job.tree else None
    with interrupt.listening(), closing(job.loop):
        on_event = listener_of(job, screen, outline)
        result = job.loop.run(run_agent(job.agent, value, on_event=on_event, abort=abort, host=host))
        exit_code = present(job, screen, result, outline)
        # Leaving the block may wait for a thread of the user's. From here on a signal quits.
        interrupt.has_ended = True
    cancelled = isinstance(result, Failure) and result.code is ErrorCode.EXECUTION_CANCELLED
    return interrupt.exit_code if cancelled and interrupt.exit_code is not None else exit_code


def _host(job: Job) -> Host:
    if job.cassette is None:
        return Host(model=None if job.model is None else connect(job.model))
    recorded = None if job.cassette.is_replaying else job.model or job.agent.model
    return Host(model=job.cassette.model(recorded), journal=job.cassette.journal)


def not_started(error: InvalidArguments | ModelUnavailable) -> Failure:
    """Return the failure that `run` would give, had it been called."""
    is_input = isinstance(error, InvalidArguments)
    context = InvalidInputContext(issues=error.issues) if is_input else ModelUnavailableContext.of(error)
    nothing = Metadata(usage=Usage(), latency_s=0)
    return Failure(error=Ending(context), metadata=nothing, history=())


def listener_of(job: Job, screen: Screen, outline: Outline | None) -> Listener | None:
    """Return who is told of the events; None where nobody wants to know: then no event is made."""
    if outline is None:
        return None if job.quiet else screen.show

    def tell_both(event: Event) -> None:
        screen.show(event)
        outline.follow(event)

    return tell_both


# -- the end of a run -------------------------------------------------------------------------------------------------


def present(job: Job, screen: Screen, result: Result[Any], outline: Outline | None = None) -> int:
    """Print the result, the whole tree, and what went wrong. Return the exit code."""
    if isinstance(result, Failure):
        screen.say(_gathered(result))
    screen.close()
    if outline is not None:
        PlainScreen(stderr_console()).say(list(outline.lines()))
    if job.json:
        job.stdout.write_json(result.to_json(indent=2 if job.stdout.is_terminal else None).encode())
    if isinstance(result, Failure):
        hint = f"What it takes: {job.check}" if result.code is ErrorCode.INVALID_INPUT else result.error.hint
        message = result.error.message
        if isinstance(result.error.cause, NotRecorded) and not job.quiet:  # all of a miss was shown above
            message = message.partition("\n")[0].rstrip(":")
        print_error(f"{result.code}: {message}", hint)
        return _FAILURE
    if not job.json:
        if job.stdout.is_terminal:
            screen.say([EMPTY])
        job.stdout.write_text(output_text(job.agent, result.output))
    return _SUCCESS


def _gathered(failure: Failure) -> Sequence[Line]:
    """Say what a failed run leaves behind."""
    if isinstance(failure.error.cause, NotRecorded):
        return [Line(indent=2, mark="bar", text=str(failure.error.cause), rows=_MISS_ROWS)]
    answers = [message.text for message in failure.history if message.role == "assistant" and message.text.strip()]
    if not answers:
        return []
    kept = f"{count(len(failure.history), 'message')} so far (--json prints them), the model's last words:"
    return [Line(indent=2, text=kept, style="dim"), Line(indent=2, mark="bar", text=one_line(answers[-1]), rows=4)]


def output_text(agent: Agent[Any, Any, Any], output: object) -> str:
    """Return an output as people read it: a text as it is, anything else as indented JSON."""
    return output if isinstance(output, str) else to_json(output_json(agent, output), indent=2).decode()


def output_json(agent: Agent[Any, Any, Any], output: object) -> JsonValue:
    """Return an output as plain JSON values."""
    return plain_output(output, None if agent.plan.output is None else agent.output.type)


# -- the input --------------------------------------------------------------------------------------------------------


def read_text(text: str | None, file: Path | None) -> str:
    """Return the input as it was given.

    Raises:
        Mistake: it was given twice or not at all, or the file cannot be read or is not UTF-8.
    """
    if text is not None and file is not None:
        raise Mistake("The input is given twice.", "Leave out INPUT or --input-file.")
    if text is not None:
        return text
    if file is None:
        raise Mistake("There is no input.", "Give it as text after the agent, or with --input-file FILE (- is stdin).")
    name = "stdin" if str(file) == "-" else str(file)
    data = _bytes(file, name)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise Mistake(f"{name} is not UTF-8: {place}.", "Convert it, for example with iconv.") from error


def _bytes(file: Path, name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "stdin" else file.read_bytes()
    except FileNotFoundError as error:
        raise Mistake(f"There is no file {name}.", "Check the path; it is relative to the current folder.") from error
    except (OSError, AttributeError) as error:  # stdin is None where it is closed
        reason = getattr(error, "strerror", None) or "it is closed"
        raise Mistake(f"{name} cannot be read: {reason}.", "Give a file that you may read.") from error


def parse_input(agent: Agent[Any, Any, Any], text: str) -> object:
    """Return `text` as the agent takes it: a text as it is, any other type from JSON.

    Raises:
        InvalidArguments: it is not JSON, or does not fit the type; it lists every issue.
    """
    if agent.input is str:
        return text
    schema = agent.plan.input
    if not schema.is_wrapped:
        return schema.parse(text)
    try:
        value: object = from_json(text)
    except ValueError as error:
        raise InvalidArguments("input", [f"it is not valid JSON: {error}"]) from error
    return schema.parse(to_json({"value": value}))


# -- stdout -----------------------------------------------------------------------------------------------------------


class Stdout:
    """Takes stdout away from everyone else, until the process ends."""

    def __init__(self, *, drop_others: bool = False) -> None:
        """With `drop_others`, what others print goes nowhere instead of to stderr."""
        self._descriptor = _taken(drop_others=drop_others)
        self.is_terminal = os.isatty(self._descriptor)
        self._encoding = getattr(sys.stdout, "encoding", None) or "utf-8"

    def write_text(self, text: str) -> None:
        """Write `text` and a line break. A terminal gets it without escape sequences."""
        shown = clean(text) if self.is_terminal else text
        self._write(shown.encode(self._encoding, "replace") + b"\n")

    def write_json(self, document: bytes) -> None:
        """Write a JSON document and a line break. For a terminal, what it would not show is written out."""
        shown = visible_json(document.decode()).encode() if self.is_terminal else document
        self._write(shown + b"\n")

    def _write(self, data: bytes) -> None:
        with suppress(BrokenPipeError):  # the reader has seen enough
            while data:
                data = data[os.write(self._descriptor, data) :]


def _taken(*, drop_others: bool) -> int:
    printed = cast("io.TextIOWrapper[io.BufferedWriter] | None", sys.stdout)
    if printed is not None:
        printed.flush()
        printed.reconfigure(line_buffering=True)
    try:
        descriptor = os.dup(_STDOUT)
    except OSError:  # closed by whoever started the program
        return os.open(os.devnull, os.O_WRONLY)
    others = os.open(os.devnull, os.O_WRONLY) if drop_others or not _is_open(_STDERR) else os.dup(_STDERR)
    os.dup2(others, _STDOUT)
    os.close(others)
    return descriptor


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
