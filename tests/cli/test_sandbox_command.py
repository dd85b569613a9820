"""`journeyman sandbox`, and `--sandbox`: commands of an agent run in a box, and what that has refused is shown."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.record import Recordings
from journeyman.sandbox import Bubblewrap
from journeyman.sandbox.trials import visible_folder
from tests.cli.program import Warm, assert_one_error_line
from tests.sandbox.conftest import bubblewrap as bubblewrap
from tests.support.messages_answers import Answer, answer, text, tool_use
from tests.support.servers import MessagesApi

AGENT = """
from journeyman import Agent
from journeyman.permission import Permission
from journeyman.testing import ScriptedModel
from journeyman.testing.scripted import call
from journeyman.toolbox import Workspace

model = ScriptedModel([call("bash", command="echo x > inside; echo x > ../outside"), "Done."])
boxed = Agent(name="boxed", model=model, tools=Workspace(".").tools("bash"), gate=Permission(mode="trust"))
ungated = Agent(name="ungated", model=model, tools=Workspace(".").tools("bash"))
line = "echo $http_proxy > ../given/new"
fetching = Agent(
    name="fetching", model=ScriptedModel([call("bash", command=line), "Done."]), tools=Workspace(".").tools("bash")
)
"""

NO_COMMANDS = """
from journeyman import Agent
from journeyman.testing import ScriptedModel

none = Agent(name="none", model=ScriptedModel(["Done."]))
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
        assert done.stderr.startswith("sandbox: bubblewrap\n") == (wish != "none")
        assert (folder / "work/inside").exists()
        assert (folder / "outside").exists() == (wish == "none")


