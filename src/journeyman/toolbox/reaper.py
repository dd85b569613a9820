"""The parent of one command on Linux: whatever the command leaves behind becomes its child, and so is found.

It is run by its path in an interpreter that loads as little as possible, and is never imported. Its standard input is a
socket: it writes there that the shell is `started`, then that it `ended` or `failed`, and reads the signals that it
shall send. It ends when nothing below it runs. When the socket is closed, it ends all of that.
"""

from __future__ import annotations

import _ctypes
import _thread
import os
import sys
import time

TYPE_CHECKING = False  # `typing` takes time to load
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # without its enums

COMMAND = b"JOURNEYMAN_KEEPS"
"""The environment variable that holds the command. It is not in the arguments, where `pkill -f` would find it twice."""
_PR_SET_CHILD_SUBREAPER = 36  # as linux/prctl.h has it: the standard library does not name it
_KILL_AGAIN_S = 0.005
_MOST_KILLS = 2_000  # a process of another user cannot be ended


def main() -> None:
    """Run the shell that is named, with standard output and errors in the file of the number that is given."""
    prctl = _ctypes.dlsym(_ctypes.dlopen("", 0), "prctl")
    if _ctypes.call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)):
        sys.exit("This system does not let a process take in orphans.")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, nothing_more)  # unlike SIG_IGN, this is not handed on to the shell
    socket = os.dup(0)
    shell = start(sys.argv[2], int(sys.argv[1]), socket)
    _thread.start_new_thread(obey, (socket, shell))
    while (ended := os.waitpid(-1, 0))[0] != shell:
        pass
    is_left = True
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        is_left = False
    tell(socket, f"ended {os.waitstatus_to_exitcode(ended[1])} {int(is_left)}")
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        os._exit(0)


def nothing_more(*signal_and_frame: object) -> None:
    """Take a signal, and go on."""


def start(program: str, output: int, socket: int) -> int:
    """Start the shell in a session of its own, tell of it, and return its id."""
    # Not `os.environ`: Python may have set its own locale there.
    with open("/proc/self/environ", "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if entry]
    environment = {name: value for name, _, value in pairs}
    command = environment.pop(COMMAND)
    told, telling = os.pipe()
    shell = os.fork()
    if not shell:
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            os.close(output)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                signal.signal(number, signal.SIG_DFL)
            os.close(telling)
            if os.read(told, 1):  # the command may turn on its reaper as soon as it runs
                os.execvpe(program, [program, "-c", command], environment)
        except OSError as error:
            tell(socket, f"failed {error.errno}")
        finally:
            os._exit(127)
    os.close(output)
    tell(socket, f"started {shell}")
    os.write(telling, b"1")
    os.close(telling)
    os.close(told)
    return shell


def tell(socket: int, line: str) -> None:
    """Write a line, unless nobody is there to read it: then `obey` ends all."""
    try:
        os.write(socket, f"{line}\n".encode())
    except OSError:
        return


def obey(socket: int, shell: int) -> None:
    """Send the signals that are asked for. After SIGKILL, and when nobody asks any more, kill until nothing runs."""
    try:
        while (asked := os.read(socket, 1)) and asked[0] != signal.SIGKILL:
            send(asked[0], shell)
    except OSError:  # whoever started this has ended with lines that it had not read
        pass
    for _ in range(_MOST_KILLS):
        send(signal.SIGKILL, shell)
        time.sleep(_KILL_AGAIN_S)
    os._exit(1)


def send(number: int, shell: int) -> None:
    """Send a signal to the group of the shell, and to each process below this one that is not in it."""
    below = running_below(os.getpid())
    targets = [-shell] if shell in below.values() else []
    for target in (*targets, *(process for process, group in below.items() if group != shell)):
        try:
            os.kill(target, number)
        except (ProcessLookupError, PermissionError):
            continue


def running_below(ancestor: int) -> dict[int, int]:
    """Return all processes that run below this one, each with the id of its group."""
    children: dict[int, list[tuple[int, int, bool]]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent, group = file.read().rpartition(b")")[2].split(maxsplit=3)[:3]
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
    main()
