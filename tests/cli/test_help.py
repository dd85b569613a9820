"""`journeyman --help`: says what there is, and fast."""

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from journeyman.cli import COMMANDS, HELP, ascii_of
from journeyman.cli.app import app
from tests.cli.program import Warm, environment, journeyman

HEAVY = ("cyclopts", "rich", "aiohttp", "anthropic", "openai", "prompt_toolkit", "pydantic_ai", "httpx2", "mcp")
EXIT_CODES = "Exit code: 0 success, 1 failure, 2 usage, 130 after Ctrl-C, 143 after SIGTERM;"


def test_the_help_names_every_command_with_what_it_does(warm: Warm) -> None:
    for words in ([], ["--help"], ["-h"]):
        done = warm(*words)
        assert (done.code, done.stdout, done.stderr) == (0, HELP, "")
    assert {name for name in app if not name.startswith("-")} == {name for name in COMMANDS if name != "mcp pin"}
    for name, (arguments, does) in COMMANDS.items():
        assert f"  {name} {arguments}".rstrip() in HELP
        assert f" {does}\n" in HELP
    assert len({does for _, does in COMMANDS.values()}) == len(COMMANDS), "two commands share a sentence"
    assert max(len(line) for line in HELP.splitlines()) <= 80


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_in_one_sentence_what_it_does_and_names_its_arguments(name: str, warm: Warm) -> None:
    done = warm(*name.split(), "--help", env={"COLUMNS": "200"})
    assert (done.code, done.stderr) == (0, "")
    usage, _, sentence, *rest = [line.rstrip() for line in done.stdout.splitlines()]
    arguments, does = COMMANDS[name]
    assert usage == f"Usage: journeyman {name} [OPTIONS] {arguments}".rstrip()
    assert sentence == does
    assert re.fullmatch(r"[A-Z][^.]*\.", sentence), "it is one sentence"
    assert EXIT_CODES in " ".join(rest)
    _, _, named = "\n".join(rest).partition("─ Arguments ─")
    explained = re.findall(r"^│ (\*?) *([A-Z|:]+)  +\S", named.partition("╰")[0], re.MULTILINE)
    in_usage = [word for word in arguments.partition(" --")[0].split() if word.strip(".]")]
    assert [each for _, each in explained] == [word.strip("[]") for word in in_usage]
    needed = [] if "..." in arguments else [word for word in in_usage if word[0] != "["]
    assert [each for star, each in explained if star] == needed
    options = [line for line in rest if re.match(r"│ [* ]*--", line)]
    assert [line for line in options if not re.search(r"\S  +[A-Z]", line)] == [], "an option is not explained"
    required = re.findall(r"^│ \* +(--[a-z-]+)", done.stdout, re.MULTILINE)
    assert required == re.findall(r"--[a-z-]+", arguments), "an option that must be given is not in the usage"


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
    assert COMMANDS["mcp"][1] in told
    assert heavy == ["cyclopts", "rich"]


def test_help_is_printed_in_every_encoding(warm: Warm) -> None:
    for encoding in ("ascii", "cp437"):
        done = warm("run", "--help", env={"PYTHONIOENCODING": encoding})
        assert (done.code, done.stderr) == (0, "")
        assert ("FILE:AGENT" in done.stdout, "..." in done.stdout, "…" in done.stdout) == (True, True, False)


def test_a_character_that_an_encoding_lacks_has_a_stand_in() -> None:
    assert "".join(map(ascii_of, "a\u201cb\u201d\u2013c…d\u2019e漢\xa0é")) == 'a"b"-c...d\'e? e'
