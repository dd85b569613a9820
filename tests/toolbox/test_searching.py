"""The tools `glob`, `grep` and `ls`: with ripgrep and without it, they find the same."""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journeyman.toolbox import ToolRefused, Workspace
from journeyman.toolbox.walk import Deadline, compile_pattern, files_below
from tests.support.stopwatch import STALL_S, longest_stall
from tests.toolbox.player import Player

# From the environment of the tests, where ripgrep has a wheel for this machine; else as somebody has installed it.
RIPGREP = shutil.which("rg", path=sysconfig.get_path("scripts")) or shutil.which("rg")
HAS_WHEEL = sys.platform == "linux" and platform.machine() == "x86_64"
needs_ripgrep = pytest.mark.skipif(RIPGREP is None and not HAS_WHEEL, reason="ripgrep is not installed")
PROGRAMS = [None, pytest.param(RIPGREP, marks=needs_ripgrep)]


def test_ripgrep_is_there_where_the_tests_bring_it() -> None:
    assert (HAS_WHEEL, RIPGREP) != (True, None)


@pytest.fixture(params=PROGRAMS, ids=["alone", "ripgrep"])
def player(request: pytest.FixtureRequest, folder: Path) -> Player:
    return Player(Workspace(folder, ripgrep=request.param))


def fill(folder: Path, files: dict[str, str | bytes]) -> None:
    for n, (name, content) in enumerate(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        os.utime(path, (n, n))


PROJECT: dict[str, str | bytes] = {
    ".gitignore": "build/\n*.log\n!keep.log\n/top.txt\n",
    "README.md": "# Readme\nhello\n",
    "build/out.py": "hello = 1\n",
    "debug.log": "hello\n",
    "keep.log": "hello\n",
    "top.txt": "hello\n",
    "src/top.txt": "hello\n",
    "src/a.py": "import os\n\ndef hello():\n    return 1\n",
    "src/b.py": "x = 1\r\nhello = 2\r\n",
    "src/.ignore": "gen.py\n",
    "src/gen.py": "hello\n",
    "src/deep/c.js": "hello();\n",
    ".hidden/secret.py": "hello\n",
    ".env": "HELLO=1\n",
    "data.bin": b"hello\x00\x01",
    "wide.txt": "hello ünïcode \u2013 \u201cx\u201d\n",
}


@pytest.fixture
def very_deep(folder: Path) -> Iterator[None]:
    """1,050 folders, each in the one before: more than functions can call themselves."""
    (folder / "top.txt").write_text("hello\n", encoding="utf-8")
    at = os.open(folder, os.O_RDONLY)
    for _ in range(1_050):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    yield
    subprocess.run(["rm", "-rf", folder / "d"], check=True)


@pytest.mark.usefixtures("very_deep")
async def test_folders_may_be_as_deep_as_they_like(player: Player) -> None:
    assert "top.txt" in (await player.result("glob", pattern="**/*.txt")).text
    assert "top.txt" in (await player.result("grep", pattern="hello")).text
    assert "top.txt" in (await player.result("ls", depth=5)).text
    assert "d/" in (await player.result("read", path="d")).text


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("*.py", ".", ["src/b.py", "src/a.py"]),
        ("*.py", "src", ["src/b.py", "src/a.py"]),
        ("src/*", ".", ["src/.ignore", "src/b.py", "src/a.py", "src/top.txt"]),
        ("**/*.{js,md}", ".", ["src/deep/c.js", "README.md"]),
        ("src/**", ".", ["src/deep/c.js", "src/.ignore", "src/b.py", "src/a.py", "src/top.txt"]),
        ("./src/[ab].py", ".", ["src/b.py", "src/a.py"]),
        ("*.log", ".", ["keep.log"]),
        ("out.py", ".", []),
        ("out.py", "build", ["build/out.py"]),
        ("secret.py", ".hidden", [".hidden/secret.py"]),
        (".env", ".", [".env"]),
    ],
)
async def test_files_are_found_by_pattern_the_newest_first(
    player: Player, folder: Path, pattern: str, path: str, found: list[str]
) -> None:
    fill(folder, PROJECT)
    text = await player.text("glob", pattern=pattern, path=path)
    assert (text.split("\n") if found else text) == (found or f"No file in {path} matches {pattern}.")


