"""`journeyman sandbox`, and `--sandbox`: commands of an agent run in a box, and what that has refused is shown."""

from pathlib import Path

import pytest

from journeyman.record import Recordings
from journeyman.sandbox import Bubblewrap
from journeyman.sandbox.trials import visible_folder
from tests.cli.program import Warm, assert_one_error_line
from tests.sandbox.conftest import bubblewrap as bubblewrap

AGENT = """
from journeyman import Agent
from journeyman.permission import Permission
from journeyman.testing import ScriptedModel
from journeyman.testing.scripted import call
from journeyman.toolbox import Workspace

model = ScriptedModel([call("bash", command="echo x > inside; echo x > ../outside"), "Done."])
boxed = Agent(name="boxed", model=model, tools=Workspace(".").tools("bash"), gate=Permission(mode="trust"))
"""


def test_it_shows_what_holds_here_and_tries_a_way_out_for_each_guarantee(bubblewrap: Bubblewrap, warm: Warm) -> None:
    done = warm("sandbox")
    assert (done.code, done.stderr) == (0, "")
    first, *tried = done.stdout.splitlines()
    assert first == f"bubblewrap {bubblewrap.holds()}"
    assert [line.split()[0] for line in tried] == ["held"] * 6
    assert {line.split()[1] for line in tried} == {*bubblewrap.holds().held}


@pytest.mark.parametrize(
    ("command", "code", "stdout", "stderr"),
    [
        (("sh", "-c", "cat; echo $1; exit 3", "-", "--flag"), 3, "typed\n--flag\n", ""),
        (("sh", "-c", "kill -TERM $$"), 143, "", ""),
        (("touch", "../outside"), 1, "", "Read-only file system"),
        (("no-such-program",), 127, "", "no-such-program: No such file or directory"),
        (("sh", "-c", "echo x > .envrc"), 0, "", "was put aside as"),
    ],
)
def test_a_command_is_run_in_a_box_of_this_folder(
    bubblewrap: Bubblewrap, warm: Warm, command: tuple[str, ...], code: int, stdout: str, stderr: str
) -> None:
    with visible_folder() as folder:
        (folder / "work").mkdir()
        done = warm("sandbox", "--", *command, cwd=folder / "work", stdin=b"typed\n")
        assert (done.code, done.stdout) == (code, stdout), done.stderr
        assert stderr in done.stderr
        assert not (folder / "outside").exists()


def test_a_person_lets_variables_into_the_box_by_their_names(
    bubblewrap: Bubblewrap, warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NPM_TOKEN", "ROUTE", "OTHER"):
        monkeypatch.setenv(name, f"the-{name}")
    monkeypatch.setenv("JOURNEYMAN_KEEP_ENV", "NPM_TOKEN, ROUTE")
    with visible_folder() as folder:
        (folder / "work").mkdir()
        line = ("sandbox", "--", "sh", "-c", "echo $NPM_TOKEN $ROUTE $OTHER")
        assert warm(*line, cwd=folder / "work").stdout == "the-NPM_TOKEN the-ROUTE\n"


def test_the_home_folder_is_no_box(warm: Warm) -> None:
    assert_one_error_line(warm("sandbox", "--", "true", cwd=Path.home()), 2, ["A command may not change"])


@pytest.mark.parametrize("wish", ["required", "auto", "none"])
def test_a_run_has_the_box_that_is_wished_for(bubblewrap: Bubblewrap, warm: Warm, wish: str) -> None:
    with visible_folder() as folder:
        (folder / "work").mkdir()
        (folder / "work/agents.py").write_text(AGENT)
        done = warm("run", "agents.py:boxed", "Go.", "--sandbox", wish, cwd=folder / "work")
        assert done.stdout == "Done.\n", done.stderr
        assert ("sandbox: bubblewrap" in done.stderr) == (wish != "none")
        assert (folder / "work/inside").exists()
        assert (folder / "outside").exists() == (wish == "none")


def test_what_was_refused_stands_in_the_recording_on_a_line_of_its_own(bubblewrap: Bubblewrap, warm: Warm) -> None:
    with visible_folder() as folder:
        (folder / "work").mkdir()
        (folder / "work/agents.py").write_text(AGENT)
        given = ("--sandbox", "auto", "--record", "--store", folder / "runs.db")
        done = warm("run", "agents.py:boxed", "Go.", *given, cwd=folder / "work")
        outside = folder / "outside"
        assert "! bash refused by bubblewrap (write): /" in done.stderr
        for command in ("show", "tail"):
            shown = warm(command, "last", "--store", folder / "runs.db").stdout.splitlines()
            assert f"refused by bubblewrap (write): {outside}" in [line.strip() for line in shown], shown
        with Recordings(folder / "runs.db") as recordings:
            told = [each for each in recordings.all_events(recordings.find("last")) if each.kind == "SandboxRefused"]
        facts = {"sandbox": "bubblewrap", "cause": "write", "what": str(outside), "need": f"write:{outside}"}
        assert [(each.tool_name, each.facts) for each in told] == [("bash", facts)]


def test_a_chat_shows_its_box_and_what_that_has_refused(bubblewrap: Bubblewrap, warm: Warm) -> None:
    with visible_folder() as folder:
        (folder / "work").mkdir()
        (folder / "work/agents.py").write_text(AGENT)
        words = ("chat", "agents.py:boxed", "--sandbox", "auto")
        done = warm(*words, cwd=folder / "work", stdin=b"Go.\n/sandbox\n")
        told = " ".join(done.stderr.split())
        assert f"{folder / 'work'} may be changed by commands" in told, done.stderr
        assert f"refused (write): {folder / 'outside'}" in told
        plain = warm(*words[:2], cwd=folder / "work", stdin=b"/sandbox\n")
        assert "No box: commands run as this program does." in plain.stderr


def test_a_wish_that_cannot_be_is_refused_in_words(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    run = ("run", "agents.py:boxed", "Go.", "--sandbox")
    assert_one_error_line(warm(*run, "maybe", cwd=tmp_path), 2, ["maybe", "auto"])
    assert_one_error_line(warm(*run, "auto", "--durable", cwd=tmp_path), 2, ["--sandbox is not for a durable run"])
    assert_one_error_line(warm("check", "agents.py:boxed", "--sandbox", "auto", cwd=tmp_path), 2, ["--sandbox"])
