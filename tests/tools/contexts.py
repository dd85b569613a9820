"""What a call of a tool is given in these tests."""

from typing import Any

from journeyman.tools.context import States
from journeyman.tools.tools import AnyTool, ToolContext


def context_for(tool: AnyTool, states: States | None = None, **ports: Any) -> ToolContext:
    """Return the context of a call. `ports` are what the call reaches beside its state."""
    return ToolContext(
        tool=tool,
        tool_use_id="call_1",
        input={"task": 1},
        agent="lead",
        path=("lead", "scout#2"),
        attempt=2,
        iteration=3,
        states=states or States(),
        **ports,
    )
