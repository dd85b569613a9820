"""The first process of a box: it starts the keepers of its commands, and ends with all of them.

It is run by its path or by a descriptor, in an interpreter that loads as little as possible, and is never imported. It
reads requests from a socket of whoever opened the box; when that is closed, it ends, and as the first process of its
namespace all others with it. A keeper finds whatever its command leaves behind, and when nothing is left it keeps the
next one. It writes to a socket of its own that a program is `started`, that it `ended` or `failed`, and that what it
left is `gone`; it reads the commands and the signals for them.
"""

from __future__ import annotations

import _ctypes
import _thread
import gc
import marshal
import sys
import time

TYPE_CHECKING = False  # `typing` takes time to load
if TYPE_CHECKING:
    import os
    import signal
    from typing import Any
else:
    import _signal as signal  # without its enums
    import posix as os  # without its paths

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36  # as linux/prctl.h has them
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_SET_FILTER, _ASKS_US, _WAITS_FOR_ANSWER = 1, 1 << 3, 1 << 5  # as linux/seccomp.h has them
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _BELOW_A_PATH = 444, 445, 446, 1  # as linux/landlock.h has them
_VERSION, _RENAMES_SINCE = 1, 2
_N_DESCRIPTORS = 4  # the request, its input, its output, its errors
_IS_64_BIT_LINUX = sys.platform == "linux" and sys.maxsize > 1 << 32
_HEADER, _CLOSE_ON_EXEC = 16, 0x40000000  # of descriptors in a message, as linux/socket.h has it
_TO_READ = (1).to_bytes(2, sys.byteorder)  # as poll.h has it
_NO_SUCH_FILE = 2  # `errno` takes time to load
_KILL_AGAIN_S = 0.005
_MOST_REFUSED = 5
_MOST_KILLS = 2_000  # a process of another user cannot be ended


_simple: Any = _ctypes._SimpleCData  # pyright: ignore[reportPrivateUsage] - `ctypes` takes as long as a command
_Pointer: Any = type("Pointer", (_simple,), {"_type_": "z"})


def serve_commands() -> None:
    """Start keepers until nobody asks any more. The arguments: the socket's number, and that of the settings."""
    control = int(sys.argv[1])
    settings = marshal.loads(read(int(sys.argv[2])))
    with os.scandir("/dev/fd") as entries:
        numbers = [int(each.name) for each in entries]
    for number in numbers:
        seal(number)
    if settings["mounts"] is not None:
        check_mounts(**settings["mounts"])
    restrict(settings["limits"])
    are_drawn = settings["borders"] is not None and draw_borders(**settings["borders"])
    sockets = find_own_systems(settings["sockets"], are_drawn=are_drawn)
    if settings["is_proxied"]:
        hand_over_listener(control)
    ignored = ignore_signals()
    gc.freeze()  # so that a fork has less to copy
    while True:
        asked, numbers = receive(control)
        if not asked:
            end()
        if not numbers:  # a command may have stopped its keeper
            os.kill(0, signal.SIGCONT)
        elif not os.fork():
            os.close(control)
            CommandKeeper(numbers[0], ignored, sockets).keep()
        for number in numbers:
            os.close(number)


def check_mounts(expected: dict[bytes, tuple[int, int] | None], writable: list[bytes]) -> None:
    """End unless the files that are expected are mounted, each at its place, and nothing else may be written: somebody
    may have swapped a folder for a link while the borders were drawn."""
    places: set[bytes] = set()
    for line in read(os.open("/proc/self/mountinfo", os.O_RDONLY)).splitlines():
        *_, escaped, options = line.split(b" ", 6)[:6]
        place, *rest = escaped.split(b"\\")  # blanks are written as numbers
        for each in rest:
            place += bytes([int(each[:3], 8)]) + each[3:]
        places.add(place)
        if options.startswith(b"rw") and not any([place == each or place.startswith(each + b"/") for each in writable]):
            sys.exit(f"{place!r} can be written: a folder was swapped for a link while the box was opened.")
    for place, identity in expected.items():
        facts = os.lstat(place)
        if place not in places or identity not in (None, (facts.st_dev, facts.st_ino)):
            sys.exit(f"{place!r} is not what it was: it was swapped for something else while the box was opened.")


