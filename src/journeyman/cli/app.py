"""The commands, as cyclopts sees them: each is one function, imported when it is called.

What cannot be done as it was said is a `Mistake`, or another error with a hint: one line that says what is wrong and
what to do, and exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, TypedDict

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError, UnusedCliTokensError

from journeyman.cli import COMMANDS
from journeyman.cli.show.screen import print_error
from journeyman.errors import DefinitionError, Hinted, quoted
from journeyman.foreign import OLD_COMMANDS, OLD_OPTIONS
from journeyman.version import package_version

USAGE, INTERRUPTED = 2, 130
_EXTRAS = {"mcp": "journeyman[mcp]", **dict.fromkeys(("starlette", "uvicorn", "ag_ui"), "journeyman[serve]")}
"""What to install for a package that only some commands need."""
_NEEDED = {"serve": ("starlette", "uvicorn", "ag_ui"), "view": ("starlette", "uvicorn")}
"""The packages without which the options of a command cannot be told."""


class CommandHelp(TypedDict):
    """The lines of a command's help before its options, as cyclopts takes them."""

    help_prologue: str
    usage: str
    help: str


def describe(name: str) -> CommandHelp:
    """Return what the help of a command says before its options: an example, how it is called, and what it does."""
    arguments, does, example = COMMANDS[name]
    usage = f"Usage: journeyman {name} [OPTIONS] {arguments}".rstrip()
    return {"help_prologue": f"Example: journeyman {example}", "usage": usage, "help": does}


app = App(
    name="journeyman",
    help="Run agents that hand in checked work.",
    version=package_version(),
    version_flags=("--version", "-V"),
    help_epilogue="Exit code: 0 success, 1 failure, 2 usage, 130 after Ctrl-C, 143 after SIGTERM; of a durable run also"
    " 3: it waits for a person, 4: it is blocked.",
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(show_default=False),
)
_cassette = App(name="cassette", **describe("cassette"))
for _full, _place in {
    "run": "run:run",
    "batch": "batch.command:batch",
    "chat": "chat.command:chat",
    "check": "check:check",
    "runs": "runs:runs",
    "show": "runs:show",
    "view": "view.command:view",
    "tell": "view.operator:tell_run",
    "resume": "durable:resume",
    "fork": "runs:fork",
    "export": "recorded:export",
    "prune": "runs:prune",
    "cassette record": "cassettes:record",
    "cassette replay": "cassettes:replay",
    "cassette test": "cassettes:make_test",
    "worker": "worker:worker",
    "serve": "serve:serve",
    "demo": "demo:demo",
    "completion": "app:completion",
}.items():
    _group, _, _name = _full.rpartition(" ")
    _home = _cassette if _group else app
    _home.command(f"journeyman.cli.{_place}", name=_name, **describe(_full))
app.command(_cassette)
app.command("journeyman.cli.mcp:mcp", name="mcp", help=COMMANDS["mcp"].does)  # an App, which has its own


def execute(words: Sequence[str]) -> int:
    """Execute the command that the words on the command line ask for, and return the exit code."""
    try:
        if words[0] in OLD_COMMANDS:
            raise Mistake(f"{words[0]} is written otherwise now.", f"journeyman {OLD_COMMANDS[words[0]]}")
        return app(_complete_resume(words)) or 0
    except (Hinted, DefinitionError, CycloptsError) as error:
        print_error(*_explain(error, words))
        return error.code if isinstance(error, Mistake) else USAGE
    except ImportError as error:  # cyclopts imports a command when it is called, and says so
        cause = error.__cause__ if isinstance(error.__cause__, ModuleNotFoundError) else error
        missing = cause.name or ""
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


def _explain(error: Exception, words: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong, and what to do."""
    match error:
        case Hinted():
            return error.message, error.hint
        case DefinitionError():
            return error.problems[0].message, error.problems[0].hint
        case _:
            return _explain_words(error, words)


def _explain_words(error: Exception, words: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong with the words of the command line, and what to do."""
    if isinstance(error, UnknownOptionError):
        option = (error.token.keyword or error.token.value).partition("=")[0]
        if option in OLD_OPTIONS:
            return f"{option} {OLD_OPTIONS[option]}.", ""
    told = str(error).removesuffix(".")
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        told = f"{quoted(error.unused_tokens[0])} is one word too many"
    named = next((name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS), "")
    see = " ".join(["See: journeyman", *named.split(), "--help"])
    if any(word.startswith("--env-file") for word in words):
        see = "--env-file stands before the command: journeyman --env-file FILE run …"
    return f"{told.rstrip('.')} …" if told.endswith("..") else told if told.endswith("?") else f"{told}.", see


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print what completes the commands and options of this program in a shell.

    bash: eval "$(journeyman completion bash)", in ~/.bashrc. zsh: the same with zsh, in ~/.zshrc, after compinit. fish:
    journeyman completion fish > ~/.config/fish/completions/journeyman.fish

    Args:
        shell: For which shell: bash, zsh or fish.
    """
    for name, packages in _NEEDED.items():  # what is not installed can be neither looked at nor used
        if any(find_spec(package) is None for package in packages):
            del app[name]
    script = app.generate_completion(shell=shell)
    if shell == "zsh":  # as a part of ~/.zshrc, and not only as a file of its own
        script = f"{script}\ncompdef _cyclopts_journeyman journeyman\n"
    sys.stdout.write(script)
    return 0


def _complete_resume(words: Sequence[str]) -> list[str]:
    """Return the words with what `chat --resume` means where nothing follows it: the latest."""
    completed = list(words)
    for index, word in enumerate(words):
        if word == "--resume" and words[0] == "chat" and all(each.startswith("-") for each in words[index + 1 :][:1]):
            completed[index] = "--resume=latest"
    return completed


class Mistake(Hinted):
    """The command line, or a file that it names, cannot be used."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.code = USAGE
        """The exit code."""


class Refused(Mistake):
    """A refusal of a command that is sound, but cannot be done as things stand. It has its own exit code."""

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
