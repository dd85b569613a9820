"""Lines that developers type each day, which end in a box as they do outside of it; and those that cannot."""

GIT = (
    *("git status --short", "git log --oneline", "git diff", "git show HEAD:f", "git add -A", "git add f"),
    *("git commit -qam two --allow-empty", "git checkout -q -b topic", "git branch -a", "git tag v1", "git blame f"),
    *("git grep a", "git rev-parse HEAD", "git ls-files", "git reset -q --hard", "git rebase -q main", "git gc -q"),
    *("git worktree add -q ../work/tree", "git describe --always", "git clean -ndx", "git cherry -v main main"),
    *("git archive HEAD | tar t", "git fsck", "git config core.bare", "git -C a/b/c/d/e/f status", "git stash list"),
    *("git mv f g && git mv g f", "git apply --check /dev/null; true", "git shortlog -s HEAD"),
    *("git bundle create b HEAD", "git clone -q . clone", "git init -q new", "git notes add -m x"),
    *("git submodule status", "git bisect start"),
)
FILES = (
    *("ls -la", "find . -name f", "cat f | sort | uniq -c", "sed -i s/a/b/ f", "awk '{print $1}' f", "cp f g && rm g"),
    *("mkdir -p x/y && touch x/y/z && mv x z", "tar czf a.tgz f && tar xzf a.tgz", "zip -q a.zip f && unzip -qo a.zip"),
    *("chmod +x f && test -x f", "ln -s f link && readlink link", "ln f hard", "du -sh .", "df -h . > /dev/null"),
    *("diff f f && cmp f f", "patch --dry-run f < /dev/null", "xargs -n1 echo < f", "tee copy < f"),
    *("truncate -s 100 t", "mktemp -d", "mkfifo pipe && (echo x > pipe &) && cat pipe", "split -l 1 f part"),
    *("head -c 10 /dev/urandom | xxd", "cat <<< here", "flock lock true", "stat -c %s f", "touch -d yesterday f"),
    *("install -m 644 f installed", "date > now"),
)
BUILDS = (
    *("python3 -c 'import ssl, sqlite3'", "python3 -m venv --without-pip v && v/bin/python -c 1"),
    *("python3 -m json.tool <<< {}", "python3 -m unittest discover", "python3 -m compileall -q ."),
    *("python3 -m timeit -n 1 pass", "python3 -m pip --version"),
    "python3 -c 'import multiprocessing as m; m.Pool(2).map(abs, [1])'",
    "python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0))'",
    "echo 'int main(void) { return 0; }' > m.c && gcc m.c -o m && ./m",
    *("printf 'all:\\n\\techo built\\n' > Makefile && make -j2", "node -e 'console.log(1)'"),
    'echo \'{"name": "p", "version": "1.0.0"}\' > package.json && npm pack --silent && npm run env > /dev/null',
    *("sqlite3 db 'create table t (a); insert into t values (1); select * from t'", "perl -e 'print 1'", "jq . <<< {}"),
    "python3 -m http.server 8123 --bind 127.0.0.1 & sleep 0.5; curl -s http://127.0.0.1:8123/f; kill %1",
    *("gdb -batch -ex 'break main' --args /bin/sh", "strace -c -o trace true", "bc <<< 1+2"),
    *("(sleep 60 & kill $!; wait; true)", "ps aux > /dev/null", "kill -0 $$", "ulimit -a > /dev/null", "time -p true"),
    *("timeout 5 true", "nice true", "env", "id", "uname -a", "hostname", "which git", "nproc", "locale"),
)
_TEMPORARY = "cd $(mktemp -d) && "
_SERVE = 'import socket; s = socket.socket(1, {}); s.bind("{}"); s.listen(); c = socket.socket(1, {}); c.connect("{}")'
SOCKETS = (
    *("tmux new-session -d true", "eval $(ssh-agent) && ssh-agent -k"),
    "python3 -c 'import multiprocessing as m; m.Manager()'",
    f"{_TEMPORARY}tmux -S s new-session -d 'sleep 9' && tmux -S s ls && tmux -S s kill-server",
    'ssh-keygen -q -t ed25519 -N "" -f k && eval $(ssh-agent) && ssh-add -q k && ssh-add -l && ssh-agent -k',
    f'{_TEMPORARY}gpg --homedir . --batch --passphrase "" --quick-gen-key x && gpgconf --homedir . --kill all',
    "printf 'protocol=https\\nhost=h\\nusername=u\\npassword=p\\n' | git credential-cache store; printf 'protocol=https"
    "\\nhost=h\\n' | git credential-cache get | grep -q =p; r=$?; git credential-cache exit; exit $r",
    *(
        f"python3 -c 'import multiprocessing as m; m.get_context(\"{each}\").Pool(2).map(abs, [1])'"
        for each in ("fork", "spawn", "forkserver")
    ),
    "python3 -c 'import multiprocessing as m; d = m.Manager().dict(); p = m.Process(target=d.update, args=({1: 2},)); "
    "p.start(); p.join(); assert d[1] == 2'",
    "python3 -c 'from multiprocessing.shared_memory import *; b = SharedMemory(create=True, size=9); b.unlink()'",
    f"{_TEMPORARY}python3 -c '{_SERVE.format(1, 's', 1, 's')}'",
    f"{_TEMPORARY}python3 -c '{_SERVE.format(5, 's', 5, './/s')}'",
    "python3 -c '" + _SERVE.format(1, "\\0everyday", 1, "\\0everyday") + "'",
    f"{_TEMPORARY}python3 -c 'import asyncio as a; r = a.Runner(); f = lambda r, w: w.close(); "
    's = r.run(a.start_unix_server(f, "s")); i, o = r.run(a.open_unix_connection("s")); r.run(i.read())\'',
    f'{_TEMPORARY}python3 -c \'from multiprocessing.connection import *; import threading as t; l = Listener("s"); '
    't.Thread(target=lambda: Client("s").send(1)).start(); assert l.accept().recv() == 1\'',
    f'{_TEMPORARY}node -e \'const n = require("net"); n.createServer(c => c.end("x")).listen("s", () => '
    'n.connect("s").on("data", () => process.exit(0)))\'',
    f'{_TEMPORARY}perl -MIO::Socket::UNIX -e \'$s = IO::Socket::UNIX->new(Local => "s", Listen => 1) or die; '
    'IO::Socket::UNIX->new(Peer => "s") or die\'',
    "strace -f -e trace=connect -o t python3 -c 'import multiprocessing as m; m.Manager()' && grep -q sun_path t",
    *("script -qec true /dev/null", "dbus-run-session -- true", "flock -n /tmp -c true", "getent hosts localhost"),
    *("printf 'all: a b\\na b:\\n' > M && make -s -j2 -f M", "sqlite3 w 'pragma journal_mode=wal; create table t (a)'"),
)
"""Those that talk to each other inside of the box, by unix sockets and otherwise."""
DIFFER = {
    "su nobody -s /bin/sh -c true": "another user",
    "git config core.editor vi": "a protected file",
    "git remote add origin ../x": "a protected file",
}
"""Those that end otherwise, and what of."""
