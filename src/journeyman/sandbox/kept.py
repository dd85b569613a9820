"""The launcher: the end of a box that is in this process, and of each command in it.

Whatever adapter opened a box, its first process is the keeper (`keeper.py`), which is asked through one socket. That is
all that the command inside could turn on: what it says is read as words of a stranger.
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
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from weakref import WeakSet, finalize

from journeyman.processes import signal_name
from journeyman.sandbox.box import Box, SandboxRefusal, need_of_host
from journeyman.sandbox.proxy import HostProxy
from journeyman.sandbox.sandbox import OpenSandbox, SandboxProcess, SandboxUnavailable, TellsRefusals

KEEPER: Final = Path(__file__).with_name("keeper.py")
_RLIMIT_FSIZE, _RLIMIT_CORE = 1, 4  # on Linux and macOS alike
_START_S: Final = 30.0
_END_S: Final = 5.0
_FULL_S: Final = 0.005
_STOPPED_S: Final = 1.0
_MOST_IDLE: Final = 4
_LONGEST_LINE: Final = 64
_LONGEST_COMPLAINT: Final = 500

Launch = Callable[[Sequence[str], Sequence[int], str], tuple[Sequence[str], Sequence[int]]]
"""Returns the command line that runs a command line in a box, and what it inherits. It is given the folder of the box's
temporary files; an empty text if there is none."""


class OpenBoxes:
    """The boxes that a sandbox has opened."""

    def __init__(self) -> None:
        self._opened: Final[WeakSet[OpenSandbox]] = WeakSet()

    def add(self, opened: OpenSandbox) -> OpenSandbox:
        """Take note of a box that was opened, for as long as somebody knows it."""
        self._opened.add(opened)
        return opened

    def close(self) -> None:
        """Close them."""
        for each in [*self._opened]:
            each.close()
        self._opened.clear()


class KeptSandbox:
    """A box whose first process is the keeper."""

    def __init__(
        self,
        box: Box,
        launch: Launch | None,
        *,
        has_temporary: bool = False,
        adds: Mapping[str, str] | None = None,
        mounts: Mapping[str, object] | None = None,
    ) -> None:
        """Start the keeper by the command line that `launch` makes; None draws no borders. With `has_temporary`,
        temporary files are in the folder of the box. `adds` are variables that each command gets, unless the box has
        others. `mounts` says what the keeper must find mounted before it starts anything.

        Raises:
            SandboxUnavailable: it cannot be started.
        """
        self.box: Final = box
        self._opener: Final = os.getpid()
        self._commands: Final[WeakSet[KeptProcess]] = WeakSet()
        self._idle: Final[list[socket.socket]] = []
        """The sockets of keepers that have no command."""
        self._overrides: Final[dict[str, str]] = {}
        self._proxy: HostProxy | None = None
        parts = ExitStack()
        self._end: Final = finalize(self, parts.close)
        """Ends all that runs in it, also when nobody knows it any more."""
        try:
            self._control, inner = socket.socketpair()
            parts.enter_context(inner)
            parts.enter_context(self._control)
            self._control.setblocking(False)
            self._complaints: Final = parts.enter_context(memory_of(b""))
            self._folder: Final = parts.enter_context(_temporary_folder()) if has_temporary else ""
            own = {"TMPDIR": self._folder} if has_temporary else {}
            self._adds: Final = {**(adds or {}), **box.environment, **own}
            with inner, ExitStack() as stack:
                self._keeper: Final = self._start(launch, inner, stack, {"mounts": mounts})
            parts.callback(_end_keeper, self._control, self._idle, self._keeper, self._opener)
            if box.hosts:
                self._proxy = self._receive_proxy()
                parts.callback(self._proxy.close)
        except BaseException as error:
            self._end()
            if isinstance(error, OSError):
                raise SandboxUnavailable(f"The sandbox cannot be started: {error}.") from error
            raise

    def _start(
        self, launch: Launch | None, inner: socket.socket, stack: ExitStack, settings: dict[str, Any]
    ) -> subprocess.Popen[bytes]:
        python = stack.enter_context(Path(sys.executable).resolve().open("rb"))
        source = stack.enter_context(memory_of(compiled_keeper()))
        largest = self.box.limits.file_bytes
        limits = ({} if launch is None else {_RLIMIT_CORE: 0}) | ({} if largest is None else {_RLIMIT_FSIZE: largest})
        given = stack.enter_context(file_of({**settings, "limits": limits, "is_proxied": bool(self.box.hosts)}))
        # By descriptors, so that they can be read where the box hides their files.
        is_linux = sys.platform == "linux"
        program = f"/proc/self/fd/{python.fileno()}" if is_linux else python.name
        script = f"{'/proc/self' if is_linux else '/dev'}/fd/{source.fileno()}"
        inherited = [python.fileno(), source.fileno(), inner.fileno(), given.fileno()]
        line = [program, "-I", "-S", script, str(inner.fileno()), str(given.fileno())]
        arguments, descriptors = (line, inherited) if launch is None else launch(line, inherited, self._folder)
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints,
            pass_fds=descriptors,
            env={},
            cwd="/",
            start_new_session=True,
        )

    def _receive_proxy(self) -> HostProxy:
        """Serve the socket that the keeper hands over: it belongs to the network of the box."""
        self._control.settimeout(_START_S)
        _, descriptors, *_ = socket.recv_fds(self._control, 1, 1)
        self._control.setblocking(False)
        if not descriptors:
            raise SandboxUnavailable(self._complaint())
        listener = socket.socket(fileno=descriptors[0])
        host, port = listener.getsockname()
        address = f"http://{host}:{port}"
        names = ("http_proxy", "https_proxy", "all_proxy")
        self._overrides.update(dict.fromkeys([*names, *map(str.upper, names)], address))
        self._overrides.update(dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"))
        return HostProxy(listener, self.box.hosts)

    def take_refusals(self) -> list[SandboxRefusal]:
        """Return the hosts that commands were refused since this was asked last: see `TellsRefusals`."""
        places = [] if self._proxy is None else self._proxy.take_refused()
        return [SandboxRefusal(cause="network", what=each, need=need_of_host(each)) for each in places]

    @property
    def is_open(self) -> bool:
        """False once it was closed, or its keeper has ended."""
        return self._control.fileno() >= 0 and os.getpid() == self._opener and self._keeper.poll() is None

    def _added_to(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables of the box, which count before those of this process: a cache elsewhere cannot be
        written. Settings for git that are there already stay: they are numbered, and ours would take their places."""
        has_settings = "GIT_CONFIG_COUNT" in environment
        return {
            name: text for name, text in self._adds.items() if not (has_settings and name.startswith("GIT_CONFIG_"))
        }

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
    ) -> SandboxProcess:
        """Start a program in the box: see `OpenSandbox`."""
        if os.getpid() != self._opener:
            raise SandboxUnavailable(
                "This box was opened by another process, from which this one was forked. Open one."
            )
        request = {
            "program": program,
            "arguments": list(arguments),
            "folder": self.box.work if folder is None else folder,
            "environment": {**environment, **self._added_to(environment), **self._overrides},
        }
        try:
            with ExitStack() as stack:
                nothing = os.open(os.devnull, os.O_RDWR)
                stack.callback(os.close, nothing)
                streams = [nothing if stream is None else stream for stream in (stdin, stdout, stderr)]
                return await self._begin(program, [stack.enter_context(file_of(request)).fileno(), *streams])
        except OSError as error:  # this process has too many files open
            raise SandboxUnavailable(f"The sandbox cannot start {program}: {error}.") from error

    async def _begin(self, program: str, descriptors: Sequence[int]) -> KeptProcess:
        is_new = False
        while not is_new:
            is_new = not self._idle
            told = await self._start_keeper() if is_new else self._idle.pop()
            process = KeptProcess(told, program, self)
            if await self._begins(process, descriptors):
                self._commands.add(process)
                return process
        complaint = self._complaint()
        self.close()
        raise SandboxUnavailable(complaint)

    async def _begins(self, process: KeptProcess, descriptors: Sequence[int]) -> bool:
        """Give a keeper its command, and wait until it starts. False: it has ended, and nothing was started."""
        has_begun = False
        try:
            process.ask(descriptors)
            starting = asyncio.ensure_future(process.has_begun())
            try:
                await asyncio.wait({starting}, timeout=_STOPPED_S)
                if not starting.done():
                    self.wake()
                # By now the keeper ends with the program that drew the borders, if that was there up to now.
                has_begun = await asyncio.wait_for(starting, _START_S) and self.is_open
            finally:
                starting.cancel()
        except TimeoutError:
            self.close()
        except OSError:
            pass
        finally:
            if not has_begun:
                process.close()
        return has_begun

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
                    raise SandboxUnavailable(self._complaint()) from error
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

    def _complaint(self) -> str:
        """Return why the box does not work, in the words of the program that draws its borders."""
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_END_S)
        code = self._keeper.poll()
        words = ""
        if not self._complaints.closed:
            self._complaints.seek(0)
            words = self._complaints.read(_LONGEST_COMPLAINT).decode("utf-8", "replace").strip()
        how = "is closed" if code is None else f"ended by {signal_name(-code)}" if code < 0 else f"ended with {code}"
        return f"The sandbox {how}, and nothing was run outside of it" + (f". It said: {words}" if words else ".")

    def close(self) -> None:
        """End all that runs in it."""
        for each in [*self._commands]:
            each.close()
        self._end()