@pytest.mark.parametrize("name", [".gitignore", ".ignore", ".rgignore"])
async def test_a_rule_with_a_slash_holds_from_the_folder_of_its_file(player: Player, folder: Path, name: str) -> None:
    files = ["a.py", "lib/b.py", "src/a.py", "src/deep/a.py", "src/lib/b.py", "src/deep/lib/b.py"]
    fill(folder, {f"src/{name}": "/a.py\nlib/b.py\n", **dict.fromkeys(files, "")})
    assert sorted((await player.text("glob", pattern="**/*.py")).split("\n")) == [
        *("a.py", "lib/b.py", "src/deep/a.py", "src/deep/lib/b.py")
    ]


async def test_many_files_are_cut(player: Player, folder: Path) -> None:
    fill(folder, {f"{n}.txt": "" for n in range(203)})
    lines = (await player.text("glob", pattern="*.txt")).split("\n")
    assert (len(lines), lines[0]) == (201, "202.txt")
    assert lines[-1] == "[3 more. Use a narrower pattern, or a folder further down.]"


@pytest.mark.parametrize("pattern", ["[a", "{a,b", "a{b{c}", "a}", "[!]", "[z-a]", "a\\", "{" * 200 + "}" * 200])
async def test_a_pattern_that_is_none_is_refused(player: Player, pattern: str) -> None:
    assert "is not a pattern for paths" in await player.refused("glob", pattern=pattern)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.py", ["a.py", "b/c/a.py"], ["a.pyc", "a.py/b"]),
        ("a/*.py", ["a/b.py"], ["a/b/c.py", "x/a/b.py"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "x/a/b"]),
        ("**/.ssh/id_rsa", [".ssh/id_rsa", "home/me/.ssh/id_rsa"], ["x.ssh/id_rsa"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/a/c"]),
        ("[!a-c]?", ["dx", "x/ex"], ["ax", "d"]),
        ("a{b,c/d}e", ["abe", "ac/de"], ["ace"]),
        (r"\*.py", ["*.py"], ["a.py"]),
        ("a.b", ["a.b"], ["axb"]),
        ("a/", [], ["a", "a/b"]),
        ("[[:a&&-]", ["[", "&", "-"], ["b", "/"]),
        ("d[!a]x", ["dbx", "d]x", "d&x"], ["dax", "d/x"]),
        ("d[]&~|^]x", ["d]x", "d&x", "d~x", "d|x", "d^x"], ["dax", "d/x", "dx"]),
        ("a{b,[,]}c", ["abc", "a,c"], ["ac"]),
        ("a{b,{c,d/**}}", ["ab", "ac", "ad/e/f"], ["ad", "a"]),
        ("{**/a,b/**}", ["a", "x/a", "b/x"], ["b", "x/b"]),
        ("a/***", ["a/b"], ["a", "a/b/c"]),
        ("[+--a-c]?", ["-x", ",x", "a/bx"], [".x", "dx"]),
        ("?", ["\u00e4", "\n", "a/b"], ["ab"]),
    ],
)
def test_a_pattern_matches_whole_paths(pattern: str, matching: Sequence[str], others: Sequence[str]) -> None:
    match = compile_pattern(pattern)
    assert [path for path in matching if not match(path)] == []
    assert [path for path in others if match(path)] == []


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            {"pattern": "^hello"},
            [
                *("README.md", "2:hello", "", "keep.log", "1:hello", "", "src/b.py", "2:hello = 2", ""),
                *("src/deep/c.js", "1:hello();", "", "src/top.txt", "1:hello", ""),
                *("wide.txt", "1:hello ünïcode \u2013 \u201cx\u201d"),
            ],
        ),
        (
            {"pattern": "hello", "glob": "*.py", "context": 1},
            ["src/a.py", "2-", "3:def hello():", "4-    return 1", "", "src/b.py", "1-x = 1", "2:hello = 2"],
        ),
        ({"pattern": "hello = \\d$", "path": "src"}, ["src/b.py", "2:hello = 2"]),
        ({"pattern": "hello();", "literal": True}, ["src/deep/c.js", "1:hello();"]),
        ({"pattern": "HELLO=", "path": "."}, [".env", "1:HELLO=1"]),
        ({"pattern": "hello=", "ignore_case": True}, [".env", "1:HELLO=1"]),
        ({"pattern": "hello", "path": "build"}, ["build/out.py", "1:hello = 1"]),
        ({"pattern": "hello", "path": "debug.log"}, ["debug.log", "1:hello"]),
        ({"pattern": "\\w+ï", "glob": "*.txt"}, ["wide.txt", "1:hello ünïcode \u2013 \u201cx\u201d"]),
        ({"pattern": "-e"}, ["No line matches -e."]),
        ({"pattern": "--files"}, ["No line matches --files."]),
        ({"pattern": "a\nb"}, ["No line matches a", "b."]),
    ],
)
async def test_lines_are_found(player: Player, folder: Path, arguments: dict[str, object], lines: list[str]) -> None:
    fill(folder, PROJECT)
    assert (await player.text("grep", **arguments)).split("\n") == lines


