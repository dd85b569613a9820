"""Running one agent for the command line: shown as it goes, stopped by Ctrl-C, its result printed, its exit code given.

`run` and `demo` differ only in where the agent comes from. Imports `loop`, `connect` and the modules of this folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from journeyman.agent import Agent, Host
from journeyman.cancel import Abort
from journeyman.cli.documents import dump_document, output_json, result_document
from journeyman.cli.reading import parse_input
from journeyman.cli.show.interrupt import Interrupt
from journeyman.cli.show.lines import EMPTY, Line
from journeyman.cli.show.outline import Outline
from journeyman.cli.show.screen import PlainScreen, Screen, open_screen, print_error, stderr_console
from journeyman.cli.show.words import count, one_line
from journeyman.cli.stdout import Stdout
from journeyman.connect import connect
from journeyman.contexts import ErrorCode, InvalidInputContext, ModelUnavailableContext
from journeyman.endings import Context, Ending
from journeyman.errors import InvalidArguments, ModelUnavailable, NotRecorded
from journeyman.events.run import Event, Listener
from journeyman.loop.attempts import run
from journeyman.result import Failure, Metadata, Result, Success
from journeyman.types import Usage

if TYPE_CHECKING:
    from journeyman.models.cassette.cassette import Cassette

_SUCCESS, _FAILURE = 0, 1
_MISS_ROWS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command line asks for."""

    agent: Agent[Any, Any]
    text: str
    """The input, not yet parsed."""
    stdout: Stdout
    check: str
    """The command that shows what input the agent takes."""
    model: str | None = None
    """Used instead of the agent's."""
    json: bool = False
    quiet: bool = False
    tree: bool = False
    """Print the whole tree at the end, also if `quiet`."""
    notice: str = ""
    """The first line to show."""
    cassette: Cassette | None = None
    """Records the run, or replays it."""


def perform(job: Job) -> int:
    """Run the agent, print its result, and return the exit code."""
    screen = open_screen(quiet=job.quiet)
    try:
        if job.notice:
            screen.say([Line(text=job.notice, rows=3), EMPTY])
        return _perform(job, screen)
    finally:
        screen.close()


def _perform(job: Job, screen: Screen) -> int:
    try:
        value, host = parse_input(job.agent, job.text), _host(job)
    except InvalidArguments as invalid:
        return _present(job, screen, _unstarted(InvalidInputContext(issues=invalid.issues)))
    except ModelUnavailable as error:
        return _present(job, screen, _unstarted(ModelUnavailableContext.of(error)))
    return _run(job, screen, value, host)


def _host(job: Job) -> Host:
    if job.cassette is None:
        return Host(model=None if job.model is None else connect(job.model))
    recorded = None if job.cassette.is_replaying else job.model or job.agent.model
    return Host(model=job.cassette.model(recorded), journal=job.cassette.journal)


def _unstarted(context: Context) -> Failure:
    """Return the failure that `run` would give, had it been called."""
    return Failure(
        error=Ending(context, "prompt_generation"), metadata=Metadata(usage=Usage(), latency_s=0), history=()
    )


def _run(job: Job, screen: Screen, value: object, host: Host) -> int:
    abort = Abort()
    interrupt = Interrupt(abort, screen.stopping)
    outline = Outline() if job.tree else None
    on_event = _listener(None if job.quiet else screen.show, None if outline is None else outline.follow)
    with interrupt.listening(), asyncio.Runner() as runner:
        result = runner.run(run(job.agent, value, on_event=on_event, abort=abort, host=host))
        exit_code = _present(job, screen, result, outline)
        # Leaving the block may wait for a thread of the user's. From here on a signal quits.
        interrupt.has_ended = True
    cancelled = isinstance(result, Failure) and result.code is ErrorCode.EXECUTION_CANCELLED
    return interrupt.exit_code if cancelled and interrupt.exit_code is not None else exit_code


def _listener(*listeners: Listener | None) -> Listener | None:
    """Return one listener for several, or None where there is none: then no event is made."""
    match [listener for listener in listeners if listener is not None]:
        case []:
            return None
        case [only]:
            return only
        case several:

            def tell_all(event: Event) -> None:
                for listener in several:
                    listener(event)

            return tell_all


def _present(job: Job, screen: Screen, result: Result[Any], outline: Outline | None = None) -> int:
    """Print the result, the whole tree, and what went wrong. Return the exit code."""
    if isinstance(result, Failure):
        screen.say(_gathered(result))
    screen.close()
    if outline is not None:
        PlainScreen(stderr_console()).say(list(outline.lines()))
    if job.json:
        document = result_document(job.agent, result)
        job.stdout.write_json(dump_document(document, indent=2 if job.stdout.is_terminal else None))
    if isinstance(result, Failure):
        print_error(f"{result.code}: {_message(job, result)}", _hint(job, result))
        return _FAILURE
    if not job.json:
        _print_output(job, screen, result)
    return _SUCCESS


def _message(job: Job, failure: Failure) -> str:
    """Return what went wrong; of a miss in a cassette that was shown above, the first line."""
    is_shown = isinstance(failure.error.cause, NotRecorded) and not job.quiet
    return failure.error.message.partition("\n")[0].rstrip(":") if is_shown else failure.error.message


def _hint(job: Job, failure: Failure) -> str:
    if failure.code is ErrorCode.INVALID_INPUT:
        return f"What it takes: {job.check}"
    return failure.error.hint


def _gathered(failure: Failure) -> Sequence[Line]:
    """Say what a failed run leaves behind."""
    if isinstance(failure.error.cause, NotRecorded):
        return [Line(indent=2, mark="bar", text=str(failure.error.cause), rows=_MISS_ROWS)]
    answers = [message.text for message in failure.history if message.role == "assistant" and message.text.strip()]
    if not answers:
        return []
    kept = f"{count(len(failure.history), 'message')} so far (--json prints them), the model's last words:"
    return [
        Line(indent=2, text=kept, style="dim"),
        Line(indent=2, mark="bar", text=one_line(answers[-1]), rows=4),
    ]


def _print_output(job: Job, screen: Screen, success: Success[Any]) -> None:
    if job.stdout.is_terminal:
        screen.say([EMPTY])
    if isinstance(success.output, str):
        job.stdout.write_text(success.output)
    else:
        text = to_json(output_json(job.agent, success.output), indent=2).decode()
        job.stdout.write_text(text)