def _end_keeper(
    control: socket.socket, idle: list[socket.socket], keeper: subprocess.Popen[bytes], opener: int
) -> None:
    """Let the keeper of a box end, and all that runs in it."""
    for each in (*idle, control):
        each.close()
    idle.clear()
    if os.getpid() == opener:
        try:
            keeper.wait(_END_S)
        except subprocess.TimeoutExpired:  # the system may not let go of it
            keeper.kill()
            keeper.wait()


@contextmanager
def _temporary_folder() -> Generator[str]:
    folder, maker = os.path.realpath(tempfile.mkdtemp(prefix="journeyman-box-")), os.getpid()
    yield folder
    if os.getpid() == maker:  # else a process that was forked ends
        shutil.rmtree(folder, ignore_errors=True)


@cache
def compiled_keeper() -> bytes:
    """Return the keeper as Python runs it without compiling it first, which takes as long as a command."""
    source = KEEPER.read_bytes()
    code = compile(source, str(KEEPER), "exec", dont_inherit=True)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)  # no flags, no time and no size: nobody compares it


def file_of(facts: dict[str, Any]) -> BinaryIO:
    """Return a file without a name that holds facts, as the keeper reads them."""
    return memory_of(marshal.dumps(facts))


def memory_of(content: bytes) -> BinaryIO:
    """Return a file without a name that holds a content, to be read from its beginning."""
    if sys.platform == "linux":
        number = os.memfd_create("journeyman")
    else:
        number, path = tempfile.mkstemp()
        Path(path).unlink()
    file = os.fdopen(number, "w+b")
    file.write(content)
    file.flush()
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    return file


