"""The first process of a box: it forks keepers of commands, and ends with all of them.

Its code is run in an interpreter that loads as little as possible, and is never imported. It reads requests from a
socket of whoever opened the box; when that is closed, it ends, and as the first process of its namespace all others
with it. Of such a box it is a keeper itself, since no command can end it, so most boxes need no other. A keeper has one
command at a time, finds whatever that leaves behind, and when nothing is left it keeps the next one. It writes to a
socket of its own that a program is `started`, that it `ended` or `failed`, and that what it left is `gone`; it reads
the commands and the signals for them.
"""

from __future__ import annotations

import _ctypes
import gc
import marshal
import sys
import time

TYPE_CHECKING = False  # `typing` takes time to load
if TYPE_CHECKING:
    import os
    import signal
    from collections.abc import Callable, Collection, Sequence
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
_LOOK_AGAIN_MS = 5
_KILLS_FOR_S = 10.0  # a process of another user cannot be ended
_MOST_SIGNALS = 1_000  # that are read at once
_N_STREAMS, _MOST_DESCRIPTORS = 3, 4_096
_WITHOUT_WAITING = 0x4040  # nor SIGPIPE, as linux/socket.h has them


_simple: Any = _ctypes._SimpleCData  # pyright: ignore[reportPrivateUsage] - `ctypes` takes as long as a command
_Pointer: Any = type("Pointer", (_simple,), {"_type_": "z"})


def serve_commands(settings: dict[str, Any]) -> None:
    """Start keepers until nobody asks any more."""
    control: int = settings["control"]
    with os.scandir("/dev/fd") as entries:
        numbers = [int(each.name) for each in entries]
    for number in numbers:
        seal(number)
    if settings["mounts"] is not None:
        check_mounts(**settings["mounts"])
    restrict(settings["limits"])
    are_drawn = settings["borders"] is not None and draw_borders(**settings["borders"])
    if settings["is_proxied"]:
        hand_over_listener(control)
    listener, answer = -1, None
    if settings["sockets"] is not None:
        listener, answer = supervise_sockets(control, settings["sockets"], are_drawn)
    keep_commands(control, CommandKeeper(-1, ignore_signals()), listener, answer)


def keep_commands(
    control: int, keeper: CommandKeeper, listener: int = -1, answer: Callable[[], None] | None = None
) -> None:
    """Keep the commands that are asked for by the socket of a keeper, and end when nobody asks any more. The first
    process is given such sockets by its `control`, and answers what the kernel asks by a listener."""
    if sys.platform == "linux":
        call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # it takes in orphans, and a fork does not inherit that
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # else nothing wakes this process when a child ends
    while control >= 0 or keeper.told >= 0 or keeper.kills_until:
        numbers = (control, listener, woken, keeper.told)
        is_asked, is_asked_by_kernel, is_woken, is_told = wait_to_read(numbers, keeper.pause_ms())
        if is_asked_by_kernel and answer is not None:
            answer()
        if is_woken:
            os.read(woken, _MOST_SIGNALS)
        if is_woken or keeper.is_left:
            keeper.watch()
        if is_told:
            keeper.obey()
        keeper.kill_again()
        if is_asked:
            add_keeper(control, keeper)
    os._exit(0)


def add_keeper(control: int, keeper: CommandKeeper) -> None:
    """Give the socket that comes by the control of the first process to a keeper that is forked. In a namespace the
    first process keeps it itself while it is free: a fork takes as long as a command, and no command can end the first
    process there. Elsewhere one could, and nobody would find what it has left."""
    asked, numbers = receive(control)
    if not asked:
        end()
    if not numbers:  # a command may have stopped its keeper
        os.kill(0, signal.SIGCONT)
    for number in numbers:
        if os.getpid() == 1 and keeper.told < 0 and not keeper.program:
            keeper.told = number
            continue
        gc.freeze()  # so that a fork has less to copy
        process = os.fork()
        if not process:
            os.closerange(_N_STREAMS, number)  # also what threads of the first process have open for commands
            os.closerange(number + 1, _MOST_DESCRIPTORS)
            keep_commands(-1, CommandKeeper(number, keeper.ignored))
        keeper.others.add(process)
        os.close(number)


