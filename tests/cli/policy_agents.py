"""The agents of the tests of what is asked about: each call is written by its test, as JSON lines of the input."""

import json
from pathlib import Path

from journeyman import Agent, Text, ToolResult, ask_user, tool
from journeyman.model import Request
from journeyman.permission import Permission
from journeyman.testing.scripted import Answer, FunctionModel, call
from journeyman.toolbox import Workspace


@tool
def publish(text: str) -> str:
    """Publish a text: a function of the agent's own file."""
    Path("published").write_text(text)
    return "published"


def obey(request: Request) -> Answer:
    """Make the call that the user's first words say, then give what came of it."""
    content = request.messages[-1].content
    results = [block.text for block in content if isinstance(block, ToolResult)]
    if results:
        return " / ".join(results)
    said = next(block.text for block in content if isinstance(block, Text))
    calls = json.loads(said if said.startswith("[") else f"[{said}]")
    return [call(str(each["tool"]), **{name: each[name] for name in each if name != "tool"}) for each in calls]


tools = [*Workspace(".").tools(), publish, ask_user]
worker = Agent(name="worker", model=FunctionModel(obey), tools=tools)
guarded = Agent(name="guarded", model=FunctionModel(obey), tools=tools, gate=Permission(mode="trust"))
