"""`journeyman sandbox`, and what `--sandbox` means for the commands of an agent."""

from __future__ import annotations

import asyncio
import os
import sys
import tomllib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, ValidationError

from journeyman import sandbox as sandboxes  # whose modules are loaded when somebody asks for a box
from journeyman.cli.app import Mistake, explain_errors
from journeyman.cli.options import BoxOptions, SandboxUse, explain
from journeyman.cli.show.lines import Line, one_line, refusal_words
from journeyman.cli.show.screen import stderr_console
from journeyman.errors import name_and_words, quoted
from journeyman.hosts.names import host_problem
from journeyman.machine.environment import select_environment
from journeyman.machine.startup_files import StartupFiles
from journeyman.sandbox.box import Box, secrets_of_home
from journeyman.sandbox.needs import read_need
from journeyman.sandbox.sandbox import SandboxUnavailable
from journeyman.toolbox.boxed import AskedSandbox, SandboxChoice, asked_sandbox

if TYPE_CHECKING:
    from journeyman.sandbox import Sandbox

KEPT: Final = "JOURNEYMAN_KEEP_ENV"
"""The variable that names others, which commands get in a box although its list has them not: `NPM_TOKEN,GH_TOKEN`."""
_TRIES: Final = "journeyman.sandbox.trials:try_escapes"
_NEEDS: Final = "Write host:NAME, write:PATH or read:PATH."
_NO_PROGRAM: Final = 127
_SIGNALLED: Final = 128


class SandboxSettings(BaseModel, extra="forbid", frozen=True):
    """The table `sandbox` of a person's settings."""

    use: SandboxUse | None = None
    needs: list[str] = []


class _Settings(BaseModel):
    sandbox: SandboxSettings = SandboxSettings()


def load_settings() -> SandboxSettings:
    """Return what the person's settings say of sandboxes."""
    base = os.environ.get("XDG_CONFIG_HOME") or ""
    try:
        path = (Path(base) if base.startswith("/") else Path("~/.config").expanduser()) / "journeyman" / "settings.toml"
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, RuntimeError):  # the last one: its user has no home
        return SandboxSettings()
    except (OSError, ValueError) as error:
        text = f"The settings cannot be read: {name_and_words(error)}."
        raise Mistake(text, "Correct the file, or remove it.") from error
    try:
        return _Settings.model_validate(tomllib.loads(text)).sandbox
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        told = f"{path} is wrong at {'.'.join(map(str, first['loc']))}: {first['msg']}."
        hint = 'It holds [sandbox] with use = "auto", "required" or "none", and needs = ["host:NAME"].'
        raise Mistake(told, hint) from None
    except tomllib.TOMLDecodeError as error:
        raise Mistake(f"{path} is no TOML: {error}.", "Correct the file, or remove it.") from None


@contextmanager
def ask_for_sandbox(
    use: SandboxUse | None, more: BoxOptions | None = None, *, is_usual: bool = True
) -> Generator[AskedSandbox]:
    """Let the workspaces that are made in a block have the sandbox that the command line, or else the person's
    settings, wish for: a `Mistake` if it cannot be, or is required, and none holds enough here. `use` and `more` are of
    the command line: when commands run in a box, and what they need beyond it. `is_usual`: without a wish they have one
    where it holds."""
    settings, more = load_settings(), more or BoxOptions()
    given = [_read_need("--allow-host", f"host:{each}", each) for each in more.allow_host or ()]
    given += [_read_need("--write", f"write:{each}", each) for each in more.write or ()]
    needs = [*[_read_need("[sandbox] needs", each, each) for each in settings.needs], *given]
    said: SandboxUse | None = use or settings.use
    if said == "none" and given:
        name = "--sandbox none" if use else 'use = "none" in the settings'
        text = f"--allow-host and --write give more than a box, and {name} says that there is none."
        raise Mistake(text, "Leave one out.")
    if said == "required":
        _require_sandbox()
    chosen = said or ("auto" if is_usual else "none")
    choice: SandboxChoice | None = None if chosen == "none" else chosen
    asked = AskedSandbox(choice, read_kept_variables(), tuple(needs if choice else ()), is_usual=said is None)
    token = asked_sandbox.set(asked)
    try:
        yield asked
    finally:
        asked_sandbox.reset(token)


