"""The one policy of all commands that run an agent: what happens to its calls by itself, and what is asked about.

Ready tools and the tools of MCP servers are judged by the mode. A function of the agent's own file is its author's, who
is whoever named that file: it runs unasked, except for strict mode; in plan mode only what declares to change nothing.
"""

from __future__ import annotations

import hashlib
import os
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from journeyman import sandbox as sandboxes  # whose modules are loaded where an agent has a box
from journeyman.cli.app import Mistake
from journeyman.cli.options import AnyAgent
from journeyman.cli.show.lines import Line, one_line
from journeyman.cli.show.screen import stderr_console
from journeyman.endings import Place
from journeyman.errors import DefinitionError, count
from journeyman.gate import Approval, Decision, Deny, GateRequest
from journeyman.inbox.questions import PendingQuestions
from journeyman.loop.state import run_context
from journeyman.permission.approvals import Approvals
from journeyman.permission.capability import Action, classify
from journeyman.permission.permission import Permission, PermissionMode
from journeyman.step import RunStep
from journeyman.toolbox.boxed import asked_sandbox
from journeyman.types import RunPath

_EXPIRES_S: Final = 30 * 86_400.0
"""How long a question is good for, in seconds: a person may come back to it after days."""
_DENIALS_SHOWN: Final = 5
_SHOWN_CHARACTERS: Final = 300


def data_folder() -> Path | None:
    """Return the folder in which this program keeps what outlives it. None: its user has no home, as a container may
    be run by a user who is in no list."""
    given = os.environ.get("XDG_DATA_HOME", "")
    if given.startswith("/"):
        return Path(given) / "journeyman"
    with suppress(RuntimeError):
        return Path.home() / ".local" / "share" / "journeyman"
    return None


class FileRules(BaseModel, frozen=True):
    """The rules of a file of settings."""

    allow: list[str] = []
    deny: list[str] = []
    ask: list[str] = []


class _SettingsFile(BaseModel):
    permissions: FileRules


def load_rules(path: Path) -> FileRules:
    """Return the rules below `permissions` in a file of settings such as Claude Code's. Nothing else of it is read. A
    file of the working folder only narrows: the agent may have written it, so what it allows is left out, and told."""
    try:
        rules = _SettingsFile.model_validate_json(path.read_bytes().removeprefix(BOM_UTF8)).permissions
        Permission(allow=rules.allow, deny=rules.deny, ask=rules.ask)
    except OSError as error:
        raise Mistake(f"--rules {path} cannot be read: {error.strerror}.", "Name a file of settings.") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        hint = 'It holds {"permissions": {"allow": […], "ask": […], "deny": […]}}.'
        raise Mistake(f"--rules {path} is no file of rules: {place or 'it'}: {first['msg']}.", hint) from None
    except DefinitionError as error:
        raise Mistake(f"--rules {path}: {error}", "Correct the rules, or take them out.") from error
    if rules.allow and path.resolve().is_relative_to(Path.cwd().resolve()):
        left_out = f"{path} lies in the working folder, so what it allows is left out: {', '.join(rules.allow)}"
        stderr_console().print(one_line(left_out, _SHOWN_CHARACTERS), markup=False)
        return FileRules(deny=rules.deny, ask=rules.ask)
    return rules


def with_policy(agent: AnyAgent, target: str, mode: PermissionMode | None, rules: FileRules | None = None) -> AnyAgent:
    """Return the agent with the gate that the mode means: one that has no gate of its own, or where a mode or rules are
    asked for, beside its own. What is approved forever is kept by the file that `target` names."""
    if mode is None and rules is None and agent.gate:
        return agent
    own = [] if agent.gate is None else [*agent.gate] if isinstance(agent.gate, Sequence) else [agent.gate]
    if mode is None:
        mode = "trust" if own else usual_mode()  # beside a gate of its own, rules alone only narrow
    return replace(agent, gate=[*own, _permission(agent.name, target, mode, rules or FileRules())])


def usual_mode() -> PermissionMode:
    """Return the mode where none is said: `auto`, where commands have a box that the command line has asked for, and
    that holds; else `balanced`."""
    asked = asked_sandbox.get()
    is_boxed = asked is not None and asked.choice is not None and bool(asked.boxes)
    return "auto" if is_boxed and sandboxes.choose_sandbox().holds().is_enough else "balanced"


