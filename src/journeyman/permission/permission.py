"""A gate of rules: what an agent may do by itself, what somebody must approve, and what it must not do.

    Permission(mode="auto", roots=["project"], allow=["Bash(git *)"], deny=["Read(**/.env)"])

Each call is judged in this order, and the first check that has something to say decides: it changes a file that decides
about the agent itself, which is denied; a read-only folder; a deny rule; an internal folder of the program's own; plan
mode; an allow rule or an earlier approval; the mode. At last, a call that these checks do not deny is asked about if it
leads out of the roots, or if it might change what decides about the agent. Every decision goes to the audit, with its
reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.problems import explain_arguments, raise_problems
from journeyman.errors import DefinitionError, Problem, quoted, with_its_end
from journeyman.gate import ONCE, Allow, Approval, Ask, Decision, Deny, Extent, GateRequest, Rewrite, Stop, Use, Verdict
from journeyman.machine.files import NO_LINKS, is_inside
from journeyman.machine.startup_files import starts_by_itself
from journeyman.permission.approvals import Approvals
from journeyman.permission.borders import box_of, covers, folders_of_rules, paths_in, rules_beyond
from journeyman.permission.capability import Action, Capability, Classifier, classify
from journeyman.permission.programs import only_looks
from journeyman.permission.protected import Protected, is_loaded
from journeyman.permission.rules import Roots, Rules, Whereabouts, WorkingFolder, fold_path, plain_host, rule_problems
from journeyman.sandbox.box import Box, secrets_of_home
from journeyman.sandbox.needs import NEED_HINT, read_need, resolve_need
from journeyman.sandbox.sandbox import SandboxUnavailable
from journeyman.types import RunPath

_LOG: Final = logging.getLogger("journeyman")

PermissionMode: TypeAlias = Literal["strict", "balanced", "auto", "trust", "plan"]
"""What happens to a call that no rule covers; see `MODES`. `plan`: the agent may look, but change nothing."""

_Step: TypeAlias = Literal["allow", "ask", "deny"]

MODES: Final[dict[PermissionMode, dict[Capability, _Step]]] = {
    "strict": {"write": "ask", "exec": "deny", "network": "deny", "unknown": "deny"},
    "balanced": {"write": "ask", "exec": "ask", "network": "ask", "unknown": "ask"},
    "auto": {"write": "allow", "exec": "ask", "network": "ask", "unknown": "ask"},
    "trust": {"write": "allow", "exec": "allow", "network": "allow", "unknown": "allow"},
    "plan": {"write": "deny", "exec": "deny", "network": "allow", "unknown": "deny"},
}
"""What each mode does; reads inside of the roots and what is internal are allowed in every mode."""

_BOXED: Final[dict[PermissionMode, _Step | Literal["look"]]] = {
    "strict": "ask",
    "balanced": "look",
    "auto": "allow",
    "trust": "allow",
    "plan": "allow",
}
"""What each mode does with a command in a box that holds. `look`: it is allowed if it seems to change nothing."""

Decided: TypeAlias = Literal["allow", "deny", "rewrite", "stop", "unanswered"]
"""What was decided about a call. `unanswered`: nobody was there to be asked."""

Audit: TypeAlias = "Callable[[AuditEntry], None]"
"""Gets every decision. If it raises, the call is denied."""

_LOOKS: Final = ("read", "network")
_REMEMBERED_CALLS: Final = 4_096
_WIDER: Final[tuple[Extent, ...]] = ("once", "session", "always")


@lazy_dataclass(frozen=True)
class _Judgement:
    """The step that is taken about a call, with its reason, and how far a person may allow such calls."""

    step: _Step
    reason: str
    offers: tuple[Extent, ...] = ONCE


@explain_arguments
class Permission:
    """A gate of rules. It can serve many agents and runs, one after the other or at the same time.

    An approval for the session lasts as long as the `Approvals` of this gate.
    """

    def __init__(  # noqa: PLR0913 - one for each choice, all by name
        self,
        *,
        mode: PermissionMode = "balanced",
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        ask: Sequence[str] = (),
        roots: Sequence[str | Path | WorkingFolder] = (),
        internal: Sequence[str | Path | WorkingFolder] = (),
        approvals: Approvals | None = None,
        audit: str | Path | Audit | None = None,
        protected: Sequence[str | Path] = (),
        classify: Classifier = classify,
        in_plan: Sequence[str] = ("tool_search", "ask_user"),
        resolve: Callable[[str], str] = os.path.realpath,
    ) -> None:
        """Without `roots`, the agent may work in the current folder. Relative paths belong to the first root.

        `mode` says what happens to calls that no rule speaks of. `allow`, `deny` and `ask` are rules, such as
        `Bash(ls *)`; what is denied is never allowed, and what is to be asked about is allowed by a person only.
        `classify` says what a call would do.

        `internal` are folders of your program itself. `audit` is a file, or a function, that gets every decision.
        `protected` are files and folders that no tool may change; the files of the approvals, of the audit and of
        session stores are protected anyway. `in_plan` names the internal tools that plan mode allows. `resolve` follows
        links if the files are not on this machine.

        Raises:
            DefinitionError: a rule, the mode or a root is wrong; lists every problem.
        """
        rules = {"allow": allow, "deny": deny, "ask": ask}
        raise_problems("The permission", _wrong_rules(mode, rules, [*roots, *internal, *protected]))
        self.mode: PermissionMode = mode
        """What happens to calls that no rule covers. If you change it, the new mode holds from the next call on."""
        self.approvals: Final = approvals or Approvals()
        self._roots: Final = Roots(roots or [Path.cwd()], internal, resolve)
        self._rules: Final = Rules(allow, deny, ask, self._roots)
        for conflict in self._rules.conflicts():
            _LOG.warning("%s", conflict)
        self._has_told_of_words: bool = False
        """Whether it was said which rules no box can hold."""
        self._classify: Final = classify
        self._judged_paths: Final[dict[tuple[RunPath, str], tuple[str, ...]]] = {}
        """Where the paths of a call led when it was judged, for the latest calls."""
        self._in_plan: Final = frozenset(in_plan)
        audit_files = [audit] if isinstance(audit, str | Path) else []
        self._protected: Final = Protected([*protected, *self.approvals.files, *audit_files], self._roots)
        self._audit: Final = partial(append_to_log, audit) if isinstance(audit, str | Path) else audit

    async def decide(self, request: GateRequest) -> Verdict:
        """Judge one call.

        Raises:
            ApprovalsUnreadable: the stored approvals cannot be trusted; the call is denied.
        """
        action = self._action(request)
        stays = action.capability == "exec" and "outside" not in action.needs
        box = request.box if stays and isinstance(request.box, Box) else None
        if box is not None and not await asyncio.to_thread(self._is_held_by, box):
            box = None
        action = replace(action, in_box=box is not None)
        judgement = self._judge(request, action, box)
        self._note_paths(request, action)
        if judgement.step == "ask":
            return self._take_answer_or_ask(request, action, judgement)
        self._record(request, action, judgement.step, judgement.reason)
        return Allow() if judgement.step == "allow" else Deny(judgement.reason)

    def settle(self, approval: Approval, decision: Decision | None) -> Decision:
        """Take note of the answer to a question. A call that was offered only once is not approved for longer."""
        request, digest = approval.request, approval.request.digest
        action = self._action(request)
        if decision is None:
            reason = f"{approval.question} Nobody is there to approve it; it can be approved later, as {digest[:12]}."
            self._record(request, action, "unanswered", reason)
            return Deny(reason)
        narrowed = self._narrow_decision(approval, decision)
        self._record(request, action, _LABELS[type(narrowed)], _reason(narrowed, approval.rule))
        return narrowed

    def judges_startup_files(self) -> bool:
        """Tell whether it is asked about the startup files that a command has made: always."""
        return True

    def narrows_boxes(self) -> bool:
        """Tell whether commands run in a box in which nothing may be changed: in the mode `plan`."""
        return self.mode == "plan"

    def hides(self, path: str, *, call: tuple[RunPath, str], use: Use, base: str) -> bool:
        """Tell whether a call that was let through must not touch this file or folder, nor show its name.

        The call must not if a deny rule forbids it or the folder is read-only, nor outside of the roots, unless the
        call's paths led there when it was judged. In a workspace that is itself outside of the roots, only the rules
        count: its paths were never judged by where they are.
        """
        place = self._roots.place(path)
        if use == "write" and place in ("read_only", "internal_read_only"):
            return True
        judged = self._judged_paths.get(call)
        is_astray = place == "outside" and self._roots.place(base) != "outside"
        if is_astray and judged != () and not any(is_inside(path, each) for each in judged or ()):
            return True  # no paths: a tool of the program's own, which was judged by its name
        if use == "exec":
            return False
        touched = Action(tool="", capability=use, paths=(path,))
        was_asked = path in (judged or ())  # by its own name, so that somebody knew which file it is
        needs_asking = not was_asked and self._rules.asking(touched, ()) is not None
        return needs_asking or self._rules.denying(touched, ()) is not None

    def tool_problems(self, names: Collection[str]) -> Iterator[Problem]:
        """Give the deny and ask rules that are about no tool. `names` are those of all tools that there are."""
        for rule in self._rules.without_effect(names):
            wrong = f"The permission's rule {rule!r} matches no kind of calls and no tool of this agent."
            listed = ", ".join(sorted(names)[:_NAMES_SHOWN]) or "none"
            yield Problem("RULE_WITHOUT_EFFECT", wrong, f"Correct it, or take it out. The tools are: {listed}.")

    def _note_paths(self, request: GateRequest, action: Action) -> None:
        key = (request.path, request.tool_use_id)
        self._judged_paths.pop(key, None)
        with suppress(ValueError):  # what can be no path was denied
            self._judged_paths[key] = tuple([self._roots.locate(path) for path in action.paths])
        for oldest in list(self._judged_paths)[:-_REMEMBERED_CALLS]:
            del self._judged_paths[oldest]

    def _action(self, request: GateRequest) -> Action:
        action = self._classify(request)
        if request.startup_files:
            action = replace(
                action, capability="exec", needs=tuple([f"write:{each}" for each in request.startup_files])
            )
        names = request.server_names if action.tool == request.tool_name else ()
        work = request.box.work if request.box is not None else self._roots.folders[0][0]
        needs = tuple([resolve_need(need, work) for need in action.needs])
        return replace(action, digest=request.digest, server_names=names, needs=needs)

    def _borders(self) -> Box:
        """Return the box that the rules become: see `make_box`."""
        if not self._has_told_of_words:
            self._has_told_of_words = True
            for sentence in rules_beyond(self._rules):
                _LOG.warning("%s", sentence)
        paths = paths_in(folders_of_rules(self._rules, self._roots))
        return box_of(
            self._rules,
            self._roots,
            paths=paths,
            protected=self._protected.paths,
            hidden=secrets_of_home(),
            changes=self.mode != "plan",
        )

    def _is_held_by(self, box: Box) -> bool:
        """Tell whether a box holds what the rules say, so that a command in it need not be read."""
        with suppress(SandboxUnavailable, DefinitionError):  # of rules that no box can hold
            return covers(box, self._borders(), self._roots)
        return False

    def _judge(self, request: GateRequest, action: Action, box: Box | None = None) -> _Judgement:
        """Judge a call; of one with a box, its command runs in it, and it holds what the rules say."""
        try:
            places: list[list[Whereabouts]] = [
                [self._roots.place(self._roots.locate(path)) for path in each.paths] for each in action.readings()
            ]
        except ValueError as error:
            return _Judgement("deny", str(error))
        judged = partial(self._forbidden, request, in_box=box is not None)
        forbidden = next(filter(None, map(judged, action.readings(), places)), None)
        forbidden = forbidden or self._refusal_of_needs(request, action)
        if request.startup_files and self.mode in ("plan", "strict"):
            forbidden = forbidden or f"the mode is {self.mode}."
        if forbidden is not None:
            return _Judgement("deny", forbidden)
        is_own = bool(places[0]) and all(place.startswith("internal") for place in places[0])
        if is_own and action.capability in ("read", "write"):
            return _Judgement("allow", "in a folder of the program's own.")
        if box is not None or request.startup_files:
            return self._judge_needs(request, action) if box is None else self._judge_in_box(request, action, box)
        judgement = self._judge_by_reading(request, replace(action, needs=()), places)
        if not action.needs or judgement.step != "ask":
            return judgement
        return _Judgement("ask", f"{judgement.reason.removesuffix('.')}; {_tell_needs(request, action)}")

    def _judge_by_reading(
        self, request: GateRequest, action: Action, places: Sequence[Sequence[Whereabouts]]
    ) -> _Judgement:
        """Judge a call by what its arguments say that it does."""
        allowed = action.tool in self._in_plan if action.capability == "internal" else action.capability in _LOOKS
        if self.mode == "plan" and not allowed:
            return _Judgement("deny", "this is a plan: look, and describe what you would do, but change nothing.")
        judgement = self._by_ask_rule(request, action) or self._by_rule_or_mode(action)
        is_outside = any("outside" in each for each in places)
        why = (
            self._reason_to_ask_each_time(request, action, is_outside=is_outside) if judgement.step != "deny" else None
        )
        return judgement if why is None else _Judgement("ask", why)

    def _judge_in_box(self, request: GateRequest, action: Action, box: Box) -> _Judgement:
        """Judge a command by what it can do in a box: whatever it looks like, it can do nothing else."""
        is_wider = bool(action.needs) or (self.mode == "plan" and bool(box.changes or box.writes or box.hosts))
        if is_wider and self.mode in ("plan", "strict"):
            return _Judgement("deny", f"the mode is {self.mode}, and the command could do more than look at files.")
        plain = replace(action, needs=())
        asked = self._by_ask_rule(request, plain)
        if asked is not None and (asked.step == "ask" or not action.needs):
            return _Judgement("ask", asked.reason) if action.needs else asked
        doubt = self._rules.doubting(plain, in_box=True) if action.needs else None
        if doubt is not None:  # what it is given may be what the rule is held by in the box
            return _Judgement("ask", f"{doubt}; {_tell_needs(request, action)}")
        if action.needs and self.mode != "trust":
            return self._judge_needs(request, action)
        return self._judge_boxed_by_mode(action)

    def _judge_boxed_by_mode(self, action: Action) -> _Judgement:
        rule = self._rules.allowing(action)
        if rule is not None:
            return _Judgement("allow", f"the rule {rule} allows it.")
        step = _BOXED[self.mode]
        if step == "look":
            step = "allow" if only_looks(action.command or "") else "ask"
        if step == "ask" and self._is_approved(action):
            return _Judgement("allow", "approved before.")
        return _Judgement(step, f"it stays in its box, and the mode is {self.mode}.", _WIDER)

    def _judge_needs(self, request: GateRequest, action: Action) -> _Judgement:
        """Judge what a command asks for beyond its box. An answer holds for what it needs, whatever the command is."""
        open_needs = [each for each in action.needs if not any(map(self._rules.allowing, _list_touched(each) or ()))]
        granted = all(self.approvals.allows(_key_of_need(each)) for each in open_needs)
        if granted:
            return _Judgement("allow", "what it needs beyond its box was allowed before.")
        return _Judgement("ask", _tell_needs(request, action), _WIDER)

    def _refusal_of_needs(self, request: GateRequest, action: Action) -> str | None:
        """Return why nobody may give a command what it asks for; None if somebody may."""
        for need in action.needs:
            touched = _list_touched(need)
            if touched is None:
                return f"{need!r} is no need. {NEED_HINT}"
            if need == "outside" and self.mode in ("plan", "strict"):
                return f"the mode is {self.mode}, in which no command leaves its box."
            for each in touched:
                try:
                    places: list[Whereabouts] = [self._roots.place(self._roots.locate(path)) for path in each.paths]
                except ValueError as error:
                    return str(error)
                if (why := self._forbidden(request, each, places)) is not None:
                    return why
        return None

    def _forbidden(
        self, request: GateRequest, action: Action, places: Sequence[Whereabouts], *, in_box: bool = False
    ) -> str | None:
        """Return why nobody may allow this call; None if somebody may."""
        changes = action.capability in ("write", "unknown")
        if changes and any(self._protected.holds(self._roots.locate(path)) for path in action.paths):
            return f"{_summary(action, request)}: this decides about the agent itself, and no tool may change it."
        if changes and any(place in ("read_only", "internal_read_only") for place in places):
            return f"{_summary(action, request)}: the folder is read-only."
        rule = self._rules.denying(action, _names_for_rules(request, action), in_box=in_box)
        return None if rule is None else f"the rule {rule} forbids it."

    def _reason_to_ask_each_time(self, request: GateRequest, action: Action, *, is_outside: bool) -> str | None:
        """Return why each single call is asked about, whatever allows it; None if there is no such reason."""
        if is_outside:
            return f"it is outside of {', '.join(folder for folder, _ in self._roots.folders)}."
        for each in action.readings():
            if each.command is not None:
                why = self._protected.named_by(each.command, each.paths[0] if each.paths else ".")
                if why is not None:
                    return why
        if action.capability == "unknown" and self._protected.named_in(request.arguments):
            return "it names a file that decides about the agent itself."
        if self.mode == "auto" and action.capability == "write" and self._rules.allowing(action) is None:
            located = [self._roots.locate(path) for path in action.paths]
            below = [fold_path(self._roots.below(path)) for path in located]
            if any(map(starts_by_itself, below)) or any(map(is_loaded, located)):
                return "it changes what this program, a shell or another tool runs by itself."
        return None

    def _by_ask_rule(self, request: GateRequest, action: Action) -> _Judgement | None:
        asking = [self._rules.asking(each, _names_for_rules(request, each)) for each in action.readings()]
        rule = next(filter(None, asking), None)
        if rule is None:
            return None
        if self.mode != "plan" and self._is_approved(action):
            return _Judgement("allow", "approved before.")
        return _Judgement("ask", f"the rule {rule} asks about it.", _WIDER)

    def _by_rule_or_mode(self, action: Action) -> _Judgement:
        rule = self._rules.allowing(action)
        doubt = next(filter(None, map(self._rules.doubting, action.readings())), None)
        if doubt is not None and self.mode != "plan" and self._is_approved(action):
            return _Judgement("allow", "approved before.")
        if doubt is not None and (rule is not None or MODES[self.mode].get(action.capability, "allow") == "allow"):
            return _Judgement("ask", f"{doubt}.", _WIDER)
        if rule is not None:
            return _Judgement("allow", f"the rule {rule} allows it.")
        step = MODES[self.mode].get(action.capability, "allow")
        if self.mode != "plan" and step != "allow" and self._is_approved(action):
            return _Judgement("allow", "approved before.")
        return _Judgement(step, f"the mode is {self.mode}, and no rule allows it.", _WIDER)

    def _take_answer_or_ask(self, request: GateRequest, action: Action, judgement: _Judgement) -> Verdict:
        """Give the answer that waits for exactly this call; else ask."""
        digest = request.digest
        answer = self.approvals.take(digest)
        question = f"{_summary(action, request, _LONGEST_QUESTION)}: {judgement.reason}"
        if answer is None:
            rule = "" if judgement.offers == ONCE else self._rule(action)
            asked = Ask(question, judgement.offers, rule)
            approval = Approval(request=request, question=question, question_id=digest, offers=asked.offers, rule=rule)
            # Each need by itself, for other commands that need one of them.
            grants = {_key_of_need(each): _rule_of_needs([each]) for each in action.needs}
            self.approvals.ask(approval, self.key(action), grants)
            return asked
        answer = self._within_rules(request, answer)
        self._record(request, action, _LABELS[type(answer)], _reason(answer))
        return answer

    def _narrow_decision(self, approval: Approval, decision: Decision) -> Decision:
        asked = self.approvals.close(approval.question_id)
        if isinstance(decision, Allow | Rewrite) and asked is None:
            return Deny("the approval came too late. Ask for it again.")
        if isinstance(decision, Allow) and decision.extent != "once" and asked is not None:
            if decision.extent in approval.offers:
                for key, rule in asked.list_grants().items():
                    self.approvals.grant(key, decision.extent, rule)
            else:
                decision = Allow()
        return self._within_rules(approval.request, decision)

    def _within_rules(self, request: GateRequest, decision: Decision) -> Decision:
        """Deny other arguments that must not be, whoever chose them."""
        if not isinstance(decision, Rewrite):
            return decision
        rewritten = replace(request, arguments=decision.arguments)
        judgement = self._judge(rewritten, self._action(rewritten))
        return Deny(judgement.reason) if judgement.step == "deny" else decision

    def key(self, action: Action) -> str:
        """Return what an approval for longer than one call is bound to: paths, a command, a host or arguments."""
        match action.capability:
            case "read" | "write" if action.paths:
                return f"{action.capability}:{self._where(action)}"
            case "exec" if action.needs:
                return _key_of_need(", ".join(sorted({*action.needs})))
            case "exec" if action.command is not None:
                kind = "boxed" if action.in_box else "exec"
                return f"{kind}:{_hash(self._where(action), action.command)}"
            case "network" if action.url is not None and plain_host(action.url) is not None:
                return f"network:{plain_host(action.url)}"
            case "network" if action.url is not None:
                return f"network:{_hash(action.url)}"
            case _:
                return f"tool:{action.tool}:{action.digest}"

    def _is_approved(self, action: Action) -> bool:
        """Tell whether such calls were approved. What was approved in a box may not leave it; what was approved without
        one may also run in one."""
        return self.approvals.allows(self.key(action)) or (
            action.in_box and self.approvals.allows(self.key(replace(action, in_box=False)))
        )

    def _where(self, action: Action) -> str:
        """Return the paths of an action: one as it is, several as a list, which no path looks like."""
        places = [self._roots.locate(path) for path in action.paths]
        return places[0] if len(places) == 1 else json.dumps(places)

    def _rule(self, action: Action) -> str:
        """Say what the key of an action allows, in the words of rules where there are such."""
        places = [self._roots.locate(path) for path in action.paths]
        match action.capability:
            case "read" | "write" if places:
                kind = "Read" if action.capability == "read" else "Edit"
                return f"{kind}({quoted(', '.join(places))[1:-1]})"
            case "exec" if action.needs:
                return _rule_of_needs(action.needs)
            case "exec" if action.command is not None:
                shown = with_its_end(quoted(action.command)[1:-1], _LONGEST_QUESTION)
                folder = quoted(", ".join(places) or self._roots.folders[0][0])[1:-1]
                return f"Bash({shown}), exactly so, in {folder}{' and in its box' if action.in_box else ''}"
            case "network" if action.url is not None and (host := plain_host(action.url)) is not None:
                return f"WebFetch({host}), whatever is fetched from there or sent there"
            case "network" if action.url is not None:
                return f"{action.tool} of exactly this address"
            case _:
                return f"{action.tool} with exactly these arguments"

    def _record(self, request: GateRequest, action: Action, decision: Decided, reason: str) -> None:
        if self._audit is not None:
            entry = AuditEntry(
                time=time.time(),
                mode=self.mode,
                path=request.path,
                tool=request.tool_name,
                capability=action.capability,
                summary=_summary(action, request),
                digest=request.digest,
                decision=decision,
                reason=reason,
                box=request.box.sandbox if request.box is not None and "outside" not in action.needs else None,
            )
            self._audit(entry)


def make_box(permission: Permission) -> Box:
    """Return the box that the rules of a permission become, for the files that are there now: what a sandbox lets
    commands do. In the mode `plan` nothing may be changed in it.

    Raises:
        SandboxUnavailable: there are rules about paths, and more files than can be looked at.
    """
    return permission._borders()  # pyright: ignore[reportPrivateUsage] - of one module


def rules_beyond_box(permission: Permission) -> Iterator[str]:
    """Give for each deny rule that no kernel can hold a sentence that says what holds instead. They are also logged,
    when a box of the permission is made first."""
    return rules_beyond(permission._rules)  # pyright: ignore[reportPrivateUsage] - of one module


def _list_touched(need: str) -> Sequence[Action] | None:
    """Return what a command that is given a need might do, as rules know it; None if it is no need."""
    match read_need(need):
        case ("host", host):
            return [Action(tool="", capability="network", url=f"https://{host}/")]
        case ("write", path):
            return [Action(tool="", capability="write", paths=(path,))]
        case ("read", path):
            return [Action(tool="", capability="read", paths=(path,))]
        case ("socket" | "outside", _):
            return []
        case _:
            return None


def _tell_needs(request: GateRequest, action: Action) -> str:
    if request.startup_files:
        made = quoted(", ".join(request.startup_files))[1:-1]
        return (
            f"it has made {made}, which programs run by themselves, so it was put aside. Is it to have its name back?"
        )
    why = str(request.arguments.get("why") or "").strip()
    said = f" It says why: {with_its_end(quoted(why), _LONGEST_SUMMARY)}." if why else ""
    return f"it asks for {quoted(', '.join(action.needs))[1:-1]}, which is beyond its box.{said}"


def _rule_of_needs(needs: Sequence[str]) -> str:
    return f"any command in its box with {quoted(', '.join(needs))[1:-1]}"


def _key_of_need(need: str) -> str:
    return f"needs:{need}"


_LABELS: Final[dict[type, Decided]] = {Allow: "allow", Deny: "deny", Rewrite: "rewrite", Stop: "stop"}

_LONGEST_SUMMARY: Final = 200
_NAMES_SHOWN: Final = 40
_LONGEST_QUESTION: Final = 2_000


def _names_for_rules(request: GateRequest, action: Action) -> list[str]:
    """Return every name by which a rule may forbid a call."""
    ready = [] if request.permission_kind is None else [request.permission_kind]
    return [request.tool_name, action.tool, *ready, *request.server_names]


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _reason(decision: Decision, rule: str = "") -> str:
    if not isinstance(decision, Allow):
        return decision.reason
    return f"approved: {decision.extent}." if decision.extent == "once" else f"approved: {decision.extent}: {rule}."


def _summary(action: Action, request: GateRequest, longest: int = _LONGEST_SUMMARY) -> str:
    """Say what a call would do, on one line. What looks like something else is written out."""
    named = action.command or action.url or ", ".join(action.paths) or ", ".join(action.agents)
    about = quoted(named or json.dumps(request.arguments, ensure_ascii=False))
    return f"{request.tool_name} {with_its_end(about, longest)}"


def _wrong_rules(
    mode: str, rules: Mapping[str, Sequence[str]], roots: Sequence[str | Path | WorkingFolder]
) -> Iterator[Problem]:
    if mode not in get_args(PermissionMode):
        yield Problem("INVALID_MODE", f"The mode is {mode!r}.", f"Use one of {', '.join(get_args(PermissionMode))}.")
    for where, listed in rules.items():
        if isinstance(listed, str):
            yield Problem("INVALID_RULE", f"{where} is the text {listed!r}.", "Pass a list of rules.")
            continue
        for rule in listed:
            yield from rule_problems(rule, where=where)
    for given in roots:
        path = given.path if isinstance(given, WorkingFolder) else given
        if not str(path).strip() or "\0" in str(path):
            yield Problem("INVALID_ROOT", f"The root {str(path)!r} is not a path.", "Name a folder.")


@lazy_dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """One decision about one call: one line of the log."""

    time: float
    """Seconds since 1970."""
    mode: str
    """The mode of the permission."""
    path: RunPath
    """The path of the run that wanted the call."""
    tool: str
    """The name of the tool."""
    capability: Capability
    """What kind of thing the call would have done."""
    summary: str
    """What the call would have done, in at most 200 characters."""
    digest: str
    """The digest of tool and arguments."""
    decision: Decided
    """What was decided."""
    reason: str
    """Why, in words."""
    box: str | None = None
    """The name of the sandbox in whose box the command stays; None: it runs in none."""


def append_to_log(path: str | Path, entry: AuditEntry) -> None:
    """Append the entry to a file with one JSON line for each decision, readable by its owner only.

    Raises:
        OSError: it cannot be written. The call is then denied.
    """
    line = f"{json.dumps(asdict(entry))}\n".encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_LINKS, 0o600)
    try:
        if os.write(file, line) != len(line):
            raise OSError(f"the audit log {path} took only a part of an entry")
    finally:
        os.close(file)
