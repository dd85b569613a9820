"""The frame of the commands that serve until they are told to stop: `serve`, `mcp`, `worker` and `view`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from journeyman.agent import Runtime
from journeyman.cancellation import Abort
from journeyman.cli.app import Mistake
from journeyman.cli.durable import tell
from journeyman.cli.ending import Interrupt, TimedEnd, ending_in_time
from journeyman.cli.load_agent import AgentLoop, load_model
from journeyman.cli.options import SharedOptions
from journeyman.cli.run import recording_in, sandbox_in, telemetry_in
from journeyman.cli.show.lines import one_line
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.screen import PlainScreen, stderr_console
from journeyman.closing import time_of_work
from journeyman.errors import DefinitionError, Problem

if TYPE_CHECKING:
    from journeyman.otel.telemetry import OpenTelemetry


def check_named(targets: Sequence[str], command: str) -> None:
    """Check that a command has agents to serve."""
    if not targets:
        raise Mistake("No agent is named.", f"Name one or more: journeyman {command} agents.py:analyst")


class Frame(NamedTuple):
    """The parts of a command that serves which are open until it ends."""

    runtime: Runtime
    """The runtime of every run."""
    telemetry: OpenTelemetry | None
    loop: AgentLoop
    end: TimedEnd


@contextmanager
def frame_of(options: SharedOptions, *, grace: float, shows_log: bool = True) -> Generator[Frame]:
    """Give the frame until the block is left."""
    screen = PlainScreen(stderr_console())
    try:
        with (
            ending_in_time(grace) as end,
            log_shown(screen.say, debug=options.debug) if shows_log else nullcontext(),
            recording_in(options) as tape,
            telemetry_in(options, end) as telemetry,
            sandbox_in(options, is_usual=False),
            AgentLoop(options.timeout, end=end) as loop,
        ):
            runtime = Runtime(model=load_model(options.model), recorder=tape, telemetry=telemetry)
            yield Frame(runtime, telemetry, loop, end)
    finally:
        screen.close()


def until_told(
    loop: AgentLoop,
    serving: Callable[[Abort], Coroutine[Any, Any, None]],
    on_first: Callable[[], None],
    *,
    end: TimedEnd | None = None,
    hurry: Callable[[], object] | None = None,
) -> int:
    """Serve until the work is done, or a signal says that it is enough, and return the exit code. The agents that are
    open in the loop are closed behind. `on_first` is called at the first signal, before the abort fires; what it, `end`
    and `hurry` are for, `Interrupt` says."""
    abort = Abort()
    interrupt = Interrupt(abort, on_first, end=end, hurry=hurry)
    with interrupt.listening(), closing(loop):
        loop.run(serving(abort))
        interrupt.has_ended = True
    return interrupt.exit_code or 0


def tell_stopping(grace_s: float, then: str) -> None:
    """Say at the first signal in which time a command ends, and what becomes at the second one of what goes on."""
    most = f"stopping within {grace_s:g} s: what goes on has {time_of_work(grace_s):g} s to end"
    tell(f"{most}; once more, and it is {then} at once")


def mistake_of(problem: Problem, hints: Mapping[str, str]) -> Mistake:
    """Return what is wrong with an address as a mistake in the command line. `hints` says by code what to do."""
    is_port = problem.code == "NO_PORT"
    return Mistake(f"--port {problem.message}" if is_port else problem.message, hints.get(problem.code, problem.hint))


@contextmanager
def listening_told(place: str, hints: Mapping[str, str]) -> Generator[None]:
    """Say in one line why nothing can be served at a place: `hints` says by code what to do."""
    try:
        yield
    except DefinitionError as error:
        raise mistake_of(error.problems[0], hints) from error
    except OSError as error:
        why = one_line(error.strerror or str(error))
        raise Mistake(f"{place or 'all'} cannot be listened on: {why}.", "Choose another --port.") from error
