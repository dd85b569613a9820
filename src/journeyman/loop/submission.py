"""The ways to hand in an output: the output tool, after reflection and submit, or the text of the last message.

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
from journeyman.cancellation import is_awaited, is_failure
from journeyman.data import lazy_dataclass
from journeyman.endings import ErrorInfo, InvalidResponseContext, RefusedContext, StopGuardContext, SubmitContext
from journeyman.errors import InvalidArguments, Rejected, log_caught, name_and_words
from journeyman.journal import Journal, TypedCodec
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
    current_run,
)
from journeyman.loop.validation import SCHEMA_LAYER, ValidatorBroken, broken_code
from journeyman.model import facts_of
from journeyman.output import ContinueRun, FailRun, Reflection, StopAfter, StopContext
from journeyman.tools.prose import find_object
from journeyman.tools.results import error_result, to_result
from journeyman.tools.schema import OutputSchema
from journeyman.tools.written import quoting
from journeyman.types import Message, Text, ToolResult, ToolUse

_PREVIEW: Final = TypedCodec[ToolResult](ToolResult)
_GUARDED: Final = TypedCodec[ContinueRun | FailRun | None](ContinueRun | FailRun | None)
_ENDING_RESULT: Final = TypedCodec[str | None](str | None)
_NO_PREVIEW: Final = "No preview can be made; submit or revise."
# The last one counts, and each of the others still needs a result, or no provider takes the next request.
SUPERSEDED = "Error: superseded by a later call in the same response."


def hand_in_of(agent: Agent[Any, Any, Any]) -> HandIn:
    """Return the way in which `agent` hands in its output."""
    plan = agent.plan
    if plan.output is None or plan.output_name is None:
        return TextHandIn(agent.stop_after, is_native=plan.native is not None or plan.prompted is not None)
    if plan.reflection is None:
        return OutputHandIn(plan.output_name, agent.output.reminder)
    return SubmitHandIn(plan.output_name, plan.reflection, plan.output, agent)


# -- typed outputs ----------------------------------------------------------------------------------------------------


class OutputHandIn:
    """The way without reflection: the last output call of a response is handed in."""

    has_draft = False

    def __init__(self, output_name: str, reminder: bool) -> None:
        self.tools: Mapping[str, HandInTool] = {output_name: HandInTool("output", self._propose)}
        self.last_raw: str | None = None
        self._terminator = output_name
        self._reminder = reminder

    def begin_attempt(self) -> None:
        return

    async def _propose(self, use: ToolUse) -> None:
        self.last_raw = _raw(use)

    async def look(self, run: Run, iterated: Iterated) -> Candidate | ErrorInfo | None:
        if not iterated.calls:
            return await _without_calls(run, iterated, self._terminator, reminder=self._reminder, has_draft=False)
        withheld = [call for call in iterated.calls if call.outcome is None]
        if not withheld:
            return None
        call = await _last(run, withheld)
        return Candidate(_raw(call.use), call.use)


@lazy_dataclass(frozen=True)
class _Draft:
    raw: str
    clean: bool
    """True when its reflection gave the model something to look at."""


class SubmitHandIn:
    """The way with reflection: outputs are drafts that the model sees again; submit hands in the last one."""

    def __init__(
        self, output_name: str, reflection: Reflection[Any], schema: OutputSchema[Any], agent: Agent[Any, Any, Any]
    ) -> None:
        self.tools: Mapping[str, HandInTool] = {
            output_name: HandInTool("output", self._reflect),
            reflection.submit.name: HandInTool("submit", self._withhold),
        }
        self.last_raw: str | None = None
        self._output_name = output_name
        self._submit_name = reflection.submit.name
        self._reflection = reflection
        self._schema = schema
        self._reminder = agent.output.reminder
        self._max_chars = agent.limits.result_chars
        self._draft: _Draft | None = None
        self._fresh = False
        self._broken: ValidatorBroken | None = None
        """Why no draft can be checked."""

    @property
    def has_draft(self) -> bool:
        return self._draft is not None

    def begin_attempt(self) -> None:
        self._draft, self._fresh = None, False

    async def _withhold(self, use: ToolUse) -> None:
        return

    async def _reflect(self, use: ToolUse) -> ToolResult:
        """Keep the draft, and show it to the model."""
        # Before it is checked: an output that does not fit is still the last one, and submit sends it through the whole
        # validation.
        self.last_raw = _raw(use)
        result = await self._show_draft(use.id, self.last_raw, use.malformed)
        self._draft, self._fresh = _Draft(self.last_raw, clean=not result.is_error), True
        return result

    async def _show_draft(self, id: str, raw: str, malformed: str | None) -> ToolResult:
        run = cast("Run", current_run.get())  # whose call it is
        try:
            draft = self._schema.parse(raw)
        except InvalidArguments as invalid:
            self._broken = broken_code(run, SCHEMA_LAYER, invalid.__cause__)
            refused = error_result(invalid)
            told = quoting(refused.text, malformed, may_be_quoted=self._schema.may_be_quoted)
            return replace(refused, content=told)

        async def preview(_: Run) -> ToolResult:
            try:
                shown = call_with_deps(run, self._reflection.handler, draft)
                return to_result(await shown if is_awaited(shown) else shown, max_chars=self._max_chars)
            except BaseException as error:
                if not is_failure(error):
                    raise
                told = error_result(error)
                if isinstance(error, Rejected):
                    return told
                log_caught("The reflection", error, level=logging.ERROR)
                return replace(told, content=f"{told.text}\n{_NO_PREVIEW}")

        return await decide_once(run, run.key(f"preview/{id}"), preview, kind="preview", codec=_PREVIEW)

    async def look(self, run: Run, iterated: Iterated) -> Candidate | ErrorInfo | None:
        fresh, self._fresh = self._fresh, False
        if self._broken is not None:
            return self._broken.ending(run)
        if not iterated.calls:
            return await _without_calls(
                run, iterated, self._submit_name, reminder=self._reminder, has_draft=self.has_draft
            )
        withheld = [call for call in iterated.calls if call.outcome is None]
        if not withheld:
            return None
        call = await _last(run, withheld)
        draft = self._draft
        refusal = self._refusal(draft, fresh=fresh)
        if draft is not None and refusal is None:
            return Candidate(draft.raw, call.use)
        if draft is None and self._reflection.early_submit == "fail":
            return run.ending(SubmitContext(output_tool=self._output_name, submit_tool=self._submit_name))
        await finish(run, call.use, Outcome.failure("rejected", f"Error: {refusal}"))
        return None

    def _refusal(self, draft: _Draft | None, *, fresh: bool) -> str | None:
        """Return the reason why the draft may not be submitted now; None if it may."""
        if draft is None:
            return f"nothing to submit yet. Propose the output with {self._output_name!r} first."
        if self._reflection.submit_alone and fresh:
            return "look at your draft first; submit it in a later response."
        if self._reflection.require_clean and not draft.clean:
            return f"the last draft was not accepted. Propose another with {self._output_name!r}."
        return None


def _raw(use: ToolUse) -> str:
    return use.input_json if use.malformed is None else use.malformed


async def _last(run: Run, withheld: Sequence[Call]) -> Call:
    """Return the last of the calls that wait for the verdict; those before it are superseded."""
    # A model that calls twice corrects itself: the last call is what it means.
    for call in withheld[:-1]:
        await finish(run, call.use, Outcome.failure("rejected", SUPERSEDED))
    return withheld[-1]


# -- text -------------------------------------------------------------------------------------------------------------


class TextHandIn:
    """The way without an output tool: the text with which the model ends its turn is handed in; of a native output, the
    last of its texts."""

    has_draft = False
    tools: Mapping[str, HandInTool] = {}

    def __init__(self, stop_after: StopAfter | None, *, is_native: bool = False) -> None:
        self.last_raw: str | None = None
        self._is_native = is_native
        rules = (stop_after,) if callable(stop_after) else stop_after or ()
        self._names = frozenset([rule for rule in rules if isinstance(rule, str)])
        self._rules = [rule for rule in rules if not isinstance(rule, str)]

    def begin_attempt(self) -> None:
        return

    async def look(self, run: Run, iterated: Iterated) -> Candidate | ErrorInfo | None:
        if iterated.calls:
            key, work = run.key("stop_after/guard"), partial(self._ending_result, iterated.calls)
            decides = partial(decide_once, run, key, lambda _: work(), kind="guard", codec=_ENDING_RESULT)
            terminal = await (decides() if self._rules else work())
            if terminal is None:
                return None
            text = _turn_text(run.history.messages)
            return await self._ask_stop_guard(run, Candidate(text or terminal, terminal_result=terminal))
        if iterated.response.stop_reason not in ("end_turn", "stop_sequence"):
            return await _without_calls(run, iterated, None, reminder=False, has_draft=False)
        text = _turn_text(run.history.messages)
        if self._is_native and iterated.said is not None and not iterated.said.continues:
            said = [block.text for block in iterated.said.content if isinstance(block, Text) and block.text.strip()]
            text = said[-1] if said else ""
            if run.agent.plan.prompted is not None:
                with suppress(ValueError):  # the schema's layer tells what is wrong with it
                    text = find_object(text)
        if iterated.said is None or not text.strip():
            return _invalid(run, iterated, None, has_draft=False)
        return None if await _is_said_more(run) else await self._ask_stop_guard(run, Candidate(text))

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
        inbox, guard = run.options.inbox, run.stop_guard
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

        match await decide_once(run, run.key("guard"), ask_guard, kind="guard", codec=_GUARDED):
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
    if (journal := run.kept_journal) is not None and (known := _was_said_more(run, journal)) is not None:
        return known
    # A chat's user may think for hours: that time is not the run's.
    async with run.scope.pause_deadlines():
        return await options.more()


def _was_said_more(run: Run, journal: Journal) -> bool | None:
    """Tell whether the run went on with what was said, in an earlier life; None if none has come so far. It stores what
    it goes on with, and asks the guard and the validators only where nothing was said."""
    attempt = run.attempt
    if journal.reserve(run.key("guard"), effect="pure").is_known:
        return False
    if journal.reserve(f"attempt/{attempt.number}/iteration/{attempt.iteration + 1}/said", effect="pure").is_known:
        return True
    after = (f"attempt/{attempt.number}/iteration/{attempt.iteration + 1}/", f"attempt/{attempt.number}/verdict/")
    is_known = any(key == "end" or key.startswith(after) for key, _ in journal.stored())
    return False if is_known else None


def _turn_text(messages: Sequence[Message]) -> str:
    """Return the text of the model's last turn, which pauses may have cut into several messages."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.role != "assistant":
            break
        texts.append(message.text)
        if not message.continues:
            break
    return "".join(reversed(texts))


# -- responses without calls ------------------------------------------------------------------------------------------


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
            run.history.say(Text(f"Nothing was handed in yet. Go on, and hand in the result with {expected!r}."))
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
        shown_no_tools=expected is not None and facts_of(run.model).sees_tools is False,
    )
    return run.ending(context)
