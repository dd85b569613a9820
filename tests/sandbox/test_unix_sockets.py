"""Unix sockets in a box: a command connects them to what is in it as it would outside, and to nothing else."""

import socket
import tempfile
from pathlib import Path

import pytest

from journeyman.sandbox import Box, Bubblewrap, NoSandbox, OpenSandbox
from journeyman.sandbox.trials import run_in_sandbox, visible_folder
from tests.sandbox.stage import Stage

BEGIN = """import ctypes, errno, fcntl, os, socket, struct, sys, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(tempfile.mkdtemp())
def listen(name, n=9): made = socket.socket(1); made.bind(name); made.listen(n); return made
def code(number, address, length):
    return libc.connect(number, address, length) and errno.errorcode[ctypes.get_errno()]
"""
ALIKE = (
    's = socket.socket(1); print([code(s.fileno(), b"\\1\\0no", n) for n in (0, 1, 2, 3, 5, 110, 111, 128, 129, -1)])',
    's = listen("s"); print([code(n, b"\\1\\0s", 5) for n in (77, -1, os.open(".", 0), socket.socket().fileno())])',
    "s = socket.socket(1); print([code(s.fileno(), ctypes.c_void_p(n), 9) for n in (0, 8, 2**47, 2**63, 2**64 - 4)])",
    'open("file", "w"); os.symlink("loop", "loop"); s = socket.socket(1); '
    'print([s.connect_ex(each) for each in ("file", ".", "loop", "file/x", "/dev/null", "no/" + "x" * 90, "\\0no")])',
    's = listen("s"); s.close(); print(socket.socket(1).connect_ex("s"), socket.socket(1, 5).connect_ex("s"))',
    's = listen("s"); print(socket.socket(1, 5).connect_ex("s")); c = socket.socket(1); c.connect("s"); '
    'print(c.connect_ex("s"), c.getpeername(), s.accept()[1])',
    's = listen("s"); c = socket.socket(1, socket.SOCK_STREAM | socket.SOCK_NONBLOCK); n = c.fileno(); c.connect("s"); '
    "print(c.fileno() == n, fcntl.fcntl(n, fcntl.F_GETFL), fcntl.fcntl(n, fcntl.F_GETFD))",
    's = listen("s"); c = socket.socket(1); c.setsockopt(1, socket.SO_PASSCRED, 1); c.bind("c"); c.connect("s"); '
    "print(c.getsockopt(1, socket.SO_PASSCRED), s.accept()[1])",
    's = listen("s", 0); fast = [socket.socket(1, 0o4001) for _ in "123"]; print([c.connect_ex("s") for c in fast])',
    's = listen("x" * 107); print(socket.socket(1).connect_ex("x" * 107), len(s.getsockname()))',
    'os.mkdir("d"); d = os.open("d", 0); s = listen(f"/proc/self/fd/{d}/s"); '
    'print(socket.socket(1).connect_ex(f"/proc/self/fd/{d}/s"), socket.socket(1).connect_ex("/proc/self/cwd/d/s"))',
    't = socket.socket(); t.bind(("127.0.0.1", 0)); t.listen(); c = socket.socket(); c.connect(t.getsockname()); '
    "print(t.accept()[1] == c.getsockname(), c.connect_ex(t.getsockname()), code(c.fileno(), bytes(16), 16))",
    'c = socket.socket(); c.setblocking(False); print(c.connect_ex(("127.0.0.1", 9)) in (0, 115, 111))',
    'u = socket.socket(2, 2); u.connect(("127.0.0.1", 9)); print(u.getpeername(), code(u.fileno(), bytes(16), 16))',
    's, a, b = listen("s"), *socket.socketpair(); c = socket.socket(1); c.connect("s"); p = s.accept()[0]; '
    'socket.send_fds(p, [b"x"], [a.fileno()]); [n] = socket.recv_fds(c, 1, 1)[1]; os.write(n, b"y"); print(b.recv(1))',
    """s, made = listen("s", 2000), []
def connect(): made.extend([socket.socket(1).connect_ex("s") for _ in range(50)])
all = [threading.Thread(target=connect) for _ in range(20)]; [t.start() for t in all]; [t.join() for t in all]
print(len(made), {*made})""",
    """slow, quick, first = listen("slow", 0), listen("quick"), socket.socket(1)
first.connect("slow")  # who waits for it from now on does so alone, and ends with it
def wait(): slow.close(); os._exit(socket.socket(1).connect_ex("slow"))
waiting = [os.fork() or wait() for _ in range(3)]
time.sleep(0.2)
print([socket.socket(1).connect_ex("quick") for _ in range(9)], os.kill(waiting[0], 9), os.waitpid(waiting[0], 0)[1])
slow.close(); print([os.waitstatus_to_exitcode(os.waitpid(n, 0)[1]) for n in waiting[1:]])""",
)
OUTWARD = {
    "os.kill(os.getppid(), 9); s = socket.socket(1); s.connect(os.environ['OUT'])": None,
    "import resource; p = os.getppid(); resource.prlimit(p, resource.RLIMIT_NOFILE, (3, 3)); s = listen('s'); "
    "print(all(socket.socket(1).connect_ex(each) for each in ('s', os.environ['OUT'])))": None,
    "s = listen('/dev/shm/s'); print(socket.socket(1).connect_ex('/dev/shm/s'))": "0",
    "print(socket.socket(1).connect_ex(os.environ['OUT']))": "1",
    "s = socket.socket(1); s.bind(os.environ['WORK'] + '/s')": None,
    "import multiprocessing; print(multiprocessing.Manager().list([1]))": "[1]",
}


async def run(opened: OpenSandbox, program: str, **environment: str) -> list[str]:
    """Run a program that `BEGIN` begins, and return the lines that it has written."""
    given = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PROGRAM": f"{BEGIN}{program}", **environment}
    _, output = await run_in_sandbox(opened, 'exec python3 -I -S -c "$PROGRAM"', given)
    return output.splitlines()


@pytest.mark.parametrize("program", ALIKE)
async def test_a_socket_is_connected_in_a_box_as_outside(bubblewrap: Bubblewrap, stage: Stage, program: str) -> None:
    found: list[list[str]] = []
    for sandbox in (NoSandbox(), bubblewrap):
        opened = sandbox.open(stage.box())
        found.append(await run(opened, program))
        opened.close()
    assert "Error" not in found[0][-1], found
    assert found[0] == found[1]


@pytest.mark.parametrize("program", OUTWARD)
@pytest.mark.parametrize("place", ["beside", "temporary", "written", "system"])
async def test_a_socket_of_outside_is_not_connected(bubblewrap: Bubblewrap, program: str, place: str) -> None:
    """Also if the workspace lies in a temporary folder, or a command may change all temporary files."""
    with visible_folder() as visible, tempfile.TemporaryDirectory() as folder, socket.socket(1) as server:
        temporary = Path(folder).resolve()
        work = visible if place in ("beside", "written") else temporary
        path = (visible if place == "beside" else temporary) / "socket"
        server.bind(str(path))
        server.listen()
        server.setblocking(False)
        writes = (str(temporary.parent),) if place == "written" else ()
        opened = bubblewrap.open(Box(work=str(work), writes=writes, reads="system" if place == "system" else "all"))
        lines = await run(opened, program, OUT=str(path), WORK=str(work))
        opened.close()
        with pytest.raises(BlockingIOError):
            server.accept()
        assert not (work / "s").exists()
        if place == "beside" or "multiprocessing" in program:  # that makes its socket where one can be
            assert OUTWARD[program] in (None, *lines)
