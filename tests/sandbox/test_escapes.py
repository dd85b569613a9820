"""Ways out of a box, by their effect. Each is tried without a box, too: it must succeed there, or it proves nothing."""

import os
import subprocess
from pathlib import Path

import pytest

from journeyman.sandbox import Bubblewrap
from journeyman.sandbox.trials import run_in_sandbox
from tests.sandbox.stage import Harm, Stage, staged

PYTHON = "python3 -I -S -c"
LIBC = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True);"

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
    ),
    "process": (
        'kill -9 "$PID"',
        f"{PYTHON} '{LIBC} p = int(os.environ[\"PID\"]); libc.ptrace(16, p, 0, 0); os.waitpid(p, 0); os.kill(p, 9)'",
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
    )
}
TABLES = (ESCAPES, ONLY_ROOT) if os.geteuid() == 0 else (ESCAPES,)
ROWS = [(harm, line) for table in TABLES for harm, lines in table.items() for line in lines]


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


@pytest.mark.share(one_in=4)
@pytest.mark.parametrize(("harm", "line"), ROWS, ids=[f"{harm}-{line[:60]}" for harm, line in ROWS])
async def test_a_way_out_that_is_open_without_a_box_is_closed_in_one(
    bubblewrap: Bubblewrap, template: Path, harm: Harm, line: str
) -> None:
    with staged(template) as stage:
        output = run_outside(stage, line)
        is_open = harm in stage.harms(output)
    with staged(template) as stage:
        opened = bubblewrap.open(stage.box())
        _, output = await run_in_sandbox(opened, 'exec bash -c "$LINE"', {**stage.environment, "LINE": line})
        opened.close()
        assert stage.harms(output) == set(), output
    assert is_open, "It does not even work without a box, so it proves nothing."
