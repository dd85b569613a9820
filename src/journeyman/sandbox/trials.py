"""Trials of a sandbox: lines of a shell that would break a guarantee, each judged from outside, by its effect.

That a program is installed, or that it starts, proves nothing. So a guarantee holds only where its trial was seen to
fail, in a box in which what is allowed was seen to work. The probe tries the first line of each guarantee, all in one
box. The exam, which whoever writes an adapter lets it sit, tries every line of what it claims, each in a box of its
own; and commands have to work in a box, and to end with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from journeyman.errors import name_and_words
from journeyman.processes.process import SandboxUnavailable
from journeyman.sandbox.box import GUARANTEES, Box, Guarantee, SandboxGuarantees
from journeyman.sandbox.programs import files_of_programs, folders_of_programs
from journeyman.sandbox.sandbox import OpenSandbox, Sandbox

_COMMAND_S: Final = 30.0
_DENIED: Final = "mkfifo"
"""A program that every system has, and that nobody needs for a trial."""
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_WORKS: Final = "echo it works > works; python3 -I -S -c \"print(open('works').read())\""
TRIALS: Final[Mapping[Guarantee, tuple[str, ...]]] = {
    # Those that read stand first: of the probe's box nothing is gone by then.
    "secrets": (
        'cat "$OUT/secret/file" "$OUT/alone"',
        'cp "$OUT/alone" copy; cat copy',
        'ln "$OUT/alone" twin; cat twin',
        'mv "$OUT/alone" moved; cat moved',
        'ln -s "$OUT/secret" away; cat away/file',
        'cd "$OUT/secret" && cat file',
        'chmod 777 "$OUT/alone"; cat "$OUT/alone"',
        'for i in /proc/[0-9]*; do cat "$i/root$OUT/alone"; done',
    ),
    "processes": ('cat /proc/[0-9]*/environ; kill -9 "$PID"', 'cat "/proc/$PID/environ"', 'kill -TERM "$PID"'),
    "network": (
        'python3 -I -S -c "$CONNECT"',
        'bash -c "exec 3<>/dev/tcp/127.0.0.1/$TCP"',
        'bash -c "exec 3<>/dev/tcp/::1/$TCP; exec 3<>/dev/tcp/::1/$TCP6"',
        'bash -c "echo x > /dev/udp/127.0.0.1/$UDP"',
    ),
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
        "mv kept elsewhere && mkdir -p kept/deep && echo changed > kept/deep/file; echo changed > kept/deep/file",
        "echo changed > kept/deep/file",
        "rm -rf kept",
        "mv kept/deep/file kept/deep/other",
        "mv kept/deep elsewhere && mkdir kept/deep && echo changed > kept/deep/file",
        "ln kept/deep/file twin && echo changed > twin",
        "chmod 777 kept/deep/file; echo changed >> kept/deep/file",
    ),
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
"""Of each guarantee the lines that would break it. `$OUT` is a folder outside, `$PID` a process there, and `$CONNECT`
connects to each of the servers there, or sends to it without that."""
_CONNECT: Final = """
import socket
for family, kind, address in {}:
    try:
        with socket.socket(family, kind) as made:
            made.settimeout(2)
            if kind == socket.SOCK_DGRAM:
                made.sendto(b"x", address)
            else:
                made.connect(address)
    except OSError as error:
        print(address, error.strerror)
