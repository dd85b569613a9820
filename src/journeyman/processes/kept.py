"""The end of a keeper that is in this process, and of each program that it has started.

A keeper (`keeper.py`) is asked through one socket. It may be the first process of a box, so what it says is read as
words of a stranger: that socket is all that a command inside could turn on.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias
from weakref import WeakSet, finalize

from journeyman.processes.marked import kill_marked
from journeyman.processes.process import SandboxProcess, SandboxUnavailable
from journeyman.texts import signal_name

_KEEPER: Final = Path(__file__).with_name("keeper.py")
_START: Final = """
import marshal, sys
settings = marshal.loads(open(int(sys.argv[1]), "rb", 0).read())
names = {"__name__": "keeper"}
exec(marshal.loads(settings["keeper"]), names)
names["serve_commands"](settings)
"""
"""Runs the code of the keeper without what it takes to import or compile it, which is as long as a command."""
_RLIMIT_FSIZE, _RLIMIT_CORE = 1, 4  # on Linux and macOS alike
_START_S: Final = 30.0
_END_S: Final = 5.0
_FULL_S: Final = 0.005
_STOPPED_S: Final = 1.0
_MOST_IDLE: Final = 4
_ENVIRONMENT: Final = {"LC_ALL": "C", "LD_BIND_NOW": "1", "MALLOC_ARENA_MAX": "1"}
"""The variables of a keeper, none of which a command gets, so that it takes less time: it loads no locale, looks for
functions of libraries at once, not at the first call of each and in each fork, and its threads share their memory."""
_LONGEST_LINE: Final = 4_096
_MOST_HEARD, _MOST_REFUSED = 1 << 18, 5
_LONGEST_COMPLAINT: Final = 500
Launch: TypeAlias = Callable[[Sequence[str], str], tuple[Sequence[str], Sequence[int]]]
"""Returns the command line that runs a command line in a box, and the descriptors that it inherits besides. It is given
the folder of the box's temporary files; an empty text if there is none."""
Serve: TypeAlias = Callable[[socket.socket], tuple[Mapping[str, str], Callable[[], object]]]
"""Serves a socket of a box's own network. Returns the variables by which programs find it, and what ends that."""


