"""Tools: typed functions that the model may call. What goes wrong in a call is something the model reads and can fix.

With ANTHROPIC_API_KEY set, Claude asks; without, a script, which gets some calls wrong.
"""

import os
from typing import Literal

from journeyman import Agent, Callbacks, run_sync, tool
from journeyman.testing import Answer, ScriptedModel, call

PER_METRE = {"metre": 1.0, "foot": 3.28084, "yard": 1.09361}

Unit = Literal["metre", "foot", "yard"]


@tool
def convert(value: float, source: Unit, target: Unit = "metre") -> float:
    """Convert a length.

    Args:
        value: How much.
        source: The unit it is in.
        target: The unit it shall be in.
    """
    return round(value / PER_METRE[source] * PER_METRE[target], 3)


@tool
def divide(dividend: float, divisor: float) -> float:
    """Divide one number by another."""
    return dividend / divisor


answers: list[Answer] = [
    [call("convert", value=100, source="yard"), call("convert", value=100, source="ell")],
    [call("divide", dividend=91.44, divisor=0), call("divide", dividend=91.44, divisor=4), call("multiply", a=2, b=2)],
    "100 yards are 91.44 metres; a quarter of that is 22.86 metres.",
]

surveyor = Agent(
    name="surveyor",
    model="anthropic:claude-sonnet-5-5" if os.environ.get("ANTHROPIC_API_KEY") else ScriptedModel(answers),
    system="You answer with numbers that your tools gave you.",
    tools=[convert, divide],
)

if __name__ == "__main__":
    show = Callbacks(
        on_tool_call=lambda context, name, arguments: print(f"{name} {arguments}"),
        on_tool_result=lambda context, name, result: print(f"    {result.replace(chr(10), ' ')}"),
    )
    result = run_sync(surveyor, "How many metres are 100 yards, and a quarter of that?", callbacks=show)
    print(result.unwrap())
    for name, stats in result.metadata.tools.items():
        print(f"{name}: {stats.calls} calls, errors: {dict(stats.errors)}")
