"""The tool `bash`: real processes, all of which are gone when a call is over, whatever ended it."""

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from journeyman import Abort, Agent, Failure, Result, run
from journeyman.events import ToolProgress
from journeyman.machine.environment import is_secret
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.toolbox import Shell, Workspace
from tests.toolbox.player import Player

STUBBORN = "trap '' TERM; echo $$ > pid; echo before; while :; do read -t 60 < <(:) || :; done"
"""A shell that writes down its process id and does not end when it is asked to."""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def pids(folder: Path, name: str = "pid") -> list[int]:
    return [int(line) for line in (folder / name).read_text().split()]


def impatient(folder: Path) -> Player:
    return Player(Workspace(folder, shell=Shell(grace_s=0.2)))


def started(
    folder: Path,
    command: str,
    *,
    grace_s: float = 0.2,
    seen: asyncio.Event | None = None,
    lines: list[str] | None = None,
    abort: Abort | None = None,
) -> asyncio.Task[Result[str]]:
    """Start a run that runs a command. `seen` is set when the command writes a line, which goes to `lines`."""
    (bash,) = Workspace(folder, shell=Shell(grace_s=grace_s)).tools("bash")
    agent = Agent(name="a", model=ScriptedModel([call("bash", command=command), "Done."]), tools=[bash])
    has_seen, told = seen or asyncio.Event(), [] if lines is None else lines

    def listen(event: object) -> None:
        if isinstance(event, ToolProgress):
            told.append(event.message)
            has_seen.set()

    return asyncio.create_task(run(agent, "Go.", on_event=listen, abort=abort))


async def assert_cancelled(running: asyncio.Task[Result[str]], folder: Path) -> None:
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(map(is_alive, pids(folder) if (folder / "pid").exists() else []))


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo one; echo two >&2; echo three", "one\ntwo\nthree\n[exit code 0]"),
        ("printf no-end; exit 3", "no-end\n[exit code 3]"),
        ("true", "[exit code 0]"),
        ("no-such-program", "bash: line 1: no-such-program: command not found\n[exit code 127]"),
        ("kill -KILL $$", "[ended by SIGKILL]"),
        ("kill -35 $$", "[ended by signal 35]"),
        ("printf '\\033[31mred\\033[0m \\033]0;title\\007x'", "red x\n[exit code 0]"),
        ("printf ' 10%%\\r 50%%\\r100%%\\ndone\\r\\n'", "100%\ndone\n[exit code 0]"),
        ("printf '\\377\\n'", "\ufffd\n[exit code 0]"),
        ("cat; tty; test -t 1 || echo no screen", "not a tty\nno screen\n[exit code 0]"),
        ("(: < /dev/tty) 2>/dev/null || echo no terminal", "no terminal\n[exit code 0]"),
        ("ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo own", "own\n[exit code 0]"),
    ],
)
async def test_a_command_returns_its_output_and_how_it_ended(player: Player, command: str, text: str) -> None:
    assert await player.text("bash", command=command) == text


async def test_a_command_runs_in_the_workspace_or_in_a_folder_of_it(player: Player, folder: Path) -> None:
    (folder / "src").mkdir()
    assert await player.text("bash", command="pwd") == f"{folder}\n[exit code 0]"
    assert await player.text("bash", command="pwd", folder="src") == f"{folder}/src\n[exit code 0]"
    assert await player.refused("bash", command="pwd", folder="none") == "none does not exist."


async def test_every_line_is_told_as_it_comes(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    lines: list[str] = []
    seen = asyncio.Event()
    running = started(folder, "echo one; cat pipe; echo two", lines=lines, seen=seen)
    await seen.wait()
    assert lines == ["one"]
    await asyncio.to_thread((folder / "pipe").write_text, "between\n")
    await running
    assert lines == ["one", "between", "two"]


async def test_long_output_keeps_its_beginning_and_its_end_and_all_of_it_in_a_file(player: Player) -> None:
    text = await player.text("bash", command="seq 1 200000")
    assert len(text) < 53_000
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("199999\n200000\n[exit code 0]")
    noted = re.search(
        r"\[Cut here: all 1,288,895 bytes are in (\S+/bash-1\.txt); read it with an offset, or grep it\.\]", text
    )
    assert noted is not None
    whole = Path(noted.group(1))
    assert whole.read_text() == "".join(f"{n}\n" for n in range(1, 200_001))
    assert await player.text("read", path=str(whole), offset=150_000, limit=1) == (
        "150000\t150000\n[Lines 150,000 to 150,000 of 200,000. Go on with offset=150001.]"
    )
    assert await player.text("grep", pattern="^77777$", path=str(whole)) == f"{whole}\n77777:77777"
    assert "outside of the workspace" in await player.refused("write", path=str(whole), content="x")
    lines = await player.text("bash", command="yes | head -5000")  # many short ones are cut as well
    assert (lines.count("\n"), "[Cut here: all 10,000 bytes are in " in lines) == (2_000, True)
    player.workspace.close()
    assert not whole.parent.exists()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("echo before; (echo $BASHPID > pid; exec sleep 100) & sleep 100", id="it has started another"),
        pytest.param(STUBBORN, id="it will not end when it is asked to"),
    ],
)
async def test_a_command_that_takes_too_long_is_ended_with_all_its_processes(folder: Path, command: str) -> None:
    text = await impatient(folder).text("bash", command=command, timeout_s=1.5)
    assert text == "before\n[timed out after 1.5 s and was ended with all its processes]"
    assert not any(map(is_alive, pids(folder)))