def find_own_systems(sockets: dict[str, Any] | None, *, are_drawn: bool) -> dict[str, Any] | None:
    """Return the settings of the supervisor with the devices of the temporary file systems that were made for this box:
    those at its folders that are none of `outside`, as one is that commands may read. There are none where Landlock
    draws no borders, since a socket could be made anywhere."""
    if sockets is None:
        return None
    found = {os.stat(each).st_dev for each in sockets["folders"] if os.access(each, os.F_OK)}
    return {**sockets, "systems": found.difference(sockets["outside"]) if are_drawn else ()}


def restrict(limits: dict[int, int]) -> None:
    """Let this process end with its parent, and take in orphans; set its limits, which all in the box have."""
    if os.getpid() == 1:
        call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # its parent is the program that drew the borders
    if sys.platform == "linux":
        call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)  # no command of this box reads its sockets, or traces it
        call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for kind, most in limits.items():  # not by `resource`, which takes as long to load as a command to start
        call("setrlimit", kind, most.to_bytes(8, sys.byteorder) * 2)  # a lower limit stays as it is


def draw_borders(handled: list[int], rules: list[tuple[str | int, int]], filter: bytes | None) -> bool:
    """Let Landlock allow this process, and all that it starts, what the rules name, and nothing else of what it
    handles; have the kernel run a filter before each of their calls. End if this system refuses that. Without a filter,
    others have drawn the borders, and these come on top where the system has them: return whether it has."""
    attributes = b"".join([each.to_bytes(8, sys.byteorder) for each in handled])
    if filter is None and call("syscall", _CREATE_RULESET, None, 0, _VERSION) < _RENAMES_SINCE:
        return False
    ruleset = require("syscall", _CREATE_RULESET, attributes, len(attributes), 0)
    for path, rights in rules:  # a number is that of a file that this process has inherited for it
        place = path if isinstance(path, int) else os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = rights.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
        require("syscall", _ADD_RULE, ruleset, _BELOW_A_PATH, rule, 0)
        os.close(place)
    require("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    require("syscall", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    if filter is not None:
        require("prctl", _PR_SET_SECCOMP, _FILTER, program_of(filter), 0, 0)
    return True


def supervise_sockets(settings: dict[str, Any]) -> int:
    """Have the kernel ask before each `connect` of what this thread starts. Return the descriptor by which it asks; or
    one below 0 where it cannot, and what is started gets no unix sockets."""
    flags = _ASKS_US | _WAITS_FOR_ANSWER  # else a signal would have it ask twice about one call
    asking = (settings["set_filter"], _SET_FILTER, flags, program_of(settings["asking"]))
    listener = call("syscall", *asking) if settings["systems"] else -1
    if listener < 0:
        require("prctl", _PR_SET_SECCOMP, _FILTER, program_of(settings["refusing"]), 0, 0)
    return listener


def program_of(filter: bytes) -> bytes:
    """Return a filter as the kernel takes it, as long as somebody holds it: its length, and a pointer."""
    pointer = bytes(_Pointer(filter))
    return (len(filter) // 8).to_bytes(2, sys.byteorder) + bytes(len(pointer) - 2) + pointer


def ignore_signals() -> list[int]:
    """Ignore the signals by which a command could end its keeper. Return those that its program must not ignore."""
    asking = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    ours = [each for each in asking if signal.getsignal(each) != signal.SIG_IGN]
    ignored = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, *ours]
    for each in ignored:  # of SIGCHLD, so that the system forgets children that have ended
        signal.signal(each, signal.SIG_IGN)
    return [*ignored]


def hand_over_listener(control: int) -> None:
    """Give whoever opened the box the socket that its commands connect to, to get to allowed hosts."""
    import _socket

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    number = listener.fileno().to_bytes(4, sys.byteorder)
    connection = _socket.socket(fileno=control)
    connection.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, number)])
    connection.detach()
    listener.close()


def receive(connection: int) -> tuple[bytes, list[int]]:
    """Return a byte, none at the end, and the descriptors that came with it, which no program inherits."""
    if _IS_64_BIT_LINUX:  # to load `_socket` takes as long as a fork
        asked, content = receive_message(connection)
    else:
        import _socket

        receiver = _socket.socket(fileno=connection)
        asked, found, *_ = receiver.recvmsg(1, _socket.CMSG_SPACE(4 * _N_DESCRIPTORS))
        content = b"".join([data for *_, data in found])
        receiver.detach()
    numbers = [int.from_bytes(content[at : at + 4], sys.byteorder) for at in range(0, len(content), 4)]
    for number in numbers:
        seal(number)
    return asked, numbers


