"""Calling tools as a model does: through a run, with the arguments as JSON."""

from journeyman import Agent, Event, Host, ToolResult, run
from journeyman.models.scripted import Scripted, call
from journeyman.toolbox import Workspace
from journeyman.toolbox.workspace import ToolName
from journeyman.tools.tools import AnyTool


async def answered(
    made: AnyTool, arguments: dict[str, object], *, events: list[Event] | None = None, host: Host | None = None
) -> ToolResult:
    """Return what the model reads of one call."""
    agent = Agent(name="tester", model=Scripted([call(made.name, arguments), "Done."]), tools=[made])
    result = await run(agent, "Go.", host=host or Host(), on_event=None if events is None else events.append)
    assert result.unwrap() == "Done."
    (found,) = [block for block in result.history[2].content if isinstance(block, ToolResult)]
    return found


class Player:
    """The tools of one workspace, called by name."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.events: list[Event] = []
        self._made: dict[ToolName, AnyTool] = {}

    async def result(self, name: ToolName, **arguments: object) -> ToolResult:
        if name not in self._made:  # each takes milliseconds to make, and few tests call many
            (self._made[name],) = self.workspace.tools(name)
        return await answered(self._made[name], arguments, events=self.events)

    async def text(self, name: ToolName, **arguments: object) -> str:
        """Return the text of a call that succeeds."""
        result = await self.result(name, **arguments)
        assert not result.is_error, result.text
        return result.text

    async def refused(self, name: ToolName, **arguments: object) -> str:
        """Return the text of a call that fails."""
        result = await self.result(name, **arguments)
        assert result.is_error, result.text
        return result.text
