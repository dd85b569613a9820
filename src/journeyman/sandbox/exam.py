"""The exam of sandboxes: whoever writes an adapter lets it sit this, and is told each promise that it does not keep.

Each guarantee that a sandbox says that it holds is tried in every way of `trials.py`. What it does not claim is not
asked. Commands have to work in each box, and to end with it.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from typing import Final

from journeyman.sandbox.box import Guarantee, SandboxGuarantees
from journeyman.sandbox.sandbox import Sandbox
from journeyman.sandbox.trials import TRIALS, TrialStage, run_in_sandbox, try_lines, visible_folder

_NO_PROGRAM: Final = 127  # as shells end
_LINES: Final[tuple[tuple[str, int, str], ...]] = (
    ("exit 7", 7, ""),
    ("kill -TERM $$", -signal.SIGTERM, ""),
    ('echo "$WORD"; echo x >&2; cat', 0, "a b\nc\nx\n"),
    ('[ "$(pwd)" = "$WORK" ] && echo here', 0, "here\n"),
    ("mkdir -p a/b && echo x > a/b/c && mv a d && cat d/b/c", 0, "x\n"),
    ('echo x > "${TMPDIR:-/tmp}/$NAME"', 0, ""),
    ('cat "${TMPDIR:-/tmp}/$NAME"; rm "${TMPDIR:-/tmp}/$NAME"', 0, "x\n"),
    (
        "setsid sh -c 'exec 9> lock; flock 9; echo > locked; sleep 60' > /dev/null 2>&1 & "
        "while ! [ -e locked ]; do sleep 0.01; done",
        0,
        "",
    ),
)
"""Lines of a shell that work in every box, one after the other, each with its exit code and what it writes. The last
one leaves a process aside, which locks a file as long as it lives."""


async def sandbox_exam(make: Callable[[], Sandbox]) -> SandboxGuarantees:
    """Let the sandbox that `make` makes sit the exam, and return what it holds.

    Raises:
        AssertionError: it does not keep its promises; each is named.
    """
    sandbox = make()
    guarantees = await asyncio.to_thread(sandbox.holds)
    try:
        faults = await _faults_of_commands(sandbox)
        for guarantee in sorted(guarantees.held):
            for line in TRIALS[guarantee]:
                _, breaches = await try_lines(sandbox, line)
                faults += [f"{each}: {line}: {breaches[each]}" for each in sorted(breaches.keys() & guarantees.held)]
    finally:
        sandbox.close()
    if faults:
        raise AssertionError("\n".join([f"{sandbox.name} does not keep its promises:", *faults]))
    return guarantees


async def try_escapes(sandbox: Sandbox) -> AsyncIterator[tuple[Guarantee, str, str, bool]]:
    """Give for each guarantee a way out of a box, what came of it, and whether it is broken."""
    for guarantee, (line, *_) in TRIALS.items():
        output, breaches = await try_lines(sandbox, line)
        yield guarantee, line, output, guarantee in breaches


async def _faults_of_commands(sandbox: Sandbox) -> list[str]:
    with ExitStack() as stack:
        stage = TrialStage(stack.enter_context(visible_folder()), stack)
        opened = sandbox.open(stage.box)
        stack.callback(opened.close)
        environment = {**stage.environment, "WORD": "a b\nc", "WORK": str(stage.work), "NAME": stage.work.parent.name}
        found: list[str] = []
        for line, *expected in _LINES:
            done = [*await run_in_sandbox(opened, line, environment)]
            found += [] if done == expected else [f"{line!r} ends with {done}, not with {expected}"]
        with suppress(OSError):
            process = await opened.spawn("no-such-program", environment=stage.environment)
            code = await process.wait()
            found += [] if code == _NO_PROGRAM else [f"a missing program ends with {code}"]
        opened.close()
        waiting = ["flock", "-w", "2", str(stage.work / "lock"), "true"]
        done = await asyncio.to_thread(subprocess.run, waiting, check=False)
        return found + ([] if done.returncode == 0 else ["a process lives on when the box is closed"])
