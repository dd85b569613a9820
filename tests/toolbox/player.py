"""The tools of a workspace, called as a model does: through a run, with the arguments as JSON."""

from journeyman import Event, ToolResult
from journeyman.toolbox import Workspace
from journeyman.toolbox.workspace import ToolName
from journeyman.tools.tools import AnyTool
from tests.play import answered


class Player:
    """The tools of one workspace, called by name."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.events: list[Event] = []
        self._made: dict[ToolName, AnyTool] = {}

    async def result(self, name: ToolName, **arguments: object) -> ToolResult:
        if name not in self._made:  # each takes milliseconds to make, and few tests call many
            (self._made[name],) = self.workspace.tools(name)
        return await answered(self._made[name], arguments, on_event=self.events.append)

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
