"""`journeyman --help`: says what there is, and fast."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import pytest
from cyclopts import App
from cyclopts.argument import ArgumentCollection

from journeyman.cli import COMMANDS, HELP, SHARED, ascii_of
from journeyman.cli.app import app
from journeyman.cli.options import Flag, GivenOptions, SharedOptions, options_taken, split_shared
from journeyman.definition.foreign import OLD_COMMANDS, OLD_OPTIONS
from tests.cli.program import Warm, assert_one_error_line, environment, journeyman

HEAVY = ("cyclopts", "rich", "aiohttp", "anthropic", "openai", "prompt_toolkit", "pydantic_ai", "httpx2", "mcp")
EXIT_CODES = "Exit code: 0 success, 1 failure, 2 usage, 130 after Ctrl-C, 143 after SIGTERM;"
SCREEN = 40
"""So many lines a help has at most."""


def test_the_help_names_every_command_with_what_it_does(warm: Warm) -> None:
    for words in ([], ["--help"], ["-h"]):
        done = warm(*words)
        assert (done.code, done.stdout, done.stderr) == (0, HELP, "")
    commands = {" ".join(names) for names, _ in every_command()}
    assert commands == {name for name in COMMANDS if name != "cassette"}
    for name, (_, does, _) in COMMANDS.items():
        assert (f"\n  {name:<19} {does}\n" in HELP) == (" " not in name)
    assert len({does for _, does, _ in COMMANDS.values()}) == len(COMMANDS), "two commands share a sentence"
    assert max(map(len, HELP.splitlines())) <= 80
    assert len(HELP.splitlines()) <= SCREEN
    assert HELP.startswith("Example: journeyman run ")
    assert all(f"\n  {name} " in HELP for name in SHARED)


def every_command(of: App = app, *before: str) -> Iterator[tuple[tuple[str, ...], ArgumentCollection]]:
    """Give each command that can be called, with its arguments and options."""
    for name in [each for each in of if not each.startswith("-")]:
        if of[name].default_command is not None:
            yield (*before, name), of[name].assemble_argument_collection(parse_docstring=True)
        yield from every_command(of[name], *before, name)


def declared_options(of: App = app) -> list[str]:
    """Return what somebody has to learn: the options of each command alone, the shared ones once, and that of all."""
    every = [
        (" ".join(name), each) for name, arguments in every_command(of) for each in arguments.filter_by(parse=True)
    ]
    own = [f"{name} {each.name}" for name, each in every if each.name[:2] == "--"]
    return [*own, *SHARED, "--env-file"]


def test_the_commands_and_their_options_become_no_more() -> None:
    assert len([name for name in COMMANDS if " " not in name]) <= 19
    assert len(declared_options()) <= 111


def test_a_planted_option_is_counted() -> None:
    planted = App(name="journeyman")

    def show(run: str, /, *, steps: Flag = False, shared: GivenOptions) -> None: ...

    planted.command(show, name="show")
    planted.command(show, name="list")
    assert declared_options(planted) == ["show --steps", "list --steps", *SHARED, "--env-file"]


def test_each_shared_option_is_declared_once_and_named_by_the_commands_that_take_it() -> None:
    assert {f"--{each.name}" for each in fields(SharedOptions)} == SHARED.keys()
    own = {option.split()[-1] for option in declared_options()[: -len(SHARED) - 1]}
    assert own.isdisjoint(SHARED)
    assert {name for each in SHARED.values() for name in each.commands} <= COMMANDS.keys()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "cassette"])
def test_a_shared_option_stands_before_a_command_or_behind_it_and_is_refused_by_the_others(
    name: str, warm: Warm
) -> None:
    values = {"--mode": "plan", "--timeout": "1"}
    taken = [[option, values.get(option, "x")] if SHARED[option].value else [option] for option in options_taken(name)]
    before, behind = chain.from_iterable(taken[::2]), chain.from_iterable(taken[1::2])
    assert warm(*before, *name.split(), *behind, "--help").code == 0
    refused = next(option for option in SHARED if option not in options_taken(name)) if len(taken) < len(SHARED) else ""
    if refused:
        done = warm(f"{refused}=1", *name.split())
        assert_one_error_line(done, 2, [f"journeyman {name} takes no {refused}. Leave it out"])


def test_what_stands_before_a_command_counts_as_what_stands_behind_it(warm: Warm, tmp_path: Path) -> None:
    there = "There is no store nope.db."
    for words in (
        ["--store", "nope.db", "runs"],
        ["runs", "--store", "nope.db"],
        ["--store=nope.db", "runs", "--json"],
    ):
        assert_one_error_line(warm(*words, cwd=tmp_path), 2, [there])
    assert_one_error_line(warm("--timeout", "soon", "check", "x"), 2, ['unable to convert "soon" into float'])
    assert_one_error_line(warm("--quiet", "tail", "x"), 2, ["tail is written otherwise now."])
    assert warm("--quiet").stdout == HELP


@pytest.mark.parametrize(
    ("name", "words", "taken"),
    [
        ("mcp pin", "mcp pin --name git uvx server --model x --quiet", ""),
        ("run", "run a.py -- --quiet", ""),
        ("tell", "tell x steer '--store is a word' --quiet --store=s.db", "--store=s.db"),
        ("run", "run a.py hi -m x --timeout -1 --no-record --mode", "-m x --timeout -1 --no-record --mode"),
        ("run", "run a.py --model --id y", "--model"),
    ],
)
def test_only_the_shared_options_that_a_command_takes_are_taken_out_of_its_words(
    name: str, words: str, taken: str
) -> None:
    found, rest = split_shared(shlex.split(words), options_taken(name))
    assert found == shlex.split(taken)
    assert [word for word in shlex.split(words) if word not in found] == rest


def test_each_option_is_explained_on_a_page() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (Path(__file__).parents[2] / "docs").glob("*.md"))
    names = {option.split()[-1] for option in declared_options()}
    assert {name for name in names if not re.search(rf"{name}\b", pages)} == set()


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_fits_a_screen_and_begins_with_an_example(name: str, warm: Warm) -> None:
    done = warm(*name.split(), "--help", env={"COLUMNS": "80"})
    assert (done.code, done.stderr) == (0, "")
    example, *rest = done.stdout.splitlines()
    assert re.match(rf"Example: journeyman {name}\b", example)
    assert len(rest) < SCREEN
    assert EXIT_CODES in done.stdout
    app.parse_args(shlex.split(example)[2:], print_error=False, exit_on_error=False)


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "cassette"])
def test_each_command_says_in_one_sentence_what_it_does_and_names_its_arguments(name: str, warm: Warm) -> None:
    done = warm(*name.split(), "--help", env={"COLUMNS": "200"})
    _, _, usage, _, sentence, *rest = [line.rstrip() for line in done.stdout.splitlines()]
    arguments, does, _ = COMMANDS[name]
    assert usage == f"Usage: journeyman {name} [OPTIONS] {arguments}".rstrip()
    assert sentence == does
    assert re.fullmatch(r"[A-Z][^.]*\.", sentence), "it is one sentence"
    shared = [line for line in rest if line.startswith("Also ")]
    assert all(line.endswith(": see journeyman --help.") for line in shared)
    _, _, named = "\n".join(rest).partition("─ Arguments ─")
    explained = re.findall(r"^│ (\*?) *([A-Z|:]+)  +\S", named.partition("╰")[0], re.MULTILINE)
    in_usage = [word for word in arguments.partition(" --")[0].split() if word.strip(".]")]
    assert [each for _, each in explained] == [word.strip("[]") for word in in_usage]
    needed = [] if "..." in arguments and name != "tell" else [word for word in in_usage if word[0] != "["]
    assert [each for star, each in explained if star] == needed
    options = [line for line in rest if re.match(r"│ [* ]*--", line)]
    assert [line for line in options if not re.search(r"\S  +[A-Za-z]", line)] == [], "an option is not explained"
    required = re.findall(r"^│ \* +(--[a-z-]+)", done.stdout, re.MULTILINE)
    assert required == re.findall(r"--[a-z-]+", arguments), "an option that must be given is not in the usage"


@pytest.mark.parametrize("old", OLD_COMMANDS)
def test_a_command_of_before_is_refused_with_the_new_one(old: str, warm: Warm) -> None:
    now = f"journeyman {OLD_COMMANDS[old]}"
    assert_one_error_line(warm(old, "x"), 2, [f"{old} is written otherwise now. {now}"])
    names = [" ".join(names) for names, _ in every_command()]
    assert any(now.startswith(f"journeyman {name} ") for name in names)


def test_an_option_of_before_is_refused_with_the_new_way(warm: Warm) -> None:
    known = {option.name for _, arguments in every_command() for option in arguments}
    assert known & OLD_OPTIONS.keys() == {"--durable"}, "it is no option of before"
    for old, how in OLD_OPTIONS.items():
        assert_one_error_line(warm("tell", "x", "hold", f"{old}=secret"), 2, [f"{old} {how}."])


def test_the_version_is_the_packages() -> None:
    assert journeyman("--version").stdout == f"{version('journeyman')}\n"


def modules_of(*words: str) -> tuple[str, list[str]]:
    """Return what a command prints, and which heavy packages it has imported."""
    program = (
        f"import sys, journeyman.cli as cli\nsys.argv = {['journeyman', *words]}\n"
        "try: cli.main()\nexcept SystemExit: pass\n"
        f"heavy = {HEAVY}\n"
        "print(*[name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    return done.stdout, done.stderr.split()


def test_help_and_version_do_without_the_packages_of_the_commands() -> None:
    assert modules_of("--help") == (HELP, [])


def test_the_help_of_a_command_does_without_what_the_command_speaks_to() -> None:
    told, heavy = modules_of("mcp", "--help")
    assert COMMANDS["mcp"].does in told
    assert heavy == ["cyclopts", "rich"]


def test_help_is_printed_in_every_encoding(warm: Warm) -> None:
    for encoding in ("ascii", "cp437"):
        done = warm("run", "--help", env={"PYTHONIOENCODING": encoding})
        assert (done.code, done.stderr) == (0, "")
        assert ("FILE:AGENT" in done.stdout, "..." in done.stdout, "…" in done.stdout) == (True, True, False)


def test_a_character_that_an_encoding_lacks_has_a_stand_in() -> None:
    assert "".join(map(ascii_of, "a\u201cb\u201d\u2013c…d\u2019e漢\xa0é")) == 'a"b"-c...d\'e? e'
