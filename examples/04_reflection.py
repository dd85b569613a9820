"""Reflection: the model sees its draft as a reader would, and fixes it before it submits. No attempt is lost.

With ANTHROPIC_API_KEY set, Claude plans; without, a script.
"""

import os

from pydantic import BaseModel

from journeyman import Agent, Callbacks, Limits, Output, Reflection, SubmitTool, run_sync
from journeyman.testing import Answer, ScriptedModel, call


class Stop(BaseModel):
    place: str
    minutes: int


class Plan(BaseModel):
    stops: list[Stop]


def timetable(plan: Plan) -> str:
    """Show the plan with the times that follow from it."""
    clock, lines = 9 * 60, list[str]()
    for stop in plan.stops:
        lines.append(f"{clock // 60:02}:{clock % 60:02} {stop.place}")
        clock += stop.minutes
    over = f", {clock - 12 * 60} minutes too late" if clock > 12 * 60 else ""
    return "\n".join([*lines, f"{clock // 60:02}:{clock % 60:02} end{over}"])


def plan(**minutes: int) -> dict[str, object]:
    return {"stops": [{"place": place, "minutes": value} for place, value in minutes.items()]}


answers: list[Answer] = [
    call("plan", plan(museum=120, market=45, harbour=60)),
    call("plan", plan(museum=90, market=30, harbour=60)),
    call("hand_in"),
]

guide = Agent(
    name="guide",
    model="anthropic:claude-sonnet-5-5" if os.environ.get("ANTHROPIC_API_KEY") else ScriptedModel(answers),
    system="You plan a morning, from 9 to 12.",
    output=Output(
        Plan, name="plan", reflection=Reflection(timetable, submit=SubmitTool(name="hand_in"), submit_alone=True)
    ),
    limits=Limits(attempts=1, iterations=8),
)

if __name__ == "__main__":
    show = Callbacks(on_tool_result=lambda context, name, result: print(f"-- {name}\n{result}"))
    print(run_sync(guide, "A museum, a market, the harbour.", callbacks=show).unwrap())