class Keeper:
    """A keeper, and all that it has started."""

    def __init__(
        self,
        launch: Launch | None = None,
        describe: Callable[[str], Mapping[str, object]] = lambda _: {},
        *,
        folder: str = "/",
        adds: Mapping[str, str] = MappingProxyType({}),
        file_bytes: int | None = None,
        has_temporary: bool = False,
        serve: Serve | None = None,
    ) -> None:
        """Start the keeper by the command line that `launch` makes; alone, if it is None. `describe` returns the mounts
        that the keeper has to find before it starts anything, or the borders that it draws around itself. With
        `has_temporary`, temporary files are in a folder of its own, and both are given that. Programs start in
        `folder`, get the variables that it `adds`, and write no larger files. `serve` is given the socket that the
        keeper hands over: it belongs to the network of the box.

        Raises:
            SandboxUnavailable: it cannot be started.
        """
        self._folder: Final = folder
        self._opener: Final = os.getpid()
        self._commands: Final[WeakSet[KeptProcess]] = WeakSet()
        self._idle: Final[list[socket.socket]] = []
        """The sockets of keepers that have no command."""
        self._overrides: Mapping[str, str] = {}
        self._heard: Final = bytearray()
        """The names of unix sockets that commands were refused, a line each, as the first process writes them."""
        parts = ExitStack()
        self._end: Final = call_at_end(self, parts.close)
        """Ends all that runs in it, also when nobody knows it any more."""
        try:
            self._control, inner = socket.socketpair()
            parts.enter_context(inner)
            parts.enter_context(self._control)
            self._control.setblocking(False)
            self._complaints: Final = parts.enter_context(memory_of(b""))
            temporary = os.path.realpath(tempfile.mkdtemp(prefix="journeyman-box-")) if has_temporary else ""
            if temporary:
                parts.callback(shutil.rmtree, temporary, ignore_errors=True)
            self._adds: Final = {**adds, **({"TMPDIR": temporary} if has_temporary else {})}
            settings: dict[str, Any] = {**dict.fromkeys(("mounts", "borders", "sockets")), **describe(temporary)}
            settings["is_proxied"] = serve is not None
            most = {_RLIMIT_FSIZE: file_bytes, _RLIMIT_CORE: 0 if launch or settings["borders"] else None}
            settings["limits"] = {kind: each for kind, each in most.items() if each is not None}
            settings |= {"keeper": compile_part(_KEEPER), "control": inner.fileno()}
            with inner:
                self._keeper: Final = self._start(launch, inner.fileno(), temporary, settings)
            parts.callback(_end_keeper, self._control, self._idle, self._keeper, self._heard)
            if serve is not None:
                self._overrides, end = serve(self._receive_listener())
                parts.callback(end)
        except BaseException as error:
            self._end()
            if isinstance(error, OSError):
                raise SandboxUnavailable(f"The sandbox cannot be started: {error}.") from error
            raise

    def _start(
        self, launch: Launch | None, control: int, folder: str, settings: dict[str, Any]
    ) -> subprocess.Popen[bytes]:
        with (
            Path(sys.executable if sys.platform == "linux" else os.path.realpath(sys.executable)).open("rb") as python,
            memory_of(marshal.dumps(settings)) as given,
        ):
            # By descriptors, so that they can be read where the box hides their files.
            inherited = [python.fileno(), given.fileno(), control]
            program = f"/proc/self/fd/{inherited[0]}" if sys.platform == "linux" else python.name
            line = [program, "-I", "-S", "-X", "utf8", "-c", _START, str(inherited[1])]
            arguments, besides = (line, ()) if launch is None else launch(line, folder)
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._complaints,
                pass_fds=[*inherited, *besides],
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )

    def _receive_listener(self) -> socket.socket:
        self._control.settimeout(_START_S)
        _, descriptors, *_ = socket.recv_fds(self._control, 1, 1)
        self._control.setblocking(False)
        if not descriptors:
            raise self._give_up()
        return socket.socket(fileno=descriptors[0])

    @property
    def is_open(self) -> bool:
        """False once it was closed, or its keeper has ended."""
        return self._control.fileno() >= 0 and os.getpid() == self._opener and self._keeper.poll() is None

    async def spawn(
        self,
        program: str,
        arguments: Sequence[str] = (),
        *,
        folder: str | None = None,
        environment: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> KeptProcess:
        """Start a program: see `OpenSandbox.spawn`."""
        if os.getpid() != self._opener:
            raise SandboxUnavailable(
                "This box was opened by another process, from which this one was forked. Open one."
            )
        # The box's variables count before those of this process: a cache elsewhere cannot be written. Settings for git
        # that are there already stay: they are numbered, and ours would take their places.
        is_git_set = "GIT_CONFIG_COUNT" in environment
        ours = [each for each in self._adds if not (is_git_set and each.startswith("GIT_CONFIG_"))]
        request = {
            "program": program,
            "arguments": list(arguments),
            "folder": self._folder if folder is None else folder,
            "environment": {**environment, **{each: self._adds[each] for each in ours}, **self._overrides},
        }
        try:
            with memory_of(marshal.dumps(request)) as given, os.fdopen(os.open(os.devnull, os.O_RDWR)) as nothing:
                streams = [nothing.fileno() if stream is None else stream for stream in (stdin, stdout, stderr)]
                return await self._begin(program, [given.fileno(), *streams])
        except OSError as error:  # this process has too many files open
            raise SandboxUnavailable(f"The sandbox cannot start {program}: {error}.") from error

    async def _begin(self, program: str, descriptors: Sequence[int]) -> KeptProcess:
        """Give a keeper its command, and wait until it starts that."""
        told: socket.socket | None = None
        with suppress(IndexError):  # another thread may take the last one
            told = self._idle.pop()
        told = told or await self._start_keeper()
        process = KeptProcess(told, program, self)
        waking = asyncio.get_running_loop().call_later(_STOPPED_S, self.wake)
        has_begun = False
        try:
            with suppress(OSError, TimeoutError):
                socket.send_fds(told, [b"c"], descriptors)
                has_begun = await asyncio.wait_for(process.has_begun(), _START_S)
        finally:
            waking.cancel()
            if not has_begun:
                process.close()
        # By now the keeper ends with the program that drew the borders, if that was there up to now.
        if not (has_begun and self.is_open):
            raise self._give_up()
        self._commands.add(process)
        return process

    async def _start_keeper(self) -> socket.socket:
        told, inner = socket.socketpair()
        told.setblocking(False)
        with inner:
            while True:
                try:
                    socket.send_fds(self._control, [b"c"], [inner.fileno()])
                except BlockingIOError:  # as many requests as the system keeps wait already
                    await asyncio.sleep(_FULL_S)
                except OSError as error:
                    told.close()
                    raise self._give_up() from error
                else:
                    return told

    def wake(self) -> None:
        """Let the keepers go on that a command has stopped."""
        with suppress(OSError):
            os.killpg(self._keeper.pid, signal.SIGCONT)
            self._control.send(b"w")

    def take_back(self, told: socket.socket) -> None:
        """Keep a keeper, of whose command nothing is left, for the next one."""
        if self._control.fileno() < 0 or len(self._idle) >= _MOST_IDLE:
            told.close()
        else:
            self._idle.append(told)

    def take_refused(self) -> list[str]:
        """Return the unix sockets that commands were refused since this was asked last, as they named them."""
        with suppress(OSError):
            self._heard.extend(self._control.recv(_MOST_HEARD))
        *lines, rest = bytes(self._heard).split(b"\n")
        self._heard[:] = rest
        with suppress(ValueError):
            names = [bytes.fromhex(each.decode()).decode(errors="replace") for each in dict.fromkeys(lines)]
            return names[:_MOST_REFUSED]
        return []

    def _give_up(self) -> SandboxUnavailable:
        """Close the box, and return why it does not work, in the words of the program that draws its borders."""
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_END_S)
        code, words = self._keeper.poll(), ""
        if not self._complaints.closed:
            self._complaints.seek(0)
            words = self._complaints.read(_LONGEST_COMPLAINT).decode("utf-8", "replace").strip()
        self.close()
        how = f"ended with {code}" if code and code > 0 else f"ended by {signal_name(-code)}" if code else "is closed"
        return SandboxUnavailable(
            f"The sandbox {how}, and nothing was run outside of it" + (f". It said: {words}" if words else ".")
        )

    def close(self) -> None:
        """End all that runs in it."""
        for each in [*self._commands]:
            each.close()
        self._end()


