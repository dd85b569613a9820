"""An agent cannot approve itself: what decides about it is not changed by its tools, whatever rules and roots say."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from journeyman import Runtime
from journeyman.gate import Allow, Ask, Deny
from journeyman.permission.approvals import Approvals
from journeyman.permission.permission import Permission, PermissionMode
from journeyman.store import Store
from journeyman.testing.scripted import call
from journeyman.toolbox import Workspace, deferred_tools
from journeyman.types import ToolUse
from tests.permission import workshop
from tests.permission.workshop import Approver, play, request
from tests.play import texts

MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)
SELF_APPROVED = json.dumps({"version": 1, "always": ["tool:transfer"]})


class Home:
    """A folder in which everything is that decides about an agent, and in which it may write as it likes."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "home"
        (self.root / "own" / "settings").mkdir(parents=True)
        (self.root / "src").mkdir()
        (self.root / "src" / "main.py").write_text("print()\n")
        (self.root / "notes.json").write_text("{}\n")
        self.approvals = Approvals(self.root / "own" / "approvals.json")
        self.approvals.grant("tool:other", "always")
        (self.root / "audit.jsonl").write_text("")
        (self.root / "own" / "settings" / "modes.toml").write_text("mode = 'strict'\n")
        self.store = Store(self.root / "sessions.sqlite")
        self.session = self.store.session(agent="a")
        (self.root / "soft.json").symlink_to(self.root / "own" / "approvals.json")
        (self.root / "way").symlink_to(self.root / "own")
        self.link()

    def link(self) -> None:
        """Make the hard links anew: a question replaces the file of the approvals."""
        for name, file in (("hard.json", "own/approvals.json"), ("hard.jsonl", "audit.jsonl")):
            (self.root / name).unlink(missing_ok=True)
            os.link(self.root / file, self.root / name)

    def gate(self, mode: PermissionMode = "trust", **options: Any) -> Permission:
        return Permission(
            mode=mode,
            roots=[self.root],
            approvals=self.approvals,
            audit=self.root / "audit.jsonl",
            protected=[self.root / "own" / "settings"],
            **options,
        )

    def kept(self) -> object:
        """Return what must stay as it is; questions are noted, and the audit grows."""
        stored = json.loads((self.root / "own" / "approvals.json").read_text())
        settings = (self.root / "own" / "settings" / "modes.toml").read_text()
        lock = (self.root / "own" / "approvals.json.lock").read_text()
        return stored["always"], stored["answers"], settings, lock, self.approvals.granted()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.session.close()
    made.store.close()


