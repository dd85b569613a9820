"""Each layer of a permission by itself, with its exact word: what two of them do together hides a fault of one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from journeyman.gate import Ask, Deny
from journeyman.permission.bash import MOST_CHARS, Word, read_commands
from journeyman.permission.capability import classify
from journeyman.permission.permission import Permission
from journeyman.permission.programs import take_apart
from journeyman.permission.protected import Protected
from journeyman.permission.rules import Roots, Rules
from journeyman.permission.shell import every_command, plain_words
from tests.permission.workshop import request
from tests.play import existing, instance_of

UNKNOWN: Final = "<unknown>"
"""Stands for what bash puts in place of a part of a word."""


def spelled(words: Sequence[Word]) -> str:
    return " ".join(word.text if word.is_known else f"{word.text}{UNKNOWN}" for word in words)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("ls -l \"a b\" 'c d'", ["ls -l a b c d"]),
        ("(a; b) | c && { d; } || ! e", ["a", "b", "c", "d", "e"]),
        ("a & b", ["a", "b"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ('for x in $(ls); do rm "$x"; done', ["ls", "", f"rm {UNKNOWN}"]),
        ("while a; do b; done", ["a", "b"]),
        ('echo "$(git push)" `b` $HOME', ["git push", "b", f"echo {UNKNOWN} {UNKNOWN} {UNKNOWN}"]),
        ("a <(b) >(c)", ["b", "c", f"a {UNKNOWN} {UNKNOWN}"]),
        ("echo $((1+2))", [f"echo {UNKNOWN}"]),
        ("a{b,c}", [f"a{{b,c}}{UNKNOWN}"]),
        ("a # b", ["a"]),
        ("case $x in a|*.b) c;; (d) e;& *) f | g\nesac; h", ["c", "e", "f", "g", "h"]),
        ("[[ -f a && ( $b == c* || -d e ) ]] && f", [f"[[ -f a && ( {UNKNOWN} == c*{UNKNOWN} || -d e ) ]]", "f"]),
        ("for x do a; done; for x in b; do c; done", ["a", "", "c"]),
        ("cat <<E\n$a ${b}\nE\nc", ["cat", "c"]),
    ],
)
def test_what_is_read_exactly_is_each_simple_command_in_order(command: str, runs: list[str]) -> None:
    found = existing(read_commands(command))
    assert [spelled(each.words) for each in found] == runs


def test_what_is_assigned_and_redirected_is_apart_from_the_words() -> None:
    [found] = read_commands("A=1 B+=2 git push >out 2>&1 <in") or []
    assert spelled(found.words) == "git push"
    assert [(name, value.text) for name, value in found.assigned] == [("A", "1"), ("B", "2")]
    assert [each.text for each in found.written] == ["out"]


NOT_READ: Final = [
    *('a "b', "a 'b", "a $(b", "a `b", "(a", "a)", "a\0b"),
    *(
        "case x in a",
        "case x in a) b",
        "select x in a; do b; done",
        "function f { a; }",
        "coproc a",
        "for ((;;)); do a; done",
    ),
]


@pytest.mark.parametrize("command", [*NOT_READ, "a" * (MOST_CHARS + 1)], ids=range(len(NOT_READ) + 1))
def test_what_is_not_surely_understood_is_not_read(command: str) -> None:
    assert read_commands(command) is None
    assert take_apart(command).doubts == ["it cannot be read for sure"]
    assert take_apart(command).unread == [command]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("git push", ("git", "push")),
        (" git\t \"a b\" 'c' ", ("git", "a b", "c")),
        ("git a\"b\"c 'it''s'", ("git", "abc", "its")),
    ],
)
def test_a_plain_command_is_its_words(command: str, words: tuple[str, ...]) -> None:
    assert plain_words(command) == words


@pytest.mark.parametrize(
    "command",
    [
        *("", "git;ls", "git x\n", "git > y", "git $x", 'git "$x"', "git *", "git !x", "git #x", "git\\ x", "git a 'b"),
        *("A=1 git", "./git", '"git" x', "if", "time ls", "é x", "a" * (MOST_CHARS + 1)),
    ],
)
def test_what_may_be_more_than_one_program_with_its_arguments_is_not_plain(command: str) -> None:
    assert plain_words(command) is None


UNREADABLE: Final = [
    *('echo $(git push x) "', 'echo "$(git push x)" )', 'echo `git push x` "', 'echo $(echo $(git push x)) "'),
    'cat <(git push x) "',
    *("coproc git push x", "coproc N { git push x; }", "function f { git push x; }; f", "function f() { git push x; }"),
    *("for ((;;)); do git push x; done", "case a in a) git push x;; esac; ((x))", "select x in a; do git push x; done"),
    *("a[0]=1; git push x", 'sudo git push x "', 'sh -c "git push x" "', "eval 'git push x", 'env A=1 git push x "'),
    *('# x\ngit push x "', 'if a; then git push x "', 'git \\\npush x "'),
    *('2>/dev/null git push x "', 'git 2>&1 push x "', '<&- git push x "', '2>&-git push x "', '! git push x "'),
    *("echo $'a\\'b'; git push x 'o", 'A=1 git push x "', 'git -C d push x "', '/usr/bin/git push x "'),
]


@pytest.mark.parametrize("command", UNREADABLE)
async def test_a_denied_program_that_is_seen_in_an_unreadable_command_is_denied_not_asked_about(command: str) -> None:
    assert read_commands(command) is None, "the exact reader cannot help"
    gate = Permission(mode="trust", deny=["Bash(git push *)"], roots=[Path.cwd()])
    assert await gate.decide(request("bash", command=command)) == Deny("the rule Bash(git push *) forbids it.")
    other = Permission(mode="trust", deny=["Bash(git pull *)"], roots=[Path.cwd()])
    asked = instance_of(Ask, await other.decide(request("bash", command=command)))
    assert "the rule Bash(git pull *) may forbid it: it cannot be read for sure" in asked.question


def test_the_rough_reader_gives_up_only_on_what_is_too_long() -> None:
    assert every_command("a" * MOST_CHARS) is not None
    assert every_command("a" * (MOST_CHARS + 1)) is None
    assert every_command("a;" * 2_001) is None


@pytest.mark.parametrize(
    ("command", "doubts"),
    [
        ("ls a", []),
        ('bash -c "git push"', []),
        ("env A=1 git push", []),
        ("xargs rm", []),
        ("find . -exec rm x ';'", []),
        ("sed -n 1p f", []),
        ("git -c color.ui=no push", []),
        ("command -v rm", []),
        ("git --version", []),
        ("sed e f", ["what sed starts cannot be told"]),
        ("bash x", ["what bash starts cannot be told"]),
        ("python x.py", ["what python starts cannot be told"]),
        ("git -c a.b=c push", ["what git starts cannot be told"]),
        ("git grep -O x", ["what git starts cannot be told"]),
        ("tar --to-command=rm x", ["what tar starts cannot be told"]),
        ("make push", ["what make starts cannot be told"]),
        ("./a", ["what ./a is cannot be told"]),
        ("$x a", ["it does not say which program runs"]),
        ("LD_PRELOAD=x ls", ["LD_PRELOAD may decide which programs run"]),
        ("export PATH=x", ["PATH may decide which programs run"]),
        ("echo '$(rm x)'", ["it holds a command in quotes"]),
        ("cat x > /usr/bin/y", ["it writes /usr/bin/y"]),
        ('printf -v "a[$(rm)]" x', ["printf may evaluate what it is given"]),
        ("sort -k2,2nr -t: --reverse src/*.txt", []),
        ("sort *.txt", ["what sort starts cannot be told"]),
        ("sort --co=x a", ["what sort starts cannot be told"]),
        ("git -C sub commit -qm 'a; b'", []),
        ("git rebase -qx a HEAD", ["what git starts cannot be told"]),
        ("git z", ["what git starts cannot be told"]),
        ("uv run rm", ["what uv starts cannot be told"]),
        ("f() { ls; }; f", ["what f starts cannot be told"]),
        ('[ -n "$x" ] && [ $# -gt 1 ]', []),
        ("[ $x ]", ["[ may evaluate what it is given"]),
        ("[[ -n $x && ! ( $y == a* ) ]]", []),
        ("[[ $x -eq 1 ]]", ["[[ may evaluate what it is given"]),
        ("for PATH in b; do ls; done", ["PATH may decide which programs run"]),
        ('ls > "$x"', ["it writes what it does not name"]),
        ("mv a .git/hooks/b", ["it may change what something runs by itself"]),
        ('cd "$x" && git status', ["it may change what something runs by itself"]),
        ("awk '$1 > 2 { print $1 }' f", []),
        ("awk '{ print > f }'", ["what awk starts cannot be told"]),
    ],
)
def test_what_cannot_be_told_of_a_command_is_a_doubt(command: str, doubts: list[str]) -> None:
    assert take_apart(command).doubts == doubts


@pytest.mark.parametrize(
    ("pattern", "path", "allows", "denies"),
    [
        ("/**", "/", True, True),
        ("/**", "/etc/x", True, True),
        ("**", "/", True, True),
        ("/*", "/", True, True),
        ("/*", "/etc", True, True),
        ("/*", "/etc/x", False, True),
        ("src/**", "src", True, True),
        ("src/**", "src/a/b", True, True),
        ("src/**", "srcs/a", False, False),
        ("src/*", "src", False, False),
        ("src/*", "src/a", True, True),
        ("src/*", "src/a/b", False, True),
        ("**/.env", ".env", True, True),
        ("**/.env", "a/b/.env", True, True),
        ("**/.env", "a/.env.txt", False, False),
        ("**/.env", "a/.ENV", False, True),
        ("/etc", "/etc/x", False, True),
        ("/secrets/**", "secrets/a", False, True),
        ("a/**/b/**/c", "a/b/x/b/y/c", True, True),
        ("a/**/b/**/c", "a/b", False, False),
        ("a?c", "abc", True, True),
        ("a?c", "a/c", False, False),
    ],
)
def test_an_allow_covers_only_what_it_surely_means_and_a_deny_all_that_it_may(
    tmp_path: Path, pattern: str, path: str, allows: bool, denies: bool
) -> None:
    action, roots = classify(request("write", "idempotent", path=path, content="x")), Roots([tmp_path])
    assert (Rules([f"Edit({pattern})"], [], [], roots).allowing(action) is not None) is allows
    assert (Rules([], [f"Edit({pattern})"], [], roots).denying(action, []) is not None) is denies


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("cat own/approvals.json", "it names a file that decides about the agent itself."),
        ('cat own/app"rovals".json', "it names a file that decides about the agent itself."),
        ("cat OWN/APPROVALS.JSON", "it names a file that decides about the agent itself."),
        ("cat own/appr*", "it may name a file that decides about the agent itself."),
        ("rm -r own", "it may name a file that decides about the agent itself."),
        ("cat soft", "it may name a file that decides about the agent itself."),
        ("cat hard", "it may name a file that decides about the agent itself."),
        ("a" * (MOST_CHARS + 1), "the command is too long or too deep to be read."),
        ("cat own/notes.json", None),
        ("cat my-approvals.json", None),
        ("ls .", None),
        ("echo $x", None),
    ],
)
def test_a_command_that_may_name_a_protected_file_is_found_whatever_else_holds(
    tmp_path: Path, command: str, reason: str | None
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "notes.json").touch()
    kept = own / "approvals.json"
    kept.touch()
    (tmp_path / "soft").symlink_to(kept)
    (tmp_path / "hard").hardlink_to(kept)
    assert Protected([kept], Roots([tmp_path])).named_by(command, ".") == reason