def check_mounts(expected: dict[bytes, tuple[int, int] | None], writable: list[bytes]) -> None:
    """End unless the files that are expected are mounted, each at its place, and nothing else may be written: somebody
    may have swapped a folder for a link while the borders were drawn."""
    places: set[bytes] = set()
    below = tuple([each + b"/" for each in writable])
    for line in read(os.open("/proc/self/mountinfo", os.O_RDONLY)).splitlines():
        _, _, _, _, escaped, options, _ = line.split(b" ", 6)
        place, *rest = escaped.split(b"\\")  # blanks are written as numbers
        for each in rest:
            place += bytes([int(each[:3], 8)]) + each[3:]
        places.add(place)
        if options.startswith(b"rw") and not (place + b"/").startswith(below):
            sys.exit(f"{place!r} can be written: a folder was swapped for a link while the box was opened.")
    for place, identity in expected.items():
        facts = os.lstat(place)
        if place not in places or identity not in (None, (facts.st_dev, facts.st_ino)):
            sys.exit(f"{place!r} is not what it was: it was swapped for something else while the box was opened.")


def restrict(limits: dict[int, int]) -> None:
    """Let this process end with its parent; set its limits, which all in the box have."""
    if os.getpid() == 1:
        call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # its parent is the program that drew the borders
    if sys.platform == "linux":
        call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)  # no command of this box reads its sockets, or traces it
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


def supervise_sockets(control: int, settings: dict[str, Any], are_drawn: bool) -> tuple[int, Callable[[], None]]:
    """Have the kernel ask before each `connect` and `bind` of what this process starts. Return the descriptor by which
    it asks, and what answers it once. Where it cannot ask, refuse all unix sockets; and where Landlock draws no
    borders, since a socket could be made anywhere. Whoever asks for commands is told what they were refused."""
    found = {os.stat(each).st_dev for each in settings["folders"] if are_drawn and os.access(each, os.F_OK)}
    systems = found.difference(settings["outside"])  # those that were made for this box
    flags = _ASKS_US | _WAITS_FOR_ANSWER  # else a signal would have it ask twice about one call
    asking = (settings["set_filter"], _SET_FILTER, flags, program_of(settings["asking"]))
    listener = call("syscall", *asking) if systems else -1
    if listener < 0:
        require("prctl", _PR_SET_SECCOMP, _FILTER, program_of(settings["refusing"]), 0, 0)
    names: dict[str, Any] = {}
    own: set[int] = set()

    def note_refusal(path: bytes) -> None:
        line = path.hex().encode() + b"\n"
        call("send", control, line, len(line), _WITHOUT_WAITING)

    def answer() -> None:
        if not names:  # most commands connect none, so the code is loaded for the first one
            exec(marshal.loads(settings["code"]), names)
        names["answer_request"](listener, systems, own, note_refusal)

    return listener, answer


