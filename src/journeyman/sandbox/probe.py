"""The probe of a sandbox: it does in a real box what the box must not let it do, and looks at what came of it.

That a program is installed, or that it starts, proves nothing. So a guarantee holds only where the attempt was seen to
fail, from outside, in a box in which the allowed twin of the attempt was seen to work.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from journeyman.data import lazy_dataclass
from journeyman.errors import name_and_words
from journeyman.sandbox.box import GUARANTEES, Box, Guarantee, SandboxGuarantees
from journeyman.sandbox.programs import files_of_programs, folders_of_programs
from journeyman.sandbox.sandbox import Sandbox, SandboxUnavailable

_DENIED: Final = "mkfifo"
"""A program that every system has, and that nobody needs for the probe."""
_PROBE_S: Final = 30.0
_SECRET: Final = "a secret of the probe"
_SCRIPT: Final = """
import os, socket, subprocess, sys
outside, secret, kept, new, path, tcp, udp, process, mark, program = sys.argv[1:]
def attempt(name, function):
    try:
        function()
    except OSError as error:
        print(name, "refused", error.strerror)
    else:
        print(name, "done")
def write(path):
    with open(path, "a") as file:
        file.write("changed")
def read():
    with open(secret) as file:
        print(file.read())
def connect(family, kind, address):
    with socket.socket(family, kind) as made:
        made.settimeout(2)
        made.connect(address)
        made.send(b"x")
attempt("work", lambda: write(new))
attempt("files", lambda: write(outside))
attempt("protected", lambda: write(kept))
attempt("secrets", read)
attempt("tcp", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(tcp))))
attempt("udp", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(udp))))
attempt("unix", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, path))
attempt("processes", lambda: os.kill(int(process), 9))
for name in filter(str.isdecimal, os.listdir("/proc") if sys.platform == "linux" else ()):
    try:
        with open(f"/proc/{name}/environ") as file:
            print("seen" if mark in file.read() and name == process else "")
    except OSError:
        pass
attempt("programs", lambda: subprocess.run([program, "--version"], stdout=subprocess.DEVNULL))
"""


def find_guarantees(sandbox: Sandbox, help: str = "", *, python: str | None = None) -> SandboxGuarantees:
    """Return what a sandbox holds here, found out in a box of its own.

    Args:
        sandbox: The sandbox to be tried.
        help: What makes it work where it does not.
        python: The Python in its boxes; this one if not given.
    """
    program = os.path.realpath(sys.executable) if python is None else python
    with ThreadPoolExecutor(1) as thread:  # an event loop may run here
        try:
            return thread.submit(lambda: asyncio.run(_probe(sandbox, program))).result()
        except (SandboxUnavailable, OSError, TimeoutError) as error:
            why = str(error) if isinstance(error, SandboxUnavailable) else name_and_words(error)
            told = why if not help or help in why else f"{why} {help}."
            return SandboxGuarantees(reasons=dict.fromkeys(GUARANTEES, told))


@lazy_dataclass(frozen=True, kw_only=True)
class _ProbeStage:
    """Files, servers and a process outside of a box, which a probe inside must not reach."""

    work: Path
    outside: Path
    secret: Path
    kept: Path
    tcp: socket.socket
    udp: socket.socket
    unix: socket.socket
    path: str
    bystander: subprocess.Popen[bytes]


@contextmanager
def _set_stage() -> Generator[_ProbeStage]:
    with ExitStack() as stack:
        folder = stack.enter_context(visible_folder())
        work = folder / "work"
        work.mkdir()
        for name in ("outside", "work/kept"):
            (folder / name).write_text("as it was")
        (folder / "secret").write_text(_SECRET)
        tcp, udp = (stack.enter_context(socket.socket(type=kind)) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        for each in (tcp, udp):
            each.bind(("127.0.0.1", 0))
        path = stack.enter_context(_short_path(work)) + "/s"
        unix.bind(path)
        for each in (tcp, unix):
            each.listen()
        for each in (tcp, udp, unix):
            each.setblocking(False)
        sleep = [shutil.which("sleep") or "sleep", str(int(_PROBE_S))]
        bystander = stack.enter_context(subprocess.Popen(sleep, env={"JOURNEYMAN_PROBE": _SECRET}))
        stack.callback(bystander.kill)
        yield _ProbeStage(
            bystander=bystander,
            work=work,
            outside=folder / "outside",
            secret=folder / "secret",
            kept=work / "kept",
            tcp=tcp,
            udp=udp,
            unix=unix,
            path=str(work / "s"),
        )


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


@contextmanager
def _short_path(folder: Path) -> Generator[str]:
    """Give a path of a folder that is short enough for a socket in it."""
    number = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{number}" if sys.platform == "linux" else str(folder)
    finally:
        os.close(number)


async def _probe(sandbox: Sandbox, python: str) -> SandboxGuarantees:
    with _set_stage() as stage, tempfile.TemporaryFile() as output:
        denied, _ = files_of_programs([_DENIED], folders_of_programs())
        program = shutil.which(_DENIED) if denied else None
        box = Box(work=str(stage.work), hidden=(str(stage.secret),), protected=(str(stage.kept),), denied=(_DENIED,))
        told = (stage.outside, stage.secret, stage.kept, stage.work / "new", stage.path)
        ports = (stage.tcp.getsockname()[1], stage.udp.getsockname()[1])
        others = (stage.bystander.pid, _SECRET, program or "/nowhere")
        arguments = ["-I", "-S", "-c", _SCRIPT, *map(str, (*told, *ports, *others))]
        opened = sandbox.open(box)
        try:
            process = await opened.spawn(
                python, arguments, environment={"PATH": os.defpath}, stdout=output.fileno(), stderr=output.fileno()
            )
            await asyncio.wait_for(process.wait(), _PROBE_S)
        finally:
            opened.close()
        output.seek(0)
        words = output.read().decode("utf-8", "replace")
        return _judge(stage, words, has_program=program is not None)


def _judge(stage: _ProbeStage, words: str, *, has_program: bool) -> SandboxGuarantees:
    lines = dict(line.split(" ", 1) for line in words.splitlines() if " " in line)
    if lines.get("work") != "done" or "programs" not in lines:
        raise SandboxUnavailable(f"No program works in its box: {words.strip()[-200:] or 'it wrote nothing'}.")
    reached = [name for name in ("tcp", "udp", "unix") if _was_reached(getattr(stage, name))]
    breaches: dict[Guarantee, str] = {
        "files": "a file outside was changed" if stage.outside.read_text() != "as it was" else "",
        "protected": "a protected file was changed" if stage.kept.read_text() != "as it was" else "",
        "secrets": "a hidden file was read" if _SECRET in words else "",
        "network": f"a command reached a server by {', '.join(reached)}" if reached else "",
        "processes": "a process outside was ended" if stage.bystander.poll() is not None else "",
        "programs": "" if has_program else f"{_DENIED} is not a program of its own here, so it was not tried",
    }
    if "seen" in words.split():
        breaches["processes"] = "the environment of a process outside was read"
    if has_program and not lines["programs"].startswith("refused"):
        breaches["programs"] = "a denied program was run"
    return SandboxGuarantees(
        held=frozenset(name for name in GUARANTEES if not breaches[name]),
        reasons={name: why for name, why in breaches.items() if why},
    )


def _was_reached(server: socket.socket) -> bool:
    """Tell whether something has come to a server."""
    try:
        if server.type == socket.SOCK_DGRAM:
            server.recv(1)
        else:
            server.accept()[0].close()
    except BlockingIOError:
        return False
    return True
