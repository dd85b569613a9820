"""Ways out of a box, each by its number: by their effect, as whoever runs the tests and as another user.

Each is tried without a box, too: it must succeed there, or it proves nothing. Run as a program, it tries those whose
numbers it is given, and prints for each the harm without a box and the harm in one, as JSON.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from journeyman.sandbox import Bubblewrap, Sandbox
from journeyman.sandbox.trials import run_in_sandbox
from tests.sandbox.stage import Harm, Stage, make_template, staged
from tests.support.shares import thinned

PYTHON = "python3 -I -S -c"
LIBC = "import ctypes, os, struct; libc = ctypes.CDLL(None, use_errno=True);"
TOLD = 'print("REACHED" if'
SOCKET = 'import os, socket; tcp, udp = int(os.environ["TCP"]), int(os.environ["UDP"]);'

PEER = """import ctypes, os, socket, struct, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)
top, out = tempfile.mkdtemp(), os.path.abspath("socket")
own = top + "/socket"; served = socket.socket(1); served.bind(own); served.listen(4096)
def pack(path): return b"\\1\\0" + os.fsencode(path) + bytes(108 - len(path))
def turn(path, kind=1):
    with socket.socket(1, kind | 0o4000) as made: made.connect_ex(path)
def raw(address, length=110):
    with socket.socket(1, 0o4001) as made: libc.connect(made.fileno(), address, length)
def link(to): os.symlink(to, top + "/new"); os.rename(top + "/new", top + "/link")
def race(connect, *steps):
    turns = [0, 0]
    def swap():
        while min(turns) < 1000:
            for step in steps:
                step(); turns[0] += 1; last = turns[1] + turns[0] % 5 % 3
                while turns[1] < last and min(turns) < 1000: time.sleep(0)
    swapping = threading.Thread(target=swap); swapping.start()
    while min(turns) < 1000: connect(); turns[1] += 1
    swapping.join()
