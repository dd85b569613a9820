"""The environment of commands in a box: a variable passes by its name, or because a person has named it."""

import shutil
import sys
from pathlib import Path
from random import Random

import pytest

from journeyman.sandbox import Box, Bubblewrap
from journeyman.sandbox.trials import visible_folder
from journeyman.toolbox import Shell, Workspace
from journeyman.tools.redaction import without_secrets
from tests.sandbox.conftest import bubblewrap as bubblewrap
from tests.toolbox.player import Player

WORDS = "acme billing blue bot broker bucket cdn chatops client corp crm deploy edge erp fleet gateway hub iot ops"
ENDS = "URL STRING ACCESS LOGIN SEED CODE STUFF VALUE HANDSHAKE ENTRY GRANT LICENCE BLOB X KENNWORT MOT_DE_PASSE ID"
NAMED = "LC_DEPLOY PATH_TO_BANK HOME_WORD TERMINAL_WORD XDG_DOOR CARGO_DOOR GOLD NPM_CONFIG__AUTHX GIT_ASKWORD"
WITH_FLAGS = "GOPROXY RUSTFLAGS CFLAGS NODE_OPTIONS"


def own_secrets() -> dict[str, str]:
    """Return 102 variables whose names no pattern knows, and in which there are secrets of many looks."""
    chosen, words = Random(11), WORDS.split()
    names = chosen.sample([f"{word}_{end}".upper() for word in words for end in ENDS.split()], 89)
    picked = [*names, *NAMED.split(), *WITH_FLAGS.split()]
    made = {name: f"{chosen.choice(words)}-{chosen.getrandbits(80):020x}" for name in picked}
    return {
        **{name: f"{value} and more" if n % 3 == 0 else value for n, (name, value) in enumerate(made.items())},
        "GOPROXY": f"https://ada:{made['GOPROXY']}@proxy.example",
        "RUSTFLAGS": f"--cfg password={made['RUSTFLAGS']}",
        "CFLAGS": f"-DSIGN=sk-live_{made['CFLAGS']}",
        "NODE_OPTIONS": f"--header authorization:{made['NODE_OPTIONS']}",
    }


async def test_no_secret_of_the_environment_reaches_a_command_in_a_box(
    bubblewrap: Bubblewrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = own_secrets()
    assert len(secrets) == 102
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    with visible_folder() as folder:
        player = Player(Workspace(folder, sandbox="required"))
        told = await player.text("bash", command="env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'")
        player.workspace.close()
        assert [name for name, value in secrets.items() if value in told or f"{name}=" in told] == []
        assert "LC_ALL=C.UTF-8" in told
        assert "PAGER=cat" in told
        kept = Player(Workspace(folder, sandbox="required", shell=Shell(keep=["GOLD", "GOPROXY"])))
        told = await kept.text("bash", command="echo $GOLD $GOPROXY")
        kept.workspace.close()
        assert told == f"{secrets['GOLD']} {secrets['GOPROXY']}\n[exit code 0]"


async def test_outside_of_a_box_a_command_gets_what_does_not_look_like_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIN_WORD", "visible")
    monkeypatch.setenv("PLAIN_TOKEN", "hidden")
    told = await Player(Workspace(tmp_path)).text("bash", command='echo "$PLAIN_WORD $PLAIN_TOKEN"')
    assert told == "visible \n[exit code 0]"


BUILDS = {
    "make": "printf 'all:\\n\\t@echo made $(HOME)\\n' > Makefile && make",
    "gcc": "echo 'int main(void) { return 0; }' > a.c && gcc a.c -o a && ./a",
    "git": "git init -q . && git -c user.name=a -c user.email=a@b.example commit -q --allow-empty -m x && git log",
    "npm": 'echo \'{"scripts": {"x": "node -e 0"}}\' > package.json && npm run x && npm pack --dry-run || npm run x',
    "cargo": "cargo init -q --name a . && cargo build -q --offline && ./target/debug/a",
    "go": "echo 'package main\nfunc main() {}' > a.go && go run a.go",
    sys.executable: f"{sys.executable} -m venv --without-pip v && v/bin/python -c 'import ssl'",
}


@pytest.mark.parametrize("program", [each for each in BUILDS if shutil.which(each)])
async def test_everyday_builds_need_no_other_variable(bubblewrap: Bubblewrap, program: str) -> None:
    with visible_folder() as folder:
        player = Player(Workspace(folder, sandbox="required"))
        told = await player.text("bash", command=BUILDS[program])
        player.workspace.close()
    assert told.endswith("[exit code 0]"), told


async def test_what_a_box_hides_is_told_nowhere(bubblewrap: Bubblewrap) -> None:
    with visible_folder() as folder:
        (folder / "work").mkdir()
        (folder / "work/.env").write_text("GREETING=guten morgen allerseits\n")
        box = Box(work=str(folder / "work"), hidden=(str(folder / "work/.env"),))
        player = Player(Workspace(folder / "work", sandbox=box))
        await player.text("bash", command="true")
        player.workspace.close()
    assert without_secrets("They say guten morgen allerseits.") == "They say [redacted]."
