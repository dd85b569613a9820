"""External tools: only their descriptions are here, and whoever called the run does their work.

Who does it is whoever is asked in the run: the caller of `run(…, wait=False)`, the client of AG-UI, or somebody who
answers the question of a durable run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from journeyman.definition.narrowing import is_list_or_tuple
from journeyman.definition.problems import Problem, explain_arguments, raise_problems
from journeyman.inbox.inbox import current_conversation
from journeyman.inbox.questions import Asker
from journeyman.model import ToolSpec
from journeyman.step import RunStep
from journeyman.tools.context import ToolContext
from journeyman.tools.dicts import read_tool_dict
from journeyman.tools.tools import AnyTool, Tool, tool_problems
from journeyman.tools.toolsets import Toolset
from journeyman.types import Effect, ToolResult

MAX_CHARS: Final = 50_000
_OPTIONS: Final = {"parallel": True, "journals_itself": True, "external": True}
_NOBODY: Final = "Nobody is there who runs this tool."


@runtime_checkable
class GivesResults(Asker, Protocol):
    """An optional ability of who is asked: it gives the results of external tools as they are."""

    async def give_result(
        self, path: tuple[str, ...], tool: str, arguments: dict[str, object], *, call: RunStep
    ) -> object:
        """Return the result of the call of a tool, whose step is the same in all lives of the run."""
        ...


def external_question(tool_use_id: str) -> str:
    """Return the question that stands for a call, where its result is an answer in words."""
    return f"Give the result of the call {tool_use_id}."


async def _ask_caller(context: ToolContext[Any], arguments: dict[str, object]) -> object:
    call, asker = context.step, current_conversation.get().asker
    if isinstance(asker, GivesResults):
        return await asker.give_result(context.path, context.tool_name, arguments, call=call)
    question = external_question(context.tool_use_id)
    answer = None if asker is None else await asker.ask(context.path, question, (), call=call)
    return ToolResult(_NOBODY, is_error=True) if answer is None else answer


@explain_arguments
class ExternalTools(Toolset):
    """Tools that whoever called the run does the work of, and that are only described here.

    `run(agent, …, wait=False)` returns a `Pending` with their calls. In a durable run, and over AG-UI, their calls wait
    as questions do. In any other run the model reads that nobody is there.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec | Mapping[str, object]],
        *,
        effect: Effect | None = "once",
        untrusted: bool = False,
        max_chars: int = MAX_CHARS,
    ) -> None:
        """Describe the tools.

        Args:
            tools: A `ToolSpec` for each, or a dict as `Tool.from_dict` takes it.
            effect: The effect of a call, where the dict says nothing. None: what the agent says.
            untrusted: Whether results may hold instructions that are not the user's.
            max_chars: The longest result, in characters; the rest is cut, and the model is told so.

        Raises:
            DefinitionError: one is no description of a tool; it lists every problem.
        """
        if not is_list_or_tuple(tools):
            hint = 'Pass a list: ExternalTools([{"name": …, "description": …, "input_schema": …}]).'
            raise_problems("ExternalTools", [Problem("INVALID_ARGUMENT", f"tools is {tools!r:.80}.", hint)])
        options: dict[str, Any] = {"untrusted": untrusted, "max_chars": max_chars, **_OPTIONS}
        made: list[AnyTool] = []
        for each in tools:
            if isinstance(each, ToolSpec):
                options |= {"effect": effect, "strict": each.strict}
                name, about, schema = each.name, each.description, each.input_schema
            else:
                given = read_tool_dict(each)
                options |= {"effect": given.effect or effect, "strict": given.strict}
                name, about, schema = given.name, given.description, given.schema
            made.append(Tool(name, about, schema, _ask_caller, **options))
        raise_problems("ExternalTools", [problem for each in made for problem in tool_problems(each)])
        self._tools: Final = tuple(made)

    @property
    def known_tools(self) -> Sequence[AnyTool]:
        """The tools."""
        return self._tools