PATHS = [
    *("own/approvals.json", "./own//approvals.json", "src/../own/approvals.json", "own/approvals.json.lock"),
    *("soft.json", "hard.json", "way/approvals.json", "way/../own/approvals.json", "OWN/Approvals.JSON"),
    *("own/approvals.json/inner", "own/settings/modes.toml", "own/settings/new.toml", "way/settings/modes.toml"),
    *("audit.jsonl", "hard.jsonl", "Audit.jsonl", "sessions.sqlite", "sessions.sqlite-wal", "sessions.sqlite-shm"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", ["write", "edit"])
async def test_no_file_tool_writes_what_decides_about_the_agent(home: Home, mode: PermissionMode, tool: str) -> None:
    lock = next(home.root.glob("sessions.sqlite-*.lock")).name
    gate = home.gate(mode, allow=["Edit(**)", "Read(**)", tool], internal=[home.root / "own"])
    for path in [*PATHS, *[str(home.root / path) for path in PATHS], lock]:
        assert isinstance(await gate.decide(request(tool, path=path, content="")), Deny), path
        passed = request("call_tool", name=tool, arguments={"path": path, "content": ""})
        assert isinstance(await gate.decide(passed), Deny), path
    for path in ("own/notes", "notes.json", "src/main.py", "approvals.json", "audit.jsonl.md", "own/settings.md"):
        verdict = await gate.decide(request(tool, path=path, content=""))
        assert isinstance(verdict, Deny if mode == "plan" else Allow), path


SEARCH = call("tool_search", query="read write edit")


async def test_a_real_workspace_leaves_them_as_they_are(home: Home) -> None:
    tools, before = Workspace(home.root).tools("write", "edit", "read"), home.kept()
    for path in PATHS:
        calls = [call("read", path=path), call("write", path=path, content=SELF_APPROVED)]
        for given, wanted in ((tools, calls), (deferred_tools(tools), [SEARCH, *[passed(each) for each in calls]])):
            result = await play(given, *wanted, runtime=Runtime(gate=home.gate(), approver=Approver(Allow("always"))))
            assert texts(result)[-1].startswith("Error: denied: "), path
    assert home.kept() == before
    assert (home.root / "sessions.sqlite").read_bytes()[:16] == b"SQLite format 3\0"


def passed(wanted: ToolUse) -> ToolUse:
    return call("call_tool", name=wanted.name, arguments=wanted.input)


async def test_a_tool_that_nothing_is_known_of_is_asked_about_when_it_names_one(home: Home) -> None:
    gate = home.gate(allow=["save"])
    for path in PATHS:
        whole = f"file://{home.root}/{path}"
        hidden: list[dict[str, Any]] = [{"target": path}, {"all": [{"where": path}]}, {"uri": whole}]
        for arguments in hidden:
            home.link()
            verdict = await gate.decide(request("save", **arguments))
            assert isinstance(verdict, Ask), arguments
            assert verdict.offers == ("once",)
        assert await gate.decide(request("save", target="notes.json", text="What is in the settings?")) == Allow()
        assert await gate.decide(request("look", "pure", target=path)) == Allow()


COMMANDS = [
    *("cat x > own/approvals.json", "tee own/approvals.json", "cp x own/approvals.json"),
    *("rm own/approvals.json", "mv x 'own/approvals.json'", 'mv x "own"/approvals.json'),
    *("mv x own/appr\\ovals.json", "mv x own/appr''ovals.json", "cd own && cp ../x approvals.json"),
    *("cd own; rm appr*", "rm own/*", "rm own/appr?vals.json", "rm own/{approvals,x}.json", "rm -rf own"),
    *("rm -rf ./own/", "mv own elsewhere", "ln -s x way", "cp x way/approvals.json", "rm way/*"),
    *("cp x soft.json", "cp x hard.json", "dd of=own/approvals.json if=x"),
    *("python3 -c \"open('own/approvals.json','w')\"", "bash -c 'rm own/approvals.json'"),
    *("echo $(rm own/approvals.json)", "X=own/approvals.json; rm $X", "rm $D/approvals.json", "rm own/$F"),
    *("rm own/approvals.json.lock", "flock own/approvals.json.lock sleep 9", "rm audit.jsonl"),
    *("truncate -s0 audit.jsonl", "> audit.jsonl", "rm *.jsonl", "rm *", "rm hard.jsonl"),
    *("sed -i d audit.jsonl", "rm own/settings/modes.toml", "rm -r own/settings"),
    *("sqlite3 sessions.sqlite 'delete from records'", "rm sessions.sqlite", "rm sessions.sqlite-wal"),
    *("cp x ./sessions.sqlite", "cat OWN/APPROVALS.JSON", "sh <<x\nrm own/approvals.json\nx"),
    *("tee -a<own/approvals.json", "rm own/approv\\\nals.json"),
    "true " + "a" * 9_000,
]
INNOCENT = [
    *("ls", "ls -la .", "git status", "git add .", "grep -r foo .", "pytest tests/*", "cat notes.json"),
    *("cat src/main.py", "for f in src/*.py; do echo $f; done", "echo $HOME", "rm -rf build"),
    *("make test > log.txt 2>&1", "cd src && ls *.py", "cat approvals.json.bak", "echo my-audit.jsonl.txt"),
    *("python3 -m pytest -q", "cat src/*.json", "find . -name '*.py'", "echo 'the approvals'", "mv a b"),
    *("echo ${x:-y}", "$EDITOR src/main.py", "tar -cf out.tar src", "sed -i s/a/b/ src/main.py"),
    "cat <<x > src/new.py\n" + "\n".join(f"value_{n} = {n}" for n in range(300)) + "\nx",
]


@pytest.mark.parametrize("mode", ["auto", "trust", "balanced"])
async def test_a_command_that_names_one_is_asked_about_in_every_mode(home: Home, mode: PermissionMode) -> None:
    gate = home.gate(mode, allow=["Bash(cat *)", "Bash(rm *)", "Bash(cp *)", "Bash(true *)", "Bash(tee *)"])
    for command in COMMANDS:
        home.link()
        verdict = await gate.decide(request("bash", command=command))
        assert isinstance(verdict, Ask), command
        assert verdict.offers == ("once",), command


async def test_a_command_that_names_none_is_not_asked_about(home: Home) -> None:
    gate = home.gate()
    asked = [each for each in INNOCENT if await gate.decide(request("bash", command=each)) != Allow()]
    assert asked == []


async def test_a_command_inside_of_such_a_folder_is_asked_about(home: Home) -> None:
    assert isinstance(await home.gate().decide(request("bash", command="rm x", folder="own")), Ask)
    assert await home.gate().decide(request("bash", command="rm x", folder="src")) == Allow()


async def test_what_commands_do_unasked_in_a_real_bash_leaves_them_as_they_are(home: Home) -> None:
    (home.root / "x").write_text(SELF_APPROVED)
    bash, before = Workspace(home.root).tools("bash"), home.kept()
    wanted = [call("bash", command=command, timeout_s=5) for command in COMMANDS if "hard.json" not in command.split()]
    result = await play(bash, wanted, runtime=Runtime(gate=home.gate()))
    assert [text for text in texts(result) if not text.startswith("Error: denied: ")] == []
    assert home.kept() == before


BY_ITSELF = [
    *(".git/config", ".git/hooks/pre-commit", "sub/.git/config", ".GIT/config", ".git", ".husky/pre-push"),
    *(".gitmodules", ".bashrc", ".profile", ".zshenv", ".bash_profile", ".envrc"),
    *(".config/fish/config.fish", ".ssh/authorized_keys", ".vscode/tasks.json", "sitecustomize.py"),
    *("lib/x.pth", ".pre-commit-config.yaml", ".mcp.json"),
]


async def test_auto_mode_asks_before_it_changes_what_runs_by_itself(home: Home) -> None:
    for path in BY_ITSELF:
        assert isinstance(await home.gate("auto").decide(request("write", path=path, content="")), Ask), path
        for gate in (home.gate("auto", allow=["Edit(**)"]), home.gate("trust")):
            assert await gate.decide(request("write", path=path, content="")) == Allow(), path


async def test_auto_mode_AsksAbout_nothing_that_only_looks_like_it(home: Home) -> None:
    for path in (".gitignore", "git/config", "src/config", "profile.py", "bashrc.md", "conftest.py"):
        assert await home.gate("auto").decide(request("write", path=path, content="")) == Allow(), path


async def test_auto_mode_asks_before_an_agent_changes_its_own_program() -> None:
    own = Path(workshop.__file__)
    gate = Permission(mode="auto", roots=[own.parent])
    assert isinstance(await gate.decide(request("edit", path=own.name, old_text="", new_text="")), Ask)
    assert await gate.decide(request("edit", path="other.py", old_text="", new_text="")) == Allow()
