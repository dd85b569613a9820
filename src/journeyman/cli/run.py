"""`journeyman run`, and what the other commands that run an agent do as it does.

A run is shown as it goes, stopped by Ctrl-C, and ends with its result on stdout and an exit code. Stdout is for the
result alone: whatever else is printed, by the agent's file, its tools or the programs that they start, goes to stderr.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from threading import Timer
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter
from pydantic import JsonValue
from pydantic_core import to_json

from journeyman import events
from journeyman.agent import Runtime
from journeyman.cancellation import Abort
from journeyman.cli.app import Mistake, explain_errors
from journeyman.cli.ending import Interrupt
from journeyman.cli.load_agent import AgentLoop, lasting, load_model
from journeyman.cli.options import (
    AgentName,
    AnyAgent,
    BoxOptions,
    Flag,
    GivenOptions,
    InputText,
    LentOptions,
    Paths,
    RulesFile,
    SharedOptions,
    TreeFlag,
    explain,
)
from journeyman.cli.outputs import OutputLost, guard_stream
from journeyman.cli.permit.asked import asked_by, asking
from journeyman.cli.permit.policy import Policy
from journeyman.cli.show.lines import EMPTY, Line, clean, one_line
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.screen import PlainScreen, Screen, open_screen, print_error, stderr_console
from journeyman.cli.show.tree import outline_lines
from journeyman.closing import TimeToEnd
from journeyman.content.media import LARGEST_BYTES, kind_of
from journeyman.content.signatures import media_type_of
from journeyman.definition.foreign import STREAM_CHANGED
from journeyman.definition.json_numbers import read_json, write_json
from journeyman.endings import ErrorCode, InvalidInputContext, ModelUnavailableContext
from journeyman.errors import InvalidArguments, ModelUnavailable, NotRecorded, StoreError, count, visible_json
from journeyman.events import Event, Listener
from journeyman.journal import OpenRecords, Telemetry
from journeyman.loop.run import run as run_agent
from journeyman.machine.descriptors import STDIN, take_stdout, write_all
from journeyman.result import Failure, Result, fail_before_start, plain_output
from journeyman.tools.clear_events import ClearEvents
from journeyman.tools.known_secrets import known_secrets
from journeyman.types import Audio, Document, Image, UserContent

if TYPE_CHECKING:
    from journeyman.models.cassette.cassette import Cassette
    from journeyman.otel.export import Exporting
    from journeyman.otel.telemetry import OpenTelemetry
    from journeyman.toolbox.boxed import AskedSandbox

StreamName = Annotated[Literal["jsonl"] | None, explain("Print each event as it happens: jsonl.")]
Files = Annotated[Paths, explain("Send this picture, document or sound, too; repeatable.")]
_SUCCESS, _FAILURE = 0, 1
_FALSE: Final = ("", "0", "false", "no")
_PATIENCE_S: Final = 3.0
"""After so many seconds it is said that stdin is still being read."""
_MISS_ROWS: Final = 30


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The options of the command line that say what is kept of a run."""

    durable: Flag = False
    """Keep each finished step: it can go on after its process has died."""
    id: str | None = None
    """A name for the durable run; one that is there goes on."""
    detach: Flag = False
    """Only store the durable run, and print its id."""

    def check(self, shared: SharedOptions, more: BoxOptions | None) -> None:
        """Raise a `Mistake` if an option of durable runs is given for another, or the other way round."""
        if self.durable and (shared.sandbox or more):
            name = "--sandbox" if shared.sandbox else "--allow-host" if more and more.allow_host else "--write"
            hint = "Give it in code: Workspace(…, sandbox=…)."
            raise Mistake(f"{name} is not for a durable run: it would go on without the box.", hint)
        store = None if wants_record(shared.record) else shared.store
        given = {"--store": store, "--id": self.id, "--detach": self.detach or None}
        if not self.durable and (names := [name for name, value in given.items() if value is not None]):
            raise Mistake(f"{names[0]} is for a durable run.", "Add --durable.")


