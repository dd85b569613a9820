"""`journeyman replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from journeyman.cli.loading import load_agent
from journeyman.cli.mistake import Mistake
from journeyman.cli.playing import Player, sleeping
from journeyman.cli.run import Flag
from journeyman.cli.running import Job, perform
from journeyman.cli.show.lines import Line
from journeyman.cli.show.screen import open_screen
from journeyman.cli.stdout import Stdout
from journeyman.errors import CassetteError
from journeyman.models.cassette.cassette import Cassette
from journeyman.models.transport import offline


def replay(
    file: Annotated[Path, Parameter(name="CASSETTE")],
    target: Annotated[str | None, Parameter(name="FILE:AGENT")] = None,
    input: str | None = None,
    /,
    *,
    realtime: Flag = False,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Play a cassette: by itself, or as the answers to an agent that runs again.

    No model is asked, and no tool is run. An agent that now asks something else fails, and is shown what differs.

    Args:
        file: What `journeyman record` or a test has recorded.
        target: The agent to run again: a Python file or a module, a colon, and the agent in it. Without it, the
            recording is shown.
        input: The agent's input, where it shall not be the recorded one.
        realtime: Take as long as it took.
        json: Print one JSON document: the result, usage, attempts and history. Needs an agent.
        quiet: Print nothing but the result, or the error.
    """
    stdout = Stdout(drop_others=quiet)
    try:
        cassette = _opened(file, realtime=realtime)
        with offline("a cassette is replayed"):
            if target is None:
                _refuse_json(json=json)
                return _show(cassette, stdout, realtime=realtime, quiet=quiet)
            text = _input(cassette, input)
            check = f"journeyman check {target}"
            notice = f"Replaying {file}."
            agent = load_agent(target)
            job = Job(
                agent=agent,
                text=text,
                stdout=stdout,
                check=check,
                json=json,
                quiet=quiet,
                notice=notice,
                cassette=cassette,
            )
            return _run_again(job, cassette)
    except CassetteError as error:
        raise Mistake(error.message, error.hint) from error


def _opened(file: Path, *, realtime: bool) -> Cassette:
    if not file.exists():
        raise Mistake(f"There is no file {file}.", f"Record it: journeyman record FILE:AGENT INPUT --cassette {file}")
    return Cassette(file, "none", realtime=realtime)


def _refuse_json(*, json: bool) -> None:
    if json:
        raise Mistake("--json is for an agent that runs again.", "Name it after the cassette: agents.py:analyst.")


def _input(cassette: Cassette, given: str | None) -> str:
    recorded = cassette.header.input if cassette.header is not None else None
    if given is None and recorded is None:
        raise Mistake(f"{cassette.path} does not hold the agent's input.", "Give it as text after the agent.")
    return given if given is not None else recorded or ""


def _run_again(job: Job, cassette: Cassette) -> int:
    code = perform(job)
    if cassette.unused and not cassette.misses and not job.quiet:
        text = f"not asked for: {', '.join(cassette.unused)}"
        open_screen(quiet=False).say([Line(mark="warning", text=text, rows=4)])
    return code


def _show(cassette: Cassette, stdout: Stdout, *, realtime: bool, quiet: bool) -> int:
    screen = open_screen(quiet=quiet)
    try:
        said = Player(cassette, screen, sleeping(realtime=realtime)).play()
    finally:
        screen.close()
    stdout.write_text(said)
    return 0
