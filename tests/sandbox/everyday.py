"""Lines that developers type each day, which end in a box as they do outside of it; and those that cannot."""

GIT = (
    *("git status --short", "git log --oneline", "git diff", "git show HEAD:f", "git add -A", "git add f"),
    *("git commit -qam two --allow-empty", "git checkout -q -b topic", "git branch -a", "git tag v1", "git blame f"),
    *("git grep a", "git rev-parse HEAD", "git ls-files", "git reset -q --hard", "git rebase -q main", "git gc -q"),
    *("git worktree add -q ../work/tree", "git describe --always", "git clean -ndx", "git cherry -v main main"),
    *("git archive HEAD | tar t", "git fsck", "git config core.bare", "git -C a/b/c/d/e/f status", "git stash list"),
    *(
        "git mv f g && git mv g f",
        "git apply --check /dev/null; true",
        "git shortlog -s HEAD",
        "git bundle create b HEAD",
    ),
    *("git clone -q . clone", "git init -q new", "git notes add -m x", "git submodule status", "git bisect start"),
)
FILES = (
    *("ls -la", "find . -name f", "cat f | sort | uniq -c", "sed -i s/a/b/ f", "awk '{print $1}' f", "cp f g && rm g"),
    *("mkdir -p x/y && touch x/y/z && mv x z", "tar czf a.tgz f && tar xzf a.tgz", "zip -q a.zip f && unzip -qo a.zip"),
    *("chmod +x f && test -x f", "ln -s f link && readlink link", "ln f hard", "du -sh .", "df -h . > /dev/null"),
    *(
        "diff f f && cmp f f",
        "patch --dry-run f < /dev/null",
        "xargs -n1 echo < f",
        "tee copy < f",
        "truncate -s 100 t",
    ),
    *(
        "mktemp -d",
        "mkfifo pipe && (echo x > pipe &) && cat pipe",
        "split -l 1 f part",
        "head -c 10 /dev/urandom | xxd",
    ),
    *(
        "cat <<< here",
        "flock lock true",
        "stat -c %s f",
        "touch -d yesterday f",
        "install -m 644 f installed",
        "date > now",
    ),
)
BUILDS = (
    *(
        "python3 -c 'import ssl, sqlite3'",
        "python3 -m venv --without-pip v && v/bin/python -c 1",
        "python3 -m json.tool <<< {}",
    ),
    *(
        "python3 -m unittest discover",
        "python3 -m compileall -q .",
        "python3 -m timeit -n 1 pass",
        "python3 -m pip --version",
    ),
    *(
        "python3 -c 'import multiprocessing as m; m.Pool(2).map(abs, [1])'",
        "python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0))'",
    ),
    "echo 'int main(void) { return 0; }' > m.c && gcc m.c -o m && ./m",
    "printf 'all:\\n\\techo built\\n' > Makefile && make -j2",
    "node -e 'console.log(1)'",
    'echo \'{"name": "p", "version": "1.0.0"}\' > package.json && npm pack --silent && npm run env > /dev/null',
    *("sqlite3 db 'create table t (a); insert into t values (1); select * from t'", "perl -e 'print 1'", "jq . <<< {}"),
    "python3 -m http.server 8123 --bind 127.0.0.1 & sleep 0.5; curl -s http://127.0.0.1:8123/f; kill %1",
    *(
        "gdb -batch -ex 'break main' --args /bin/sh",
        "strace -c -o trace true",
        "bc <<< 1+2",
        "(sleep 60 & kill $!; wait; true)",
    ),
    *(
        "ps aux > /dev/null",
        "kill -0 $$",
        "ulimit -a > /dev/null",
        "time -p true",
        "timeout 5 true",
        "nice true",
        "env",
    ),
    *("id", "uname -a", "hostname", "which git", "nproc", "locale"),
)
DIFFER = {
    "tmux new-session -d true": "a unix socket",
    "eval $(ssh-agent) && ssh-agent -k": "a unix socket",
    "python3 -c 'import multiprocessing as m; m.Manager()'": "a unix socket",
    "su nobody -s /bin/sh -c true": "another user",
    "git config core.editor vi": "a protected file",
    "git remote add origin ../x": "a protected file",
}
"""Those that end otherwise, and what of."""
