"""The exam of sandboxes: whoever writes an adapter lets it sit this, and is told each promise that it does not keep.

What a sandbox says that it holds is tried in more ways than its probe does. Each attempt is judged from outside, by its
effect. What it does not claim is not asked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from journeyman.data import lazy_dataclass
from journeyman.sandbox.box import Box, Guarantee, SandboxGuarantees
from journeyman.sandbox.kept import memory_of
from journeyman.sandbox.probe import visible_folder
from journeyman.sandbox.sandbox import OpenSandbox, Sandbox

_COMMAND_S: Final = 20.0
_SECRET: Final = "a secret of the exam"
_DENIED: Final = "mkfifo"
_NO_PROGRAM: Final = 127  # as shells end
_ESCAPES: Final[Mapping[Guarantee, tuple[str, ...]]] = {
    "files": (
        'echo changed > "$OUT/file"',
        'ln -s "$OUT" away; echo changed > away/file',
        'ln "$OUT/file" twin && echo changed > twin',
        'mv "$OUT/file" .',
        'rm -f "$OUT/file"',
        'chmod 777 "$OUT/file"; rm -rf "$OUT"',
        'cd "$OUT" && echo changed > file',
        'mkdir -p new && mv new "$OUT/"',
    ),
    "protected": (
        "echo changed > kept/deep/file",
        "rm -rf kept",
        "mv kept/deep/file kept/deep/other",
        "mv kept elsewhere && mkdir -p kept/deep && echo changed > kept/deep/file",
        "mv kept/deep elsewhere && mkdir kept/deep && echo changed > kept/deep/file",
        "ln kept/deep/file twin && echo changed > twin",
        "chmod 777 kept/deep/file; echo changed >> kept/deep/file",
    ),
    "secrets": (
        'cat "$OUT/secret/file"',
        'cat "$OUT/alone"',
        'cp "$OUT/alone" copy; cat copy',
        'ln "$OUT/alone" twin; cat twin',
        'mv "$OUT/alone" moved; cat moved',
        'ln -s "$OUT/secret" away; cat away/file',
        'cd "$OUT/secret" && cat file',
        'chmod 777 "$OUT/alone"; cat "$OUT/alone"',
        'for i in /proc/[0-9]*; do cat "$i/root$OUT/alone"; done',
    ),
    "processes": ('kill -9 "$PID"', 'cat "/proc/$PID/environ"', "cat /proc/[0-9]*/environ"),
    "programs": (
        f"{_DENIED} ran",
        f'"$(command -v {_DENIED})" ran',
        f'cp "$(command -v {_DENIED})" own; chmod +x own; ./own ran',
        f'ln -s "$(command -v {_DENIED})" own; ./own ran',
        f'ln "$(command -v {_DENIED})" own; ./own ran',
        f"sh -c '{_DENIED} ran'",
        f"env {_DENIED} ran",
    ),
}
"""Of each guarantee the lines of a shell that would break it. `$OUT` is a folder outside, `$PID` a process there."""


@lazy_dataclass(frozen=True, kw_only=True)
class _Room:
    """The files of one attempt."""

    folder: Path

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def prepare(self) -> Box:
        for name, text in {
            "work/kept/deep/file": "as it was",
            "out/file": "as it was",
            "out/secret/file": _SECRET,
            "out/alone": _SECRET,
        }.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        return Box(
            work=str(self.work),
            hidden=(str(self.out / "secret"), str(self.out / "alone")),
            protected=(str(self.work / "kept" / "deep" / "file"),),
            denied=(_DENIED,),
        )

    def breach_of(self, guarantee: Guarantee, output: str) -> bool:
        """Tell by the effect whether a guarantee was broken."""
        match guarantee:
            case "files":
                left = {each.name for each in self.out.glob("*")}
                return left != {"file", "secret", "alone"} or _was_changed(self.out / "file")
            case "protected":
                return _was_changed(self.work / "kept" / "deep" / "file")
            case "secrets" | "processes":
                return _SECRET in output
            case _:
                return (self.work / "ran").exists()


def _was_changed(file: Path) -> bool:
    return not file.is_file() or file.read_text() != "as it was"


async def sandbox_exam(make: Callable[[], Sandbox]) -> SandboxGuarantees:
    """Let the sandbox that `make` makes sit the exam, and return what it holds.

    Raises:
        AssertionError: it does not keep its promises; each is named.
    """
    sandbox = make()
    guarantees = await asyncio.to_thread(sandbox.holds)
    faults: list[str] = []
    try:
        with visible_folder() as folder:
            room = _Room(folder=folder)
            opened = sandbox.open(room.prepare())
            try:
                faults += await _faults_of_commands(opened, room)
            finally:
                opened.close()
        for guarantee in sorted(guarantees.held & _ESCAPES.keys()):
            for line in _ESCAPES[guarantee]:
                _, is_broken = await _try_line(sandbox, guarantee, line)
                faults += [f"{guarantee}: {line}"] if is_broken else []
        if "network" in guarantees.held:
            faults += [f"network: {way}" for way in await _ways_out(sandbox)]
    finally:
        sandbox.close()
    if faults:
        raise AssertionError("\n".join([f"{sandbox.name} does not keep its promises:", *faults]))
    return guarantees


async def run_in_sandbox(
    opened: OpenSandbox, line: str, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a line of a shell in a box, and return its exit code and all that it has written."""
    with memory_of(b"") as output:
        given = {"PATH": os.defpath, **(environment or {})}
        number = output.fileno()
        process = await opened.spawn("sh", ["-c", line], environment=given, stdout=number, stderr=number)
        try:
            code = await asyncio.wait_for(process.wait(), _COMMAND_S)
        finally:
            process.close()
        output.seek(0)
        return code, output.read().decode("utf-8", "replace")