async def test_matches_that_are_apart_are_shown_apart(player: Player, folder: Path) -> None:
    fill(folder, {"a.txt": "x\n1\n2\n3\nx\nx\n4\n"})
    assert await player.text("grep", pattern="x", context=1) == "a.txt\n1:x\n2-1\n--\n4-3\n5:x\n6:x\n7-4"


ONLY = "[Only the first 100 are shown. Use a narrower pattern, glob or path.]"


async def test_many_matches_and_long_lines_are_cut(player: Player, folder: Path) -> None:
    fill(folder, {"a.txt": "x\n" * 60, "b.txt": "x" * 600 + "\n" + "x\n" * 60})
    text = await player.text("grep", pattern="x")
    assert "1:" + "x" * 500 + " [100 more characters]" in text
    assert text.count("\n40:x\n") == 2
    assert "41:x" in text.partition("b.txt")[0]
    assert text.endswith(f"\n40:x\n\n{ONLY}")


async def test_exactly_as_many_as_are_shown_are_not_cut(player: Player, folder: Path) -> None:
    fill(folder, {"a.txt": "x\n" * 100})
    assert (await player.text("grep", pattern="x")).endswith("\n100:x")
    fill(folder, {"b.txt": "x\n"})
    assert (await player.text("grep", pattern="x")).endswith(f"\n100:x\n\n{ONLY}")


@pytest.mark.parametrize("pattern", ["[", "(", "(?=a)", r"(a)\1"])
async def test_an_expression_that_is_none_is_refused(player: Player, pattern: str) -> None:
    text = await player.refused("grep", pattern=pattern)
    assert "is not a regular expression" in text
    assert text.endswith("For a plain text, give literal=true.")


async def test_an_unlucky_expression_finds_nothing_and_ends(player: Player, folder: Path) -> None:
    fill(folder, {"a.txt": "a" * 20_000 + "!\n"})
    text = await player.text("grep", pattern="^(a+)+$")  # an engine that goes back to try again would never end
    assert text == "No line matches ^(a+)+$."


