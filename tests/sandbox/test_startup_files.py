"""Files that programs run by themselves: which are found, and what is put aside after a command."""

import os
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from journeyman.gate import Allow, Ask
from journeyman.machine.startup_files import HeldFile, StartupFiles
from journeyman.permission import Permission
from tests.permission.workshop import request
from tests.sandbox.conftest import make_unheld

FILES = (
    *(".envrc", ".vscode/tasks.json", "a/b/c/d/e/f/g/.idea/x.xml", ".husky/_/pre-commit", ".mcp.json", "x/.bashrc"),
    *("lib/sitecustomize.py", "lib/a.pth", ".pre-commit-config.yaml"),
)
BY_THEMSELVES = (
    *(
        ".vimrc",
        ".nvim.lua",
        ".exrc",
        ".gvimrc",
        "init.vim",
        ".ideavimrc",
        ".emacs",
        ".dir-locals.el",
        ".vim/plugin/a.vim",
    ),
    *(".tmux.conf", ".screenrc", ".inputrc", ".envrc.local", ".xprofile", ".zlogin", ".config/fish/conf.d/a.fish"),
    *(
        ".config/git/config",
        ".config/git/hooks/pre-push",
        ".gitconfig",
        ".gitmodules",
        ".hgrc",
        ".hg/hgrc",
        ".githooks/a",
    ),
    *("mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", "AGENTS.md", "sub/CLAUDE.md", "GEMINI.md", ".cursorrules"),
    *(
        ".claude/settings.json",
        ".codex/config.toml",
        ".github/copilot-instructions.md",
        ".windsurfrules",
        ".zed/tasks.json",
    ),
    *(".devcontainer/devcontainer.json", "a.code-workspace", "lefthook.yml", ".husky/pre-commit", "usercustomize.py"),
    *(
        ".pdbrc",
        ".gdbinit",
        ".irbrc",
        ".Rprofile",
        ".npmrc",
        ".yarnrc.yml",
        ".pnpmfile.cjs",
        ".cargo/config.toml",
        ".mvn/a",
    ),
    *(".config/autostart/a.desktop", ".config/systemd/user/a.service", ".ssh/config", ".ipython/profile_default/a.py"),
    *(".config/starship.toml", ".config/nvim/init.lua", ".config/hypr/hyprland.conf", ".helix/languages.toml"),
    *("QWEN.md", "CRUSH.md", ".crush.json", "opencode.json", ".github/instructions/a.instructions.md", ".junie/a.md"),
    *(".trae/rules/a.md", ".rules", ".wezterm.lua", ".vimrc.local", ".doom.d/init.el", ".bash_completion"),
    *(".local/bin/ls", ".jj/repo/config.toml", "ansible.cfg", "bunfig.toml", ".mise/config.toml", ".replit"),
    *(".simple-git-hooks.json", ".pdbrc.py", ".mcp/servers.json", "mcp_config.json", ".zsh/a.zsh", ".muttrc"),
    *("Library/LaunchAgents/a.plist", ".config/environment.d/a.conf", ".aws/config", ".kube/config", "mise.toml"),
)
"""What programs run by themselves, or what an agent that starts here obeys."""
OTHERS = ("a.py", ".env", "conftest.py", "Makefile", "venv/pyvenv.cfg", "venv/lib/site-packages/a.pth", "hooks/x")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (*FILES, *OTHERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    make_repository(tmp_path / "deep/er/repository")
    return tmp_path


def make_repository(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=folder, check=True)


def test_all_that_is_run_by_itself_is_found_and_nothing_else(project: Path) -> None:
    found = {os.path.relpath(each, project) for each in StartupFiles(str(project)).paths}
    git = "deep/er/repository/.git"
    folders = {".vscode", "a/b/c/d/e/f/g/.idea", ".husky", f"{git}/hooks"}
    alone = {*FILES} - {each for each in FILES if any(each.startswith(f"{folder}/") for folder in folders)}
    assert found == folders | alone | {f"{git}/config"}


async def test_file_tools_and_boxes_go_by_one_list(tmp_path: Path) -> None:
    gate, startup = Permission(mode="auto", roots=[tmp_path]), StartupFiles(str(tmp_path))
    for name in (*FILES, *BY_THEMSELVES):
        asked = await gate.decide(request("write", "idempotent", path=name, content=""))
        assert isinstance(asked, Ask), name
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    held = {os.path.relpath(each, tmp_path) for each in hold_all(startup)}
    assert held == {*FILES, *BY_THEMSELVES}
    head = await gate.decide(request("write", "idempotent", path="c/HEAD", content=""))
    assert isinstance(head, Ask), "it makes a repository of the folder, whose config then runs something"
    for name in OTHERS[:-2]:
        assert await gate.decide(request("write", "idempotent", path=name, content="")) == Allow(), name


def hold_all(startup: StartupFiles) -> list[str]:
    """Put aside what has changed, and return where it was."""
    held = startup.hold_changes()
    assert [each for each in held if not each.aside] == []
    return [each.path for each in held]


CHANGES = {
    "echo x > new/.envrc": ["new/.envrc"],
    "mkdir -p new/.vscode; echo x > new/.vscode/tasks.json": ["new/.vscode/tasks.json"],
    "echo x > deep/er/repository/.git/hooks/post-commit": ["deep/er/repository/.git/hooks/post-commit"],
    "cd new; git init -q r; echo x > r/.git/hooks/pre-push": ["new/r/.git/hooks/pre-push"],
    "cd new; git init -q r; git -C r config core.fsmonitor x": ["new/r/.git/config"],
    "cd new; git init -q --bare r; git -C r config alias.x '!x'": ["new/r/config"],
    "cd new; git init -q r; git -C r config include.path ../x": ["new/r/.git/config"],
    "cd new; git init -q r; printf '[a]\\n\\tb = \\\\\\n' >> r/.git/config": ["new/r/.git/config"],
    "git -C deep/er/repository config core.hooksPath x": ["deep/er/repository/.git/config"],
    "rm .envrc; echo y > .envrc": [".envrc"],
    # a repository of which a part is elsewhere, or is a link
    "mkdir new/g; cd new; mkdir -p c/refs c/objects; echo ../c > g/commondir; echo '[a]b' > c/config": ["new/c/config"],
    "cd new; git init -q r; rm -r r/.git/hooks; mkdir e; ln -s ../../e r/.git/hooks": ["new/r/.git/hooks"],
    "cd new; git init -q g; mkdir r; ln -s ../g/.git r/.git": ["new/r/.git"],
    # what is no file, or never ends
    "cd new; git init -q r; rm r/.git/config; mkfifo r/.git/config": ["new/r/.git/config"],
    "cd new; git init -q r; ln -sf /dev/zero r/.git/config": ["new/r/.git/config"],
    "cd new; git init -q r; truncate -s 10G r/.git/config": ["new/r/.git/config"],
    # what is in a folder has other names than the path by which it is found
    "cd new; mkdir c; echo x > c/config.toml; ln -s c .cargo": ["new/.cargo"],
    "cd new; mkdir c .local; ln -s ../c .local/share": ["new/.local/share"],
    "cd new; mkdir c; echo x > c/tasks.json; ln -s c .vscode": ["new/.vscode"],
    "mkdir new/.envrc new/AGENTS.md": [],
    "touch -d 2001-01-01 new; echo x > new/.bashrc; touch -d 2001-01-01 new": ["new/.bashrc"],
    "mkdir -p new/lib; echo x > new/lib/a.pth; echo x > new/sitecustomize.py": [
        "new/lib/a.pth",
        "new/sitecustomize.py",
    ],
    "echo x > new/.pre-commit-config.yaml; mv new/.pre-commit-config.yaml .": [".pre-commit-config.yaml"],
    "cd new; git init -q r; git -C r commit -q --allow-empty -m x; git -C r remote add o ../y; cp ../a.py .": [],
    "cd new; git init -q r; git -C r config user.name me; git -C r commit -q --allow-empty -m x; git -C r branch b": [],
    "echo y > conftest.py; echo x > new/Makefile; rm lib/a.pth": [],
    "echo x > venv/lib/site-packages/b.pth; mkdir -p new/hooks; echo x > new/hooks/x": [],
}


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("line", CHANGES)
def test_what_is_new_and_runs_by_itself_is_put_aside(project: Path, line: str) -> None:
    (project / "new").mkdir()
    startup = StartupFiles(str(project))
    assert hold_all(startup) == []
    identity = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(project / "nowhere"), **identity}
    subprocess.run(["bash", "-c", line], cwd=project, env=environment, check=True)
    held = sorted(os.path.relpath(each, project) for each in hold_all(startup))
    assert held == CHANGES[line]
    for each in held:
        assert not (project / each).exists()
        assert (project / f"{each}.held").exists()
    assert hold_all(startup) == []