def program_of(filter: bytes) -> bytes:
    """Return a filter as the kernel takes it, as long as somebody holds it: its length, and a pointer."""
    pointer = bytes(_Pointer(filter))
    return (len(filter) // 8).to_bytes(2, sys.byteorder) + bytes(len(pointer) - 2) + pointer


def ignore_signals() -> list[int]:
    """Ignore the signals by which a command could end its keeper. Return those that its program must not ignore."""
    asking = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    ours = [each for each in asking if signal.getsignal(each) != signal.SIG_IGN]
    ignored = [signal.SIGPIPE, signal.SIGXFSZ, *ours]
    for each in ignored:
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


def wait_to_read(numbers: Sequence[int], most_ms: int = -1) -> list[bool]:
    """Wait until one of these descriptors can be read; those below 0 are none. Return which can be. End if that fails,
    since a command can take the right to have descriptors away from this process."""
    places = b"".join([each.to_bytes(4, sys.byteorder, signed=True) + _TO_READ + bytes(2) for each in numbers])
    for _ in range(2):  # a signal may end the first call, and makes one of them readable
        if call("poll", places, len(numbers), most_ms) >= 0:  # the system writes there
            break
    else:
        end()
    return [places[at + 6 : at + 8] != bytes(2) for at in range(0, len(places), 8)]


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
    latest = time.monotonic() + _KILLS_FOR_S
    while os.getpid() != 1 and time.monotonic() < latest:
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

    def __init__(self, told: int, ignored: list[int]) -> None:
        self.told = told
        """The socket by which commands are asked for; below 0 while there is none."""
        self.ignored = ignored
        """The signals that no command shall ignore because this process does."""
        self.others: set[int] = set()
        """The keepers that this process has forked."""
        self.program = 0
        """The program of the command, which is its group as well; 0 while there is none."""
        self.is_left = False
        """True once the program has ended, and something that it has started runs."""
        self.kills_until = 0.0
        """The time until which the command is killed, again and again; 0 while it is not."""

    def pause_ms(self) -> int:
        """Return how long nothing is to be done unless something comes; below 0: forever."""
        is_told = sys.platform == "linux" or not self.is_left  # else nobody tells of the end of what is left
        return -1 if is_told and not self.kills_until else _LOOK_AGAIN_MS

    def obey(self) -> None:
        """Do what is asked for. When nobody asks any more, end the command."""
        asked, numbers = receive(self.told)
        if len(numbers) == _N_DESCRIPTORS:
            self.begin(*numbers)
        elif asked and asked[0] != signal.SIGKILL:
            self.send(asked[0])
        else:
            self.kills_until = time.monotonic() + _KILLS_FOR_S
            if not asked:
                os.close(self.told)
                self.told = -1

    def kill_again(self) -> None:
        """Kill what still runs, if it is time for that."""
        if self.kills_until and self.program:
            self.send(signal.SIGKILL)
        if not self.program or time.monotonic() > self.kills_until:
            self.kills_until = 0.0

    def begin(self, request: int, *streams: int) -> None:
        """Start a command."""
        try:
            self.program = self.start(marshal.loads(read(request)), streams)
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
        """Tell when the program has ended, and when nothing of it is left."""
        status, is_left = -1, True
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self.others.discard(ended[0])
                if ended[0] == self.program:
                    status = ended[1]
        except ChildProcessError:
            is_left = False
        if status < 0 and not self.is_left:
            return
        if sys.platform != "linux":
            is_left = is_group_left(self.program)
        elif self.others:
            is_left = bool(running_below(os.getpid(), self.others))
        if status >= 0:
            self.report(f"ended {os.waitstatus_to_exitcode(status)} {int(is_left)}")
        elif not is_left:
            self.report("gone")
        self.is_left = is_left
        self.program = self.program if is_left else 0

    def report(self, line: str) -> None:
        """Write a line, unless nobody is there to read it: then nobody asks, either."""
        try:
            os.write(self.told, f"{line}\n".encode())
        except OSError:
            return

    def send(self, number: int) -> None:
        """Send a signal to the group of the program, and to each process below this one that is not in it."""
        below = running_below(os.getpid(), self.others)
        targets = [-self.program] if self.program and (below is None or self.program in below.values()) else []
        for target in (*targets, *(process for process, group in (below or {}).items() if group != self.program)):
            kill(target, number)


def is_group_left(group: int) -> bool:
    """Tell whether a process of a group still runs."""
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def kill(target: int, number: int) -> None:
    """Send a signal to a process or a group, if it still runs."""
    try:
        os.kill(target, number)
    except OSError:  # it has ended, or is somebody else's
        return


def running_below(ancestor: int, others: Collection[int] = ()) -> dict[int, int] | None:
    """Return all processes that run below this one, but not others and what is below those, each with the id of its
    group; None where the system does not tell."""
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
            if process in others:
                continue
            parents.append(process)
            if is_running:
                found[process] = group
    return found
