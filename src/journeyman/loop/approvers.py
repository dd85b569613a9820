"""The approver that a run asks about a call: whoever is there, within the time that the limits give, and stored where
the run has a journal."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count as count_from

from journeyman.events import ApproverAnswered
from journeyman.gate import DECISION, DECISION_WORDS, Approval, Approver, Decision, Deny, answer
from journeyman.journal import Journal
from journeyman.loop.replay import take_step
from journeyman.loop.state import Run, iteration_place, outside_of


def find_approver(run: Run, *, is_in_step: bool = False) -> Approver | None:
    """Return the approver for what a gate asks, held to the time that the limits give; its answers are recorded. Where
    the program names none, a journal may wait for an answer from elsewhere, and stores it."""
    approve, seconds, outside = run.prepared.guard.approve, run.agent.limits.approval_seconds, outside_of(run)
    if run.options.journal.waits and not is_in_step:
        return _note_answers(run, _stored_approver(run, run.options.journal, approve, seconds))
    if approve is None and outside is not None and outside.questions.asks_outside():
        approve = partial(outside.questions.approve, place=run.place)
    if approve is not None and seconds is not None:
        approve = _timely(run, approve, seconds)
    return None if approve is None else _note_answers(run, approve)


def _note_answers(run: Run, approve: Approver) -> Approver:
    """Return an approver whose answers are recorded."""

    async def ask_and_note(approval: Approval) -> Decision:
        decision = await answer(approval, approve)
        run.record(
            lambda: ApproverAnswered(
                **iteration_place(run),
                tool_use_id=approval.request.tool_use_id,
                tool_name=approval.request.tool_name,
                question=approval.question,
                rule=approval.rule,
                question_id=approval.question_id,
                decision=DECISION_WORDS[type(decision)],
                reason=getattr(decision, "reason", ""),
                extent=getattr(decision, "extent", None),
            )
        )
        return decision

    return ask_and_note


def _stored_approver(run: Run, journal: Journal, approve: Approver | None, seconds: float | None) -> Approver:
    numbers = count_from(1)

    async def answer_once(approval: Approval) -> Decision:
        request = approval.request
        call = request.tool_use_id
        name = f"call/{call}/approval/{next(numbers)}/{approval.question_id[:16]}"
        step = run.attempt.step("approval", name, call=call)
        if approve is not None:
            asked = approve if seconds is None else _timely(run, approve, seconds)
            place = journal.reserve(step, effect="pure")
            return await take_step(run, place, partial(answer, approval, asked), kind="approval", codec=DECISION)
        # Somebody may answer after days, and the process may have ended meanwhile: neither counts as the run's time.
        async with run.scope.pause_deadlines():
            decision = await journal.wait(step, approval, expires_s=seconds)
        return Deny(f"nobody answered within {seconds:g}s: {approval.question}") if decision is None else decision

    return answer_once


def _timely(run: Run, approve: Approver, seconds: float) -> Approver:

    async def approve_in_time(approval: Approval) -> Decision:
        try:
            # The pause stands outside: the wait has a limit of its own, and uses up nothing of the run's.
            async with run.scope.pause_deadlines(), asyncio.timeout(seconds):
                return await answer(approval, approve)
        except TimeoutError:
            return Deny(f"nobody answered within {seconds:g}s: {approval.question}")

    return approve_in_time