def test_what_was_put_aside_before_is_not_lost(project: Path) -> None:
    startup = StartupFiles(str(project))
    for text, name in (("one", ".zshrc.held"), ("two", ".zshrc.2.held")):
        (project / ".zshrc").write_text(text)
        (file,) = startup.hold_changes()
        assert file == HeldFile(str(project / ".zshrc"), aside=str(project / name))
        assert f" was put aside as {project / name}: " in file.describe()
    assert [(project / f".zshrc{each}").read_text() for each in (".held", ".2.held")] == ["one", "two"]


def test_what_cannot_be_put_aside_is_told_with_the_reason_each_time_and_the_rest_is_held(tmp_path: Path) -> None:
    startup = StartupFiles(str(tmp_path))
    (tmp_path / ".bashrc").write_text("x")
    unheld = make_unheld(tmp_path)
    held = HeldFile(str(tmp_path / ".bashrc"), aside=str(tmp_path / ".bashrc.held"))
    left = HeldFile(str(unheld), aside="", problem="File name too long")
    assert sorted(startup.hold_changes()) == sorted([held, left])
    assert left.describe().endswith(
        ".envrc could not be put aside (File name too long): programs run it by themselves."
    )
    assert startup.hold_changes() == [left], "it is still there"
    assert str(unheld) in startup.paths, "no command may change what others would run now"
    unheld.unlink()
    assert startup.hold_changes() == []


