"""The commands, as cyclopts sees them: each is one function, imported when it is called.

What cannot be done as it was said is a `Mistake`: one line that says what is wrong and what to do, and exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Literal

from cyclopts import App, CycloptsError

from journeyman.cli.show.screen import print_error
from journeyman.errors import DefinitionError, JourneymanError

USAGE, INTERRUPTED = 2, 130
_EXTRAS = {"mcp": "journeyman[mcp]", **dict.fromkeys(("starlette", "uvicorn", "ag_ui"), "journeyman[serve]")}
"""What to install for a package that only some commands need."""

app = App(
    name="journeyman",
    help="Run agents that hand in checked work.",
    version=version("journeyman"),
    version_flags=("--version", "-V"),
    help_epilogue="Exit code: 0 success, 1 failure, 2 usage, 130 after Ctrl-C, 143 after SIGTERM; of a durable run also"
    " 3: it waits for a person, 4: it is blocked.",
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)
app.command("journeyman.cli.run:run", name="run", help="Run an agent, and print what it hands in.")
app.command("journeyman.cli.batch.command:batch", name="batch", help="Run an agent on every line of a file.")
app.command("journeyman.cli.chat.command:chat", name="chat", help="Talk with an agent, also while it works.")
app.command("journeyman.cli.check:check", name="check", help="Show an agent's definition without calling a model.")
app.command("journeyman.cli.cassettes:record", name="record", help="Run an agent, and record its conversation.")
app.command("journeyman.cli.cassettes:replay", name="replay", help="Play a recorded conversation, offline.")
app.command("journeyman.cli.runs:runs", name="runs", help="List durable runs, and recordings.")
app.command("journeyman.cli.runs:show", name="show", help="Show a durable run, or a recording.")
app.command("journeyman.cli.recorded:diff", name="diff", help="Show where two recordings differ.")
app.command("journeyman.cli.recorded:tail", name="tail", help="Follow a recording while it is made.")
app.command("journeyman.cli.view.command:view", name="view", help="Look at runs in a browser, and steer them.")
app.command("journeyman.cli.recorded:export", name="export", help="Write a recording as a file, or a cassette.")
app.command("journeyman.cli.cassettes:make_test", name="test", help="Make a test of a recorded run.")
app.command("journeyman.cli.durable:resume", name="resume", help="Go on with a durable run.")
app.command("journeyman.cli.durable:cancel", name=("cancel", "stop"), help="End a run as cancelled.")
app.command("journeyman.cli.view.saying:steer", name="steer", help="Say something to a run that goes on.")
app.command("journeyman.cli.view.saying:approve", name="approve", help="Allow a call that waits, or deny it.")
app.command("journeyman.cli.view.saying:deny", name="deny", help="Deny a call that waits.")
app.command("journeyman.cli.view.saying:answer", name="answer", help="Answer a question of a run's model.")
app.command("journeyman.cli.view.saying:hold", name="hold", help="Let no further step of a run begin.")
app.command("journeyman.cli.view.saying:release", name="release", help="Let a run go on that was held.")
app.command("journeyman.cli.runs:fork", name="fork", help="Begin a run with what another one had done.")
app.command("journeyman.cli.worker:queues", name="queues", help="Show how many durable runs wait in each queue.")
app.command("journeyman.cli.runs:prune", name="prune", help="Forget runs that have ended, and recordings.")
app.command("journeyman.cli.worker:worker", name="worker", help="Do durable runs that were started.")
app.command("journeyman.cli.mcp:mcp", name="mcp", help="Serve agents as MCP tools, over stdio or HTTP.")
app.command("journeyman.cli.serve:serve", name="serve", help="Serve agents behind HTTP, for programs and pages.")
app.command("journeyman.cli.app:completion", name="completion", help="Print what completes commands in a shell.")
app.command("journeyman.cli.demo:demo", name="demo", help="Watch an analyst at work, with or without a key.")


def execute(words: Sequence[str]) -> int:
    """Execute the command that the words on the command line ask for, and return the exit code."""
    try:
        return app(_resumed(words)) or 0
    except Mistake as mistake:
        print_error(mistake.message, mistake.hint)
        return mistake.code
    except CycloptsError as error:
        told = str(error).removesuffix(".")
        print_error(f"{told.rstrip('.')} …" if told.endswith("..") else f"{told}.", "See: journeyman --help")
        return USAGE
    except ImportError as error:  # cyclopts imports a command when it is called
        missing = (error.__cause__.name or "") if isinstance(error.__cause__, ModuleNotFoundError) else ""
        extra = _EXTRAS.get(missing.partition(".")[0])
        if extra is None:
            raise
        if words[0] == "view":  # it needs less than what serves agents
            extra = "journeyman[view]"
        print_error(f"This command needs the package {missing}, which is not installed.", f"pip install '{extra}'")
        return USAGE
    except KeyboardInterrupt:
        print_error("interrupted.", "Nothing was running yet.")
        return INTERRUPTED


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print what completes the commands and options of this program in a shell.

    bash: eval "$(journeyman completion bash)", in ~/.bashrc. zsh: the same with zsh, in ~/.zshrc, after compinit. fish:
    journeyman completion fish > ~/.config/fish/completions/journeyman.fish

    Args:
        shell: For which shell: bash, zsh or fish.
    """
    if find_spec("mcp") is None:  # its command cannot be looked at without it
        del app["mcp"]
    script = app.generate_completion(shell=shell)
    if shell == "zsh":  # as a part of ~/.zshrc, and not only as a file of its own
        script = f"{script}\ncompdef _cyclopts_journeyman journeyman\n"
    sys.stdout.write(script)
    return 0


def _resumed(words: Sequence[str]) -> list[str]:
    """Return the words with what `chat --resume` means where nothing follows it: the latest."""
    completed = list(words)
    for index, word in enumerate(words):
        if word == "--resume" and words[0] == "chat" and all(each.startswith("-") for each in words[index + 1 :][:1]):
            completed[index] = "--resume=latest"
    return completed


class Mistake(JourneymanError):
    """The command line, or a file that it names, cannot be used."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message} {hint}")
        self.message = message
        """What is wrong, with the values."""
        self.hint = hint
        """What to do about it."""
        self.code = USAGE
        """The exit code."""


class Refused(Mistake):
    """What the command line asks for is sound, and cannot be done as things stand."""

    def __init__(self, message: str, hint: str, *, code: int = 1) -> None:
        super().__init__(message, hint)
        self.code = code


class Misdefined(Mistake):
    """Importing the file raised `DefinitionError`."""

    def __init__(self, message: str, hint: str, *, place: str, error: DefinitionError) -> None:
        super().__init__(f"{place}: {message}", hint)
        self.place = place
        """The file and line where it was raised."""
        self.error = error
        """The error, which lists every problem."""