def _end_keeper(
    control: socket.socket, idle: list[socket.socket], keeper: subprocess.Popen[bytes], heard: bytearray
) -> None:
    """Let the keeper of a box end, and all that runs in it."""
    for each in idle:
        each.close()
    idle.clear()
    with suppress(OSError):  # it has ended
        control.shutdown(socket.SHUT_WR)
        control.settimeout(_END_S)
        while told := control.recv(_MOST_HEARD):  # until it ends: to wait for a process, Python sleeps and asks again
            heard += told
    control.close()
    try:
        keeper.wait(_END_S)
    except subprocess.TimeoutExpired:  # the system may not let go of it
        keeper.kill()
        keeper.wait()


def call_at_end(owner: object, end: Callable[[], object]) -> Callable[[], object]:
    """Call something once nobody knows its owner any more, or this process ends; not one that was forked from it.
    Return what calls it at once."""
    opener = os.getpid()
    return finalize(owner, lambda: os.getpid() == opener and end())


@cache
def compile_part(source: Path) -> bytes:
    """Return the code of a module as the keeper's Python runs it. It does not load the module `__future__`, by which
    this one is only told how to compile."""
    code = source.read_bytes().replace(b"from __future__ import annotations", b"", 1)
    compiled = compile(code, str(source), "exec", annotations.compiler_flag, dont_inherit=True, optimize=2)
    return marshal.dumps(compiled)