@pytest.fixture
def place(bubblewrap: Bubblewrap, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with agents in it, of a person whose settings are in the folder beside it."""
    with visible_folder() as folder:
        for name in ("work", "given", "settings/journeyman"):
            (folder / name).mkdir(parents=True)
        (folder / "work/agents.py").write_text(AGENT)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "settings"))
        yield folder / "work"


@pytest.mark.parametrize("settings", ["", "[sandbox]\nuse = 'auto'\n", "[other]\nx = 1\n"])
def test_a_run_begins_with_auto_in_a_box_where_that_holds_and_says_so_on_its_first_line(
    place: Path, warm: Warm, settings: str
) -> None:
    (place.parent / "settings/journeyman/settings.toml").write_text(settings)
    done = warm("run", "agents.py:ungated", "Go.", cwd=place)
    assert done.stdout == "Done.\n", done.stderr
    assert done.stderr.splitlines()[0] == "mode: auto · sandbox: bubblewrap"
    assert (place / "inside").exists()
    assert not (place.parent / "outside").exists()
    chat = warm("chat", "agents.py:ungated", cwd=place, stdin=b"Go.\n").stderr
    assert chat.splitlines()[0] == "mode: auto · sandbox: bubblewrap"
    (place / "none.py").write_text(NO_COMMANDS)
    assert "mode:" not in warm("run", "none.py:none", "Go.", cwd=place).stderr, "it has no commands"
    assert "mode:" not in warm("run", "agents.py:ungated", "Go.", "--quiet", cwd=place).stderr


def test_without_a_box_a_run_begins_with_balanced(place: Path, warm: Warm) -> None:
    done = warm("run", "agents.py:ungated", "Go.", "--sandbox", "none", cwd=place)
    assert "the mode is balanced" in " ".join(done.stderr.split())
    assert not (place / "inside").exists()


def test_what_is_given_beyond_a_box_takes_back_nothing_of_what_the_settings_say(
    place: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, run = place.parent / "settings/journeyman/settings.toml", ("run", "agents.py:ungated", "Go.")
    settings.write_text("[sandbox]\nuse = 'none'\n")
    told = ['use = "none" in the settings says that there is none.']
    assert_one_error_line(warm(*run, "--write", "../given", cwd=place), 2, told)
    settings.write_text("[sandbox]\nuse = 'required'\n")
    monkeypatch.setenv("PATH", str(place))  # in which there is no bubblewrap
    assert_one_error_line(warm(*run, "--write", "../given", cwd=place), 2, ["No sandbox holds enough here"])


def test_who_only_gives_more_to_a_box_does_not_require_one(place: Path, warm: Warm) -> None:
    (place / "home.py").write_text(AGENT.replace('"."', '"~"'))
    run, more = ("run", "home.py:ungated", "Go."), ("--write", "../given")
    done = warm(*run, *more, cwd=place)
    assert (done.stdout, done.stderr.startswith("mode: balanced · no sandbox: A command may not change")) == (
        "Done.\n",
        True,
    ), done.stderr
    assert "A command may not change" in warm(*run, *more, "--sandbox", "auto", cwd=place).stderr


@pytest.mark.parametrize("by", ["options", "settings"])
def test_a_person_widens_the_box_by_options_and_by_settings(place: Path, warm: Warm, by: str) -> None:
    given = place.parent / "given"
    options = ["--write", "../given", "--allow-host", "a.example"] if by == "options" else []
    if by == "settings":
        text = f"[sandbox]\nneeds = ['host:a.example', 'write:{given}']\n"
        (place.parent / "settings/journeyman/settings.toml").write_text(text)
    done = warm("run", "agents.py:fetching", "Go.", *options, cwd=place)
    assert (given / "new").read_text().startswith("http://127.0.0.1:"), done.stderr


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("[sandbox]\nuse = 'always'\n", "is wrong at sandbox.use"),
        ("[sandbox]\nwrite = ['x']\n", "is wrong at sandbox.write"),
        ("[sandbox]\nneeds = ['host:1.2.3.4']\n", "no name of a host"),
        ("[sandbox]\nneeds = ['write:/']\n", "may not change /"),
        ("[sandbox]\nneeds = ['write:/no/such']\n", "[sandbox] needs 'write:/no/such': nothing is there."),
        ("[sandbox]\nneeds = ['outside']\n", "[sandbox] needs 'outside' is nothing that commands can be given."),
        ("[sandbox\n", "is no TOML"),
    ],
)
def test_settings_that_name_a_box_that_cannot_be_are_told(place: Path, warm: Warm, settings: str, told: str) -> None:
    (place.parent / "settings/journeyman/settings.toml").write_text(settings)
    assert_one_error_line(warm("run", "agents.py:ungated", "Go.", cwd=place), 2, [told])


def test_what_was_refused_stands_in_the_recording_on_a_line_of_its_own(bubblewrap: Bubblewrap, warm: Warm) -> None:
    with visible_folder() as folder:
        (folder / "work").mkdir()
        (folder / "work/agents.py").write_text(AGENT)
        given = ("--sandbox", "auto", "--record", "--store", folder / "runs.db")
        done = warm("run", "agents.py:boxed", "Go.", *given, cwd=folder / "work")
        outside = folder / "outside"
        assert "! bash refused by bubblewrap (write): /" in done.stderr
        for more in ((), ("--follow",)):
            shown = warm("show", "last", *more, "--store", folder / "runs.db").stdout.splitlines()
            assert f"refused by bubblewrap (write): {outside}" in [line.strip() for line in shown], shown
        with Recordings(folder / "runs.db") as recordings:
            told = [each for each in recordings.all_events(recordings.find("last")) if each.kind == "SandboxRefused"]
        facts = {"sandbox": "bubblewrap", "cause": "write", "what": str(outside), "need": f"write:{folder}"}
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
        assert "mode:" not in plain.stderr
        assert "No box: commands run as this program does." in plain.stderr


ASKED = {
    "Make the tests pass.": ("sed -i s/-/+/ sums.py && python3 -m unittest -q", None, "OK"),
    "Delete my home folder.": ("rm -rf ~", None, "The sandbox refused to change {home}"),
    "Push it.": ("git push origin HEAD", None, "The sandbox refused to connect to git.example"),
    "Then ask me.": (
        "git push origin HEAD",
        ["host:git.example"],
        "it asks for host:git.example, which is beyond its box.",
    ),
    "Read my ssh key.": ("cat ~/.ssh/id", None, "The sandbox refused to read {home}/.ssh/id: it is hidden"),
    "Add a hook.": ("echo x > .git/hooks/post-commit", None, "The sandbox refused to change {work}/.git/hooks"),
}
"""What a new user says, the command that comes of it with what it needs, and what the model reads."""


def make_project(folder: Path) -> tuple[Path, Path]:
    """Make a home folder with a key, and a project with a test that fails."""
    home, work = folder / "home", folder / "work"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id").write_text("correct-horse\n")
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    empty = ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "one"]
    for words in (["remote", "add", "origin", "https://git.example/x"], empty):
        subprocess.run(["git", *words], cwd=work, check=True)
    (work / "sums.py").write_text("def add(a, b):\n    return a - b\n")
    test = "import unittest, sums\n\nclass T(unittest.TestCase):\n    def test(self): assert sums.add(1, 2) == 3\n"
    (work / "test_sums.py").write_text(test)
    return home, work


async def test_a_new_user_is_asked_nothing_and_loses_nothing(bubblewrap: Bubblewrap, warm: Warm) -> None:
    with visible_folder() as folder:
        home, work = make_project(folder)
        answers: list[Answer] = []
        for line, needs, _ in ASKED.values():
            more = {} if needs is None else {"needs": needs, "why": "the remote is there"}
            answers += [answer(tool_use("bash", {"command": line, **more})), answer(text("So it is."))]
        async with MessagesApi(answers, accept_violations=True) as api:
            env = {"HOME": str(home), "XDG_CONFIG_HOME": "", "ANTHROPIC_API_KEY": "test", "ANTHROPIC_BASE_URL": api.url}
            said = "".join(f"{each}\n" for each in (*ASKED, "/sandbox")).encode()
            done = await asyncio.to_thread(warm, "chat", cwd=work, env=env, stdin=said)
            read = [str(request.body["messages"]) for request in api.requests[1::2]]
        assert (done.code, done.stdout.count("So it is.")) == (0, len(ASKED)), done.stderr
        assert done.stderr.startswith("mode: auto · sandbox: bubblewrap\n")
        for (_, _, told), result in zip(ASKED.values(), read, strict=True):
            assert told.format(home=home, work=work) in result
        assert "correct-horse" not in "".join(read)
        assert (home / ".ssh/id").exists()
        assert not (work / ".git/hooks/post-commit").exists()
        shown = " ".join(done.stderr.split())
        for each in (f"refused (write): {home}", "refused (network): git.example", f"refused (read): {home}/.ssh/id"):
            assert each in shown, shown
        assert shown.count("Error: denied: ") == 1, "one question, and nobody is there to be asked"


def test_a_wish_that_cannot_be_is_refused_in_words(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    run = ("run", "agents.py:boxed", "Go.", "--sandbox")
    assert_one_error_line(warm(*run, "maybe", cwd=tmp_path), 2, ["maybe", "auto"])
    assert_one_error_line(warm(*run, "auto", "--durable", cwd=tmp_path), 2, ["--sandbox is not for a durable run"])
    assert_one_error_line(warm("check", "agents.py:boxed", "--sandbox", "auto", cwd=tmp_path), 2, ["--sandbox"])
