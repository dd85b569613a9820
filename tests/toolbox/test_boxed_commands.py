"""Commands of a workspace in a box: they run there or not at all, and what was refused is told."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, DefinitionError, Runtime, run
from journeyman.definition.narrowing import as_object
from journeyman.events import SandboxRefused, ToolProgress
from journeyman.gate import Allow, Approval, Approver, Decision, Deny, Gate, GateRequest
from journeyman.journal import InMemoryJournal
from journeyman.permission import Permission, make_box
from journeyman.sandbox import Box, BoxLimits, Bubblewrap, NoSandbox, OpenSandbox, SandboxGuarantees, secrets_of_home
from journeyman.sandbox.trials import visible_folder
from journeyman.testing import ScriptedModel
from journeyman.testing.scripted import call
from journeyman.toolbox import Shell, Workspace
from journeyman.toolbox.boxed import SandboxChoice
from tests.play import texts
from tests.sandbox.conftest import bubblewrap as bubblewrap
from tests.sandbox.conftest import make_unheld
from tests.toolbox.player import Player


@pytest.fixture
def place(bubblewrap: Bubblewrap) -> Iterator[Path]:
    """A workspace beside which there is a file, in a folder that a box would show."""
    with visible_folder() as folder:
        (folder / "outside").write_text("as it was\n")
        (folder / "work").mkdir()
        yield folder


def player_in(place: Path, sandbox: "SandboxChoice | None") -> Player:
    return Player(Workspace(place / "work", sandbox=sandbox))


@pytest.mark.parametrize("kind", ["auto", "required", "a box", "a sandbox"])
async def test_a_command_runs_in_the_box_and_is_told_what_that_has_refused(
    bubblewrap: Bubblewrap, place: Path, kind: str
) -> None:
    given: dict[str, SandboxChoice] = {
        **{"auto": "auto", "required": "required"},
        **{"a box": Box(work=str(place / "work")), "a sandbox": bubblewrap},
    }
    player = player_in(place, given[kind])
    assert await player.text("bash", command="echo x > a; cat a") == "x\n[exit code 0]"
    assert await player.text("bash", command="echo x > ../outside") == (
        "bash: line 1: ../outside: Read-only file system\n[exit code 1]\n"
        f"[The sandbox refused to change {place / 'outside'}: it is outside of the workspace.]"
    )
    (told_of,) = [each for each in player.events if isinstance(each, SandboxRefused)]
    need = f"write:{place / 'outside'}"
    assert (told_of.sandbox, told_of.cause, told_of.what, told_of.need) == ("bubblewrap", "write", need[6:], need)
    told_by_events = [each.message for each in player.events if isinstance(each, ToolProgress)]
    assert told_by_events[-1] == f"The sandbox refused to change {place / 'outside'}: it is outside of the workspace."
    told = await player.text("bash", command="exec 9<>/dev/tcp/127.0.0.1/9; kill -0 1 && echo alone")
    assert told.endswith("/dev/tcp/127.0.0.1/9: Connection refused\nalone\n[exit code 0]")
    assert (place / "outside").read_text() == "as it was\n"
    player.workspace.close()


async def test_commands_share_one_box_which_ends_with_the_workspace(place: Path) -> None:
    player = player_in(place, "required")
    await player.text("bash", command="echo x > ${TMPDIR:-/tmp}/shared")
    assert await player.text("bash", command="cat ${TMPDIR:-/tmp}/shared") == "x\n[exit code 0]"
    player.workspace.close()
    assert "No such file" in await player.text("bash", command="cat ${TMPDIR:-/tmp}/shared"), "that is another box"
    player.workspace.close()


async def test_what_a_command_leaves_running_is_ended_and_its_time_is_bounded(place: Path) -> None:
    player = player_in(place, "required")
    left = await player.text("bash", command="setsid sleep 60 > /dev/null 2>&1 & echo started")
    assert left == "started\n[exit code 0]\n[It left processes running. They were ended.]"
    assert await player.text("bash", command="sleep 60", timeout_s=0.2) == (
        "[timed out after 0.2 s and was ended with all its processes]"
    )
    assert await player.text("bash", command="kill -SEGV $$") == "[ended by SIGSEGV]"
    player.workspace.close()


@pytest.mark.parametrize(
    ("kill", "text"),
    [
        ("KILL $PPID", "[ended by SIGKILL]"),
        ("STOP $PPID 1", "[timed out after 1 s and was ended with all its processes]"),
        ("TERM $PPID 1", "[exit code 0]\n[It left processes running. They were ended.]"),
    ],
)
async def test_a_command_that_turns_on_its_keeper_is_ended_and_the_next_one_runs(
    place: Path, kill: str, text: str
) -> None:
    player = Player(Workspace(place / "work", sandbox="required", shell=Shell(grace_s=0.2)))
    line = f"setsid flock lock sleep 60 > /dev/null & kill -{kill}"
    os.mkfifo(place / "work/pipe")
    first = asyncio.ensure_future(player.text("bash", command="cat pipe"))  # its keeper is one that nobody can end
    with await asyncio.to_thread((place / "work/pipe").open, "w"):
        assert (await player.text("bash", command=line, timeout_s=1)).startswith(text)
    await first
    assert await player.text("bash", command="flock -w 1 lock echo free") == "free\n[exit code 0]"
    player.workspace.close()


async def test_startup_files_are_protected_and_new_ones_are_put_aside(place: Path) -> None:
    work = place / "work"
    (work / ".envrc").write_text("as it was\n")
    player = player_in(place, "required")
    told = await player.text("bash", command="echo x > .envrc")
    assert f"[The sandbox refused to change {work / '.envrc'}: it is protected.]" in told
    told = await player.text("bash", command="mkdir sub; echo x > sub/.bashrc")
    held = work / "sub/.bashrc"
    assert told == f"[exit code 0]\n[{held} was put aside as {held}.held: programs would run it by themselves.]"
    assert ((work / ".envrc").read_text(), held.exists()) == ("as it was\n", False)
    await player.text("bash", command="git init -q new")
    told = await player.text("bash", command="git -C new config core.pager x")
    assert "it is protected" in told or "was put aside" in told or "could not" in told, told
    player.workspace.close()


async def test_the_name_under_which_a_file_was_put_aside_is_told(place: Path) -> None:
    player, held = player_in(place, NoSandbox("this system has none")), place / "work/.envrc"
    told = [await player.text("bash", command="echo x > .envrc") for _ in range(2)]
    ends = [
        f"[{held} was put aside as {held}{each}: programs would run it by themselves.]" for each in (".held", ".2.held")
    ]
    assert told == [f"[exit code 0]\n{each}" for each in ends]
    player.workspace.close()


async def test_a_file_that_cannot_be_put_aside_costs_no_output(place: Path) -> None:
    player = player_in(place, NoSandbox("this system has none"))
    unheld = make_unheld(place / "work")
    unheld.unlink()
    for _ in range(2):
        told = await player.text("bash", command=f"echo x > '{unheld}'; echo made; exit 3")
        assert told.startswith("made\n[exit code 3]\n[")
        assert told.endswith(".envrc could not be put aside (File name too long): programs run it by themselves.]")
    player.workspace.close()


async def test_the_rules_of_a_permission_hold_in_the_box_that_is_made_of_them(place: Path) -> None:
    work = place / "work"
    (work / ".env").write_text("TOKEN=x\n")
    rules = Permission(roots=[work], deny=["Bash(sqlite3 *)", "Read(.env)"])
    player = player_in(place, make_box(rules))
    line = 'x=sql; y=ite3; "$x$y" -version; c\\at .e*'
    told = await player.text("bash", command=line)
    assert "[The sandbox refused to run sqlite3: a rule forbids it.]" in told
    assert f"[The sandbox refused to read {work / '.env'}: it is hidden from commands.]" in told
    assert "TOKEN" not in told
    player.workspace.close()


class Broken(NoSandbox):
    """A sandbox that promises all, and whose keeper ends before it starts anything."""

    def holds(self) -> SandboxGuarantees:
        return SandboxGuarantees(held=frozenset({"files", "protected", "secrets", "network"}))

    def open(self, box: Box) -> OpenSandbox:
        opened = super().open(box)
        opened.close()
        return opened


async def test_a_box_that_breaks_runs_nothing_outside_of_it(place: Path) -> None:
    player = player_in(place, Broken())
    told = await player.refused("bash", command="echo x > a")
    assert told.endswith("Nothing was run.")
    assert [*(place / "work").iterdir()] == []


async def test_a_sandbox_that_is_given_is_used_whatever_it_holds(place: Path) -> None:
    player = player_in(place, NoSandbox("this system has none"))
    assert await player.text("bash", command="echo x > ../outside; echo y > .envrc") == (
        f"[exit code 0]\n[{place / 'work/.envrc'} was put aside as {place / 'work/.envrc'}.held: "
        "programs would run it by themselves.]"
    )
    assert (place / "outside").read_text() == "x\n"
    player.workspace.close()


@pytest.mark.parametrize(
    ("sandbox", "told"),
    [
        ("maybe", "sandbox is 'maybe'."),
        (Box(work="/srv/other"), "The box is one for /srv/other, and the folder of the workspace is "),
    ],
)
def test_a_sandbox_that_cannot_be_is_refused_in_words(tmp_path: Path, sandbox: SandboxChoice, told: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        Workspace(tmp_path, sandbox=sandbox)
    assert caught.value.problems[0].message.startswith(told)


def test_the_home_folder_is_no_workspace_with_a_box(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="A command may not change"):
        Workspace(Path.home(), sandbox="auto")


async def test_a_command_is_given_exactly_what_it_needs_and_what_it_lacks_is_told_to_be_asked_for(place: Path) -> None:
    workspace = Workspace(place / "work", sandbox="required", confined=False)
    player = Player(workspace)
    line, outside = "echo new > ../outside", place / "outside"
    told = await player.text("bash", command=line)
    assert f'{outside}: it is outside of the workspace. Ask with needs=["write:{outside}"].]' in told
    assert await player.text("bash", command=line, needs=["write:../outside"], why="to see") == "[exit code 0]"
    assert outside.read_text() == "new\n"
    assert "Read-only" in await player.text("bash", command=line), "what was given to one command, the next has not"
    assert await player.text("bash", command="rm ../outside", needs=["outside"]) == "[exit code 0]"
    assert not outside.exists()
    for needs in (["anything"], ["outside", "write:../a"], ["socket:/run/x"], ["write:~"], ["write:/"], ["write:a\0b"]):
        await player.refused("bash", command="true", needs=needs)
    workspace.close()


NEEDED = {
    "git config user.name ada && git config user.name": ("write:{}/.git/config", "ada\n[exit code 0]"),
    "git remote add origin ../x && git remote": ("write:{}/.git/config", "origin\n[exit code 0]"),
    "git config core.editor vi": ("write:{}/.git/config", "[exit code 0]\n[{0}/.git/config was put aside as"),
    "echo true > .git/hooks/pre-push": ("write:{}/.git/hooks", "[exit code 0]\n[{0}/.git/hooks/pre-push was put"),
    "cat ../keys/one": ("read:{}/keys", "a key\n[exit code 0]"),
    "su nobody -s /bin/sh -c 'echo it works'": ("outside", "it works\n[exit code 0]"),
    "python3 -c 'import socket; socket.socket(1).bind(\"s\")'": ("outside", "[exit code 0]"),
}
"""Ordinary commands that a box refuses, each with the need that it tells of, and what comes of it then."""


@pytest.mark.parametrize("line", NEEDED)
async def test_what_is_refused_tells_of_the_need_with_which_it_works(place: Path, line: str) -> None:
    work, keys = place / "work", place / "keys"
    keys.mkdir()
    (keys / "one").write_text("a key\n")
    given, told = NEEDED[line]
    if line.startswith("su ") and os.geteuid() != 0:
        pytest.skip("only root becomes another user without a password")
    player = Player(Workspace(work, sandbox=Box(work=str(work), hidden=(str(keys),)), confined=False))
    await player.text("bash", command="git init -q .")
    need = given.format(keys.parent if "keys" in line else work)
    assert f'Ask with needs=["{need}"].' in await player.text("bash", command=line)
    assert (await player.text("bash", command=line, needs=[need])).startswith(told.format(work))
    player.workspace.close()


def test_only_a_model_that_may_ask_for_more_than_the_box_is_told_of_it(place: Path) -> None:
    narrow, wide = (Workspace(place, sandbox="auto", confined=each).tools("bash")[0].spec for each in (True, False))
    assert wide.description.removeprefix(narrow.description).startswith(" It runs in a\nsandbox, which refuses to")
    asked: list[str] = ["command", "timeout_s", "folder", "background"]
    assert [*as_object(narrow.input_schema["properties"])] == asked
    assert [*as_object(wide.input_schema["properties"])] == [*asked, "needs", "why"]


async def test_nothing_is_given_where_nobody_decides(place: Path) -> None:
    player = player_in(place, "required")
    assert "needs" not in str(player.workspace.tools("bash")[0].input_schema)
    told = await player.text("bash", command="curl -sS http://evil.test/ || echo x > ../outside")
    assert "Ask with" not in told
    assert "The sandbox refused to connect to evil.test" in told or "curl: not found" in told, told
    player.workspace.close()


async def test_a_gate_that_knows_the_box_lets_an_agent_run_what_it_holds(place: Path) -> None:
    rules = Permission(mode="auto", roots=[place / "work"], deny=["Bash(sqlite3 *)"])
    calls = [
        call("bash", command="x=echo; $x one > a; cat a"),
        call("bash", command="x=sql; ${x}ite3 -version"),
        call("bash", command="echo x > ../outside", needs=["write:../outside"]),
    ]
    found: dict[bool, list[str]] = {}
    for has_box in (True, False):
        chosen = (lambda: make_box(rules)) if has_box else None
        with Workspace(place / "work", sandbox=chosen, confined=False) as workspace:
            agent = Agent(name="a", model=ScriptedModel([*calls, "Done."]), tools=workspace.tools("bash"))
            result = await run(agent, "Go.", runtime=Runtime(gate=rules))
        found[has_box] = texts(result)
    assert found[True][0] == "one\n[exit code 0]"
    assert "The sandbox refused to run sqlite3" in found[True][1]
    assert f"it asks for write:{place / 'outside'}, which is beyond its box" in found[True][2]
    assert all(each.startswith("Error: denied: ") for each in found[False][:2]), found[False]
    assert (place / "outside").read_text() == "as it was\n"


async def test_a_plan_looks_at_files_in_a_box_in_which_it_changes_nothing(bubblewrap: Bubblewrap, place: Path) -> None:
    rules = Permission(mode="plan", roots=[place / "work"])
    calls = [
        call("bash", command="git init -q . && git log"),
        call("bash", command="echo x > new; cat ../outside; test -w $(mktemp) && echo kept"),
        call("bash", command="true", needs=["write:."]),
    ]
    with Workspace(place / "work", sandbox="auto", confined=False) as workspace:
        agent = Agent(name="a", model=ScriptedModel([*calls, "Done."] * 2), tools=workspace.tools("bash"))
        result = await run(agent, "Plan.", runtime=Runtime(gate=rules))
        planned = texts(result)
        assert "Read-only file system" in planned[0]
        assert planned[1].startswith("bash: line 1: new: Read-only file system\nas it was\nkept\n"), planned
        assert planned[2].startswith("Error: denied: the mode is plan")
        assert [*(place / "work").iterdir()] == []
        rules.mode = "auto"
        result = await run(agent, "Do it.", runtime=Runtime(gate=rules))
    assert "does not have any commits yet" in texts(result)[0]
    assert (place / "work/new").read_text() == "x\n"


async def test_while_something_runs_a_gate_is_told_of_the_box_that_it_runs_in(place: Path) -> None:
    work = place / "work"
    rules = Permission(mode="auto", roots=[work], deny=["Read(.env)"])
    with Workspace(work, sandbox=lambda: make_box(rules), confined=False) as workspace:
        box = workspace.bench.box
        assert box is not None
        path = {"PATH": os.defpath}
        waiting = await box.spawn("sh", "sleep 60", folder=str(work), environment=path, output=1)
        (work / ".env").write_text("TOKEN=x\n")
        found = await box.find()
        assert found is not None
        assert found.hidden == secrets_of_home(), "it was opened before the file was there, so it does not hide it"
        player = Player(workspace)
        assert "TOKEN" in await player.text("bash", command="cat .env"), "so a gate has to ask"
        assert "TOKEN" not in await player.text("bash", command="cat .env", needs=["write:../outside"])
        assert waiting is not None
        waiting[0].close()
        await waiting[0].wait_for_all()
        assert "TOKEN" not in await player.text("bash", command="cat .env")


async def test_caches_are_in_the_box_and_nothing_is_signed_there(place: Path) -> None:
    player = player_in(place, "required")
    line = 'touch "${PIP_CACHE_DIR%/*}" && git init -q . && git config --get commit.gpgSign'
    assert (await player.text("bash", command=line)).endswith("false\n[exit code 0]")
    player.workspace.close()


@pytest.mark.parametrize("becomes", ["nothing", "a link"])
async def test_a_workspace_that_vanishes_or_becomes_a_link_is_told_and_nothing_outside_is_changed(
    place: Path, becomes: str
) -> None:
    player = player_in(place, "required")
    assert await player.text("bash", command="true") == "[exit code 0]"
    (place / "work").rename(place / "gone")
    (place / "other").mkdir()
    if becomes == "a link":
        (place / "work").symlink_to("other")
    result = await player.result("bash", command="echo x > new; echo x > ../outside")
    assert result.is_error or "Read-only file system" in result.text, result.text
    assert [*(place / "other").iterdir()] == []
    assert (place / "outside").read_text() == "as it was\n"
    player.workspace.close()


async def test_two_workspaces_on_one_folder_have_each_a_box_of_its_own(place: Path) -> None:
    one, other = (player_in(place, "required") for _ in range(2))
    assert await one.text("bash", command="echo x > shared; echo x > ${TMPDIR:-/tmp}/own") == "[exit code 0]"
    look = "cat shared; test -e ${TMPDIR:-/tmp}/own || echo none"
    assert await other.text("bash", command=look) == "x\nnone\n[exit code 0]"
    one.workspace.close()
    assert await other.text("bash", command="cat shared") == "x\n[exit code 0]"
    other.workspace.close()


async def test_a_full_temporary_folder_is_an_ordinary_failure(place: Path) -> None:
    box = Box(work=str(place / "work"), limits=BoxLimits(temporary_bytes=1 << 20))
    player = player_in(place, box)
    told = await player.text("bash", command="head -c 2000000 /dev/zero > ${TMPDIR:-/tmp}/large")
    assert told == "head: error writing 'standard output': No space left on device\n[exit code 1]"
    assert (
        await player.text(
            "bash", command="rm ${TMPDIR:-/tmp}/large; echo x > ${TMPDIR:-/tmp}/small; cat ${TMPDIR:-/tmp}/small"
        )
        == "x\n[exit code 0]"
    )
    player.workspace.close()


async def test_names_that_hold_escape_sequences_are_told_without_them(place: Path) -> None:
    player = player_in(place, "required")
    told = await player.text("bash", command='d=$\'\\e[2J\\a\\nx\'; mkdir "$d"; echo x > "$d/.envrc"')
    assert "was put aside as" in told
    assert told.replace("\n", "").isprintable(), told
    told = await player.text("bash", command="echo x > $'../\\e]0;title\\a\\x01name'")
    _, _, notes = told.partition("[exit code 1]\n")  # what stands before are the words of the command
    assert "refused to change" in notes
    assert notes.isprintable(), notes
    player.workspace.close()


@pytest.mark.parametrize("sandbox", ["required", None])
async def test_the_program_that_searches_only_reads_where_commands_have_a_box(
    place: Path, sandbox: "SandboxChoice | None"
) -> None:
    program = place / "search"
    program.write_text("#!/bin/sh\ntouch new ../outside-too 2>/dev/null\ncat ../outside >&2\nprintf './a\\0'\n")
    program.chmod(0o755)
    (place / "work/a").write_text("found\n")
    player = Player(Workspace(place / "work", sandbox=sandbox, ripgrep=str(program)))
    assert "a" in await player.text("grep", pattern="found")
    assert {each.name for each in place.rglob("*")} == {
        *("outside", "work", "a", "search"),
        *(("new", "outside-too") if sandbox is None else ()),
    }
    player.workspace.close()


async def said_by_bash(place: Path, gate: Gate, approve: Approver | None, *commands: str, **more: Any) -> list[str]:
    """Return the results of commands in the box of a workspace, under a gate."""
    calls = [call("bash", command=each, **more) for each in commands]
    with Workspace(place / "work", sandbox="required", confined=False) as workspace:
        agent = Agent(name="a", model=ScriptedModel([*calls, "Done."]), tools=workspace.tools("bash"))
        return texts(await run(agent, "Go.", runtime=Runtime(gate=gate, approver=approve)))


MADE = "mkdir sub; echo one > .envrc; echo two > sub/.bashrc"


@pytest.mark.parametrize("decision", [Allow(), Allow("session"), Deny("no"), None, "a gate that allows everything"])
async def test_one_question_is_asked_about_all_that_was_put_aside_after_a_command(
    place: Path, decision: Decision | str | None
) -> None:
    files = [place / "work/.envrc", place / "work/sub/.bashrc"]
    rules, asked = Permission(mode="auto", roots=[place / "work"]), list[Approval]()

    async def approve(approval: Approval) -> Decision:
        asked.append(approval)
        assert not any(each.exists() for each in files)
        assert isinstance(decision, Allow | Deny)
        return decision

    class Careless:
        async def decide(self, request: GateRequest) -> Allow:
            assert not request.startup_files
            return Allow()

    gate = Careless() if isinstance(decision, str) else rules
    (told,) = await said_by_bash(place, gate, approve if isinstance(decision, Allow | Deny) else None, MADE)
    assert len(asked) == isinstance(decision, Allow | Deny)
    assert all(str(each) in approval.question for each in files for approval in asked)
    is_back = isinstance(decision, Allow)
    line = f"\n[That was allowed, so it has its name back: {files[0]}, {files[1]}.]"
    assert told.endswith(line) == is_back, told
    assert [(each.exists(), each.with_name(f"{each.name}.held").exists()) for each in files] == [
        (is_back, not is_back)
    ] * 2
    if is_back:
        for each in files:
            each.unlink()
        await said_by_bash(place, rules, approve, MADE)
        assert len(asked) == (1 if decision == Allow("session") else 2)
        assert all(each.exists() for each in files), "what was allowed for the session is not asked about again"
        granted = {f"needs:write:{each}" for each in files} if decision == Allow("session") else set[str]()
        assert set(rules.approvals.granted()) == granted


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        ("echo other > sub/.bashrc.held", "it has changed since"),
        ("rm sub/.bashrc.held; ln -s ../../outside sub/.bashrc.held", "it has changed since"),
        ("rm sub/.bashrc.held", "it has changed since"),
        ("echo other > sub/.bashrc", "File exists"),
        ("ln -s nowhere sub/.bashrc", "File exists"),
        ("mv sub old; ln -s old sub", "Not a directory"),
        ("mv sub old", "No such file or directory"),
    ],
)
async def test_a_file_that_is_not_the_one_that_was_put_aside_stays_so(place: Path, meanwhile: str, why: str) -> None:
    file = place / "work/sub/.bashrc"

    async def approve(_: Approval) -> Decision:
        changing = await asyncio.create_subprocess_exec("bash", "-c", meanwhile, cwd=place / "work")
        assert await changing.wait() == 0
        return Allow()

    rules = Permission(mode="auto", roots=[place / "work"])
    (told,) = await said_by_bash(place, rules, approve, "mkdir sub; echo x > sub/.bashrc")
    assert told.endswith(f"\n[{file} stays put aside: {why}.]"), told
    assert file.exists() == (meanwhile == "echo other > sub/.bashrc")
    assert not file.exists() or file.read_text() == "other\n"


async def test_a_file_that_commands_were_allowed_to_change_gets_its_name_back_unasked(place: Path) -> None:
    asked, file = list[Approval](), place / "work/.envrc"

    async def approve(approval: Approval) -> Decision:
        asked.append(approval)
        return Allow("session")

    rules, need = Permission(mode="auto", roots=[place / "work"]), f"write:{file}"
    told = await said_by_bash(place, rules, approve, "echo x > .envrc", "ls -A", needs=[need])
    assert told[0].endswith(f"\n[That was allowed, so it has its name back: {file}.]")
    assert told[1] == ".envrc\n[exit code 0]"
    assert len(asked) == 1


async def test_a_run_that_died_while_somebody_was_asked_asks_nobody_again(place: Path) -> None:
    asked, journal = list[str](), InMemoryJournal()
    dying = asyncio.Event()

    async def approve(approval: Approval) -> Decision:
        asked.append(approval.question)
        dying.set()
        await asyncio.Event().wait()
        return Allow()

    rules, lives = Permission(mode="auto", roots=[place / "work"]), list[str]()
    for n_lives in range(2):
        with Workspace(place / "work", sandbox="required", confined=False) as workspace:
            model = ScriptedModel([call("bash", command=MADE), "Done."] if not n_lives else ["Done."])
            agent = Agent(name="a", model=model, tools=workspace.tools("bash"))
            going = asyncio.ensure_future(
                run(agent, "Go.", runtime=Runtime(gate=rules, approver=approve, journal=journal))
            )
            if not n_lives:
                await dying.wait()
                journal.end_life()
                going.cancel()
                await asyncio.wait([going])
            else:
                lives += texts(await going)
    assert len(asked) == 1
    assert "was interrupted; whether it took effect is unknown" in lives[0], lives
    assert not (place / "work/.envrc").exists()