def memory_of(content: bytes) -> BinaryIO:
    """Return a file without a name that holds a content, to be read from its beginning."""
    is_linux = sys.platform == "linux"
    file = os.fdopen(os.memfd_create("journeyman"), "w+b", 0) if is_linux else tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    file.write(content)
    file.seek(0)
    return file


class KeptProcess:
    """A program in a box, below a keeper that has no other one meanwhile."""

    def __init__(self, told: socket.socket, program: str, keeper: Keeper) -> None:
        """If the keeper ends before the program, all of it is: nobody else would find what it has started."""
        self._told: Final = told
        self._program: Final = program
        self._keeper: Final = keeper
        """The keeper that it runs below, which somebody knows as long as they know this."""
        self.mark: str = ""
        """The mark of its processes, by which they are found where it is in no box, and so can end its keeper."""
        self._heard: bytes = b""
        self._is_left: bool = True
        self._is_gone: bool = False
        self._is_read: bool = False
        self._is_closed: bool = False
        self._failure: OSError | None = None
        self.exit_code: int | None = None

    async def has_begun(self) -> bool:
        """Wait until its keeper starts the program. False: nobody does."""
        return await self._line() == ["started"]

    async def wait(self) -> int:
        """Wait until the program ends, and return its exit code. Once nobody keeps it, that is SIGKILL's."""
        if self.exit_code is None:
            match await self._line():
                case ["ended", code, is_left] if code.removeprefix("-").isdecimal():
                    self.exit_code, self._is_left = int(code), is_left != "0"
                case ["failed", number] if number.isdecimal():
                    self.exit_code, self._is_left = 127, False
                    self._failure = OSError(int(number), os.strerror(int(number)), self._program)
                case _:
                    self.exit_code, self._is_left = -signal.SIGKILL, False
                    if not self._is_closed:
                        self._keeper.close()
        if self._failure is not None:
            raise self._failure
        return self.exit_code

    def are_left(self) -> bool:
        """Tell whether any of its processes may still run."""
        return self._is_left and not self._is_gone

    def send(self, number: signal.Signals) -> None:
        """Have its keeper send a signal to all of its processes."""
        if not self._is_closed:
            self._keeper.wake()
            with suppress(OSError):
                self._told.send(bytes([number]))

    async def wait_for_all(self) -> None:
        """Wait until its keeper has told that nothing is left, or has ended."""
        with suppress(OSError):
            await self.wait()
        if self._is_left:
            self._is_left = await self._line() != ["gone"]
        if self.mark and self.exit_code == -signal.SIGKILL:
            kill_marked(self.mark)

    def close(self) -> None:
        """Let its keeper end what still runs."""
        is_known = not (self._is_closed or self._is_gone or self._is_left or self._heard)
        if is_known:
            self._keeper.take_back(self._told)
        elif not self._is_closed:
            with suppress(OSError):  # whoever waits for a line hears nothing of a socket that is closed
                self._told.shutdown(socket.SHUT_RDWR)
            if not self._is_read:
                self._told.close()
        self._is_closed = True

    async def _line(self) -> list[str]:
        """Return the words of the next line that the keeper writes; none once it has ended."""
        self._is_read = True
        try:
            while b"\n" not in self._heard and not self._is_gone:
                try:
                    heard = await asyncio.get_running_loop().sock_recv(self._told, _LONGEST_LINE)
                except OSError:
                    heard = b""
                self._heard += heard
                self._is_gone = not heard or len(self._heard) > _LONGEST_LINE
        finally:
            self._is_read = False
            if self._is_closed:
                self._told.close()
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode("utf-8", "replace").split()


if TYPE_CHECKING:
    _process: type[SandboxProcess] = KeptProcess
