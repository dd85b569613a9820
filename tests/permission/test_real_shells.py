"""Whatever the command: an allow never matches what a real bash takes for more than it says, and a deny finds whatever
a real bash runs. Generated commands run in an empty folder, where programs only note that they were called."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, reject, settings
from hypothesis import strategies as st

from journeyman.permission.capability import classify
from journeyman.permission.programs import RUNS_OTHERS, program_name, take_apart
from journeyman.permission.rules import Roots, Rules
from journeyman.permission.shell import plain_words
from tests.permission.workshop import StubShell, request
from tests.properties.examples import examples, patient

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")

PROGRAMS = ("git", "rm", "ls", "sudo", "xargs")

fragments = st.sampled_from(
    [
        *("git", "rm", "ls", "a", "b", "-x", "--y=z", "1", "2", "."),
        *(" ", " ", " ", " ", "\t", "\n", "\r", "\f", "\u00a0", "\u200b"),
        *(";", "&", "&&", "|", "||", "|&", "!", ";;"),
        *("'", '"', "\\", "`", "$", "$(", ")", "(", "<(", "${", "}", "{ ", "$'", '$"', "$((", "))"),
        *(">", "<", ">>", ">&2", "2>&1", "&>", "<<<", "<<E\n", "\nE\n"),
        *("X=1", "x=rm", "$x", "=", "+=", "#", " # it's ", "~", "*", "?", "[", "]", "{a,b}", "[a]"),
        *("eval ", "exec ", "command ", "sudo ", "if ", "then ", "fi"),
        *("do ", "done", "for x in a; do ", "time ", "coproc "),
        *("'rm'", '"rm"', "r\\m", "'a b'", '"a b"', "$(rm a)", "`rm b`", '"$(rm c)"', "( rm d )", "\\\n"),
        *(">&-", "<&-", "<<'E'\n", "<<-E\n", "{f}>a ", "case x in ", "x) ", "esac", "f() { ", "f", "function f "),
        *("[[ ", " ]]", "((", "for x in rm; do ", "while ", "set -- ", '"$@"', "$'\\x72m'", "alias ", "trap ", ". "),
        *("xargs ", "env ", "timeout 1 ", "bash -c "),
        *("\u043e", "\uff1b", "\u037e", "\u2018", "\u201c", "\x1b", "\x7f", "é"),
    ]
)
commands = st.lists(fragments, max_size=12).map("".join)
mostly_plain = st.lists(
    st.sampled_from(["git", "ls", " ", " ", " ", "-x", "a.b", "'c d'", '"e f"', "x=y", "/", ":", ",", "\t", "#", "''"]),
    max_size=10,
).map("".join)


@pytest.fixture(scope="module")
def shell() -> Iterator[StubShell]:
    with tempfile.TemporaryDirectory() as folder:
        yield StubShell(Path(folder), *PROGRAMS)


few_are_plain = settings(examples(2), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
"""For tests of commands that are plain, which most of those tried are not; that none is would be a failure."""


@pytest.mark.fuzz
@patient
@few_are_plain
@given(command=st.one_of(commands, mostly_plain, st.text(max_size=20).map(lambda text: f"git {text}")))
def test_what_is_plain_is_one_command_with_just_these_words(shell: StubShell, command: str) -> None:
    words = plain_words(command)
    if words is None or words[0] in RUNS_OTHERS.difference(PROGRAMS):
        reject()
    assert (shell.run(command), list(shell.folder.iterdir())) == ([words] if words[0] in PROGRAMS else [], [])


@pytest.mark.fuzz
@patient
@few_are_plain
@given(command=st.one_of(commands, st.one_of(commands, mostly_plain).map("git {}".format)))
def test_a_command_that_a_rule_allows_runs_the_program_of_the_rule_and_no_other(shell: StubShell, command: str) -> None:
    roots = Roots([shell.folder])
    assume(Rules(["Bash(git *)"], [], [], roots).allowing(classify(request("bash", command=command))) is not None)
    assert [words[0] for words in shell.run(command)] == ["git"]


@given(command=st.one_of(commands, st.tuples(commands, st.just("\nrm z\n"), commands).map("".join)))
@example(command=" # it's \\\nrm z\n")
def test_whatever_a_shell_runs_a_deny_finds_or_doubts(shell: StubShell, command: str) -> None:
    if "\0" in command:
        return
    called = shell.run(command)
    for path in shell.folder.iterdir():
        path.unlink()
    if any(words[0] == "rm" for words in called):
        action = classify(request("bash", command=command))
        rules = Rules([], ["Bash(rm *)"], [], Roots([shell.folder]))
        assert rules.denying(action, []) or rules.doubting(action), (command, take_apart(command))


@given(command=st.one_of(commands, commands.map("ls {}".format), commands.map("cd a; {}".format)))
def test_what_can_be_told_of_a_command_names_every_program_that_a_shell_runs(shell: StubShell, command: str) -> None:
    reading = take_apart(command)
    if reading.doubts:
        return  # most of them
    called = {words[0] for words in shell.run(command)}
    for path in shell.folder.iterdir():
        path.unlink()
    assert called <= {program_name(words[0].text) for words in reading.commands}


def test_the_programs_of_these_tests_note_their_calls_and_do_nothing(tmp_path: Path) -> None:
    shell = StubShell(tmp_path, *PROGRAMS)
    called = [("git", "a b", ""), ("ls",), ("rm", "x"), ("sudo", "rm", "y")]
    assert sorted(shell.run("git 'a b' \"\"; ls | rm x; sudo rm y")) == called