NAMES = st.sampled_from(["a", "b.py", "c.txt", ".d", "build", "x.log", ".git", "src", "a b", "\u00e4", "a*b", "-"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
COMMON = [
    *(
        "a",
        "b",
        "*",
        "**",
        "?",
        "*.py",
        "x.*",
        "[ab]*",
        "[!a]*",
        "[^b-c]",
        "[]a]",
        "[--a]",
        "*[\u00e4]",
        "src",
        "\u00e4",
        "?.?y",
    ),
    *(r"\*", r"a\*b", r"\a", "build", ".*", "?*"),
]
NOT_IN_GIT = [
    "{a,b}",
    "{a,b*}.py",
    "{a/b,src}",
    "a{,b}",
    "{**/a,src}",
    "***",
    "a**b",
    "[]a&&-]",
    "[[:alpha:]]",
    "[a",
    "{a,b",
    "a\\",
]


def rules(parts: Sequence[str]) -> st.SearchStrategy[list[str]]:
    starts, ends = st.sampled_from(["", "", "!", "/", "!/", "#", r"\!"]), st.sampled_from(["", "", "/", "  ", r"\ "])
    paths = st.lists(st.sampled_from(parts), min_size=1, max_size=4).map("/".join)
    return st.lists(st.builds("{}{}{}".format, starts, paths, ends) | st.sampled_from(["", " ", "/"]), max_size=4)


IGNORE_FILES = st.sampled_from(
    [".gitignore", ".ignore", ".rgignore", "src/.gitignore", "a/.ignore", "build/.gitignore"]
)


def place(root: Path, paths: Sequence[str], ignored: Mapping[str, list[str]]) -> None:
    for path in [*paths, *ignored]:
        if not (root / path).exists() and all(not above.is_file() for above in (root / path).parents):
            fill(root, {path: "\n".join(ignored.get(path, ["one", "two"])) + "\n"})


@needs_ripgrep
@settings(max_examples=30)  # each runs two processes
@given(
    paths=st.lists(PATHS, max_size=8),
    ignored=st.dictionaries(IGNORE_FILES, rules([*COMMON, *NOT_IN_GIT]), max_size=3),
    start=st.sampled_from([".", "src", "a", "build", ".d"]),
)
def test_with_ripgrep_and_without_it_the_same_files_and_lines_are_found(
    paths: list[str], ignored: dict[str, list[str]], start: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        (root / start).mkdir(exist_ok=True)
        place(root, paths, ignored)
        found: list[object] = []
        for program in (RIPGREP, None):
            glob, grep = Workspace(root, ripgrep=program).tools("glob", "grep")
            found.append((glob(pattern="**", path=start), grep(pattern="^t.o$", path=start)))
        assert found[0] == found[1]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@settings(max_examples=30)  # each runs two processes
@given(
    paths=st.lists(PATHS.filter(lambda path: ".git" not in path.split("/")), min_size=1, max_size=8),
    ignored=st.dictionaries(st.sampled_from([".gitignore", "src/.gitignore"]), rules(COMMON), min_size=1, max_size=2),
)
def test_without_ripgrep_files_are_left_out_as_git_does(paths: list[str], ignored: dict[str, list[str]]) -> None:
    alone = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "XDG_CONFIG_HOME": os.devnull}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        place(root, paths, ignored)
        files = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        shown = [path for path in files if not re.search(r"(^|/)\.[^/]*/", path)]  # no hidden folders
        git: dict[str, Any] = {"cwd": root, "env": alone, "capture_output": True, "text": True, "check": False}
        subprocess.run(["git", "init", "-q"], **git)
        judged = subprocess.run(["git", "check-ignore", "--no-index", "-z", "--stdin"], input="\0".join(shown), **git)
        assert judged.stderr == ""
        bench = Workspace(root, ripgrep=None).bench
        found = {*files_below(bench, bench.reach.locate("."), Deadline.from_now())}
        assert found == {*shown} - {*judged.stdout.split("\0")}


def script(path: Path, *lines: str) -> str:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


async def test_the_ripgrep_of_the_path_is_used_and_without_one_the_search_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder, {"a.txt": "x", "b.txt": "x"})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await Player(Workspace(folder)).text("glob", pattern="*.txt") == "b.txt\na.txt"
    script(tmp_path / "rg", "printf './a.txt\\0'")
    assert await Player(Workspace(folder)).text("glob", pattern="*.txt") == "a.txt"
    assert await Player(Workspace(folder, ripgrep=None)).text("glob", pattern="*.txt") == "b.txt\na.txt"


@pytest.mark.parametrize("how", ["exit 2", "kill -9 $$", "it is gone"])
async def test_a_ripgrep_that_fails_is_done_without(folder: Path, tmp_path: Path, how: str) -> None:
    fill(folder, {".gitignore": "", "src/.ignore": "b.txt", "src/a.txt": "x", "src/b.txt": "x"})
    player = Player(Workspace(folder, ripgrep=script(tmp_path / "rg", how)))
    if how == "it is gone":
        (tmp_path / "rg").unlink()
    for path in (".", "src"):
        assert await player.text("grep", pattern="^x", path=path) == "src/a.txt\n1:x"


async def test_a_folder_is_shown_as_a_tree(player: Player, folder: Path) -> None:
    fill(folder, {"src/a/b.py": "", "src/c.py": "", "node_modules/x/y.js": "", ".git/config": "", "z.txt": ""})
    (folder / "link").symlink_to("src")
    assert await player.text("ls") == ".git/\nnode_modules/\nsrc/\nlink (link)\nz.txt"
    tree = ".git/\nnode_modules/\nsrc/\n  a/\n    b.py\n  c.py\nlink (link)\nz.txt"
    assert await player.text("ls", depth=3) == tree
    assert await player.text("ls", path="node_modules", depth=2) == "x/\n  y.js"
    assert await player.refused("ls", path="z.txt") == "z.txt is not a folder. Read it instead."
    assert "less than or equal to 5" in await player.refused("ls", depth=6)


async def test_an_empty_folder_and_a_full_one_say_so(player: Player, folder: Path) -> None:
    assert await player.text("ls") == "[. is empty.]"
    fill(folder, {f"{n:03}": "" for n in range(501)})
    lines = (await player.text("ls")).split("\n")
    assert lines[-2:] == ["499", "[Cut: the first 500. List a folder inside of it, or fewer levels.]"]


def test_a_search_that_takes_too_long_is_given_up(player: Player) -> None:
    bench = player.workspace.bench
    with pytest.raises(ToolRefused, match="Search in a folder further down") as refused:
        list(files_below(bench, bench.reach.locate("."), Deadline(0.0)))
    assert refused.value.kind == "timeout"


async def test_a_pattern_that_would_take_long_is_refused_with_what_to_do(folder: Path) -> None:
    fill(folder, {"a.txt": f"hit {'ab ' * 200_000}\nhit\n"})
    player = Player(Workspace(folder, ripgrep=None))
    assert "has 100,000 characters, of at most 1,000" in await player.refused("grep", pattern="a" * 100_000)
    assert "has 100,000 characters, of at most 1,000" in await player.refused(
        "grep", pattern="a" * 100_000, literal=True
    )
    assert "has 2,000 characters, of at most 1,000" in await player.refused("glob", pattern="*a" * 1_000)
    assert "repeats more than 600 things" in await player.refused("grep", pattern=r"\\w{900}")
    heavy = await player.refused("grep", pattern="[^x]*(a|b)[^y]{90}q" * 3)
    assert "takes too long for line 1 of a.txt, which has 600,004 characters" in heavy
    assert "1:hit" in await player.text("grep", pattern="hit")


@pytest.mark.parametrize("n_folders", [200, 300])
async def test_what_is_nested_too_deeply_is_left_out_and_told(folder: Path, n_folders: int) -> None:
    fill(folder, {"/".join([*["d"] * n_folders, "deep.txt"]): "hit", "a.txt": "hit"})
    player = Player(Workspace(folder, ripgrep=None))
    for found in (await player.text("grep", pattern="hit"), await player.text("glob", pattern="*.txt")):
        assert "a.txt" in found
        assert ("deep.txt" in found, "[Not searched, 200 folders further down: …" in found) == (
            *(n_folders == 200, n_folders == 300),
        )
    assert "deep.txt" in await player.text("grep", pattern="hit", path="/".join(["d"] * 150))


LINES = {
    "names": "name{}",
    "names that come back": "name{0}\n!name{0}",
    "stars in a name": "*a" * 200 + "{}z",
    "three stars": "/a/***" * 9 + "/b{}",
    "one line": "*a" * 500_000 + "{}",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
async def test_ignore_files_of_a_stranger_take_linear_time_and_what_is_not_heeded_is_told(
    folder: Path, line: str
) -> None:
    rules = "".join([f"{line.format(n)}\n" for n in range(1 + 400_000 // len(line))])
    fill(folder, {".gitignore": rules, "a/" * 100 + "b": "hit", **{"a" * 240 + str(n): "" for n in range(20)}})
    player = Player(Workspace(folder, ripgrep=None))
    note = "\n[The ignore files in . hold too many rules; those at their ends are not heeded.]"
    found: list[str] = []

    async def search() -> None:
        found.append(await player.text("grep", pattern="hit"))

    assert await longest_stall(search) < STALL_S
    assert {*found} == {"a/" * 100 + f"b\n1:hit{note}"}
