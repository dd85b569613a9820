"""What comes of a delegation: one model for each mode, as JSON for the model and as Python values for a program.

Imports `result`, `errors` and values. Read `subagent_modes.py` next: it makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from journeyman.agent import Agent
from journeyman.errors import SubagentFailed, SubagentMisused
from journeyman.result import Failure, Metadata, Result, Success

NO_OUTPUT: Final = "(no output)"
"""What the model reads of a sub-agent that had nothing to say."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)

    def to_json(self) -> str:
        """Return it as the model reads it: what is absent is left out."""
        return self.model_dump_json(exclude_none=True)


class SubagentUsage(_Model):
    """What a sub-agent used, with those that it delegated to. None: not known."""

    input: int | None = 0
    """Input tokens neither read from nor written to a cache."""
    output: int | None = 0
    """Output tokens."""
    cache_read: int | None = None
    cache_write: int | None = None
    cost: float | None = None
    """US dollars."""
    turns: int = 0
    """Model calls."""
    tools: int = 0
    """Tool calls, also those that were refused."""
    exact: bool | None = None
    """False when an answer broke off before it told all it used; else None."""


class SingleResult(_Model):
    """What one sub-agent handed in."""

    output: Any
    """Its text, or its output as JSON."""
    usage: SubagentUsage
    terminal_result: str | None = None
    """The result of the call that ended its run through `stop_after`."""
    value: Any = Field(default=None, exclude=True, repr=False)
    """Its output as the Python value that was validated."""


class ItemResult(_Model):
    """What came of one of several tasks."""

    step: int | None = None
    """Its number in a chain, from 1."""
    agent: str
    task: str
    """As the sub-agent got it."""
    is_error: bool | None = None
    """True when it failed: `output` then says why."""
    output: Any
    """Its text, or its output as JSON; or why it failed."""
    terminal_result: str | None = None
    """The result of the call that ended its run through `stop_after`."""
    usage: SubagentUsage
    value: Any = Field(default=None, exclude=True, repr=False)
    """Its output as the Python value that was validated."""


class ParallelResult(_Model):
    """What came of tasks at the same time, in their order."""

    summary: str
    """`k/n succeeded`."""
    results: tuple[ItemResult, ...]


class ChainResult(_Model):
    """What came of a chain: the last output, or why it stopped."""

    output: Any = None
    error: str | None = None
    results: tuple[ItemResult, ...]
    """Of the steps that were done, the one that failed included."""
    value: Any = Field(default=None, exclude=True, repr=False)
    """The last output as the Python value that was validated."""


class BackgroundResult(_Model):
    """A task that was started."""

    task_id: str
    description: str
    status: str = "running"
    message: str


class TeamResult(_Model):
    """A member that was made."""

    task_id: str
    agent_id: str
    """`name@team`."""
    status: str = "running"
    message: str


SubagentResult: TypeAlias = SingleResult | ParallelResult | ChainResult | BackgroundResult | TeamResult


# -- from a run -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One task, after the sub-agent has done it or could not."""

    agent: str
    task: str
    definition: Agent[Any, Any] | None
    """None when there is no such agent."""
    result: Result[Any] | SubagentMisused
    """How its run ended, or why there was none."""

    @property
    def succeeded(self) -> bool:
        return isinstance(self.result, Success)

    def succeeded_or_raise(self) -> Success[Any]:
        """Return the success.

        Raises:
            SubagentMisused: there was no run.
            SubagentFailed: the run failed.
        """
        match self.result:
            case Success():
                return self.result
            case Failure():
                error = self.result.error
                text = _failure_text(self.agent, self.result)
                raise SubagentFailed(text, agent=self.agent, failure=self.result) from error.cause
            case SubagentMisused():
                raise self.result

    def usage(self) -> SubagentUsage:
        """Return what the run used."""
        return SubagentUsage() if isinstance(self.result, SubagentMisused) else usage_of(self.result.metadata)

    def error_text(self) -> str:
        """Return why the task was not done."""
        match self.result:
            case Failure():
                return _failure_text(self.agent, self.result)
            case SubagentMisused():
                return str(self.result)
            case Success():
                return ""


def _failure_text(agent: str, failure: Failure) -> str:
    usage = usage_of(failure.metadata)
    counted = f" (turns={usage.turns} tools={usage.tools})" if usage.turns or usage.tools else ""
    return f"Sub-agent {agent!r} failed{counted}: {failure.error}"


def usage_of(metadata: Metadata) -> SubagentUsage:
    """Return what a run used, in the words of a delegation."""
    turns = sum([attempt.iterations for attempt in metadata.attempts])
    tools = sum([stats.calls for stats in metadata.tools.values() if stats.kind in ("tool", "unknown")])
    usage = metadata.usage
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


def output_of(agent: Agent[Any, Any], success: Success[Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Return an output as the model reads it: JSON of a typed one; else the text, and what ended the run."""
    schema = agent.plan.output
    if schema is not None:
        return from_json(schema.dump(success.output))
    parts = dict.fromkeys((success.output, success.terminal_result or ""))  # a silent model's output is that result
    return "\n\n".join([part for part in parts if part.strip()]) or NO_OUTPUT


def single_result(ran: Ran) -> SingleResult:
    """Return what one sub-agent handed in.

    Raises:
        SubagentMisused: there was no run.
        SubagentFailed: the run failed.
    """
    success = ran.succeeded_or_raise()
    return SingleResult(
        output=_shown(ran, success),
        usage=ran.usage(),
        terminal_result=success.terminal_result,
        value=success.output,
    )


def item_result(ran: Ran, *, step: int | None = None) -> ItemResult:
    """Return what came of one of several tasks."""
    success = ran.result if isinstance(ran.result, Success) else None
    return ItemResult(
        agent=ran.agent,
        task=ran.task,
        step=step,
        output=ran.error_text() if success is None else _shown(ran, success),
        usage=ran.usage(),
        terminal_result=None if success is None else success.terminal_result,
        is_error=True if success is None else None,
        value=None if success is None else success.output,
    )


def _shown(ran: Ran, success: Success[Any]) -> Any:  # noqa: ANN401 - any JSON value
    return success.output if ran.definition is None else output_of(ran.definition, success)