def test_a_path_that_leaves_no_room_for_a_name_hides_nothing_beside_it(tmp_path: Path) -> None:
    startup = StartupFiles(str(tmp_path))
    folder = make_unheld(tmp_path).parent
    (folder / "a.pth").write_text("import x")
    assert {Path(each.path).name for each in startup.hold_changes()} == {".envrc", "a.pth"}


def test_a_folder_that_goes_and_comes_again_is_looked_at_again(project: Path) -> None:
    startup = StartupFiles(str(project))
    (project / "x/.bashrc").unlink()
    (project / "x").rmdir()
    assert hold_all(startup) == []
    (project / "x").mkdir()
    (project / "x/.bashrc").write_text("y")
    assert hold_all(startup) == [str(project / "x/.bashrc")]


def test_names_with_newlines_and_bytes_and_what_is_no_file_are_found_as_well(tmp_path: Path) -> None:
    odd = os.fsdecode(bytes(tmp_path) + b"/a\n\xff")
    Path(odd).mkdir()
    startup = StartupFiles(str(tmp_path))
    os.mkfifo(f"{odd}/.envrc")
    (tmp_path / ".profile").symlink_to("nowhere")
    assert hold_all(startup) == [str(tmp_path / ".profile"), f"{odd}/.envrc"]


def test_a_name_that_leaves_no_room_for_held_is_put_aside_all_the_same(tmp_path: Path) -> None:
    startup, name = StartupFiles(str(tmp_path)), f"{'x' * 240}.code-workspace"
    (tmp_path / name).write_text("{}")
    assert hold_all(startup) == [str(tmp_path / name)]
    assert [each.name for each in tmp_path.iterdir()] == [f"{'x' * 240}.held"]


def test_ten_thousand_new_files_are_looked_at_once(tmp_path: Path) -> None:
    startup = StartupFiles(str(tmp_path))
    for number in range(100):
        (tmp_path / str(number)).mkdir()
        for inner in range(100):
            os.mknod(tmp_path / str(number) / str(inner))
    assert count_folders_listed(startup) == 101
    assert count_folders_listed(startup) < 20, "those that have changed in the very moment in which they were listed"
    while count_folders_listed(startup):  # until the system's clock has gone on
        pass


def count_folders_listed(startup: StartupFiles) -> int:
    """Return how many folders are listed to find what has changed."""
    n_listed = 0

    def count(_: FrameType, event: str, called: object) -> None:
        nonlocal n_listed
        n_listed += event == "c_call" and called is os.scandir

    sys.setprofile(count)
    try:
        assert hold_all(startup) == []
    finally:
        sys.setprofile(None)
    return n_listed
