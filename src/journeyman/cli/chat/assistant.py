"""The agent of `journeyman chat` without a file: a useful assistant in the current folder.

Its model is that of the provider whose key is set. It reads the AGENTS.md of the project, and has the ready tools that
`--tools` names, which are asked about by mode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

from journeyman.agent import Agent
from journeyman.budget import Limits
from journeyman.chat.questions import ask_user
from journeyman.cli.app import Mistake
from journeyman.cli.load_agent import load_model
from journeyman.cli.own_models import lines_of_own_models
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.screen import PlainScreen, stderr_console
from journeyman.compaction import ClearToolResults, Summarise
from journeyman.definition.narrowing import is_one_of
from journeyman.machine.env_file import hint_of_env_file
from journeyman.toolbox import Workspace, fetch_tool, load_agents_md
from journeyman.toolbox.boxed import asked_sandbox
from journeyman.toolbox.workspace import ToolName
from journeyman.tools.tools import AnyTool
from journeyman.types import Text

NAME: Final = "assistant"
CODING: Final = "coding"
"""The tools where nothing is said: all that work on files, commands, the web, and questions."""
_MODELS: Final = (
    ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-5-5"),
    ("OPENAI_API_KEY", "openai:gpt-5.2"),
    ("GEMINI_API_KEY", "google:gemini-2.5-flash"),
)
"""For each key the model that is used where it is set; the first counts."""
_ALSO: Final = {"ANTHROPIC_AUTH_TOKEN": "ANTHROPIC_API_KEY", "GOOGLE_API_KEY": "GEMINI_API_KEY"}
"""Other names of the same keys."""
_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    CODING: (*get_args(ToolName), "fetch", "ask_user"),
    "reading": ("read", "glob", "grep", "ls", "ask_user"),
    "none": (),
}
_ITERATIONS: Final = 200
"""How many model calls one turn may take: an assistant works for long, and its user can stop it."""
_SYSTEM: Final = """\
You are a careful assistant at a terminal. You work in the folder {folder}, on {system}.

Look before you change anything, and change no more than you were asked to. Read a file before you edit it. After a
change, run what shows that it works, and say what you saw; if you could not try it, say that. Where it is not clear
what is wanted, and the difference matters, ask. Answer briefly, in Markdown."""


def assistant(*, model: str | None, tools: str | None) -> Agent:
    """Return the assistant for the current folder. `tools` names a group of tools, or tools, with commas between them.
    Where the AGENTS.md files, or what is here of the toolbox, cannot be used, this is a `DefinitionError`."""
    folder = Path.cwd()
    chosen = model or _model_with_key()
    load_model(chosen)
    with log_shown(PlainScreen(stderr_console()).say, debug=False):
        memory = load_agents_md(folder, skip_broken=True)
    return Agent(
        name=NAME,
        model=chosen,
        system=[Text(_SYSTEM.format(folder=folder, system=os.uname().sysname)), *memory],
        tools=list(_tools_by_name(tools or CODING)),
        compaction=(ClearToolResults(), Summarise()),
        limits=Limits(iterations=_ITERATIONS),
    )


def _model_with_key() -> str:
    given = {_ALSO.get(name, name) for name, value in os.environ.items() if value.strip()}
    found = next((model for key, model in _MODELS if key in given), None)
    if found is None:
        keys = " or ".join(key for key, _ in _MODELS)
        known = hint_of_env_file([*(key for key, _ in _MODELS), *_ALSO])
        hint = known or f"Set {keys}, or name another model: --model ollama:qwen3"
        PlainScreen(stderr_console()).say(lines_of_own_models())
        raise Mistake("There is no model to talk with: no key is set.", hint)
    return found


def _tools_by_name(named: str) -> Iterator[AnyTool]:
    words = [each.strip() for each in named.split(",") if each.strip()]
    names = list(dict.fromkeys(name for word in words for name in _GROUPS.get(word, (word,))))
    unknown = [name for name in names if name not in _GROUPS[CODING]]
    if unknown or not words:
        text = f"There is no tool {unknown[0]!r}." if unknown else "--tools names none."
        raise Mistake(text, f"There are {', '.join(_GROUPS)}, and {', '.join(_GROUPS[CODING])}.")
    asked = asked_sandbox.get()  # in a box a command may ask for more, which its user decides
    workspace = Workspace(Path.cwd(), confined=asked is None or asked.choice is None)
    files: list[ToolName] = [name for name in names if is_one_of(name, ToolName)]
    if files:
        yield from workspace.tools(*files)
    if "fetch" in names:
        yield fetch_tool(workspace)
    if "ask_user" in names:
        yield ask_user
