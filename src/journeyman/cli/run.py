"""`journeyman run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from journeyman.cli.loading import load_agent
from journeyman.cli.reading import read_text
from journeyman.cli.running import Job, perform
from journeyman.cli.stdout import Stdout

Flag = Annotated[bool, Parameter(negative=())]


def run(
    target: Annotated[str, Parameter(name="FILE:AGENT")],
    input: str | None = None,
    /,
    *,
    input_file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    model: str | None = None,
    json: Flag = False,
    quiet: Flag = False,
    tree: Flag = False,
) -> int:
    """Run an agent, and print what it hands in.

    The result goes to stdout: a text as it is, anything else as JSON. Everything else goes to stderr.

    Args:
        target: A Python file or a module, a colon, and the agent in it: agents.py:analyst. Where there is one agent
            only, the file is enough.
        input: The agent's input: a text as it is; for any other input type JSON.
        input_file: Read the input from this file; - is stdin.
        model: Use this model instead of the agent's, for example anthropic:claude-sonnet-5-5.
        json: Print one JSON document: the result, usage, attempts and history.
        quiet: Print nothing but the result, or the error.
        tree: At the end, print the whole tree: runs, attempts, iterations, calls, and what each used.
    """
    stdout = Stdout(drop_others=quiet)
    job = Job(
        text=read_text(input, input_file),
        agent=load_agent(target),
        stdout=stdout,
        check=f"journeyman check {target}",
        model=model,
        json=json,
        quiet=quiet,
        tree=tree,
    )
    return perform(job)