SETSID = "setsid bash -c 'echo $$ > pid; echo up > pipe; exec sleep 100' >/dev/null 2>&1 & cat pipe"
HIDDEN = "env -i setsid bash -c 'echo $$ > pid; echo up > pipe; exec sleep 100' >/dev/null 2>&1 & cat pipe"
FORKED = "env -i setsid bash -c '(echo $BASHPID > pid; echo up > pipe; exec sleep 100) &' >/dev/null 2>&1; cat pipe"


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("sleep 100 & echo $! > pid", ""),
        ("sleep 100 >/dev/null 2>&1 & echo $! > pid", ""),
        ("nohup sleep 100 & echo $! > pid", ""),
        pytest.param(SETSID, "up\n", id="a daemon in a session of its own"),
        pytest.param(HIDDEN, "up\n", id="a daemon without its environment"),
        pytest.param(FORKED, "up\n", id="a daemon whose parent has ended"),
    ],
)
async def test_what_a_command_leaves_running_is_ended(player: Player, folder: Path, left: str, said: str) -> None:
    os.mkfifo(folder / "pipe")  # reading from it blocks until someone writes
    text = await player.text("bash", command=left)
    assert text == f"{said}[exit code 0]\n[It left processes running. They were ended.]"
    assert not any(map(is_alive, pids(folder)))


@pytest.mark.parametrize("command", [STUBBORN, "echo $$ > pid; sleep 100 & echo $! >> pid; echo ready; wait"])
@pytest.mark.parametrize("how", ["cancel", "abort"])
async def test_a_run_that_is_stopped_ends_its_commands(folder: Path, how: str, command: str) -> None:
    ready, abort = asyncio.Event(), Abort()
    running = started(folder, command, seen=ready, abort=abort)
    await ready.wait()
    assert all(map(is_alive, pids(folder)))
    if how == "abort":
        abort.abort()
        assert isinstance(await running, Failure)
        assert not any(map(is_alive, pids(folder)))
    else:
        running.cancel()
        await assert_cancelled(running, folder)


