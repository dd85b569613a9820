"""A workspace, and around it all that a command must not touch: whether it is harmed is found out by the effect."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

from journeyman.sandbox import Box
from journeyman.sandbox.trials import visible_folder

Harm: TypeAlias = Literal["outside", "protected", "secret", "network", "process", "reached"]
"""What a command did: changed something outside, changed a protected file, printed a secret, spoke to a server, ended
a process, or printed `REACHED` for what else it must not get."""

SECRET = "correct-horse"
PROTECTED = (
    *(".git/hooks", ".git/config", ".git/info/attributes", ".envrc", ".vscode", "a/b/c/d/e/f/.git/hooks"),
    "a/b/c/d/e/f/.git/config",
)


_HARMED = re.compile(r"^(State:\t[tTZX]|(SigPnd|ShdPnd):\t0*[1-9a-f])", re.MULTILINE)
"""What the system tells of a process that was stopped, or that a signal is on its way to."""


class Stage:
    """One workspace and what is around it."""

    def __init__(self, folder: Path, template: Path, stack: ExitStack) -> None:
        shutil.copytree(template, folder, symlinks=True, dirs_exist_ok=True)
        self.folder = folder
        self.work = folder / "work"
        self.home = folder / "home"
        sleep = stack.enter_context(subprocess.Popen(["sleep", "60"], env={"TOKEN": SECRET}))
        stack.callback(sleep.kill)
        self.bystander = sleep
        self.servers = [stack.enter_context(each) for each in self._servers()]
        self.environment = {
            **{"HOME": str(self.home), "OUT": str(folder / "out"), "PID": str(sleep.pid), "SELF": str(folder)},
            **{"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "ABSTRACT": f"journeyman-{folder.name}"},
            **{"TCP": str(self.servers[0].getsockname()[1]), "UDP": str(self.servers[1].getsockname()[1])},
            **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "a"),
            **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "a@example.org"),
        }
        os.mkfifo(folder / "out/pipe")
        self._pipe = os.open(folder / "out/pipe", os.O_RDONLY | os.O_NONBLOCK)
        stack.callback(os.close, self._pipe)
        self._before = self._snapshot()

    def _servers(self) -> Iterator[socket.socket]:
        for family, kind, address in (
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"\0journeyman-{self.folder.name}"),
            (socket.AF_UNIX, socket.SOCK_STREAM, "work/socket"),
            (socket.AF_UNIX, socket.SOCK_DGRAM, "work/datagrams"),
        ):
            server = socket.socket(family, kind)
            before = Path.cwd()
            os.chdir(self.folder)  # the name of a socket is short
            try:
                server.bind(address)
            finally:
                os.chdir(before)
            server.setblocking(False)
            if kind is socket.SOCK_STREAM:
                server.listen()
            yield server

    def box(self, *denied: str) -> Box:
        return Box(
            work=str(self.work),
            hidden=tuple(str(each) for each in (self.work / ".env", self.home / ".ssh")),
            protected=tuple(str(self.work / each) for each in PROTECTED),
            denied=denied,
            path=self.environment["PATH"],
        )

    def harms(self, output: str) -> set[Harm]:
        """Return what has happened to all this."""
        now = self._snapshot()
        found: set[Harm] = {"secret"} if SECRET in output else set()
        if "REACHED" in output:
            found.add("reached")
        for path in self._before.keys() | now.keys():
            if self._before.get(path) != now.get(path):
                found.add("protected" if path.startswith("work/") else "outside")
        if any(map(_was_reached, self.servers)):
            found.add("network")
        with suppress(BlockingIOError):
            found |= {"process"} if os.read(self._pipe, 1) else set()
        if self.bystander.poll() is not None or _HARMED.search(self._state()):
            found.add("process")
        return found

    def _state(self) -> str:
        try:
            return Path(f"/proc/{self.bystander.pid}/status").read_text(encoding="utf-8")
        except OSError:
            return ""

    def _snapshot(self) -> dict[str, tuple[object, ...]]:
        """Return what must stay as it is: all that is outside, and what is protected inside."""
        roots = [self.folder / "out", self.home, *(self.work / each for each in PROTECTED)]
        paths = [path for root in roots for path in (root, *root.rglob("*"))]
        return {
            str(path.relative_to(self.folder)): (
                path.lstat().st_mode,
                path.lstat().st_mtime_ns,
                path.read_bytes() if path.is_file() else b"",
            )
            for path in paths
            if path.is_symlink() or path.exists()
        }


def _was_reached(server: socket.socket) -> bool:
    try:
        if server.type is socket.SOCK_DGRAM:
            server.recv(1)
        else:
            server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def make_template(folder: Path) -> Path:
    """Fill a folder with a workspace, which is a repository of two commits with another one deep in it, and a home."""
    files = {
        "work/f": "b\na\nc\n",
        "work/.env": f"TOKEN={SECRET}\n",
        "work/.envrc": "true\n",
        "work/.vscode/tasks.json": "{}\n",
        "work/.git/info/attributes": "",
        "work/a/b/c/d/e/f/.git/hooks/post-commit.sample": "",
        "work/a/b/c/d/e/f/.git/config": "[core]\n",
        "work/a/b/c/d/e/f/.git/HEAD": "ref: refs/heads/main\n",
        "out/file": "as it was\n",
        "home/.bashrc": "true\n",
        "home/.ssh/id": f"{SECRET}\n",
    }
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    (folder / "work").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=folder / "work", env=environment, check=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["add", "f"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=folder / "work", env=environment, check=True)
    return folder


@contextmanager
def staged(template: Path) -> Generator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack.enter_context(visible_folder()), template, stack)