"""


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


class TrialStage:
    """The folder of a box, and around it what a command in the box must not touch: files, servers and a process."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        """Set the stage in a folder. The stack ends what runs on it."""
        self.work: Final = folder / "work"
        self._out: Final = folder / "out"
        self._secret: Final = f"a secret of {folder.name}"
        for path in (kept := self.work / "kept/deep/file", self._out / "file"):
            path.parent.mkdir(parents=True)
            path.write_text("as it was")
        for path in (self._out / "secret/file", self._out / "alone"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(self._secret)
        hidden = (str(self._out / "secret"), str(self._out / "alone"))
        self.box: Final = Box(work=str(self.work), hidden=hidden, protected=(str(kept),), denied=(_DENIED,))
        token = {"TOKEN": f"an environment of {folder.name}"}
        self._token: Final = token["TOKEN"]
        self._bystander: Final = stack.enter_context(subprocess.Popen(["sleep", "60"], env={**os.environ, **token}))
        stack.callback(self._bystander.kill)
        self._servers: Final = {
            name: stack.enter_context(server) for name, server in _open_servers(self.work, folder.name)
        }
        named = {name: each.getsockname() for name, each in self._servers.items()}
        named |= {"UNIX": str(self.work / "socket"), "UNIX DATAGRAM": str(self.work / "datagrams")}
        places = [(int(each.family), int(each.type), named[name]) for name, each in self._servers.items()]
        self.environment: Final = {
            **{name: str(named[name][1]) for name in named if name in ("TCP", "TCP6", "UDP")},
            **{"PATH": f"{Path(sys.executable).resolve().parent}:{_PATH}"},
            **{"OUT": str(self._out), "PID": str(self._bystander.pid), "CONNECT": _CONNECT.format(places)},
        }
        """The variables of a command that is tried."""

    def find_breaches(self, output: str) -> dict[Guarantee, str]:
        """Return each guarantee that a command, which wrote this, has broken, and what is seen of that."""
        left = {each.name for each in self._out.glob("*")}
        is_ended = self._bystander.poll() is not None
        reached = [name for name, server in self._servers.items() if _was_reached(server)]
        seen: dict[Guarantee, bool] = {
            "files": left != {"file", "secret", "alone"} or _was_changed(self._out / "file"),
            "protected": _was_changed(self.work / "kept/deep/file"),
            "secrets": self._secret in output,
            "network": bool(reached),
            "processes": is_ended or self._token in output,
            "programs": (self.work / "ran").exists(),
        }
        told: dict[Guarantee, str] = {
            "files": "a file outside was changed",
            "protected": "a protected file was changed",
            "secrets": "a hidden file was read",
            "network": f"a command reached a server by {', '.join(reached)}",
            "processes": "a process outside was ended" if is_ended else "the environment of a process outside was read",
            "programs": "a denied program was run",
        }
        return {name: told[name] for name, is_broken in seen.items() if is_broken}


def _open_servers(work: Path, name: str) -> Iterator[tuple[str, socket.socket]]:
    """Give servers of this machine, each by the way in which it is reached."""
    number = os.open(work, os.O_RDONLY)
    short = f"/proc/self/fd/{number}" if sys.platform == "linux" else str(work)  # the path of a socket is
    ways: dict[str, tuple[int, int, tuple[str, int] | str]] = {
        "TCP": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "TCP6": (socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
        "UDP": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "UNIX": (socket.AF_UNIX, socket.SOCK_STREAM, f"{short}/socket"),
        "UNIX DATAGRAM": (socket.AF_UNIX, socket.SOCK_DGRAM, f"{short}/datagrams"),
        **({"ABSTRACT": (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{name}")} if sys.platform == "linux" else {}),
    }
    for way, (family, kind, address) in ways.items():
        server = socket.socket(family, kind)
        try:
            server.bind(address)
        except OSError:  # this system has no such addresses
            server.close()
            continue
        server.setblocking(False)
        if kind == socket.SOCK_STREAM:
            server.listen()
        yield way, server
    os.close(number)


def _was_reached(server: socket.socket) -> bool:
    try:
        if server.type == socket.SOCK_DGRAM:
            server.recv(1)
        else:
            server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _was_changed(file: Path) -> bool:
    return not file.is_file() or file.read_text() != "as it was"


@contextmanager
def visible_folder() -> Generator[Path]:
    """Give a folder that a box would show: one below a temporary folder is hidden by the box's own, which proves
    nothing."""
    for place in (Path("~/.cache").expanduser(), Path("~").expanduser(), Path.cwd(), Path(tempfile.gettempdir())):
        try:
            made = tempfile.TemporaryDirectory(prefix="journeyman-probe-", dir=place)
        except OSError:
            continue
        with made as folder:
            yield Path(folder).resolve()
        return
    raise SandboxUnavailable(
        "There is no folder in which a sandbox could be tried: neither home nor /tmp can be written."
    )


async def run_in_sandbox(
    opened: OpenSandbox, line: str, environment: Mapping[str, str] = MappingProxyType({"PATH": _PATH})
) -> tuple[int, str]:
    """Run a line of a shell in a box, and return its exit code and all that it has written."""
    with tempfile.TemporaryFile() as output:
        number = output.fileno()
        process = await opened.spawn("sh", ["-c", line], environment=environment, stdout=number, stderr=number)
        try:
            code = await asyncio.wait_for(process.wait(), _COMMAND_S)
        finally:
            process.close()
        output.seek(0)
        return code, output.read().decode("utf-8", "replace")


async def try_lines(sandbox: Sandbox, *lines: str) -> tuple[str, dict[Guarantee, str]]:
    """Run lines in a box of their own. Return what they have written, and the guarantees that they have broken."""
    with ExitStack() as stack:
        stage = TrialStage(stack.enter_context(visible_folder()), stack)
        opened = sandbox.open(stage.box)
        try:
            _, output = await run_in_sandbox(opened, "\n".join(f"( {each} )" for each in lines), stage.environment)
        finally:
            opened.close()
        return output, stage.find_breaches(output)


def find_guarantees(sandbox: Sandbox, help: str = "") -> SandboxGuarantees:
    """Return what a sandbox holds here, found out in a box of its own. `help` says what makes it work where it does
    not."""
    lines = [*(each[0] for each in TRIALS.values()), _WORKS]
    with ThreadPoolExecutor(1) as thread:  # an event loop may run here
        try:
            output, breaches = thread.submit(lambda: asyncio.run(try_lines(sandbox, *lines))).result()
            if "it works" not in output.splitlines():
                raise SandboxUnavailable(f"No program works in its box: {output.strip()[-200:] or 'it wrote nothing'}.")
        except (SandboxUnavailable, OSError, TimeoutError) as error:
            why = str(error) if isinstance(error, SandboxUnavailable) else name_and_words(error)
            told = why if not help or help in why else f"{why} {help}."
            return SandboxGuarantees(reasons=dict.fromkeys(GUARANTEES, told))
    if not files_of_programs([_DENIED], folders_of_programs())[0]:
        breaches["programs"] = f"{_DENIED} is not a program of its own here, so it was not tried"
    return SandboxGuarantees(held=frozenset(GUARANTEES) - breaches.keys(), reasons=breaches)


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