async def test_impatience_during_the_grace_kills_at_once_and_all_the_same_for_certain(folder: Path) -> None:
    before, complaints = asyncio.all_tasks(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    for n_steps in range(2, 10):
        ready = asyncio.Event()
        running = started(folder, STUBBORN, grace_s=60, seen=ready)
        await ready.wait()
        assert pids(folder)
        for _ in range(4):
            running.cancel()
            for _ in range(n_steps):
                await asyncio.sleep(0)
        await assert_cancelled(running, folder)
        assert asyncio.all_tasks() == before
    gc.collect()
    assert complaints == []


async def test_a_command_is_cancelled_at_every_step_of_its_start(folder: Path) -> None:
    for n_steps in (*range(12), *range(50, 3_000, 250)):
        running = started(folder, "echo $$ >> pid; sleep 100")
        for _ in range(n_steps):
            await asyncio.sleep(0)
        running.cancel()
        await assert_cancelled(running, folder)


def n_open() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def test_no_descriptor_is_left_open(player: Player) -> None:
    await player.text("bash", command="true")
    before = n_open()
    for _ in range(5):
        await player.text("bash", command="echo x; sleep 100 & seq 1 20000")
    assert n_open() == before


LEFT = "[It left processes running. They were ended.]"


@pytest.mark.parametrize(
    ("kill", "text"),
    [
        ("KILL $PPID", "[ended by SIGKILL]"),
        ("KILL $PPID $(ps -o ppid= $PPID)", "[ended by SIGKILL]"),
        ("STOP $PPID $(ps -o ppid= $PPID)", "[timed out after 1 s and was ended with all its processes]"),
        *((f"{each} $PPID", f"[exit code 0]\n{LEFT}") for each in ("TERM", "HUP", "INT")),
    ],
)
async def test_a_command_that_turns_on_its_parent_is_ended_all_the_same(folder: Path, kill: str, text: str) -> None:
    player, command = impatient(folder), f"sleep 100 & echo $! > pid; kill -{kill}"
    assert (await player.text("bash", command=command, timeout_s=1)).startswith(text)
    while any(map(is_alive, pids(folder))):  # noqa: ASYNC110 - the kernel ends it, and tells nobody
        await asyncio.sleep(0.01)
    assert await player.text("bash", command="true") == "[exit code 0]"


async def test_the_processes_of_the_program_itself_are_left_alone(folder: Path) -> None:
    own = await asyncio.create_subprocess_exec("sleep", "100")
    await impatient(folder).text("bash", command="sleep 100 & env -i setsid sleep 100 & true")
    await impatient(folder).text("bash", command="sleep 100", timeout_s=0.2)
    assert own.returncode is None
    assert is_alive(own.pid)
    own.kill()
    await own.wait()


def spawn_and_read(*line: str) -> str:
    """Return what a program writes that the C library spawns: it lets it ignore two signals of its own."""
    outer, inner = os.pipe()
    streams, default = [(os.POSIX_SPAWN_DUP2, inner, 1)], [signal.SIGPIPE, signal.SIGXFSZ]
    process = os.posix_spawnp(line[0], line, os.environ, file_actions=streams, setsigdef=default)
    os.close(inner)
    os.waitpid(process, 0)
    with os.fdopen(outer) as file:
        return file.read()


async def test_a_command_gets_no_more_than_it_is_given(folder: Path) -> None:
    player = Player(Workspace(folder, shell=Shell(environment={"PATH": os.environ["PATH"]})))
    text = await player.text("bash", command="compgen -e; ls /proc/self/fd; grep SigIgn /proc/self/status")
    ignored = await asyncio.to_thread(spawn_and_read, "grep", "SigIgn", "/proc/self/status")
    expected = f"JOURNEYMAN_COMMAND PATH PWD SHLVL 0 1 2 3 {ignored} [exit code 0]"
    assert text.split() == expected.split()


PROGRAM = """
import asyncio
from journeyman import Agent, run
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.toolbox import Workspace

command = "exec 9> held; env -i setsid sleep 100 & trap '' TERM; echo $$ >&9; sleep 100; sleep 100"
model = ScriptedModel([call("bash", command=command), "Done."])
asyncio.run(run(Agent(name="a", model=model, tools=Workspace(".").tools("bash")), "Go."))
"""


async def test_a_program_that_is_killed_takes_its_commands_with_it(folder: Path) -> None:
    os.mkfifo(folder / "held")  # whoever of the command runs has it open
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, cwd=folder)
    with await asyncio.to_thread((folder / "held").open) as held:
        assert is_alive(int(await asyncio.to_thread(held.readline)))
        program.kill()
        assert await asyncio.to_thread(held.read) == ""
    await program.wait()


@pytest.mark.parametrize("python", ["", "/bin/false", "/no/python"])
async def test_commands_run_without_a_keeper_where_python_cannot_be_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, python: str
) -> None:
    if python == "/bin/false":
        python = str(tmp_path_factory.mktemp("bin") / "python")
        Path(python).symlink_to("/bin/false")
    monkeypatch.setattr(sys, "executable", python)
    os.mkfifo(folder / "pipe")
    text = await impatient(folder).text("bash", command=f"echo $PPID; {SETSID}; exit 3")
    assert text == f"{os.getpid()}\nup\n[exit code 3]\n[It left processes running. They were ended.]"
    assert not any(map(is_alive, pids(folder)))
    assert await impatient(folder).text("bash", command="sleep 100", timeout_s=0.2) == (
        "[timed out after 0.2 s and was ended with all its processes]"
    )


async def test_the_model_cannot_ask_for_more_time_than_is_allowed(folder: Path) -> None:
    player = Player(Workspace(folder, shell=Shell(max_timeout_s=0.3, grace_s=0.2)))
    assert "timed out after 0.3 s" in await player.text("bash", command="sleep 100", timeout_s=1000)
    assert "timed out after 0.3 s" in await player.text("bash", command="sleep 100")


