"""The questions that durable runs ask people elsewhere: how they are stored, told and answered."""

from __future__ import annotations

from typing import Any, Final

from journeyman.durable.records import digest_question
from journeyman.events import ApprovalAnswered, ApprovalRequested, QuestionAnswered, QuestionAsked
from journeyman.gate import DECISION, ONCE, Approval, Decision
from journeyman.inbox.questions import answered_event
from journeyman.inbox.signals import PendingQuestion, Signal
from journeyman.step import RunStep
from journeyman.types import RunPath

# What is asked stands in the row of the run, which every list reads.
_LONGEST_ARGUMENTS: Final = 8_000


def asked_event(question: PendingQuestion, id: str) -> ApprovalRequested | QuestionAsked:
    """Return the event that tells of a question under an id, as a chat tells of its own."""
    facts: Any = {name: getattr(question, name) for name in _AS_TOLD}
    if question.kind == "answer":
        return QuestionAsked(**facts, id=id, options=question.options)
    return ApprovalRequested(**facts, id=id, tool_name=question.tool, arguments=question.arguments or {}, offers=ONCE)


_AS_TOLD: Final = ("path", "question", "question_id", "tool_use_id", "attempt", "iteration")


def answer_event(question: PendingQuestion, signal: Signal | None) -> ApprovalAnswered | QuestionAnswered | None:
    """Return the event that tells how a question was answered, without a signal: not in its time. None: the answer
    cannot be read, which blocks the run."""
    try:
        answer = None if signal is None else read_answer(question, signal)
    except ValueError:
        return None
    return answered_event(asked_event(question, question.key), answer)


def read_answer(question: PendingQuestion, signal: Signal) -> Decision | str | None:
    """Return the answer that a signal gives to a question; None: its text is no text. A `ValueError`: it cannot be
    read."""
    if question.kind == "approve":
        return DECISION.read(signal.body.get("decision"))
    text = signal.body.get("text")
    return text if isinstance(text, str) else None


def question_in_words(path: RunPath, question: str, call: RunStep) -> PendingQuestion:
    """Return the question of a call that is answered in words."""
    return PendingQuestion(
        key=f"{call.key}/text",
        kind="answer",
        question_id=digest_question(path, question),
        path=path,
        tool="ask_user",
        arguments=None,
        question=question,
        tool_use_id=call.call or "",
        attempt=call.attempt,
        iteration=call.iteration,
    )


def question_of_approval(step: RunStep, approval: Approval) -> PendingQuestion:
    request = approval.request
    fits = len(request.input_json) <= _LONGEST_ARGUMENTS
    return PendingQuestion(
        key=step.key,
        kind="approve",
        question_id=approval.question_id,
        path=request.path,
        tool=request.tool_name,
        arguments=request.arguments if fits else None,
        question=approval.question,
        tool_use_id=request.tool_use_id,
        attempt=step.attempt,
        iteration=step.iteration,
    )