def receive_message(connection: int) -> tuple[bytes, bytes]:
    """Return a byte, none at the end, and the content of the part of the message that holds descriptors."""

    def word(number: int) -> bytes:
        return number.to_bytes(8, sys.byteorder)

    asked, besides = bytes(8), bytes(_HEADER + 4 * _N_DESCRIPTORS)  # the system writes there, and into the message
    part = bytes(_Pointer(asked)) + word(1)
    message = bytes(16) + bytes(_Pointer(part)) + word(1) + bytes(_Pointer(besides)) + word(len(besides)) + bytes(8)
    done = call("recvmsg", connection, message, _CLOSE_ON_EXEC)
    return asked[: max(done, 0)], besides[_HEADER : int.from_bytes(besides[:8], sys.byteorder)]


def seal(number: int) -> None:
    """Let no program inherit a descriptor: a server in the background would hold the output of its command open."""
    try:
        os.set_inheritable(number, False)
    except OSError:  # that of the folder of descriptors itself
        return


def read(number: int) -> bytes:
    """Return what is in a file that is open, and close it."""
    with open(number, "rb", 0) as file:
        return file.read()


def end() -> None:
    """End, with all that runs in this box. The first process of a namespace takes the others with it."""
    for _ in range(_MOST_KILLS if os.getpid() != 1 else 0):
        below = running_below(os.getpid())
        if not below:  # else the keepers do it, whose sockets are closed as well
            break
        for process in below:
            kill(process, signal.SIGKILL)
        time.sleep(_KILL_AGAIN_S)
    os._exit(0)


def call(function: str, *arguments: object) -> int:
    """Call a function of the system's library. Return what it does; below 0, it has failed."""
    return _ctypes.call_function(_ctypes.dlsym(_ctypes.dlopen("", 0), function), arguments)


def require(function: str, *arguments: object) -> int:
    """Call a function that draws a border. End if it fails: nothing is started without that."""
    done = call(function, *arguments)
    if done < 0:
        sys.exit(f"this system refuses {function}{arguments[:2]}, which draws the borders of the box")
    return done