SECRET_NAMES = (
    "API_KEY aws_secret_access_key GITHUB_TOKEN DB_PASSWORD SSH_AUTH_SOCK SMTP_PASS DB_PASS PASS GITHUB_PAT "
    "PAT SERVICE_JWT JWT BEARER API_BEARER BEARER_TOKEN MYSQL_PWD REDIS_PW PGPASSWORD SSHPASS_PASS OPENAI_KEY "
    "OPENAI_APIKEY apiKey client_secret CLIENTSECRET MNEMONIC APP_CREDS CRED GOOGLE_CREDENTIALS DB_PASSPHRASE "
    "PASSCODE SESSION_ID SESSIONID COOKIE SENTRY_DSN CONNECTION_STRING AzureConnectionString "
    "SLACK_WEBHOOK_URL ENCRYPTION_SALT USER_PIN WIFI_PSK TOTP AUTH NPM_AUTH AUTHORIZATION PRIVATE SSH_PRIVATE "
    "AZURE_SAS pass db_pat2 DB_PASS_2 PASS1 JWT_SIGNING X_SIGNATURE USER_OTP"
)
SECRET_VARIABLES = {
    **dict.fromkeys(SECRET_NAMES.split(), "x"),
    "DATABASE_URL": "postgres://user:word@host/db",
    "SOMETHING": "sk-" + "a1" * 12,
    "OTHER": "AKIAABCDEFGHIJKLMNOP",
    "REGISTRY": "npm_" + "a1B2" * 9,
    "HEADER": "Authorization: Basic dXNlcjpwYXNz",
    "HOOK": "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXX",
    "MORE": '{"password": "hunter2"}',
}
PLAIN_NAMES = (
    "PATH GIT_AUTHOR_NAME TOKENIZERS_PARALLELISM KEYBOARD PWD PATTERN PATCH_LEVEL COMPASS BYPASS PASSENGER "
    "PASSES MONKEY TURKEY XKB_KEYMAP KEYWORDS SPATIAL COMPAT PINNED SHOPPING SALTED_BUTTER SASS_PATH CREDITS "
    "COUNTS LANG EDITOR USER PYTHONPATH"
)
PLAIN_VARIABLES = {
    **dict.fromkeys(PLAIN_NAMES.split(), "x"),
    "HOME": "/home/me",
    "OLDPWD": "/",
    "HOMEPAGE": "https://example.org:8080/a@b",
    "CI_COMMIT": "d947bc0f3a2b1c4d5e6f7a8b9c0d1e2f3a4b5c6d",
}


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("name", SECRET_VARIABLES)
def test_secrets_are_known_by_their_names_and_by_their_values(name: str) -> None:
    assert is_secret(name, SECRET_VARIABLES[name])


@pytest.mark.parametrize("name", PLAIN_VARIABLES)
def test_other_variables_are_not_taken_for_secrets(name: str) -> None:
    assert not is_secret(name, PLAIN_VARIABLES[name])


async def test_a_command_sees_no_variable_that_looks_like_a_secret(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**SECRET_VARIABLES, **PLAIN_VARIABLES, "PATH": os.environ["PATH"]}.items():
        monkeypatch.setenv(name, value)
    seen = {
        line.partition("=")[0] for line in (await Player(Workspace(folder)).text("bash", command="env")).splitlines()
    }
    assert seen & {*SECRET_VARIABLES} == set()
    assert {*PLAIN_VARIABLES} - seen == set()


async def test_commands_get_the_environment_without_secrets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hidden")
    monkeypatch.setenv("PLAIN_WORD", "visible")
    for shell, seen in (
        (Shell(), "[] [visible] [cat]"),
        (Shell(keep=["SOME_API_KEY"]), "[hidden] [visible] [cat]"),
        (Shell(environment={"PLAIN_WORD": "own", "PATH": os.environ["PATH"]}), "[] [own] []"),
    ):
        player, show = Player(Workspace(folder, shell=shell)), "echo [$SOME_API_KEY] [$PLAIN_WORD] [$PAGER]"
        assert await player.text("bash", command=show) == f"{seen}\n[exit code 0]"


async def test_what_cannot_be_run_is_refused(player: Player, folder: Path) -> None:
    assert await player.refused("bash", command="true", background=True) == (
        "Background work is not available here: nobody would await it. Run the command without background=true."
    )
    for seconds in (0, -1):
        text = await player.refused("bash", command="true", timeout_s=seconds)
        assert "Give a number of seconds above 0." in text
    shellless = Player(Workspace(folder, shell=Shell(program="no-such-shell")))
    assert "No such file or directory: 'no-such-shell'" in await shellless.refused("bash", command="true")


def test_a_process_that_ends_takes_its_spilled_texts_with_it(tmp_path: Path) -> None:
    program = "from journeyman.toolbox import Workspace as W; w = W('.'); print(w.bench.spill.keep('text', 'x'))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).parent.exists()
