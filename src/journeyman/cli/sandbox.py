"""`journeyman sandbox`, and what `--sandbox` means for the commands of an agent."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from journeyman.cli.app import Mistake
from journeyman.cli.options import SandboxWish
from journeyman.cli.show.lines import Line, one_line
from journeyman.cli.show.screen import stderr_console
from journeyman.errors import DefinitionError
from journeyman.processes import select_environment
from journeyman.sandbox import Box, OpenSandbox, Sandbox, SandboxUnavailable, choose_sandbox, secrets_of_home
from journeyman.sandbox.trials import try_escapes
from journeyman.startup_files import StartupFiles
from journeyman.toolbox.boxed import AskedSandbox, asked_sandbox

KEPT: Final = "JOURNEYMAN_KEEP_ENV"
"""The variable that names others, which commands get in a box although its list has them not: `NPM_TOKEN,GH_TOKEN`."""
_NO_PROGRAM: Final = 127
_SIGNALLED: Final = 128


@contextmanager
def ask_for_sandbox(wish: SandboxWish | None, *, quiet: bool = False) -> Generator[AskedSandbox]:
    """Let the workspaces that are made in a block have the sandbox that the command line wishes for, which is told.

    Raises:
        Mistake: one is required, and none holds enough here.
    """
    if wish == "required":
        _require_sandbox()
    asked = AskedSandbox(None if wish in (None, "none") else wish, read_kept_variables())
    if asked.choice is not None:
        asked.is_held = choose_sandbox().holds().is_enough
        if not quiet:
            stderr_console().print(one_line(_describe_sandbox()), markup=False, style="dim")
    token = asked_sandbox.set(asked)
    try:
        yield asked
    finally:
        asked_sandbox.reset(token)


def read_kept_variables() -> tuple[str, ...]:
    """Return the names of the variables that the person at the command line lets into boxes."""
    return tuple([name for each in os.environ.get(KEPT, "").split(",") if (name := each.strip())])


def _describe_sandbox() -> str:
    sandbox = choose_sandbox()
    if sandbox.holds().is_enough:
        return f"sandbox: {sandbox.name}"
    return f"no sandbox: every command is asked about by mode ({sandbox.holds()})"


def _require_sandbox() -> Sandbox:
    sandbox = choose_sandbox()
    if not sandbox.holds().is_enough:
        raise Mistake(
            f"No sandbox holds enough here: {sandbox.holds()}.", "Do what is said there, or use another system."
        )
    return sandbox


def sandbox_lines(asked: AskedSandbox | None) -> Iterator[Line]:
    """Give the lines that tell what the boxes of an agent hold, what they have refused, and what was given beyond."""
    if asked is None or not asked.boxes:
        yield Line(
            indent=2, text="No box: commands run as this program does. Begin the chat with --sandbox auto.", rows=2
        )
        return
    yield Line(indent=2, text=_describe_sandbox(), rows=4)
    for box in asked.boxes:
        yield Line(indent=2, name=box.root, text="may be changed by commands", rows=2)
        for each in box.refused:
            told = "put aside" if each.cause == "held" else f"refused ({each.cause})"
            yield Line(indent=4, mark="warning", text=f"{told}: {one_line(each.what)}", rows=2)
        for need in box.given:
            yield Line(indent=4, text=f"given: {one_line(need)}", rows=2)


def sandbox(
    *command: Annotated[str, Parameter(name="COMMAND", help="A command to be run in a box of this folder, behind --.")],
) -> int:
    """Show what a sandbox holds here, or run a command in one.

    Without a command it tries to get out of a box, once for each guarantee, and shows what comes of it. A command may
    change this folder, apart from what programs run by themselves there; it reads no keys of the home folder, and
    reaches no host.
    """
    try:
        return asyncio.run(_run_in_box(os.path.realpath(Path.cwd()), command) if command else _show_escapes())
    except SandboxUnavailable as error:
        raise Mistake(str(error), "Nothing was run.") from error


async def _show_escapes() -> int:
    chosen = choose_sandbox()
    held = chosen.holds().held
    print(f"{chosen.name} {chosen.holds()}")
    is_as_promised = True
    async for guarantee, line, output, is_broken in try_escapes(chosen):
        last = one_line(output.strip().rpartition("\n")[2], 60) or "nothing is written"
        print(f"{'NOT HELD' if is_broken else 'held':<9} {guarantee:<10} {line}  ->  {last}")
        is_as_promised = is_as_promised and not (is_broken and guarantee in held)
    return 0 if is_as_promised and chosen.holds().is_enough else 1


async def _run_in_box(folder: str, command: tuple[str, ...]) -> int:
    startup = StartupFiles(folder)
    try:
        box = Box(work=folder, hidden=secrets_of_home(), protected=startup.paths)
    except DefinitionError as error:
        raise Mistake(error.problems[0].message, error.problems[0].hint) from error
    opened = _require_sandbox().open(box)
    try:
        code = await _wait_for(opened, command)
    finally:
        opened.close()
        for name in map(one_line, startup.hold_changes()):
            told = f"{name} was put aside as {name}.held: programs would run it by themselves."
            stderr_console().print(told, markup=False)
    return code if code >= 0 else _SIGNALLED - code


async def _wait_for(opened: OpenSandbox, command: tuple[str, ...]) -> int:
    sys.stdout.flush()
    process = await opened.spawn(
        command[0], command[1:], environment=select_environment(read_kept_variables()), stdin=0, stdout=1, stderr=2
    )
    try:
        return await process.wait()
    except OSError as error:
        stderr_console().print(f"{command[0]}: {error.strerror}", markup=False)
        return _NO_PROGRAM
