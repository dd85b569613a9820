"""The ways to hand in an output: an output tool, after reflection and submit, or the text of the last message.

After every iteration the loop asks one of these whether there is a candidate now, whether the run must end, or whether
to continue.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from journeyman.agent import Agent
from journeyman.cancellation import is_awaited, is_failure, log_caught
from journeyman.definition.data import lazy_dataclass
from journeyman.endings import ErrorInfo, InvalidResponseContext, RefusedContext, StopGuardContext, SubmitContext
from journeyman.errors import InvalidArguments, Rejected, name_and_words
from journeyman.history import turn_text
from journeyman.journal import END, Journal, TypedCodec
from journeyman.loop.calls import finish
from journeyman.loop.replay import decide_once
from journeyman.loop.request import explain_cut
from journeyman.loop.state import (
    Call,
    Candidate,
    HandIn,
    HandInTool,
    Iterated,
    Outcome,
    Run,
    call_with_deps,
    run_context,
)
from journeyman.loop.validation import SCHEMA_LAYER, ValidatorBroken, broken_code
from journeyman.model import facts_of
from journeyman.output.output import ContinueRun, FailRun, OutputMode, Reflection, StopAfter, StopContext
from journeyman.output.plan import OutputMember, OutputPlan
from journeyman.step import RunStep, iteration_key
from journeyman.tools.collection import do_aside
from journeyman.tools.prose import find_object
from journeyman.tools.results import error_result, to_result
from journeyman.tools.written import quoting
from journeyman.types import Text, ToolResult, ToolUse

_PREVIEW: Final = TypedCodec[ToolResult](ToolResult)
_GUARDED: Final = TypedCodec[ContinueRun | FailRun | None](ContinueRun | FailRun | None)
_ENDING_RESULT: Final = TypedCodec[str | None](str | None)
_NO_PREVIEW: Final = "No preview can be made; submit or revise."
# The last one counts, and each of the others still needs a result, or no provider takes the next request.
SUPERSEDED = "Error: superseded by a later call in the same response."


def hand_in_of(agent: Agent[Any, Any, Any], mode: OutputMode | None = None) -> HandIn:
    """Return the way in which `agent` hands in its output; `mode` is the one that was chosen for the model."""
    outputs = agent.plan.outputs
    chosen = mode or outputs.mode
    if chosen in ("tool", "auto"):
        return ToolHandIn(outputs, max_chars=agent.limits.result_chars)
    if chosen is None:
        return TextHandIn(agent.stop_after)
    member = outputs.member
    return TextHandIn(None, mode=chosen, member=member.in_words() if chosen == "prompted" else member)


@lazy_dataclass(frozen=True)
class _Draft:
    raw: str
    member: OutputMember
    reflection: Reflection[Any, Any]
    clean: bool
    """True when its reflection gave the model something to look at."""


class ToolHandIn:
    """The way with tools: the last call of a response is handed in. An output with a reflection is a draft that the
    model sees again, and submit hands in the last one."""

    def __init__(self, outputs: OutputPlan, *, max_chars: int | None) -> None:
        self.mode: Final[OutputMode | None] = "tool"
        handles = [
            (each.name, self._propose if each.reflection is None else partial(self._reflect, each, each.reflection))
            for each in outputs.members.values()
        ]
        tools = {name: HandInTool("output", handle) for name, handle in handles}
        finals = [each.name for each in outputs.members.values() if each.reflection is None]
        if outputs.submit is not None:
            tools[outputs.submit.name] = HandInTool("submit", self._withhold)
            finals.append(outputs.submit.name)
        self.tools: Mapping[str, HandInTool] = tools
        self.last_raw: str | None = None
        self._outputs = outputs
        self._terminator = "' or '".join(finals)
        self._reminder = any(each.output.reminder for each in outputs.members.values())
        self._max_chars = max_chars
        self._draft: _Draft | None = None
        self._fresh = False
        self._broken: ValidatorBroken | None = None
        """Why no draft can be checked."""

    @property
    def has_draft(self) -> bool:
        return self._draft is not None

    def begin_attempt(self) -> None:
        self._draft, self._fresh = None, False

    async def _propose(self, use: ToolUse) -> None:
        self.last_raw = _raw(use)

    async def _withhold(self, use: ToolUse) -> None:
        return

    async def _reflect(self, member: OutputMember, reflection: Reflection[Any, Any], use: ToolUse) -> ToolResult:
        """Keep the draft, and show it to the model."""
        # Before it is checked: an output that does not fit is still the last one, and submit sends it through the whole
        # validation.
        self.last_raw = _raw(use)
        draft = _Draft(self.last_raw, member, reflection, clean=False)
        result = await self._show_draft(use, draft)
        self._draft, self._fresh = replace(draft, clean=not result.is_error), True
        return result

    async def _show_draft(self, use: ToolUse, proposed: _Draft) -> ToolResult:
        run, schema = cast("Run", run_context.get().run), proposed.member.schema  # whose call it is
        try:
            draft = await do_aside(proposed.raw, schema.parse)
        except InvalidArguments as invalid:
            self._broken = broken_code(run, SCHEMA_LAYER, invalid.__cause__)
            refused = error_result(invalid)
            told = quoting(refused.text, use.malformed, may_be_quoted=schema.may_be_quoted)
            return replace(refused, content=told)

        async def preview(_: Run) -> ToolResult:
            try:
                shown = call_with_deps(run, proposed.reflection.handler, draft)
                return to_result(await shown if is_awaited(shown) else shown, max_chars=self._max_chars)
            except BaseException as error:
                if not is_failure(error):
                    raise
                told = error_result(error)
                if isinstance(error, Rejected):
                    return told
                log_caught("The reflection", error, level=logging.ERROR)
                return replace(told, content=f"{told.text}\n{_NO_PREVIEW}")

        step = run.attempt.step("preview", f"preview/{use.id}", call=use.id)
        return await decide_once(run, step, preview, codec=_PREVIEW)

    async def look(self, run: Run, iterated: Iterated) -> Candidate | ErrorInfo | None:
        fresh, self._fresh = self._fresh, False
        if self._broken is not None:
            return self._broken.ending(run)
        if not iterated.calls:
            return await self._without_calls(run, iterated)
        withheld = [call for call in iterated.calls if call.outcome is None]
        if not withheld:
            return None
        # A model that calls twice corrects itself: the last call is what it means.
        *earlier, call = withheld
        for each in earlier:
            await finish(run, each.use, Outcome.failure("rejected", SUPERSEDED))
        if (member := self._outputs.members.get(call.use.name)) is not None:
            return Candidate(_raw(call.use), call.use, member=member)
        return await self._submit(run, call, fresh=fresh)

    async def _submit(self, run: Run, call: Call, *, fresh: bool) -> Candidate | ErrorInfo | None:
        draft = self._draft
        refusal = _refusal(draft, self._drafts(), fresh=fresh)
        if draft is not None and refusal is None:
            return Candidate(draft.raw, call.use, member=draft.member)
        reflections = [each.reflection for each in self._outputs.members.values() if each.reflection is not None]
        if draft is None and any(each.early_submit == "fail" for each in reflections):
            return run.ending(SubmitContext(output_tool=self._drafts(), submit_tool=call.use.name))
        await finish(run, call.use, Outcome.failure("rejected", f"Error: {refusal}"))
        return None

    def _drafts(self) -> str:
        """Return the names of the tools that propose a draft."""
        return "' or '".join([each.name for each in self._outputs.members.values() if each.reflection is not None])

    async def _without_calls(self, run: Run, iterated: Iterated) -> Candidate | ErrorInfo | None:
        is_natural = iterated.response.stop_reason in ("end_turn", "stop_sequence")
        text = turn_text(run.history.messages) if self._outputs.takes_text and is_natural else ""
        if iterated.said is None or not text.strip():
            return await _without_calls(
                run, iterated, self._terminator, reminder=self._reminder, has_draft=self.has_draft
            )
        if await _is_said_more(run):
            return None
        self.last_raw = text
        return Candidate(text)


def _refusal(draft: _Draft | None, proposing: str, *, fresh: bool) -> str | None:
    """Return the reason why the draft may not be submitted now; None if it may."""
    if draft is None:
        return f"nothing to submit yet. Propose the output with '{proposing}' first."
    if draft.reflection.submit_alone and fresh:
        return "look at your draft first; submit it in a later response."
    if draft.reflection.require_clean and not draft.clean:
        return f"the last draft was not accepted. Propose another with '{proposing}'."
    return None


def _raw(use: ToolUse) -> str:
    return use.input_json if use.malformed is None else use.malformed


class TextHandIn:
    """The way without an output tool: the text with which the model ends its turn is handed in; of a native output, the
    last of its texts."""

    has_draft = False
    tools: Mapping[str, HandInTool] = {}

    def __init__(
        self, stop_after: StopAfter | None, *, mode: OutputMode | None = None, member: OutputMember | None = None
    ) -> None:
        self.mode: Final = mode
        self.last_raw: str | None = None
        self._member = member
        rules = (stop_after,) if callable(stop_after) else stop_after or ()
        self._names = frozenset([rule for rule in rules if isinstance(rule, str)])
        self._rules = [rule for rule in rules if not isinstance(rule, str)]

    def begin_attempt(self) -> None:
        return

    async def look(self, run: Run, iterated: Iterated) -> Candidate | ErrorInfo | None:
        if iterated.calls:
            step, work = run.attempt.step("guard", "stop_after/guard"), partial(self._ending_result, iterated.calls)
            decides = partial(decide_once, run, step, lambda _: work(), codec=_ENDING_RESULT)
            terminal = await (decides() if self._rules else work())
            if terminal is None:
                return None
            text = turn_text(run.history.messages)
            return await self._ask_stop_guard(run, Candidate(text or terminal, terminal_result=terminal))
        if iterated.response.stop_reason not in ("end_turn", "stop_sequence"):
            return await _without_calls(run, iterated, None, reminder=False, has_draft=False)
        text = turn_text(run.history.messages)
        if self.mode is not None and iterated.said is not None and not iterated.said.continues:
            said = [block.text for block in iterated.said.content if isinstance(block, Text) and block.text.strip()]
            text = said[-1] if said else ""
            if self.mode == "prompted":
                with suppress(ValueError):  # the schema's layer tells what is wrong with it
                    text = find_object(text)
        if iterated.said is None or not text.strip():
            return _invalid(run, iterated, None, has_draft=False)
        return (
            None if await _is_said_more(run) else await self._ask_stop_guard(run, Candidate(text, member=self._member))
        )

    async def _ending_result(self, calls: Sequence[Call]) -> str | None:
        """Return the result of the first call that ends the run."""
        for call in calls:
            if call.outcome is not None and call.outcome.error is None:
                result = call.outcome.result
                if call.use.name in self._names or await self._stops(call.use.name, result):
                    return result.text
        return None

    async def _stops(self, name: str, result: ToolResult) -> bool:
        for rule in self._rules:
            verdict = rule(name, result)
            if await verdict if is_awaited(verdict) else verdict:
                return True
        return False

    async def _ask_stop_guard(self, run: Run, candidate: Candidate) -> Candidate | ErrorInfo | None:
        self.last_raw = candidate.raw
        inbox, guard = run.options.inbox, run.prepared.stop_guard
        if guard is None:
            return candidate
        trigger = "answer" if candidate.terminal_result is None else "stop_after"
        stopping = StopContext(
            text=candidate.raw,
            attempt=run.attempt.number,
            iteration=run.attempt.iteration,
            trigger=trigger,
            path=run.path,
            agent=run.agent.name,
            task=run.task,
        )

        async def ask_guard(_: Run) -> ContinueRun | FailRun | None:
            if inbox is not None and not inbox.is_empty and candidate.terminal_result is None:
                return None  # no stop at all: the chat goes on with what its user wrote
            try:
                given: object = call_with_deps(run, guard, stopping)
                verdict = await given if is_awaited(given) else given
            except BaseException as error:
                if not is_failure(error):
                    raise
                log_caught("The stop guard, which ends the run,", error, level=logging.ERROR)
                return FailRun(name_and_words(error))
            return verdict if isinstance(verdict, ContinueRun | FailRun) else None

        match await decide_once(run, run.attempt.step("guard", "guard"), ask_guard, codec=_GUARDED):
            case ContinueRun(text) if text.strip():
                run.history.say(Text(text))
                return None
            case FailRun(reason):
                return run.ending(StopGuardContext(reason=reason))
            case _:
                return candidate


async def _is_said_more(run: Run) -> bool:
    """Tell whether the run goes on, although it has its answer, with what was said meanwhile, or is still to come; in a
    run that replays, whether it did so then."""
    options, attempt = run.options, run.attempt
    # No iteration is left in which the model could read more.
    if options.more is None or attempt.iteration >= run.agent.limits.iterations:
        return False
    if (journal := run.options.kept_journal) is not None and (known := _was_said_more(run, journal)) is not None:
        return known
    # A chat's user may think for hours: that time is not the run's.
    async with run.scope.pause_deadlines():
        return await options.more()


def _was_said_more(run: Run, journal: Journal) -> bool | None:
    """Tell whether the run went on with what was said, in an earlier life; None if none has come so far. It stores what
    it goes on with, and asks the guard and the validators only where nothing was said."""
    attempt = run.attempt
    if journal.reserve(run.attempt.step("guard", "guard"), effect="pure").is_known:
        return False
    if journal.reserve(run.attempt.next_said(), effect="pure").is_known:
        return True
    if journal.reserve(RunStep(key=END, kind="end"), effect="pure").is_known:
        return False
    after = (iteration_key(attempt.number, attempt.iteration + 1, ""), f"attempt/{attempt.number}/verdict/")
    return False if any(True for each in after for _ in journal.stored(each)) else None


async def _without_calls(
    run: Run, iterated: Iterated, expected: str | None, *, reminder: bool, has_draft: bool
) -> ErrorInfo | None:
    """Return the end of the run to which a response leads that asks for no call; None to go on."""
    is_natural = iterated.response.stop_reason in ("end_turn", "stop_sequence")
    is_said_more = is_natural and expected is not None and await _is_said_more(run)
    match iterated.response.stop_reason:
        # Nothing is said to it: the API takes the same messages again and goes on in the same turn.
        case "pause_turn":
            return None
        case "max_tokens" | "context_window":
            return run.ending(explain_cut(run, iterated.response))
        case "refusal":
            text = iterated.said.text if iterated.said else ""
            return run.ending(RefusedContext(refusal=iterated.response.stop_detail, text=text))
        case "end_turn" | "stop_sequence" if reminder:
            run.history.say(Text(f"Nothing was handed in yet. Go on, and hand in the result with '{expected}'."))
            return None
        case _ if is_said_more:
            return None
        case _:
            return _invalid(run, iterated, expected, has_draft=has_draft)


def _invalid(run: Run, iterated: Iterated, expected: str | None, *, has_draft: bool) -> ErrorInfo:
    context = InvalidResponseContext(
        stop_reason=iterated.response.stop_reason,
        stop_detail=iterated.response.stop_detail,
        expected_tool=expected,
        has_draft=has_draft,
        shown_no_tools=expected is not None and facts_of(run.prepared.model).sees_tools is False,
    )
    return run.ending(context)
