"""What developers type each day ends in a box as it does outside, with few exceptions, each with its reason."""

from pathlib import Path

import pytest

from journeyman.sandbox import Bubblewrap, NoSandbox, SandboxRefusal, find_refusals
from journeyman.sandbox.trials import run_in_sandbox
from tests.sandbox.everyday import BUILDS, DIFFER, FILES, GIT, SOCKETS
from tests.sandbox.stage import staged

LINES = (*GIT, *FILES, *BUILDS, *SOCKETS)


@pytest.mark.share(one_in=12)
@pytest.mark.parametrize("line", [*LINES, *DIFFER])
async def test_an_everyday_command_ends_in_a_box_as_outside(bubblewrap: Bubblewrap, template: Path, line: str) -> None:
    codes: list[int] = []
    told: list[SandboxRefusal] = []
    for sandbox in (NoSandbox(), bubblewrap):
        with staged(template) as stage:
            opened = sandbox.open(stage.box())
            given = {**stage.environment, "LINE": line, "SHELL": "/bin/sh"}
            code, output = await run_in_sandbox(opened, 'exec bash -c "$LINE"', given)
            opened.close()
            codes.append(code)
            told = [each for each in find_refusals(opened.box, output) if each.need is not None]
    assert codes[0] == 0, output
    assert (codes[1] == 0) == (line not in DIFFER), output
    assert bool(told) == (line in DIFFER), "it is told what to ask for"


def test_at_least_ninety_seven_of_a_hundred_end_as_outside() -> None:
    assert len(LINES) >= 97 * (len(LINES) + len(DIFFER)) / 100