async def try_escapes(sandbox: Sandbox) -> AsyncIterator[tuple[Guarantee, str, str, bool]]:
    """Give for each guarantee a way out of a box, what came of it, and whether it is broken."""
    for guarantee, lines in _ESCAPES.items():
        yield guarantee, lines[0], *await _try_line(sandbox, guarantee, lines[0])
    reached = await _ways_out(sandbox)
    yield "network", "connect to a server of this machine", ", ".join(reached), bool(reached)


async def _try_line(sandbox: Sandbox, guarantee: Guarantee, line: str) -> tuple[str, bool]:
    """Run a line in a box of its own. Return what it has written, and whether it has broken the guarantee."""
    with visible_folder() as folder:
        room = _Room(folder=folder)
        opened = sandbox.open(room.prepare())
        waiting = partial(subprocess.Popen, ["sleep", "60"], env={"PATH": os.defpath, "TOKEN": _SECRET})
        bystander = await asyncio.to_thread(waiting)
        try:
            _, output = await run_in_sandbox(opened, line, {"OUT": str(room.out), "PID": str(bystander.pid)})
            is_ended = bystander.poll() is not None
        finally:
            opened.close()
            bystander.kill()
            bystander.wait()
        return output, is_ended or room.breach_of(guarantee, output)


async def _ways_out(sandbox: Sandbox) -> list[str]:
    """Return the ways in which a command has reached a server of this machine."""
    with visible_folder() as folder, ExitStack() as stack:
        room = _Room(folder=folder)
        box = room.prepare()
        servers = {name: stack.enter_context(server) for name, server in _servers(room)}
        port = {name: server.getsockname()[1] for name, server in servers.items() if name in ("tcp", "tcp6")}
        opened = sandbox.open(box)
        lines = [
            f"exec 3<>/dev/tcp/127.0.0.1/{port['tcp']}",
            *[f"exec 3<>/dev/tcp/::1/{each}" for each in port.values()],
        ]
        try:
            for line in lines:
                await run_in_sandbox(opened, f"bash -c '{line}'")
        finally:
            opened.close()
        found: list[str] = []
        for name, server in servers.items():
            try:
                server.accept()[0].close()
            except BlockingIOError:
                continue
            found.append(name)
        return found


def _servers(room: _Room) -> Iterator[tuple[str, socket.socket]]:
    for name, family, address in (("tcp", socket.AF_INET, "127.0.0.1"), ("tcp6", socket.AF_INET6, "::1")):
        server = socket.socket(family)
        try:
            server.bind((address, 0))
        except OSError:  # this system has no such addresses
            server.close()
            continue
        server.listen()
        server.setblocking(False)
        yield name, server


_LINES: Final[tuple[tuple[str, int, str], ...]] = (
    ("exit 7", 7, ""),
    ("kill -TERM $$", -signal.SIGTERM, ""),
    ('echo "$WORD"; echo x >&2; cat', 0, "a b\nc\nx\n"),
    ('[ "$(pwd)" = "$WORK" ] && echo here', 0, "here\n"),
    ("mkdir -p a/b && echo x > a/b/c && mv a d && cat d/b/c", 0, "x\n"),
    ('echo x > "${TMPDIR:-/tmp}/$NAME"', 0, ""),
    ('cat "${TMPDIR:-/tmp}/$NAME"; rm "${TMPDIR:-/tmp}/$NAME"', 0, "x\n"),
)
"""Lines of a shell that work in every box, one after the other, each with its exit code and what it writes."""


# -- commands in every box ---------------------------------------------------------------------------------------------


async def _faults_of_commands(opened: OpenSandbox, room: _Room) -> list[str]:
    environment = {"WORD": "a b\nc", "WORK": str(room.work), "NAME": room.folder.name}
    found: list[str] = []
    for line, *expected in _LINES:
        done = [*await run_in_sandbox(opened, line, environment)]
        found += [] if done == expected else [f"{line!r} ends with {done}, not with {expected}"]
    with suppress(OSError):
        process = await opened.spawn("no-such-program", environment={"PATH": os.defpath})
        code = await process.wait()
        found += [] if code == _NO_PROGRAM else [f"a missing program ends with {code}"]
    # It puts itself aside, and locks a file as long as it lives.
    aside = "setsid sh -c 'exec 9> lock; flock 9; echo > locked; sleep 60' > /dev/null 2>&1 &"
    line = f"{aside} while ! [ -e locked ]; do sleep 0.01; done"
    process = await opened.spawn("sh", ["-c", line], environment={"PATH": os.defpath})
    await asyncio.wait_for(process.wait(), _COMMAND_S)
    opened.close()
    waiting = ["flock", "-w", "2", str(room.work / "lock"), "true"]
    done = await asyncio.to_thread(subprocess.run, waiting, check=False)
    return found + ([] if done.returncode == 0 else ["a process lives on when the box is closed"])
