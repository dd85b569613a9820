"""An agent for the terminal: `journeyman chat examples/17_terminal_chat.py`. It asks before it changes anything.

With ANTHROPIC_API_KEY set, Claude answers; without, a stand-in that does what `run COMMAND` and `read FILE` say.
"""

import os

from journeyman import Agent, Text, ToolResult, ask_user, run_sync
from journeyman.model import Request
from journeyman.testing import Answer, FunctionModel, call
from journeyman.toolbox import Workspace


def stand_in(request: Request) -> Answer:
    said = [block.text for block in request.messages[-1].content if isinstance(block, Text | ToolResult)]
    verb, _, rest = said[-1].partition(" ")
    if verb == "run":
        return call("bash", command=rest)
    if verb == "read":
        return call("read", path=rest)
    return f"That gave: {said[0]}" if len(said) > 1 or "[exit code" in said[0] else "Say: run COMMAND, or: read FILE"


coder = Agent(
    name="coder",
    model="anthropic:claude-sonnet-5-5" if os.environ.get("ANTHROPIC_API_KEY") else FunctionModel(stand_in),
    system="You help with the files of the current folder. Ask where you are not sure what is wanted.",
    tools=[*Workspace(".").tools(), ask_user],
)

if __name__ == "__main__":
    print(run_sync(coder, "run echo hello").unwrap())
