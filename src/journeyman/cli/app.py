"""The commands, as cyclopts sees them: each is one function, imported when it is called.

What cannot be done as it was said is a `Mistake`, or another error with a hint: one line that says what is wrong and
what to do, and exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import chain
from typing import Final, Literal, TypedDict

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError, UnusedCliTokensError

from journeyman.cli import COMMANDS, HELP, SHARED
from journeyman.cli.options import command_of, options_taken, read_shared, split_shared, with_shared
from journeyman.cli.show.screen import print_error
from journeyman.definition.foreign import OLD_COMMANDS, OLD_OPTIONS
from journeyman.errors import DefinitionError, Hinted, quoted
from journeyman.machine.version import package_version

USAGE, INTERRUPTED = 2, 130
_EXTRAS = {
    "mcp": "journeyman[mcp]",
    "prompt_toolkit": "journeyman[cli]",
    **dict.fromkeys(("starlette", "uvicorn", "ag_ui"), "journeyman[serve]"),
}
"""What to install for a package that only some commands need."""
_NEEDED = {"serve": ("starlette", "uvicorn", "ag_ui"), "view": ("starlette", "uvicorn")}
"""The packages without which the options of a command cannot be told."""
_ENDS: Final = (
    "Exit code: 0 success, 1 failure, 2 usage, 130 after Ctrl-C, 143 after SIGTERM; of a durable run also"
    " 3: it waits for a person, 4: it is blocked."
)


class CommandHelp(TypedDict):
    """The lines of a command's help around its own options, as cyclopts takes them."""

    help_prologue: str
    usage: str
    help: str
    help_epilogue: str


def describe(name: str) -> CommandHelp:
    """Return what the help of a command says around its own options: an example, how it is called, what it does, and
    which shared options it takes."""
    arguments, does, example = COMMANDS[name]
    usage = f"Usage: journeyman {name} [OPTIONS] {arguments}".rstrip()
    taken = ", ".join(options_taken(name))
    also = f"Also {taken}: see journeyman --help.\n\n" if taken else ""
    prologue = f"Example: journeyman {name} {example}".rstrip()
    return {"help_prologue": prologue, "usage": usage, "help": does, "help_epilogue": f"{also}{_ENDS}"}


app = App(
    name="journeyman",
    help="Run agents that hand in checked work.",
    version=package_version(),
    version_flags=("--version", "-V"),
    help_epilogue=_ENDS,
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
    "view": "view:view",
    "tell": "durable:tell_run",
    "resume": "durable:resume",
    "fork": "runs:fork",
    "export": "recorded:export",
    "prune": "runs:prune",
    "cassette record": "cassettes:record",
    "cassette replay": "cassettes:replay",
    "cassette test": "cassettes:make_test",
    "worker": "worker:worker",
    "serve": "serve:serve",
    "sandbox": "sandbox:sandbox",
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
        return _call(words)
    except Hinted as error:
        print_error(error.message, error.hint)
        return error.code if isinstance(error, Mistake) else USAGE
    except DefinitionError as error:
        print_error(error.problems[0].message, error.problems[0].hint)
        return USAGE
    except CycloptsError as error:
        print_error(*_explain_words(error, words))
        return USAGE
    except ImportError as error:  # cyclopts imports a command when it is called, and says so
        cause = error.__cause__ if isinstance(error.__cause__, ModuleNotFoundError) else error
        missing = cause.name or ""
        extra = _EXTRAS.get(missing.partition(".")[0])
        if extra is None:
            raise
        if "view" in words[:1]:  # it needs less than what serves agents
            extra = "journeyman[view]"
        print_error(f"This command needs the package {missing}, which is not installed.", f"pip install '{extra}'")
        return USAGE
    except KeyboardInterrupt:
        print_error("interrupted.", "Nothing was running yet.")
        return INTERRUPTED


def _call(words: Sequence[str]) -> int:
    """Call the command that the words ask for, with the shared options that stand before it and behind it. An option
    that stands before a command that does not take it is a `Mistake`, and so is a command of before."""
    before, words = split_shared(words, SHARED, leading=True)
    name = command_of(words)
    if name in OLD_COMMANDS:
        raise Mistake(f"{name} is written otherwise now.", f"journeyman {OLD_COMMANDS[name]}")
    taken = options_taken(name)
    behind, own = split_shared(_complete_resume(words), taken)
    if refused := [word for word in split_shared(before, taken)[1] if name and word.startswith("-")]:
        what = f"journeyman {name} takes no {refused[0].partition('=')[0]}."
        raise Mistake(what, f"Leave it out, or see: journeyman {name} --help")
    if not own:
        sys.stdout.write(HELP)
        return 0
    command, bound, given = app.parse_args(own)
    shared = {"shared": read_shared([*before, *behind])} if "shared" in given else {}
    return command(*bound.args, **bound.kwargs, **shared) or 0


def _explain_words(error: CycloptsError, words: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong with the words of the command line, and what to do."""
    name = command_of(split_shared(words, SHARED, leading=True)[1])
    told = str(error).removesuffix(".")
    if isinstance(error, UnknownOptionError):
        option = (error.token.keyword or error.token.value).partition("=")[0]
        if option in OLD_OPTIONS:
            return f"{option} {OLD_OPTIONS[option]}.", ""
        own = chain.from_iterable(each.names for each in error.argument_collection if each.parse)
        if near := get_close_matches(option, [*options_taken(name), *own], n=1):  # cyclopts knows of the own ones only
            told = f"Unknown option: {option}. Did you mean {near[0]}?"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        told = f"{quoted(error.unused_tokens[0])} is one word too many"
    see = f"See: journeyman {name} --help" if name in COMMANDS else "See: journeyman --help"
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
    for name in COMMANDS:
        group, _, inner = name.partition(" ")
        command = app if group not in app else app[group][inner] if inner else app[group]
        if command.default_command is not None:
            command.default_command = with_shared(name, command.default_command)
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


@contextmanager
def explain_errors(hint: str, *, about: str = "") -> Generator[None]:
    """Let what the block raises be a mistake: a `ValueError` by its own words, an `OSError` as the reason of what is
    said `about` it, and the first problem of a definition, with its own hint."""
    try:
        yield
    except DefinitionError as error:
        problem = error.problems[0]
        raise Mistake(": ".join(filter(None, (about, problem.message))), problem.hint) from error
    except OSError as error:
        if not about:
            raise
        raise Mistake(f"{about}: {error.strerror}.", hint) from error
    except ValueError as error:
        raise Mistake(": ".join(filter(None, (about, str(error)))), hint) from error


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
