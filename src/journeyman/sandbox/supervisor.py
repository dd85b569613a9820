"""The supervisor of unix sockets in a box: it connects them for a command, to what is in the box and to nothing else.

The first process of a box runs its code; it is never imported. Before each `connect` of a command the kernel asks it,
and waits. It connects the socket itself, with a copy of the address, and never lets the kernel go on with the call:
nothing counts that the command swaps meanwhile. A unix socket is connected by an abstract name, which belongs to the
network of the box, or to a file that is held open and lies in a file system that was made for the box, where no socket
of outside can be. A `bind` is only looked at: where it may make a file, Landlock decides.
"""

from __future__ import annotations

import _ctypes
import _thread
import errno
import sys

TYPE_CHECKING = False  # `typing` takes time to load
if TYPE_CHECKING:
    import os
    import signal
    from collections.abc import Callable, Collection
    from typing import Any
else:
    import _signal as signal  # without its enums
    import posix as os  # without its paths

_RECEIVE, _ANSWER, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # as linux/seccomp.h has them
_GOES_ON = (1).to_bytes(4, sys.byteorder)
_BIND = (49, 200)  # one of them is another call elsewhere, about which nobody asks
_N_WORDS, _THREAD_AT, _CALL_AT, _SOCKET_AT, _ADDRESS_AT, _LENGTH_AT = 10, 1, 2, 4, 5, 6
_PIDFD_GETFD, _AF_UNIX = 438, 1
_KIND_OF_FILE, _IS_SOCKET = 0o170000, 0o140000
_LONGEST, _LONGEST_UNIX = 128, 110  # as the kernel takes addresses
_HALF = 0xFFFFFFFF
_LONGEST_STATUS = 4_096
_LOOKUPS = b"/var/lib/sss/pipes/"  # every program that looks up a user asks there first, and goes on without
_OWN = b"/proc/self/"
_MOST_WAITING = 200  # for listeners with a full queue; who comes then is told to try again

_simple: Any = _ctypes._SimpleCData  # pyright: ignore[reportPrivateUsage] - `ctypes` takes as long as a command
_integer: Any = type("Integer", (_simple,), {"_type_": "i"})
_flags: Any = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
_Function: Any = type("Function", (_ctypes.CFuncPtr,), {"_flags_": _flags, "_restype_": _integer})


def answer_request(
    listener: int, systems: Collection[int], own: set[int], note_refusal: Callable[[bytes], None]
) -> None:
    """Answer a request of the kernel. `systems` are the devices of the box's own file systems. A connection is made in
    a thread of its own, so that nobody waits for the listener of another one. The kernel asks about the calls of those
    as well, which are in `own`: they go on."""
    request = bytes(8 * _N_WORDS)  # the system writes there
    try:
        invoke("ioctl", listener, _RECEIVE, request)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINTR):
            raise
        return  # whoever asked has ended
    words = [*memoryview(request).cast("Q")]
    if words[_THREAD_AT] & _HALF in own:
        return send_answer(listener, words, [], 0, goes_on=True)
    opened: list[int] = []
    is_bind = words[_CALL_AT] & _HALF in _BIND
    failure: int | None = errno.EAGAIN
    try:
        address = find_address(words, systems, opened, note_refusal)
        if not is_bind and _thread._count() < _MOST_WAITING:  # pyright: ignore[reportPrivateUsage]
            _thread.start_new_thread(connect, ((listener, own), words, address, opened))
            return None
    except OSError as error:
        failure = error.errno
    except RuntimeError:  # this process gets no more threads
        pass
    return send_answer(listener, words, opened, failure, goes_on=is_bind)  # Landlock decides about a `bind`


