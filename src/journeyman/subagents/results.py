"""The results of a delegation: one class for each mode, as JSON for the model and as Python values for a program.

A program can read the Python value in `value`; the model does not see it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import from_json, to_json

from journeyman.agent import Agent
from journeyman.endings import ErrorCode, InvalidResponseContext
from journeyman.errors import SubagentFailed, SubagentMisused
from journeyman.events import TaskInfo
from journeyman.history import NO_OUTPUT
from journeyman.result import Failure, Result, Success
from journeyman.tools.collection import do_aside
from journeyman.types import NOTHING_USED, Usage


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True)

    def to_json(self) -> str:
        """Return what the model reads: JSON in which absent values are left out."""
        return self.model_dump_json(exclude_none=True)


class SubagentUsage(_Document):
    """The tokens, cost and calls of a sub-agent, including the sub-agents that it delegated to. None: not known."""

    input: int | None = 0
    """Input tokens neither read from nor written to a cache."""
    output: int | None = 0
    """Output tokens."""
    cache_read: int | None = None
    """Input tokens read from a cache."""
    cache_write: int | None = None
    """Input tokens written to a cache."""
    cost: float | None = None
    """US dollars."""
    turns: int = 0
    """How many model calls there were."""
    tools: int = 0
    """How many tool calls the sub-agent made itself, including refused ones; output and submit are not counted."""
    exact: bool | None = None
    """False if an answer broke off before it told all that it used; otherwise None."""


class SingleResult(_Document):
    """The result of one delegated task: the sub-agent's output, and what it used."""

    output: Any
    """The text that it answered with, or its output as JSON."""
    usage: SubagentUsage
    """What the sub-agent used."""
    terminal_result: str | None = None
    """The result of the call that ended its run through `stop_after`."""
    value: Any = Field(default=None, exclude=True, repr=False)
    """Its output as the Python value that was validated."""


class ItemResult(_Document):
    """The result of one of several tasks: the sub-agent's output, or why it failed."""

    step: int | None = None
    """The number of the step in a chain, from 1."""
    agent: str
    """The name of the sub-agent."""
    task: str
    """The task as the sub-agent got it."""
    is_error: bool | None = None
    """True when the task failed: `output` then says why."""
    output: Any
    """The text that it answered with, or its output as JSON, or why it failed."""
    terminal_result: str | None = None
    """The result of the call that ended its run through `stop_after`."""
    usage: SubagentUsage
    """What it used."""
    value: Any = Field(default=None, exclude=True, repr=False)
    """Its output as the Python value that was validated."""


class ParallelResult(_Document):
    """The results of tasks that ran at the same time, in the order of the tasks."""

    summary: str
    """`k/n succeeded`."""
    results: tuple[ItemResult, ...]
    """What came of each task."""


class ChainResult(_Document):
    """The result of a chain: the last output, or why the chain stopped."""

    output: Any = None
    """The output of the last step; None when a step failed."""
    error: str | None = None
    """Why a step failed; None when none did."""
    results: tuple[ItemResult, ...]
    """The results of the steps that were done, including the one that failed."""
    value: Any = Field(default=None, exclude=True, repr=False)
    """The last output as the Python value that was validated."""


class BackgroundResult(_Document):
    """A task that was started."""

    task_id: str
    """The id of the task."""
    description: str
    """What it does, in words."""
    status: str = "running"
    """How far it is."""
    message: str
    """What the model should know of it."""


class TeamResult(_Document):
    """A member that was made."""

    task_id: str
    """The id of the background task that the member lives in."""
    agent_id: str
    """`name@team`."""
    status: str = "running"
    """How far it is."""
    message: str
    """What the model should know of it."""


