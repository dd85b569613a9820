"""`journeyman demo`: the analyst of `examples/analyst`, which is also a part of the installed package.

The example is imported when it is asked for, and nothing of it before.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, Protocol, cast

import journeyman
from journeyman.agent import Agent
from journeyman.cli.app import Mistake
from journeyman.cli.loading import load_file
from journeyman.cli.opening import AgentLoop
from journeyman.cli.run import Flag, Job, ModelName, Stdout, perform, recorder_in


class Demo(Protocol):
    """The example of `journeyman demo`: an agent, a question for it, and a notice that says who answers."""

    @property
    def agent(self) -> Agent[Any, Any, Any]: ...
    @property
    def question(self) -> str:
        """Asked when the user asks nothing."""
        ...

    @property
    def notice(self) -> str:
        """Says who is at work: a language model, or the offline stand-in."""
        ...


def demo(
    question: str | None = None,
    /,
    *,
    data: Path | None = None,
    model: ModelName = None,
    json: Flag = False,
    quiet: Flag = False,
    record: bool | None = None,
) -> int:
    """Watch an analyst explore a table, draft a report, be rejected, repair it and hand it in.

    With ANTHROPIC_API_KEY it uses Claude, without a key a small offline program. All the rest is real.

    Args:
        question: What to ask about the table.
        data: A CSV file to analyse instead of the bundled one.
        json: Print one JSON document: the result, usage, attempts and history.
        quiet: Print nothing but the result, or the error.
        record: Record what happens, or do not. Else it is recorded unless JOURNEYMAN_RECORD is 0, or CI is set.
    """
    stdout = Stdout(drop_others=quiet)
    place, example = _example()
    make = cast("Callable[[Path | None], Demo]", example.demo_agent)
    try:
        found = make(data)
    except ValueError as error:  # a file that cannot be used; its message says what to do
        raise Mistake(str(error), "") from error
    with AgentLoop() as loop:
        job = Job(
            agent=found.agent,
            loop=loop,
            text=question or found.question,
            stdout=stdout,
            check="journeyman demo --help",
            model=model,
            json=json,
            quiet=quiet,
            record=recorder_in(None, wish=record, target=f"{place}:agent" if data is None else None, quiet=quiet),
            notice=found.notice if model is None else f"At work: {model}.",
        )
        return perform(job)


def _example() -> tuple[str, ModuleType]:
    """Import the demo: of the installed package, which may be a zip, or of the checkout that this package is run from.
    Return its place, as a target names it, and the module."""
    if find_spec("journeyman._demo") is not None:
        return "journeyman._demo.agent", resolve_name("journeyman._demo.agent")
    place = Path(journeyman.__file__).resolve().parents[2] / "examples" / "analyst" / "agent.py"
    if place.is_file():
        return str(place), load_file(place)
    raise Mistake("The demo is not part of this installation.", "Install journeyman again, from a wheel or a checkout.")