class CommandKeeper:
    """The keeper of one command after the other: it starts each, tells how it ends, and when nothing of it is left."""

    def __init__(self, number: int, ignored: list[int], sockets: dict[str, Any] | None) -> None:
        self.told = number
        self.ignored = ignored
        """The signals that no command shall ignore because this process does."""
        self.sockets = sockets
        """The settings of the supervisor of unix sockets; None where commands get none."""
        self.listener = -1
        """The descriptor by which the kernel asks it."""
        self.refused: list[str] = []
        """The sockets that the command was refused, as it named them."""
        self.program = 0
        """The program of the command, which is its group as well; 0 while there is none."""
        self.has_begun = _thread.allocate_lock()
        self.has_begun.acquire()

    def keep(self) -> None:
        """Keep commands until nobody asks any more."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if sys.platform == "linux":
            call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if self.sockets is not None:
            is_set = _thread.allocate_lock()
            is_set.acquire()
            # It begins before this thread and its programs are asked, and is not asked itself.
            _thread.start_new_thread(self.supervise, (self.sockets, is_set))
            self.listener = supervise_sockets(self.sockets)
            is_set.release()
        _thread.start_new_thread(self.obey, ())
        self.watch()

    def supervise(self, settings: dict[str, Any], is_set: _thread.LockType) -> None:
        """Connect the sockets of the command for it, as long as this process runs. Most connect none, so the code is
        loaded for the first one."""
        is_set.acquire()
        if self.listener < 0:
            return
        names: dict[str, Any] = {}
        try:
            call("poll", self.listener.to_bytes(4, sys.byteorder) + _TO_READ + bytes(2), 1, -1)
            exec(marshal.loads(settings["code"]), names)
            names["answer_requests"](self.listener, settings["systems"], self.note_refusal)
        finally:
            os.close(self.listener)  # then nobody waits, and all is refused

    def note_refusal(self, path: bytes) -> None:
        """Remember a socket that the command was refused, for who asked for the command."""
        if len(self.refused) < _MOST_REFUSED and path.hex() not in self.refused:
            self.refused.append(path.hex())

    def obey(self) -> None:
        """Do what is asked for. When nobody asks any more, end the command, and this process."""
        try:
            while True:
                asked, numbers = receive(self.told)
                if len(numbers) == _N_DESCRIPTORS:
                    self.begin(*numbers)
                elif not asked:
                    break
                else:
                    self.send(asked[0])
        except OSError:  # whoever asked has ended with lines that it had not read
            pass
        finally:
            self.send(signal.SIGKILL)
            os._exit(0)

    def begin(self, request: int, *streams: int) -> None:
        """Start a command."""
        try:
            self.program = self.start(marshal.loads(read(request)), streams)
            self.has_begun.release()
        except OSError as error:
            self.report(f"failed {error.errno}")
        for number in streams:
            os.close(number)
        os.chdir("/")

    def start(self, request: dict[str, Any], streams: tuple[int, ...]) -> int:
        """Tell that the program begins, start it in a session of its own, and return its id. It may turn on its keeper
        as soon as it runs.

        Raises:
            OSError: it cannot be started.
        """
        self.report("started")
        os.chdir(request["folder"])
        program, environment = request["program"], request["environment"]
        folders = [""]
        if "/" not in program:
            folders = [f"{each}/" for each in environment.get("PATH", "/bin:/usr/bin").split(":") if each]
        failure: OSError = FileNotFoundError(_NO_SUCH_FILE, "no such program")
        for folder in folders:
            if not os.access(folder + program, os.F_OK):  # a fork costs more
                continue
            try:
                return os.posix_spawn(
                    folder + program,
                    [program, *request["arguments"]],
                    environment,
                    file_actions=[(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)],
                    setsid=True,
                    setsigdef=self.ignored,
                )
            except OSError as error:
                failure = error
        raise failure

    def watch(self) -> None:
        """Tell of each command how it ends, and what becomes of the processes that it has left."""
        try:
            while self.has_begun.acquire():
                program = self.program
                while (ended := os.waitpid(-1, 0))[0] != program:
                    pass
                is_left = is_anything_left(program)
                self.program = program if is_left else 0
                told = (str(os.waitstatus_to_exitcode(ended[1])), str(int(is_left)), *self.refused)
                self.refused.clear()
                self.report(f"ended {' '.join(told)}")
                if is_left:
                    while is_anything_left(program):
                        wait_for_one()
                    self.program = 0
                    self.report("gone")
        finally:
            os._exit(1)

    def report(self, line: str) -> None:
        """Write a line, unless nobody is there to read it: then `obey` ends all."""
        try:
            os.write(self.told, f"{line}\n".encode())
        except OSError:
            return

    def send(self, number: int) -> None:
        """Send a signal to the group of the program, and to each process below this one that is not in it; SIGKILL
        until nothing runs."""
        for _ in range(_MOST_KILLS):
            program = self.program
            if not program:
                return
            below = running_below(os.getpid())
            targets = [-program] if below is None or program in below.values() else []
            for target in (*targets, *(process for process, group in (below or {}).items() if group != program)):
                kill(target, number)
            if number != signal.SIGKILL:
                return
            time.sleep(_KILL_AGAIN_S)


def is_anything_left(group: int) -> bool:
    """Tell whether a process of the command still runs."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        if sys.platform == "linux":
            return False
    else:
        return True
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def wait_for_one() -> None:
    """Wait until one of the processes has ended; for a while, where the system does not tell."""
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        time.sleep(_KILL_AGAIN_S)


def kill(target: int, number: int) -> None:
    """Send a signal to a process or a group, if it still runs."""
    try:
        os.kill(target, number)
    except OSError:  # it has ended, or is somebody else's
        return


def running_below(ancestor: int) -> dict[int, int] | None:
    """Return all processes that run below this one, each with the id of its group; None where the system does not
    tell."""
    children: dict[int, list[tuple[int, int, bool]]] = {}
    try:
        with os.scandir("/proc") as entries:
            names = [each.name for each in entries if each.name.isdecimal()]
    except OSError:
        return None
    for name in names:
        try:
            state, parent, group = read(os.open(f"/proc/{name}/stat", os.O_RDONLY)).rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):  # it has ended by now
            continue
        children.setdefault(int(parent), []).append((int(name), int(group), state not in b"ZX"))
    found: dict[int, int] = {}
    parents = [ancestor]
    while parents:
        for process, group, is_running in children.pop(parents.pop(), ()):
            parents.append(process)
            if is_running:
                found[process] = group
    return found


if __name__ == "__main__":
    serve_commands()