SubagentResult: TypeAlias = SingleResult | ParallelResult | ChainResult | BackgroundResult | TeamResult
"""What a delegation returns, in each of its five modes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAssignment:
    """One task, after the sub-agent has done it or could not."""

    agent: str
    task: str
    definition: Agent[Any, Any, Any] | None = None
    """The agent of that name. None if there is no such agent, or if it never got the task."""
    result: Result[Any] | SubagentMisused
    """How the agent's run ended, or why there was no run."""

    @property
    def usage(self) -> SubagentUsage:
        """The usage of the run."""
        if isinstance(self.result, SubagentMisused):
            return SubagentUsage()
        metadata = self.result.metadata
        turns = sum([attempt.iterations for attempt in metadata.attempts])
        return usage_in_words(metadata.usage, turns=turns, tools=metadata.n_calls)

    @property
    def output(self) -> object:
        """The output, if there is one."""
        return self.result.output if isinstance(self.result, Success) else None

    @property
    def terminal_result(self) -> str | None:
        """The result of the call that ended the run through `stop_after`, if one did."""
        return self.result.terminal_result if isinstance(self.result, Success) else None

    @property
    def is_silent(self) -> bool:
        """True when an agent that answers with text came to a normal stop without any."""
        context = self.result.error.context if isinstance(self.result, Failure) else None
        return (
            isinstance(context, InvalidResponseContext)
            and context.expected_tool is None
            and context.stop_reason in ("end_turn", "stop_sequence")
        )

    def shown(self) -> JsonValue:
        """Return what the model reads: JSON of a typed output, or the text; or why the task was not done."""
        match self.result:
            case Success(output=output, terminal_result=terminal_result):
                schema = None if self.definition is None else self.definition.plan.output
                if schema is not None:
                    return from_json(schema.dump(output))
                parts = dict.fromkeys((output, terminal_result or ""))  # a silent model's output is that result
                return "\n\n".join([part for part in parts if part.strip()]) or NO_OUTPUT
            case Failure() if self.is_silent:
                return NO_OUTPUT
            case Failure(error=error):
                usage = self.usage
                counted = f" (turns={usage.turns} tools={usage.tools})" if usage.turns or usage.tools else ""
                return f"Sub-agent {self.agent!r} failed{counted}: {error}"
            case SubagentMisused():
                return str(self.result)


def usage_in_words(usage: Usage | None, *, turns: int, tools: int) -> SubagentUsage:
    """Return what was used, in the words of a delegation. None: it is not known."""
    if usage is None:
        return SubagentUsage(input=None, output=None, turns=turns, tools=tools)
    return SubagentUsage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        cost=usage.cost,
        turns=turns,
        tools=tools,
        exact=None if usage.exact else False,
    )


def single_result(finished: FinishedAssignment) -> SingleResult:
    """Return what a sub-agent handed in; raise a `SubagentMisused` if no run began, a `SubagentFailed` if it failed."""
    result, shown = finished.result, finished.shown()
    if isinstance(result, SubagentMisused):
        raise result
    if isinstance(result, Failure) and not finished.is_silent:
        raise SubagentFailed(str(shown), agent=finished.agent, failure=result) from result.error.cause
    return SingleResult(
        output=shown, usage=finished.usage, terminal_result=finished.terminal_result, value=finished.output
    )


def ended_task(info: TaskInfo, agent: Agent[Any, Any, Any] | None, result: Result[Any]) -> TaskInfo:
    """Return the task that a run of its own was, with how it ended. Without its agent, its output is plain JSON."""
    usage = result.metadata.usage or NOTHING_USED
    info = replace(info, n_calls=result.metadata.n_calls, usage=usage)
    if agent is None and isinstance(result, Success):
        shown, value = result.output, result.output
    else:
        try:
            done = single_result(FinishedAssignment(agent=info.agent, task="", definition=agent, result=result))
        except SubagentFailed as failed:
            was_stopped = isinstance(result, Failure) and result.code == ErrorCode.EXECUTION_CANCELLED
            return replace(info, status="killed" if was_stopped else "failed", error=str(failed))
        shown, value = done.output, done.value
    text = shown if isinstance(shown, str) else to_json(shown).decode()
    return replace(info, status="completed", result=text, value=value)


async def item_result(finished: FinishedAssignment, *, step: int | None = None) -> ItemResult:
    """Return what came of one of several tasks."""
    is_error = not isinstance(finished.result, Success) and not finished.is_silent
    return ItemResult(
        agent=finished.agent,
        task=finished.task,
        step=step,
        output=await do_aside(finished.output, lambda _: finished.shown()),
        usage=finished.usage,
        terminal_result=finished.terminal_result,
        is_error=is_error or None,
        value=finished.output,
    )
