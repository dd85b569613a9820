"""`journeyman record`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from journeyman.cli.loading import load_agent
from journeyman.cli.mistake import Mistake
from journeyman.cli.reading import read_text
from journeyman.cli.run import Flag
from journeyman.cli.running import Job, perform
from journeyman.cli.stdout import Stdout
from journeyman.errors import CassetteError
from journeyman.models.cassette.cassette import Cassette


def record(
    target: Annotated[str, Parameter(name="FILE:AGENT")],
    input: str | None = None,
    /,
    *,
    cassette: Path,
    input_file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    model: str | None = None,
    json: Flag = False,
    quiet: Flag = False,
    tree: Flag = False,
) -> int:
    """Run an agent as `run` does, and record what its model and its tools answer.

    Keys and what else looks like a secret are taken out. `journeyman replay` plays the file again.

    Args:
        target: A Python file or a module, a colon, and the agent in it: agents.py:analyst.
        input: The agent's input: a text as it is; for any other input type JSON.
        cassette: The file to record to, for example trip.jsonl. One that is there is replaced when the run has ended.
        input_file: Read the input from this file; - is stdin.
        model: Use this model instead of the agent's, for example anthropic:claude-sonnet-5-5.
        json: Print one JSON document: the result, usage, attempts and history.
        quiet: Print nothing but the result, or the error.
        tree: At the end, print the whole tree: runs, attempts, iterations, calls, and what each used.
    """
    stdout = Stdout(drop_others=quiet)
    recording = Cassette(cassette, "all")
    job = Job(
        text=read_text(input, input_file),
        agent=load_agent(target),
        stdout=stdout,
        check=f"journeyman check {target}",
        model=model,
        json=json,
        quiet=quiet,
        tree=tree,
        notice=f"Recording to {cassette}.",
        cassette=recording,
    )
    recording.describe(agent=target, input=job.text)
    try:
        with recording:
            return perform(job)
    except CassetteError as error:
        raise Mistake(error.message, error.hint) from error
