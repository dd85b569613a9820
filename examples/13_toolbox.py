"""The toolbox: ready tools in a workspace. An agent runs a program, reads it, fixes it and runs it again.

With ANTHROPIC_API_KEY set, Claude fixes it; without, a script.
"""

import os
import tempfile
from pathlib import Path

from journeyman import Agent, run_sync
from journeyman.events import Event, ToolCalled, ToolFinished
from journeyman.testing import Answer, ScriptedModel, call
from journeyman.toolbox import Workspace

PROGRAM = """\
total=0
for value in "$@"; do total=$((total + value)); done
echo "mean: $((total / $#))"
"""
MENDED = 'echo "mean: $((total / ($# > 0 ? $# : 1)))"'

answers: list[Answer] = [
    call("edit", path="mean.sh", old_text='echo "mean: $((total / $#))"', new_text=MENDED),
    [call("bash", command="bash mean.sh 2>&1 | grep -o 'division by 0'"), call("read", path="mean.sh")],
    call("edit", path="mean.sh", old_text='echo "mean: $((total / $#))"', new_text=MENDED),
    call("bash", command="bash mean.sh && bash mean.sh 2 4"),
    "Without any value it divided by 0; now the mean is 0.",
]


def show(event: Event) -> None:
    match event:
        case ToolCalled(tool_name=name, tool_input=given):
            print(f"> {name} {next(iter(given.values()))}")
        case ToolFinished(tool_result=text):
            print("  " + text.replace("\n", "\n  "))
        case _:
            pass


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, Workspace(folder) as workspace:
        Path(folder, "mean.sh").write_text(PROGRAM)
        mender = Agent(
            name="mender",
            model="anthropic:claude-sonnet-5-5" if os.environ.get("ANTHROPIC_API_KEY") else ScriptedModel(answers),
            system="You fix programs, and run them before you say that they work.",
            tools=[*workspace.tools("read", "edit", "bash", "grep")],
        )
        print(run_sync(mender, "mean.sh fails. Mend it.", on_event=show).unwrap())
