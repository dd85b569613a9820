"""`journeyman --help`: says what there is, and fast."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from journeyman.cli import HELP
from journeyman.cli.app import app
from tests.cli.program import Warm, environment, journeyman

DURABLE = (
    "runs",
    "show",
    "resume",
    "cancel",
    "steer",
    "approve",
    "answer",
    "hold",
    "release",
    "fork",
    "prune",
    "worker",
)
COMMANDS = ("run", "batch", "chat", "check", "record", "replay", *DURABLE, "mcp", "demo", "completion")


def test_the_help_names_every_command_with_what_it_does(warm: Warm) -> None:
    for words in ([], ["--help"], ["-h"]):
        done = warm(*words)
        assert (done.code, done.stdout, done.stderr) == (0, HELP, "")
    for name in COMMANDS:
        assert f"  {name} " in HELP
        assert app[name].help in HELP
    assert max(len(line) for line in HELP.splitlines()) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_its_options(name: str, warm: Warm) -> None:
    done = warm(name, "--help")
    assert done.code == 0
    assert f"Usage: journeyman {name}" in done.stdout


def test_the_version_is_the_packages() -> None:
    assert journeyman("--version").stdout == f"{version('journeyman')}\n"


def test_help_and_version_do_without_the_packages_of_the_commands() -> None:
    program = (
        "import sys, journeyman.cli as cli\nsys.argv = ['journeyman', '--help']\n"
        "try: cli.main()\nexcept SystemExit: pass\n"
        "heavy = ('cyclopts', 'rich', 'aiohttp', 'anthropic', 'openai', 'prompt_toolkit', 'pydantic_ai', 'httpx2')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (HELP, "[]\n")