def _permission(name: str, target: str, mode: PermissionMode, rules: FileRules) -> Permission:
    place = hashlib.sha256(os.path.abspath(target).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    folder = data_folder()
    kept: Path | None = None  # in memory, where nothing can be kept
    if folder is not None:
        path = folder / "approvals" / f"{name}-{place}.json"
        above = next((each for each in path.parents if os.path.exists(each)), path)  # false also where one may not look
        kept = path if os.access(above, os.W_OK | os.X_OK) else None
    return Policy(mode, Approvals(kept, expires_s=_EXPIRES_S), rules)


class Policy(Permission):
    """The gate of an agent that a command runs. The functions of the agent's own file are trusted, but in strict."""

    def __init__(self, mode: PermissionMode, approvals: Approvals, rules: FileRules | None = None) -> None:
        given = dict(rules or FileRules())
        asked = asked_sandbox.get()
        needs = [need.partition(":") for need in (asked.needs if asked is not None else ())]
        hosts = [value.partition(":")[0] for kind, _, value in needs if kind == "host"]
        # One list for commands and for the tools of this process.
        given["allow"] = [*given.get("allow", []), *[f"WebFetch({host})" for host in hosts]]
        roots = [Path.cwd(), *[Path(value) for kind, _, value in needs if kind == "write"]]
        super().__init__(mode=mode, roots=roots, approvals=approvals, classify=self._classify_call, **given)

    def _classify_call(self, request: GateRequest) -> Action:
        if self.mode == "strict":
            return classify(request)
        if request.permission_kind == "call_tool":
            name = request.arguments.get("name")
            is_own = isinstance(name, str) and name not in request.proxied
        else:
            is_own = request.permission_kind is None
        if request.external or not is_own:
            return classify(request)
        return Action(tool=request.tool_name, capability="read" if request.effect == "pure" else "internal")


def find_watched_run() -> tuple[PendingQuestions[Any], Place] | None:
    """Return where the run that this is done for asks those who follow it in the viewer, and its place; None: nobody
    does."""
    run = run_context.get().run
    outside = None if run is None or run.tape is None else run.tape.outside
    is_followed = outside is not None and outside.questions.asks_outside()
    return (outside.questions, run.place) if run is not None and outside is not None and is_followed else None


class Nobody:
    """Answers where nobody is at a terminal. Whoever follows the run in the viewer is asked; else whatever is asked
    about is denied, what the model wants to know is not answered, and both are told at the end."""

    def __init__(self) -> None:
        self._denied: list[Approval] = []
        self._unanswered: list[str] = []

    async def approve(self, approval: Approval) -> Decision:
        """Deny a call. The model reads why."""
        seen = find_watched_run()
        if seen is not None:
            questions, place = seen
            return await questions.approve(approval, place=place)
        self._denied.append(approval)
        return Deny(f"{approval.question} Nobody is there to approve it.")

    async def ask(
        self, path: RunPath, question: str, options: Sequence[str], *, call: RunStep | None = None
    ) -> str | None:
        """Do not answer a question."""
        seen = find_watched_run()
        answer = None if seen is None else await seen[0].ask(path, question, options, call=call)
        if answer is None:
            self._unanswered.append(question)
        return answer

    def lines(self) -> Iterator[Line]:
        """Say what was denied and not answered so far, and what would change that; then forget it."""
        denied, self._denied = self._denied, []
        unanswered, self._unanswered = self._unanswered, []
        for each in denied[:_DENIALS_SHOWN]:
            what = one_line(each.question, _SHOWN_CHARACTERS).rstrip(".")
            mode = "auto" if classify(each.request).capability == "write" else "trust"
            way = f"Allow it with --mode {mode}, or run this in a terminal."
            if each.offers == ("once",) or each.request.startup_files:  # no mode allows it
                way = "It is asked about each time: run this in a terminal."
            text = f"denied, because nobody is there to ask: {what}. {way}"
            yield Line(mark="warning", text=text, rows=6)
        if len(denied) > _DENIALS_SHOWN:
            yield Line(mark="warning", text=f"and {count(len(denied) - _DENIALS_SHOWN, 'call')} more", rows=1)
        for each in unanswered[:_DENIALS_SHOWN]:
            text = f"not answered, because nobody is there to ask: {one_line(each, _SHOWN_CHARACTERS)}"
            way = "Run this in a terminal, or with --durable: then it waits for the answer."
            yield Line(mark="warning", text=f"{text} {way}", rows=6)
