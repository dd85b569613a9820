"""Validators and repair: what a check rejects goes back to the model, in the same conversation.

With ANTHROPIC_API_KEY set, Claude schedules; without, a script.
"""

import os

from pydantic import BaseModel

from journeyman import Agent, Failure, Limits, Output, Rejected, Success, run_sync
from journeyman.loop import validation_context
from journeyman.testing import Answer, ScriptedModel, call

AWAY = {"Ada": {"mon"}, "Bob": {"tue", "wed"}, "Cleo": {"thu"}}


class Rota(BaseModel):
    mon: str
    tue: str
    wed: str


def everyone_is_there(rota: Rota) -> None:
    """Nobody works while away."""
    for day, person in rota.model_dump().items():
        if day in AWAY.get(person, {day}):
            raise Rejected(f"{person} is away.", path=(day,))


async def fair(rota: Rota) -> None:
    """Nobody works twice. A validator may be async, and may know about the run."""
    if len({rota.mon, rota.tue, rota.wed}) < 3:
        raise ValueError(f"Somebody works twice (attempt {validation_context().attempt}).")


answers: list[Answer] = [
    call("output", mon="Ada", tue="Bob", wed="Cleo"),
    call("output", mon="Cleo", tue="Ada", wed="Cleo"),
    call("output", mon="Bob", tue="Ada", wed="Cleo"),
]

planner = Agent(
    name="planner",
    model="anthropic:claude-sonnet-5-5" if os.environ.get("ANTHROPIC_API_KEY") else ScriptedModel(answers),
    system="You plan who works when: Ada, Bob and Cleo, on mon, tue and wed.",
    output=Output(Rota),
    validators=[everyone_is_there, fair],
    limits=Limits(attempts=4),
)

if __name__ == "__main__":
    result = run_sync(planner, "Plan the week.")
    for attempt in result.metadata.attempts:
        for layer in attempt.report.layers if attempt.report else ():
            print(f"attempt {attempt.number}, {layer.name}: {layer.feedback or 'passed'}")
    match result:
        case Success(output=rota):
            print(rota)
        case Failure(error=error, candidate=candidate):
            print(error, error.hint, candidate)