def find_address(
    words: list[int], systems: Collection[int], opened: list[int], note_refusal: Callable[[bytes], None]
) -> bytes:
    """Return the address that a request is about: that of a file to connect to by a descriptor, which is added to those
    that are `opened`.

    Raises:
        OSError: it leads out of the box, or is none.
    """
    address, path = read_address(words)
    if not path:
        return address
    is_bind = words[_CALL_AT] & _HALF in _BIND
    place = path.rpartition(b"/")[0] or b"/" if is_bind else path
    opened.append(os.open(place, os.O_PATH | os.O_CLOEXEC))
    facts = os.fstat(opened[0])
    if not is_bind and facts.st_mode & _KIND_OF_FILE != _IS_SOCKET:
        raise OSError(errno.ECONNREFUSED, "no socket")
    if facts.st_dev not in systems:
        if not path.startswith(_LOOKUPS):
            note_refusal(path_of(address))
        raise OSError(errno.EPERM, "not made in the box")
    return address[:2] + b"/proc/self/fd/%d" % opened[0]


def read_address(words: list[int]) -> tuple[bytes, bytes]:
    """Return the address that a request is about, and the path of its file as this process reaches that; empty where it
    names none. A unix socket takes no other addresses than those of a file, and abstract names.

    Raises:
        OSError: it is none.
    """
    thread, length = words[_THREAD_AT] & _HALF, words[_LENGTH_AT] & _HALF
    if length > _LONGEST:
        raise OSError(errno.EINVAL, "no address is as long")
    try:
        address = read_file(b"/proc/%d/mem" % thread, length, words[_ADDRESS_AT])
    except (OSError, OverflowError):
        address = b""
    if len(address) < length:
        raise OSError(errno.EFAULT, "nothing is there")
    path = path_of(address)
    if int.from_bytes(address[:2], sys.byteorder) != _AF_UNIX or not path:
        return address, b""
    if length > _LONGEST_UNIX:
        raise OSError(errno.EINVAL, "no address of a unix socket is as long")
    if path.startswith(_OWN):
        path = b"/proc/%d/%s" % (thread, path.removeprefix(_OWN))
    return address, path if path.startswith(b"/") else b"/proc/%d/cwd/%s" % (thread, path)


def path_of(address: bytes) -> bytes:
    """Return the path in the address of a unix socket; empty if its name is abstract."""
    return address[2:].partition(b"\0")[0]


def connect(asking: tuple[int, set[int]], words: list[int], address: bytes, opened: list[int]) -> None:
    """Connect the socket that a request is about, and answer that."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))  # else one would end the call of the command
    listener, own = asking
    thread = _thread.get_native_id()
    own.add(thread)
    failure: int | None = errno.EPERM
    try:
        status = read_file(b"/proc/%d/status" % (words[_THREAD_AT] & _HALF), _LONGEST_STATUS)
        opened.append(os.pidfd_open(int(status.partition(b"\nTgid:")[2].split(None, 1)[0])))
        opened.append(invoke("syscall", _PIDFD_GETFD, opened[-1], words[_SOCKET_AT] & _HALF, 0))
        # If whoever asked has ended, all this may be somebody else's.
        invoke("ioctl", listener, _IS_VALID, words[0].to_bytes(8, sys.byteorder))
        invoke("connect", opened[-1], address, len(address))
        failure = 0
    except OSError as error:
        failure = error.errno
    finally:
        own.discard(thread)
        send_answer(listener, words, opened, failure)


def send_answer(
    listener: int, words: list[int], opened: list[int], failure: int | None, *, goes_on: bool = False
) -> None:
    """Close what was opened for a request, and tell the kernel the error with which the call fails; 0: with none. Or
    have it go on with the call."""
    for number in opened:
        os.close(number)
    code = (-(errno.EPERM if failure is None else failure)).to_bytes(4, sys.byteorder, signed=True)
    ending = bytes(4) + _GOES_ON if goes_on else code + bytes(4)
    try:
        invoke("ioctl", listener, _ANSWER, words[0].to_bytes(8, sys.byteorder) + bytes(8) + ending)
    except OSError:  # whoever asked has ended
        return


def read_file(path: bytes, length: int, at: int = 0) -> bytes:
    """Return what is at a place of a file."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(number, length, at)
    finally:
        os.close(number)


def invoke(function: str, *arguments: object) -> int:
    """Call a function of the system's library, and return what it does.

    Raises:
        OSError: it has failed.
    """
    done: int = _Function(_ctypes.dlsym(_ctypes.dlopen("", 0), function))(*arguments)
    if done < 0:
        raise OSError(_ctypes.get_errno(), function)
    return done
