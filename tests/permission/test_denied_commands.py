"""A rule that denies a program: what a real bash would run is denied or asked about, and everyday commands are not."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from journeyman.gate import Allow, Ask, Deny
from journeyman.permission.permission import Permission
from tests.permission.commands import CONTEXTS, HANDED_ON, INNOCENT, SPELLINGS, SUBCOMMANDS
from tests.permission.workshop import StubShell, request

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")

HIDDEN = sorted(
    {
        *[context.replace("RUN", "denied x") for context in (*CONTEXTS, *HANDED_ON)],
        *[context.replace("RUN", spelling) for spelling in SPELLINGS for context in (CONTEXTS[0], *CONTEXTS[1::7])],
        *[
            context.replace("RUN", spelling)
            for spelling in SPELLINGS
            if "'" not in spelling and "\n" not in spelling
            for context in HANDED_ON[::23]
        ],
    }
)

MAY_START_ANYTHING = re.compile(
    r"\b(cargo|docker|go test|kubectl|mypy|pip|pytest|ruff|terraform|uv|wget) |pytest$|\bf\(\)"
)


@pytest.fixture(scope="module")
def shell() -> Iterator[StubShell]:
    with tempfile.TemporaryDirectory() as folder:
        yield StubShell(Path(folder), "denied", with_real=True)


def test_there_are_enough_of_these_commands() -> None:
    assert len(HIDDEN) >= 400
    assert len(INNOCENT) >= 120


@pytest.mark.parametrize("allow", [[], ["Bash(*)"]], ids=["trusted", "allowed"])
async def test_no_command_runs_a_denied_program_unasked(shell: StubShell, allow: list[str]) -> None:
    gate = Permission(mode="trust", allow=allow, deny=["Bash(denied *)"], roots=[shell.folder])
    verdicts = {command: await gate.decide(request("bash", command=command)) for command in HIDDEN}
    unasked = [command for command, verdict in verdicts.items() if isinstance(verdict, Allow)]
    ran = [command for command in unasked if shell.run(command)]
    assert ran == []
    assert unasked == []


def test_a_real_bash_runs_the_denied_program_in_most_of_them(shell: StubShell) -> None:
    ran = islice((command for command in HIDDEN if shell.run(command)), 300)
    assert len([*ran]) == 300, "Too few of these commands do what they are here for."


async def test_options_before_a_denied_subcommand_do_not_hide_it(shell: StubShell) -> None:
    gate = Permission(mode="trust", deny=["Bash(denied push *)"], roots=[shell.folder])
    verdicts = {command: await gate.decide(request("bash", command=command)) for command in SUBCOMMANDS}
    assert [command for command, verdict in verdicts.items() if isinstance(verdict, Allow)] == []
    assert isinstance(await gate.decide(request("bash", command="denied pull")), Ask), "nobody knows what it starts"
    gate = Permission(mode="trust", deny=["Bash(git push *)"], roots=[shell.folder])
    for command in ("git pull", "git -C . pull", "git -c user.name=c --no-pager log push.txt", "echo git push"):
        assert await gate.decide(request("bash", command=command)) == Allow(), command


async def test_nobody_is_asked_about_an_everyday_command_but_for_those_that_may_start_anything() -> None:
    gate = Permission(mode="trust", deny=["Bash(denied *)"], roots=[Path.cwd()])
    asked = [each for each in INNOCENT if await gate.decide(request("bash", command=each)) != Allow()]
    assert asked == [each for each in INNOCENT if MAY_START_ANYTHING.search(each)]


async def test_what_cannot_be_told_is_asked_and_says_why() -> None:
    gate = Permission(mode="trust", deny=["Bash(denied *)"], roots=[Path.cwd()])
    asked = await gate.decide(request("bash", command="bash build.sh"))
    assert isinstance(asked, Ask)
    assert "the rule Bash(denied *) may forbid it: what bash starts cannot be told" in asked.question
    assert isinstance(await gate.decide(request("bash", command="denied x")), Deny)
    assert await Permission(mode="trust", roots=[Path.cwd()]).decide(request("bash", command="bash b.sh")) == Allow()


async def test_a_tool_of_ones_own_that_is_called_bash_is_asked_about_alike() -> None:
    gate = Permission(mode="trust", deny=["Bash(denied *)"], roots=[Path.cwd()])
    own = replace(request("bash", command="bash build.sh"), permission_kind=None)
    assert isinstance(await gate.decide(own), Ask)
    assert await gate.decide(replace(own, arguments={"command": "ls"})) == Allow()


async def test_a_rule_that_names_what_runs_others_is_enough() -> None:
    gate = Permission(mode="trust", allow=["Bash(python *)"], deny=["Bash(denied *)"], roots=[Path.cwd()])
    assert await gate.decide(request("bash", command="python build.py")) == Allow()
    assert isinstance(await gate.decide(request("bash", command="python build.py denied")), Ask)