def _read_need(place: str, need: str, word: str) -> str:
    """Return a need with an absolute path. `place` and `word` say where it stands, and how it is written there."""
    kind, value = read_need(need) or ("", "")
    if kind == "host":
        if (problem := host_problem(value.lower())) is not None:
            raise Mistake(f"{place} {quoted(word[:80])} is no name of a host.", problem.hint)
        return f"host:{value.lower()}"
    if kind not in ("write", "read"):
        raise Mistake(f"{place} {quoted(word[:80])} is nothing that commands can be given.", _NEEDS)
    path = os.path.realpath(os.path.expanduser(value))
    if not os.path.exists(path):  # false also where a name is too long, or one may not look
        raise Mistake(f"{place} {quoted(word[:80])}: nothing is there.", "Make it first, or name another.")
    with explain_errors(""):
        Box(work=path if kind == "write" else os.devnull)
    return f"{kind}:{path}"


def tell_sandbox(asked: AskedSandbox, mode: str | None) -> None:
    """Print on one line what an agent that was opened does unasked, and what keeps its commands, if it has any."""
    if asked.choice is None or not (asked.boxes or asked.problem):
        return
    told = f"no sandbox: {asked.problem}" if asked.problem else _describe_sandbox()
    line = told if mode is None else f"mode: {mode} · {told}"
    stderr_console().print(one_line(line), markup=False, style="dim")


def read_kept_variables() -> tuple[str, ...]:
    """Return the names of the variables that the person at the command line lets into boxes."""
    return tuple([name for each in os.environ.get(KEPT, "").split(",") if (name := each.strip())])


def _describe_sandbox() -> str:
    sandbox = sandboxes.choose_sandbox()
    if sandbox.holds().is_enough:
        return f"sandbox: {sandbox.name}"
    return f"no sandbox: every command is asked about ({sandboxes.explain_sandboxes()})"


def _require_sandbox() -> Sandbox:
    sandbox = sandboxes.choose_sandbox()
    if not sandbox.holds().is_enough:
        told = f"No sandbox holds enough here: {sandboxes.explain_sandboxes()}."
        raise Mistake(told, "Do what is said there, or use another system.")
    return sandbox


def sandbox_lines(asked: AskedSandbox | None) -> Iterator[Line]:
    """Give the lines that tell what the boxes of an agent hold, what they have refused, and what was given beyond."""
    if asked is None or not asked.boxes:
        text = "No box: commands run as this program does. Begin the chat with --sandbox auto."
        yield Line(indent=2, text=text, rows=2)
        return
    yield Line(indent=2, text=_describe_sandbox(), rows=4)
    for box in asked.boxes:
        yield Line(indent=2, name=box.root, text="may be changed by commands", rows=2)
        for each in box.refused:
            yield Line(indent=4, mark="warning", text=f"{refusal_words(each.cause)}: {one_line(each.what)}", rows=2)
        for need in box.given:
            yield Line(indent=4, text=f"given: {one_line(need)}", rows=2)


def sandbox(
    *command: Annotated[str, explain("A command to be run in a box of this folder, behind --.", name="COMMAND")],
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
    chosen = sandboxes.choose_sandbox()
    held = chosen.holds().held
    print(f"{chosen.name} {chosen.holds()}")
    is_as_promised = True
    async for guarantee, line, output, is_broken in resolve_name(_TRIES)(chosen):
        last = one_line(output.strip().rpartition("\n")[2], 60) or "nothing is written"
        print(f"{'NOT HELD' if is_broken else 'held':<9} {guarantee:<10} {line}  ->  {last}")
        is_as_promised = is_as_promised and not (is_broken and guarantee in held)
    return 0 if is_as_promised and chosen.holds().is_enough else 1


async def _run_in_box(folder: str, command: tuple[str, ...]) -> int:
    startup = StartupFiles(folder)
    box = Box(work=folder, hidden=secrets_of_home(), protected=startup.paths)
    opened = _require_sandbox().open(box)
    try:
        sys.stdout.flush()
        environment = select_environment(read_kept_variables())
        process = await opened.spawn(command[0], command[1:], environment=environment, stdin=0, stdout=1, stderr=2)
        try:
            code = await process.wait()
        except OSError as error:
            stderr_console().print(f"{command[0]}: {error.strerror}", markup=False)
            return _NO_PROGRAM
    finally:
        opened.close()
        for file in startup.hold_changes():
            stderr_console().print(one_line(file.describe()), markup=False)
    return code if code >= 0 else _SIGNALLED - code