class KeptProcess:
    """A program in a box, below a keeper that has no other one meanwhile."""

    def __init__(self, told: socket.socket, program: str, box: KeptSandbox) -> None:
        """If the keeper ends before the program, the box is closed: nobody else would find what it has started."""
        self._told: Final = told
        self._program: Final = program
        self._box: Final = box
        self._heard: bytes = b""
        self._is_left: bool = True
        self._is_gone: bool = False
        self._is_closed: bool = False
        self._failure: OSError | None = None
        self.exit_code: int | None = None

    def ask(self, descriptors: Sequence[int]) -> None:
        """Hand over the request, and what the program reads from and writes to.

        Raises:
            OSError: the keeper has ended.
        """
        socket.send_fds(self._told, [b"c"], descriptors)

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
                        self._box.close()
        if self._failure is not None:
            raise self._failure
        return self.exit_code

    def are_left(self) -> bool:
        """Tell whether any of its processes may still run."""
        return self._is_left and not self._is_gone

    def send(self, number: signal.Signals) -> None:
        """Have its keeper send a signal to all of its processes."""
        if not self._is_closed:
            self._box.wake()
            with suppress(OSError):
                self._told.send(bytes([number]))

    async def wait_for_all(self) -> None:
        """Wait until its keeper has told that nothing is left, or has ended."""
        with suppress(OSError):
            await self.wait()
        if self._is_left:
            self._is_left = await self._line() != ["gone"]

    def close(self) -> None:
        """Let its keeper end what still runs."""
        is_known = not (self._is_closed or self._is_gone or self._is_left or self._heard)
        if is_known:
            self._box.take_back(self._told)
        elif not self._is_closed:
            self._told.close()
        self._is_closed = True

    async def _line(self) -> list[str]:
        """Return the words of the next line that the keeper writes; none once it has ended."""
        while b"\n" not in self._heard and not self._is_gone:
            try:
                heard = await asyncio.get_running_loop().sock_recv(self._told, _LONGEST_LINE)
            except OSError:
                heard = b""
            self._heard += heard
            self._is_gone = not heard or len(self._heard) > _LONGEST_LINE
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode("utf-8", "replace").split()


if TYPE_CHECKING:
    _opened: type[OpenSandbox] = KeptSandbox
    _telling: type[TellsRefusals] = KeptSandbox
    _process: type[SandboxProcess] = KeptProcess
