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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from journeyman.processes import signal_name
from journeyman.sandbox.box import Box, SandboxRefusal, need_of_host
from journeyman.sandbox.proxy import HostProxy
from journeyman.sandbox.sandbox import OpenSandbox, SandboxProcess, SandboxUnavailable, TellsRefusals

KEEPER: Final = Path(__file__).with_name("keeper.py")
_RLIMIT_FSIZE, _RLIMIT_CORE = 1, 4  # on Linux and macOS alike
_START_S: Final = 30.0
_END_S: Final = 5.0
_FULL_S: Final = 0.005
_LONGEST_LINE: Final = 64
_LONGEST_COMPLAINT: Final = 500

Launch = Callable[[Sequence[str], Sequence[int], str], tuple[Sequence[str], Sequence[int]]]
"""Returns the command line that runs a command line in a box, and what it inherits. It is given the folder of the box's
temporary files; an empty text if there is none."""


class OpenBoxes:
    """The boxes that a sandbox has opened."""

    def __init__(self) -> None:
        self._opened: Final[list[OpenSandbox]] = []

    def add(self, opened: OpenSandbox) -> OpenSandbox:
        """Take note of a box that was opened, and forget those that are closed."""
        self._opened[:] = [*[each for each in self._opened if each.is_open], opened]
        return opened

    def close(self) -> None:
        """Close them."""
        for each in self._opened:
            each.close()
        self._opened.clear()


class KeptSandbox:
    """A box whose first process is the keeper."""

    def __init__(
        self, box: Box, launch: Launch, *, has_temporary: bool = False, adds: Mapping[str, str] | None = None
    ) -> None:
        """Start the keeper by the command line that `launch` makes. With `has_temporary`, temporary files are in the
        folder of the box. `adds` are variables that each command gets, unless the box has others.

        Raises:
            SandboxUnavailable: it cannot be started.
        """
        self.box: Final = box
        self._folder: Final = os.path.realpath(tempfile.mkdtemp(prefix="journeyman-box-")) if has_temporary else ""
        self._adds: Final = {**(adds or {}), **box.environment, **({"TMPDIR": self._folder} if has_temporary else {})}
        self._overrides: Final[dict[str, str]] = {}
        self._commands: Final[list[KeptProcess]] = []
        self._opener: Final = os.getpid()
        self._complaints: Final = memory_of(b"")
        self._proxy: HostProxy | None = None
        self._control, inner = socket.socketpair()
        try:
            with inner, ExitStack() as stack:
                self._control.setblocking(False)
                self._keeper: Final = self._start(launch, inner, stack)
            if box.hosts:
                self._proxy = self._receive_proxy()
        except BaseException as error:
            self._control.close()
            self._clear()
            if isinstance(error, OSError):
                raise SandboxUnavailable(f"The sandbox cannot be started: {error}.") from error
            raise

    def _start(self, launch: Launch, inner: socket.socket, stack: ExitStack) -> subprocess.Popen[bytes]:
        python = stack.enter_context(Path(sys.executable).resolve().open("rb"))
        source = stack.enter_context(memory_of(compiled_keeper()))
        largest = self.box.limits.file_bytes
        limits = {_RLIMIT_CORE: 0} | ({} if largest is None else {_RLIMIT_FSIZE: largest})
        settings = stack.enter_context(file_of({"limits": limits, "is_proxied": bool(self.box.hosts)}))
        # By descriptors, so that they can be read where the box hides their files.
        is_linux = sys.platform == "linux"
        program = f"/proc/self/fd/{python.fileno()}" if is_linux else python.name
        script = f"{'/proc/self' if is_linux else '/dev'}/fd/{source.fileno()}"
        inherited = [python.fileno(), source.fileno(), inner.fileno(), settings.fileno()]
        line = [program, "-I", "-S", script, str(inner.fileno()), str(settings.fileno())]
        arguments, descriptors = launch(line, inherited, self._folder)
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
        outer, inner = socket.socketpair()
        outer.setblocking(False)
        process = KeptProcess(outer, program, self.close)
        with inner, ExitStack() as stack:
            nothing = os.open(os.devnull, os.O_RDWR)
            stack.callback(os.close, nothing)
            streams = [nothing if stream is None else stream for stream in (stdin, stdout, stderr)]
            asked = stack.enter_context(file_of(request))
            try:
                await self._ask([asked.fileno(), inner.fileno(), *streams])
            except BaseException:
                process.close()
                raise
        self._commands[:] = [*[each for each in self._commands if not each.is_closed], process]
        has_begun = False
        try:
            has_begun = await asyncio.wait_for(process.has_begun(), _START_S)
        except TimeoutError:
            self.close()
        finally:
            if not has_begun:
                process.close()
        if not has_begun:
            raise SandboxUnavailable(self._complaint())
        return process

    async def _ask(self, descriptors: Sequence[int]) -> None:
        while True:
            try:
                socket.send_fds(self._control, [b"c"], descriptors)
            except BlockingIOError:  # as many requests as the system keeps wait already
                await asyncio.sleep(_FULL_S)
            except OSError as error:
                raise SandboxUnavailable(self._complaint()) from error
            else:
                return

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
        self._control.close()
        if os.getpid() != self._opener:
            return
        try:
            self._keeper.wait(_END_S)
        except subprocess.TimeoutExpired:  # the system may not let go of it
            self._keeper.kill()
            self._keeper.wait()
        self._clear()

    def _clear(self) -> None:
        if self._proxy is not None:
            self._proxy.close()
        self._complaints.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


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
    """A program in a box, below a keeper of its own."""

    def __init__(self, told: socket.socket, program: str, lose: Callable[[], None]) -> None:
        """`lose` is called when the keeper ends before the program: nobody else would find what it has started."""
        self._told: Final = told
        self._program: Final = program
        self._lose: Final = lose
        self._heard: bytes = b""
        self._is_left: bool = True
        self._is_gone: bool = False
        self._failure: OSError | None = None
        self.exit_code: int | None = None

    @property
    def is_closed(self) -> bool:
        """True once nobody listens to its keeper, which then ends what still runs."""
        return self._told.fileno() < 0

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
                    if not self.is_closed:
                        self._lose()
        if self._failure is not None:
            raise self._failure
        return self.exit_code

    def are_left(self) -> bool:
        """Tell whether any of its processes may still run."""
        return self._is_left and not self._is_gone

    def send(self, number: signal.Signals) -> None:
        """Have its keeper send a signal to all of its processes."""
        with suppress(OSError):
            self._told.send(bytes([number]))

    async def wait_for_all(self) -> None:
        """Wait until its keeper has ended, which it does when nothing is below it."""
        while await self._line():
            continue
        self.close()

    def close(self) -> None:
        """Let its keeper end what still runs."""
        self._told.close()

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