"""
"""It listens in a temporary folder at `own`; `out` is the path of a socket of outside. `turn` connects a new socket to
a path, `raw` one to an address in memory, and `race` does so, while steps are taken beside, a thousand times each.
After some steps it waits for one or two connections: both threads might keep step, and never meet the one that harms.
"""
PEERS = (
    'os.link("socket", "twin"); turn("twin")',
    'os.rename("socket", "moved"); turn("moved")',
    'link(out); turn(top + "/link")',
    'os.chdir(top); turn("/proc/self/root" + out)',
    'turn("/proc/thread-self/cwd/socket")',
    'os.dup2(os.open(".", 0), 9); turn("/proc/self/fd/9/socket"); turn("/dev/fd/9/socket")',
    'turn(f"/proc/{os.getppid()}/root{out}"); turn(f"/proc/{os.getpid()}/cwd/socket")',
    'raw(pack("./" * 51 + "socket"))',
    'for length in range(8, 111): raw(pack("socket"), length)',
    'race(lambda: turn(top + "/link"), lambda: link(own), lambda: link(out))',
    'race(lambda: turn("socket"), lambda: os.chdir(top), lambda: os.chdir(os.path.dirname(out)))',
    "m = ctypes.create_string_buffer(pack(own), 110)\n"
    'race(lambda: raw(m), *[lambda a=a: ctypes.memmove(m, pack(a), 110) for a in (own, "socket")])',
    *(
        f"m = {address}; a, b = socket.socket(), socket.socket(1, 0o4001); os.dup2(b.fileno(), 99)\n"
        f"race(lambda: libc.connect(99, m, {length}), *[lambda n=n: os.dup2(n.fileno(), 99) for n in (a, b)])"
        for address, length in (
            ('pack("socket")', 110),
            ('pack("socket")', 16),
            ('pack("./././././././././socket")', 28),
        )
    ),
    't = threading.Thread(target=lambda: (libc.unshare(0x400), turn("socket"))); t.start(); t.join()',
    'p = os.fork(); p or turn("socket") or os._exit(0); os.waitpid(p, 0)',
    's = socket.socket(1); s.bind(top + "/client"); s.connect("socket")',
    's = socket.socket(1); s.connect_ex(own + "x"); s.connect("socket")',
    'socket.socket(1, 2).sendto(b"x", "datagrams")',
    'socket.socket(1, 2).sendmsg([b"x"], (), 0, "datagrams")',
    's = socket.socket(1, 3); s.connect("datagrams"); s.send(b"x")',
)
"""Ways to a unix socket of outside."""
SUPERVISORS = (
    'open(f"/proc/{os.getppid()}/mem", "rb"); print("REACHED")',
    'os.readlink(f"/proc/{os.getppid()}/fd/0"); print("REACHED")',
    'os.readlink(f"/proc/{os.getppid()}/exe"); print("REACHED")',
    'libc.ptrace(0x4206, os.getppid(), 0, 0) or print("REACHED")',
    'libc.syscall(438, os.pidfd_open(os.getppid()), 0, 0) >= 0 and print("REACHED")',
    'f = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000)); libc.prctl(38, 1, 0, 0, 0)\n'
    'libc.syscall(317, 1, 8, struct.pack("=HHIQ", 1, 0, 0, ctypes.addressof(f))) >= 0 and print("REACHED")',
    'socket.socket(1).bind("here"); print("REACHED")',
    'os.mknod("here", 0o140644); print("REACHED")',
)
"""Ways to what supervises the sockets, to supervise them oneself, and to make one where a program outside finds it."""


def by_peer(program: str) -> str:
    """Return a line of a shell that runs a program which `PEER` begins, in the place of the shell."""
    return f"exec python3 -I -S - <<'END'\n{PEER}{program}\nEND"


ESCAPES: dict[Harm, tuple[str, ...]] = {
    "outside": (
        "echo x > ../out/file",
        "ln -s ../out away; echo x > away/file",
        "ln ../out/file twin; echo x > twin",
        "mv ../out/file .",
        "mkdir new; mv new ../out/",
        'echo x >> ~/.bashrc; cd "$OUT"; rm file',
        "exec 9< ../out; echo x > /proc/self/fd/9/file",
        "echo x > /proc/self/cwd/../out/file",
        'for i in /proc/[0-9]*; do echo x > "$i/root$OUT/file"; done',
        'mount -o remount,rw,bind / /; mount -o remount,rw /; echo x > "$OUT/file"',
        'umount -l /proc; umount -l "$OUT"; umount -l "$SELF"; echo x > "$OUT/file"',
        "unshare -Urm sh -c 'mount --bind ../out /mnt; echo x > /mnt/file'",
        "touch -d 2001-01-01 ../out/file",
        "chmod 777 ../out/file",
        "truncate -s 0 ../out/file",
        "mkfifo ../out/fifo",
        f'{PYTHON} \'import os; os.rename("f", "../out/file")\'',
        f'{PYTHON} \'import os; d = os.open("..", os.O_RDONLY); os.unlink("out/file", dir_fd=d)\'',
        "tar cf a.tar f --transform 's,f,../out/file,' -P; tar xf a.tar -P",
        "git config --global core.pager x",
        "nsenter -t 1 -m true; echo x > ../out/file",
        "cp f ../out/file",
        "tee ../out/file < f",
        "dd if=f of=../out/file status=none",
        "sed -i s/as/was/ ../out/file",
        "perl -i -pe s/as/was/ ../out/file",
        "find .. -path '*/out/file' -delete",
        'cd /; echo x > ".$OUT/file"',
        "ln f ../out/twin",
        "ln -s /etc ../out/link",
        "mv ../out ../elsewhere",
        "git worktree add -q ../out/tree HEAD",
        "git clone -q . ../out/clone",
        "git --git-dir=../out/g init -q",
        "printf 'all:\\n\\techo x > file\\n' | make -s -C ../out -f -",
        'awk \'BEGIN { print "x" > "../out/file" }\'',
        "exec 9>> ../out/file; echo x >&9",
        'echo x > "/proc/$PID/root$OUT/file"',
        "(setsid sh -c 'sleep 0.1; echo x > ../out/file' &); sleep 0.4",
        f"{PYTHON} 'import os; os.truncate(\"../out/file\", 1)'",
        f'{PYTHON} \'import mmap; f = open("../out/file", "r+b"); mmap.mmap(f.fileno(), 0)[0:2] = b"xx"\'',
        f'{PYTHON} \'import os; os.utime("../out/file", (1, 1)); os.chmod("../out/file", 0o777)\'',
        f'{PYTHON} \'{LIBC} libc.renameat2(-100, b"f", -100, b"../out/file", 2)\'',
        f'{PYTHON} \'{LIBC} libc.linkat(-100, b"f", -100, b"../out/twin", 0)\'',
        "unshare -Urm sh -c 'umount -l /proc; mount -o remount,rw /; echo x > ../out/file'",
    ),
    "protected": (
        "echo x > .git/hooks/post-commit",
        "mv .git g; cp -r g .git; echo x > .git/hooks/post-commit",
        "rm -rf .git/hooks; mkdir .git/hooks; echo x > .git/hooks/post-commit",
        "git config core.fsmonitor x",
        'printf "[core]\\nfsmonitor=x\\n" >> .git/config',
        "mv .git/config c; cp c .git/config",
        "ln .git/config c; echo >> c",
        "echo '* filter=x' > .git/info/attributes",
        "mv .git/info i; mkdir .git/info; echo x > .git/info/attributes",
        "echo x > a/b/c/d/e/f/.git/hooks/post-commit",
        "mv a z; cp -r z a; echo x > a/b/c/d/e/f/.git/hooks/post-commit",
        "mv a/b/c/d/e/f g; cp -r g a/b/c/d/e/f; echo x > a/b/c/d/e/f/.git/config",
        "echo x > .envrc",
        "rm .envrc; echo x > .envrc",
        "echo x > .vscode/tasks.json",
        "mv .vscode v; mkdir .vscode; echo x > .vscode/tasks.json",
        "chmod -R 777 .git; echo x > .git/config",
        "touch -d 2001-01-01 .git/config",
        "git config alias.x '!sh'",
        "git config core.hooksPath x",
        "cp f .git/hooks/pre-commit",
        "ln -s ../../f .git/hooks/pre-push",
        "mv .git/hooks h && mkdir .git/hooks",
        f'cp -r .git g; echo x > g/hooks/a; {PYTHON} \'{LIBC} libc.renameat2(-100, b".git", -100, b"g", 2)\'',
        f'{PYTHON} \'{LIBC} libc.renameat2(-100, b".git/config", -100, b"f", 2)\'',
        "rm -rf .git; git init -q .; echo x > .git/hooks/post-commit",
        "sed -i s/core/x/ .git/config",
        "truncate -s 0 .envrc",
        "mv a/b x; mkdir -p a/b/c/d/e/f/.git/hooks; echo x > a/b/c/d/e/f/.git/hooks/post-commit",
        "chmod 700 .git/hooks; chmod 000 .git/hooks",
        "mkdir -p x/.git/hooks; echo x > x/.git/hooks/post-commit; tar cf - -C x . | tar xf -",
        "mkdir -p t/hooks; echo x > t/hooks/post-commit; git init -q --template=t .",
        "rm -rf .vscode; ln -s f .vscode",
        "install -D f .vscode/launch.json",
        "find . -name 'post-commit.sample' -delete",
    ),
    "secret": (
        "cat .env",
        f"{PYTHON} 'print(open(\".env\").read())'",
        "cp .env copy; cat copy",
        "mv .env moved; cat moved",
        "ln .env twin; cat twin",
        "tar cf - .env",
        "git cat-file -p $(git hash-object -w .env)",
        "git add -f .env; git show :.env",
        "chmod 777 .env; cat .env",
        "cat ~/.ssh/id",
        "mv ~/.ssh away; cat away/id",
        "dd if=.env",
        "cat < .env",
        'for i in /proc/[0-9]*; do cat "$i/root$SELF/work/.env"; done',
        'cat "/proc/$PID/environ"',
        "cat /proc/[0-9]*/environ",
        "head -c 99 .env",
        "sed p .env",
        "grep . .env",
        "base64 .env | base64 -d",
        "while read -r l; do echo $l; done < .env",
        "echo $(<.env)",
        ". ./.env; echo $TOKEN",
        "cat /proc/self/cwd/.env",
        "exec 9< .; cat /proc/self/fd/9/.env",
        "git diff --no-index /dev/null .env",
        "git add -A; git show :.env",
        "git stash -uq; git show 'stash@{0}^3:.env'",
        "ln -s .env l; cat l",
        "find . -name .env -exec cat {} +",
        "grep -r correct .",
        "mkdir c; cp -r .e* c; cat c/.env",
        "perl -pe 1 .env",
        "tar cf - -C ~ .ssh | tar xOf - .ssh/id",
        'cat "/proc/$PID/root$SELF/home/.ssh/id"',
        'ps eww -p "$PID"',
        f"{PYTHON} 'import mmap, os; print(mmap.mmap(os.open(\".env\", 0), 0, prot=1)[:].decode())'",
        f'{PYTHON} \'import os; d = os.open(".", os.O_PATH); print(os.read(os.open(".env", 0, dir_fd=d), 99))\'',
    ),
    "network": (
        "exec 9<> /dev/tcp/127.0.0.1/$TCP",
        "exec 9<> /dev/tcp/localhost/$TCP",
        "echo x > /dev/udp/127.0.0.1/$UDP",
        f'{PYTHON} \'import os, socket; socket.socket(socket.AF_UNIX).connect("\\0" + os.environ["ABSTRACT"])\'',
        f"{PYTHON} 'import socket; socket.socket(socket.AF_UNIX).connect(\"socket\")'",
        f'{PYTHON} \'import socket; socket.socketpair(1, 2)[0].sendto(b"x", "datagrams")\'',
        f'{PYTHON} \'import socket; a, b = socket.socketpair(1, 3); a.connect("datagrams"); a.send(b"x")\'',
        'nsenter -t "$PID" -n bash -c "exec 9<> /dev/tcp/127.0.0.1/$TCP"; exec 9<> /dev/tcp/127.0.0.1/$TCP',
        "exec 9<> /dev/tcp/127.0.0.2/$TCP; exec 9<> /dev/tcp/0.0.0.0/$TCP",
        "timeout 1 git ls-remote git://127.0.0.1:$TCP/x",
        "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(PeerAddr => \"127.0.0.1:$ENV{TCP}\")'",
        f"{PYTHON} '{SOCKET} socket.socket(10).connect((\"::ffff:127.0.0.1\", tcp))'",
        f'{PYTHON} \'{SOCKET} socket.socket(10, 2).sendto(b"x", ("::ffff:127.0.0.1", udp))\'',
        f'{PYTHON} \'{SOCKET} socket.socket().sendto(b"x", 0x20000000, ("127.0.0.1", tcp))\'',
        f"{PYTHON} '{SOCKET} socket.socket(1, 0o4001).connect(\"/proc/self/cwd/socket\")'",
        f"{PYTHON} '{LIBC} {SOCKET} n = libc.socket(1, 1, 0); libc.connect(n, b\"\\1\\0socket\", 9)'",
        *map(by_peer, PEERS),
    ),
    "process": (
        'kill -9 "$PID"',
        "echo x > ../out/pipe",
        "ln -s ../out/pipe p; exec 9<> p; echo x >&9",
        f"{PYTHON} '{LIBC} p = int(os.environ[\"PID\"]); libc.ptrace(16, p, 0, 0); os.waitpid(p, 0); os.kill(p, 9)'",
        'kill -TERM "$PID"',
        'kill -STOP "$PID"',
        f"{PYTHON} 'import os; os.kill(int(os.environ[\"PID\"]), 1)'",
        f"{PYTHON} 'import os, signal; signal.pidfd_send_signal(os.pidfd_open(int(os.environ[\"PID\"])), 9)'",
        f"{PYTHON} '{LIBC} p = int(os.environ[\"PID\"]); libc.syscall(234, p, p, 9)'",
    ),
    "reached": (
        "cp /bin/true s; chmod 4755 s; test -u s && echo REACHED",
        "install -m 4755 /bin/true s; test -u s && echo REACHED",
        f"{PYTHON} 'import os; os.close(os.open(\"s\", os.O_CREAT | os.O_WRONLY, 0o4755))'; test -u s && echo REACHED",
        f"{PYTHON} 'import os; os.mknod(\"s\", 0o104755)'; test -u s && echo REACHED",
        f"{PYTHON} '{LIBC} libc.syscall(452, -100, b\"f\", 0o4755, 0)'; test -u f && echo REACHED",
        "unshare -U true && echo REACHED",
        f"{PYTHON} '{LIBC} print(\"REACHED\" if libc.syscall(425, 1, bytes(200)) >= 0 else 0)'",
        f"{PYTHON} '{LIBC} print(\"REACHED\" if libc.syscall(250, 0, -3, 1) >= 0 else 0)'",
        f'{PYTHON} \'{LIBC} print("REACHED" if libc.syscall(437, -100, b"f", bytes(24), 24) >= 0 else 0)\'',
        f"{PYTHON} 'import socket; socket.socket(16, 3, 9); print(\"REACHED\")'",
        f'{PYTHON} \'{LIBC} print("REACHED" if libc.syscall(303, -100, b"f", bytes(200), bytes(8), 0) == 0 or '
        "ctypes.get_errno() == 75 else 0)'",
        "cp /bin/true s; chmod u+s s; test -u s && echo REACHED",
        "cp /bin/true s; chmod g+s s; test -g s && echo REACHED",
        "mkdir -m 2755 d; test -g d && echo REACHED",
        "tar cf a.tar --mode=4755 f; rm f; tar xpf a.tar; test -u f && echo REACHED",
        f"{PYTHON} 'import os; os.fchmod(os.open(\"f\", 0), 0o6755)'; test -u f && echo REACHED",
        f"{PYTHON} '{LIBC} libc.syscall(85, b\"s\", 0o4755)'; test -u s && echo REACHED",
        f'{PYTHON} \'{LIBC} {TOLD} libc.syscall(248, b"user", b"a", b"b", 1, -3) > 0 else 0)\'',
        f"{PYTHON} '{LIBC} {TOLD} libc.syscall(323, 1) >= 0 else 0)'",
        f'{PYTHON} \'{LIBC} r = libc.syscall(435, struct.pack("=11Q", 1 << 28, 0, 0, 0, 17, *[0] * 6), 88); '
        f"r or os._exit(0); {TOLD} r > 0 else 0)'",
        f"{PYTHON} '{LIBC} r = libc.syscall(56, (1 << 28) + 17, 0, 0, 0, 0); r or os._exit(0); {TOLD} r > 0 else 0)'",
        f"{PYTHON} '{SOCKET} socket.socket(16, 2, 15); print(\"REACHED\")'",
        f"{PYTHON} '{SOCKET} socket.socket(40, 1, 0); print(\"REACHED\")'",
        "unshare -rm true && echo REACHED",
        "unshare -rn true && echo REACHED",
        "unshare -rpf true && echo REACHED",
        "bwrap --ro-bind / / true && echo REACHED",
        'readlink "/proc/$PID/exe" && echo REACHED',
        'ls "/proc/$PID/fd" > /dev/null && echo REACHED',
        'kill -0 "$PID" && echo REACHED',
        "grep -q 'NoNewPrivs:.0' /proc/self/status && echo REACHED",
        *map(by_peer, SUPERVISORS),
    ),
}
ONLY_ROOT: dict[Harm, tuple[str, ...]] = {
    "reached": (
        f'{PYTHON} \'open("/proc/sys/kernel/core_pattern", "r+"); print("REACHED")\'',
        f'{PYTHON} \'open("/proc/sys/vm/drop_caches", "a"); print("REACHED")\'',
        f'{PYTHON} \'import os; os.open("/dev/kmsg", os.O_WRONLY); print("REACHED")\'',
        f"{PYTHON} 'import socket; socket.socket(17, 3, 0); print(\"REACHED\")'",
        f"{PYTHON} 'import socket; socket.socket(2, 3, 1); print(\"REACHED\")'",
        f'{PYTHON} \'import os; os.mknod("d", 0o60600, os.makedev(1, 3)); print("REACHED")\'',
        f'{PYTHON} \'import os; os.chroot("."); print("REACHED")\'',
        "dmesg > /dev/null && echo REACHED",
        "mkdir m; mount -t tmpfs none m && echo REACHED",
        f'{PYTHON} \'open("/proc/sys/kernel/domainname", "a"); print("REACHED")\'',
        f'{PYTHON} \'open("/proc/sys/kernel/panic", "a"); print("REACHED")\'',
        f'{PYTHON} \'open("/sys/kernel/mm/ksm/run", "a"); print("REACHED")\'',
        f'{PYTHON} \'open("/proc/sys/kernel/hostname", "a"); print("REACHED")\'',
        "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status && echo REACHED",
        "setpriv --reuid=1 --clear-groups true && echo REACHED",
        f"{PYTHON} '{LIBC} {TOLD} libc.syscall(430, b\"tmpfs\", 0) >= 0 else 0)'",
        f"{PYTHON} '{LIBC} {TOLD} libc.syscall(300, 0, 0) >= 0 else 0)'",
        f"{PYTHON} '{LIBC} {TOLD} libc.syscall(321, 0, struct.pack(\"=4I\", 2, 4, 4, 1), 16) >= 0 else 0)'",
        f"{PYTHON} '{LIBC} m, s = os.openpty(); {TOLD} libc.ioctl(s, 0x5412, b\"x\") == 0 else 0)'",
        "cp -p /bin/su s; test -u s && echo REACHED",
    )
}

EVERY = [(harm, line) for table in (ESCAPES, ONLY_ROOT) for harm, lines in table.items() for line in lines]
N_FOR_ALL = sum(map(len, ESCAPES.values()))
"""Those with smaller numbers are tried by root and by others; the rest can harm only by root."""
Harms = dict[int, tuple[list[Harm], list[Harm], str]]
"""By the number of an escape: the harm without a box, the harm in one, and what was written there."""


def run_outside(stage: Stage, line: str) -> str:
    """Run a line as it would run without a box; what mounts, in a namespace of its own."""
    namespace = ["unshare", "--mount"] if "mount" in line and os.geteuid() == 0 else []
    done = subprocess.run(
        [*namespace, "bash", "-c", line],
        cwd=stage.work,
        env=stage.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=15,
        check=False,
    )
    return (done.stdout + done.stderr).decode("utf-8", "replace")


async def try_escapes(sandbox: Sandbox, template: Path, numbers: Sequence[int]) -> Harms:
    found: Harms = {}
    for number in numbers:
        _, line = EVERY[number]
        with staged(template) as stage:
            without = sorted(stage.harms(run_outside(stage, line)))
        with staged(template) as stage:
            opened = sandbox.open(stage.box())
            _, output = await run_in_sandbox(opened, 'exec bash -c "$LINE"', {**stage.environment, "LINE": line})
            opened.close()
            found[number] = (without, sorted(stage.harms(output)), output)
    return found


def assert_closed(found: Harms) -> None:
    for number, (without, within, output) in found.items():
        harm, line = EVERY[number]
        assert harm in without, f"{number}: {line}: it does not even work without a box, so it proves nothing."
        assert within == [], f"{number}: {line}: {output}"


@pytest.mark.share(one_in=8)
@pytest.mark.parametrize("number", range(len(EVERY) if os.geteuid() == 0 else N_FOR_ALL))
async def test_a_way_out_that_is_open_without_a_box_is_closed_in_one(
    bubblewrap: Bubblewrap, template: Path, number: int
) -> None:
    assert_closed(await try_escapes(bubblewrap, template, [number]))


OTHER_USER = 54_321
N_PARTS = 4
"""All at once take longer than a test may, on a busy machine."""


@cache
def python_of_all() -> str | None:
    """Return a Python of this version that other users may run, with the packages that are installed here."""
    named = [sys.executable, *(f"{each}/python3.{sys.version_info.minor}" for each in ("/usr/bin", "/usr/local/bin"))]
    for each in named:
        tried = "import sys, pathlib, tests.sandbox.stage; pathlib.Path(sys.executable).resolve().open('rb').close()"
        asked = [*as_other_user(), each, "-c", tried]
        if subprocess.run(asked, env=environment_of_other(), capture_output=True, check=False).returncode == 0:
            return each
    return None


def as_other_user() -> list[str]:
    return [shutil.which("setpriv") or "setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]


def environment_of_other(home: Path | None = None) -> dict[str, str]:
    paths = os.pathsep.join(each for each in (str(Path.cwd()), *sys.path) if not each.startswith(sys.base_prefix))
    path = f"{Path.home()}/bin:/usr/local/bin:/usr/bin:/bin"  # the first one may not be looked into
    return {"PATH": path, "PYTHONPATH": paths, "HOME": str(home or "/nowhere")}


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(N_PARTS))
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can become another user")
def test_another_user_has_no_way_out_either(bubblewrap: Bubblewrap, part: int) -> None:
    python = python_of_all()
    if python is None:
        pytest.skip("no other user may run a Python with these packages here")
    home = Path(tempfile.mkdtemp(prefix="journeyman-user-", dir=Path.cwd()))
    try:
        os.chown(home, OTHER_USER, OTHER_USER)
        numbers = thinned([str(each) for each in range(N_FOR_ALL)], one_in=16)[part::N_PARTS]
        line = [*as_other_user(), python, "-m", "tests.sandbox.test_escapes", *numbers]
        done = subprocess.run(line, env=environment_of_other(home), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, tuple[list[Harm], list[Harm], str]] = json.loads(done.stdout)
        assert [*found] == [*numbers]
        assert_closed({int(number): harms for number, harms in found.items()})
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    sandbox = Bubblewrap()
    held = sandbox.holds()
    assert held.is_enough, held
    made = make_template(Path(tempfile.mkdtemp(dir=Path.home())) / "template")
    sys.stdout.write(json.dumps(asyncio.run(try_escapes(sandbox, made, [int(each) for each in sys.argv[1:]]))))
    sandbox.close()