def run(  # noqa: PLR0913 - one for each option, all by name
    target: AgentName,
    input: InputText = None,
    /,
    *,
    file: Files = None,
    stream: StreamName = None,
    tree: TreeFlag = False,
    rules: RulesFile = None,
    kept: Kept | None = None,
    lent: LentOptions | None = None,
    more: BoxOptions | None = None,
    shared: GivenOptions,
) -> int:
    """Run an agent, and print what it hands in: a text as it is, anything else as JSON. All else goes to stderr."""
    kept = kept or Kept()
    kept.check(shared, more)
    if shared.json and stream is not None:
        what = "--json and --stream both say what is printed."
        raise Mistake(what, "Leave one out: --stream ends with that document.")
    with (
        nullcontext() if kept.durable else sandbox_in(shared, more) as asked,
        AgentLoop(shared.timeout, rules=rules) as loop,
        telemetry_in(shared) as telemetry,
    ):
        stdout = Stdout(drop_others=shared.quiet)  # before the agent's file prints
        text = read_text(input)
        files: list[UserContent] = [*read_files(file or ()), *([] if input is None else piped_document())]
        agent = loop.agent(target, lent, durable=kept.durable, mode=shared.mode, model=shared.model)
        if asked is not None:
            tell_sandbox_in(asked, agent, shared)
        job = Job(
            stdout=stdout,
            text=text,
            files=files,
            agent=agent,
            loop=loop,
            check=f"journeyman check {target}",
            options=shared,
            is_streamed=stream is not None,
            tree=tree,
            record=None if kept.detach else recorder_in(shared, target=lasting(target)),
            telemetry=telemetry,
        )
        if not kept.durable:
            return perform(job)
        begin = resolve_name("journeyman.cli.durable:begin")  # imported for it alone
        return begin(job, target, kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run as the command line asks for it: the open agent, its input, and what is printed."""

    agent: AnyAgent
    text: str
    """The input, not yet parsed."""
    files: Sequence[UserContent] = ()
    """What is sent after it."""
    stdout: Stdout
    loop: AgentLoop
    """Where the agent is open."""
    check: str
    """The command that shows what input the agent takes."""
    options: SharedOptions
    is_streamed: bool = False
    """Whether each event is printed as a line of JSON."""
    tree: bool = False
    """True when the whole tree is printed at the end, also if nothing else is."""
    notice: str = ""
    """The first line to show."""
    offers_small: bool = True
    """True when the small model of this machine is offered where there is no other."""
    cassette: Cassette | None = None
    """What records the run, or replays it."""
    record: OpenRecords | None = None
    """What takes down what happens."""
    telemetry: Telemetry | None = None
    """What tells others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The surroundings in which a command does a job: the screen that shows it, and the signals that stop it."""

    job: Job
    screen: Screen
    on_event: Listener | None
    abort: Abort
    interrupt: Interrupt


@contextmanager
def stage_of(job: Job) -> Generator[Stage]:
    """Show what is done while the block runs, and hear signals; then close what the job has open."""
    screen, abort = open_screen(quiet=job.options.quiet), Abort()
    interrupt, on_event = Interrupt(abort, screen.stopping), _listener_of(job, screen)
    try:
        if job.notice:
            screen.say([Line(text=job.notice, rows=3), EMPTY])
        with log_shown(screen.say, debug=job.options.debug), interrupt.listening(), closing(job.loop):
            yield Stage(job=job, screen=screen, on_event=on_event, abort=abort, interrupt=interrupt)
            # Leaving the block may wait for a thread of the user's. From here on a signal quits.
            interrupt.has_ended = True
    finally:
        screen.close()
        if job.record is not None:
            job.record.close()


def perform(job: Job) -> int:
    """Run the agent, print its result, and return the exit code."""
    with stage_of(job) as stage:
        screen, interrupt = stage.screen, stage.interrupt
        try:
            value, runtime = input_of_job(job), _runtime_of_job(job)
        except (InvalidArguments, ModelUnavailable) as error:
            return present(stage, not_started(error))
        if job.is_streamed and not job.stdout.is_terminal:
            screen.say([Line(text=STREAM_CHANGED, rows=2)])
        is_replay = job.cassette is not None and job.cassette.is_replaying
        with nullcontext() if is_replay else asking(job.agent, screen.paused, screen.say) as person:
            runtime = replace(runtime, approver=None if person is None else person.approve)
            work = run_agent(job.agent, value, on_event=stage.on_event, abort=stage.abort, runtime=runtime)
            result = job.loop.run(asked_by(person, work))
        exit_code = present(stage, result)
    cancelled = isinstance(result, Failure) and result.code is ErrorCode.EXECUTION_CANCELLED
    return interrupt.exit_code if cancelled and interrupt.exit_code is not None else exit_code


def wants_record(given: bool | None) -> bool:
    """Tell whether a command records: as its option says, else as JOURNEYMAN_RECORD does, else unless CI is set."""
    if given is not None:
        return given
    told, is_ci = os.environ.get("JOURNEYMAN_RECORD"), os.environ.get("CI", "").strip().lower() not in _FALSE
    return not is_ci if told is None else told.strip().lower() not in _FALSE


def recorder_in(options: SharedOptions, *, target: str | None = None) -> OpenRecords | None:
    """Return what records in the store that is meant, and say where that is. None: nothing is to be recorded; or it
    cannot be, which is said, and nobody has wished for it."""
    if not wants_record(options.record):
        return None
    recorder: Callable[..., OpenRecords] = resolve_name("journeyman.cli.recorded:recorder")
    try:
        return recorder(options.store, target=target, quiet=options.quiet)
    except (Mistake, StoreError) as mistake:
        if options.record:
            raise
        stderr_console().print(f"Nothing is recorded: {one_line(mistake.message)}")
        return None


@contextmanager
def recording_in(options: SharedOptions) -> Generator[OpenRecords | None]:
    """Record while the block runs, if the command line says so, in the store that is meant."""
    made = recorder_in(options) if options.record else None
    with nullcontext() if made is None else closing(made):
        yield made


def sandbox_in(
    options: SharedOptions, more: BoxOptions | None = None, *, is_usual: bool = True
) -> AbstractContextManager[AskedSandbox]:
    """Return a block in which workspaces have the sandbox that the command line wishes for: a `Mistake` if it cannot
    be, or is required, and none holds enough here. `is_usual`: without a wish, they have one where it holds."""
    return resolve_name("journeyman.cli.sandbox:ask_for_sandbox")(options.sandbox, more, is_usual=is_usual)


def tell_sandbox_in(asked: AskedSandbox, agent: AnyAgent, options: SharedOptions) -> None:
    """Say what keeps the commands of an agent, and in which mode it is judged, unless only results are wanted."""
    if not options.quiet:
        gates = agent.gate if isinstance(agent.gate, Sequence) else [agent.gate]
        modes = [each.mode for each in gates if isinstance(each, Policy)]
        resolve_name("journeyman.cli.sandbox:tell_sandbox")(asked, modes[0] if modes else None)


@contextmanager
def telemetry_in(options: SharedOptions, end: TimeToEnd | None = None) -> Generator[OpenTelemetry | None]:
    """Give what tells a collector what runs do, and send it until the block is left. None: nobody has wished for it.
    `end`: in which time the command has to end."""
    if not options.otel:
        yield None
        return
    try:
        sending: Exporting = resolve_name("journeyman.otel.export:configure_exporter")()
    except ImportError as error:
        words, _, hint = str(error).partition(": ")
        raise Mistake(f"{words}.", f"Install them where journeyman is: {sys.executable} -m {hint}") from error
    except ValueError as error:
        raise Mistake(str(error), "Look at the OTEL_… variables of the environment.") from error
    try:
        yield sending.telemetry
    finally:
        sending.close(end)


def _runtime_of_job(job: Job) -> Runtime:
    if job.cassette is None:
        return Runtime(model=load_model(job.options.model), recorder=job.record, telemetry=job.telemetry)
    recorded = None if job.cassette.is_replaying else job.options.model or job.agent.model
    return Runtime(model=job.cassette.model(recorded), journal=job.cassette.journal)


def not_started(error: InvalidArguments | ModelUnavailable) -> Failure:
    """Return the failure that `run` would give, had it been called."""
    if isinstance(error, InvalidArguments):
        return fail_before_start(InvalidInputContext(issues=error.issues))
    return fail_before_start(ModelUnavailableContext.of(error))


def _listener_of(job: Job, screen: Screen) -> Listener | None:
    """Return the listener of the events; None where nobody wants to know: then no event is made."""
    listeners: list[Listener] = [screen.show] if job.tree or not job.options.quiet else []
    if job.is_streamed:
        listeners.append(job.stdout.write_event)
    if len(listeners) < 2:
        return next(iter(listeners), None)

    def tell_all(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell_all


def present(stage: Stage, result: Result[Any]) -> int:
    """Print the result, the whole tree, and what went wrong. Return the exit code."""
    job, screen = stage.job, stage.screen
    if isinstance(result, Failure):
        screen.say(_list_remains(result))
        if result.code is ErrorCode.MODEL_UNAVAILABLE and not job.options.quiet:
            screen.say(resolve_name("journeyman.cli.own_models:lines_of_own_models")(offers_small=job.offers_small))
    screen.close()
    if job.tree:
        PlainScreen(stderr_console()).say(list(outline_lines(screen.views.roots)))
    if job.is_streamed:
        job.stdout.write_json(b'{"type":"Result","result":' + result.to_json().encode() + b"}")
    elif job.options.json:
        job.stdout.write_json(result.to_json(indent=2 if job.stdout.is_terminal else None).encode())
    if isinstance(result, Failure):
        hint = f"What it takes: {job.check}" if result.code is ErrorCode.INVALID_INPUT else result.error.hint
        message = result.error.message
        if isinstance(result.error.cause, NotRecorded) and not job.options.quiet:  # all of a miss was shown above
            message = message.partition("\n")[0].rstrip(":")
        print_error(f"{result.code}: {message}", hint)
        return _FAILURE
    if not (job.options.json or job.is_streamed):
        if job.stdout.is_terminal:
            screen.say([EMPTY])
        job.stdout.write_text(output_text(job.agent, result.output))
    return _SUCCESS


def _list_remains(failure: Failure) -> Sequence[Line]:
    """Return the lines that show what a failed run leaves behind."""
    if isinstance(failure.error.cause, NotRecorded):
        return [Line(indent=2, mark="bar", text=str(failure.error.cause), rows=_MISS_ROWS)]
    answers = [message.text for message in failure.history if message.role == "assistant" and message.text.strip()]
    if not answers:
        return []
    kept = f"{count(len(failure.history), 'message')} so far (--json prints them), the model's last words:"
    return [Line(indent=2, text=kept, style="dim"), Line(indent=2, mark="bar", text=one_line(answers[-1]), rows=4)]


def output_text(agent: AnyAgent, output: object) -> str:
    """Return an output as people read it: a text as it is, anything else as indented JSON."""
    return output if isinstance(output, str) else to_json(output_json(agent, output), indent=2).decode()


def output_json(agent: AnyAgent, output: object) -> JsonValue:
    """Return an output as plain JSON values."""
    return plain_output(output, agent.plan.outputs.kind)


def read_text(text: str | None) -> str:
    """Return the input as it was given: as an argument, else over a pipe, in UTF-8."""
    if text is not None:
        return text
    data = _read_stdin() if is_piped() else b""
    if not data.strip():
        raise Mistake("There is no input.", "Give it as text after the agent, or from a file: < FILE.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise Mistake(f"stdin is not UTF-8: {where}.", "Convert it, for example with iconv.") from error


def _read_stdin() -> bytes:
    hint = Timer(_PATIENCE_S, lambda: stderr_console().print("Reading stdin to its end; < /dev/null gives nothing."))
    hint.daemon = True
    hint.start()
    try:
        with explain_errors("Give a file that you may read.", about="stdin cannot be read"):
            return sys.stdin.buffer.read()
    finally:
        hint.cancel()


def is_piped() -> bool:
    """Tell whether stdin is a pipe or a file: somebody may have given the input there."""
    try:
        mode = os.fstat(STDIN).st_mode
    except OSError:  # closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def piped_document() -> Sequence[UserContent]:
    """Return what stands in stdin besides an input that is given as an argument, as a document; nothing if there is
    nothing."""
    data = _read_stdin() if is_piped() else b""
    if not data.strip():
        return []
    with explain_errors("", about="stdin cannot be sent besides the input"):
        return [Document.from_bytes(data, title="stdin")]


def read_files(files: Sequence[Path]) -> Sequence[UserContent]:
    """Return pictures, documents and sounds, each by what it is; a `Mistake` if one is none of these."""
    blocks: list[UserContent] = []
    for file in files:
        try:
            with file.open("rb") as opened:
                kind = kind_of(media_type_of(opened.read(LARGEST_BYTES)) or "text/plain")
            kinds: dict[str | None, type[Image] | type[Document] | type[Audio]] = {"image": Image, "audio": Audio}
            blocks.append(kinds.get(kind, Document).from_path(file))
        except OSError as error:
            raise Mistake(f"{file} cannot be read: {error.strerror}.", "Give a file that you may read.") from error
        except ValueError as error:
            raise Mistake(str(error), "") from error
    return blocks


def input_of_job(job: Job) -> object:
    """Return the input of the run, as the agent takes it; with the files, if there are any. `InvalidArguments`, which
    lists every issue, if it does not fit."""
    if not job.files:
        return parse_input(job.agent, job.text)
    if job.agent.input is not str:
        raise InvalidArguments("input", [f"{job.agent.name} takes no text, so no files can be sent with it"])
    return [job.text, *job.files]


def parse_input(agent: AnyAgent, text: str) -> object:
    """Return `text` as the agent takes it: a text as it is, any other type from JSON; `InvalidArguments`, which lists
    every issue, if it does not fit."""
    if agent.input is str:
        return text
    schema = agent.plan.input
    if not schema.is_wrapped:
        return schema.parse_checked(text)
    try:
        value: object = read_json(text)
    except ValueError as error:
        raise InvalidArguments("input", [f"it is not valid JSON: {error}"]) from error
    return schema.parse_checked(write_json({"value": value}))


class Stdout:
    """Takes stdout away from everyone else, until the process ends."""

    def __init__(self, *, drop_others: bool = False) -> None:
        """With `drop_others`, what others print goes nowhere instead of to stderr."""
        if sys.stdout is not None:
            sys.stdout = guard_stream(sys.stdout, may_be_lost=True, by_line=True)  # it goes to stderr from now on
        self._descriptor = take_stdout(drop_others=drop_others)
        self.is_terminal = os.isatty(self._descriptor)
        self._encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self._is_lost = False
        self._clear: Final = ClearEvents()

    def write_text(self, text: str) -> None:
        """Write `text` and a line break. A terminal gets it without escape sequences."""
        text = known_secrets.mark(text)
        shown = clean(text) if self.is_terminal else text
        self._write(shown.encode(self._encoding, "replace") + b"\n")

    def write_json(self, document: bytes) -> None:
        """Write a JSON document and a line break. For a terminal, what it would not show is written out."""
        document = known_secrets.mark_bytes(document)
        shown = visible_json(document.decode()).encode() if self.is_terminal else document
        self._write(shown + b"\n")

    def write_event(self, event: Event) -> None:
        """Write an event as one line of JSON."""
        if not self._is_lost:  # else whoever wanted to read it is told so with the result
            for each in self._clear.clear(event):
                self.write_json(events.to_json(each))

    def _write(self, data: bytes) -> None:
        try:
            write_all(self._descriptor, data)
        except BrokenPipeError:  # the reader has seen enough
            self._is_lost = True
        except OSError as error:
            self._is_lost = True
            raise OutputLost(error) from error
