"""A trip planner for a very small model: one that runs on this machine, and is often wrong.

It shows what the library is for: the answer has a type, a check rejects what must not pass, and the model reads why and
tries again. Run it: `journeyman demo`, or `journeyman run examples/trip_planner/planner.py:agent "A week in Lima."`
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from journeyman import Agent, Limits, ModelSettings, Output
from journeyman.prompt import ErrorPromptContext

MOST_DAYS = 5
MODEL = "local:smollm2"
QUESTION = "Plan a visit to Paris, 12 days."


class Trip(BaseModel):
    """A visit to a city."""

    city: str = Field(min_length=1)
    days: int = Field(ge=1)


def few_days(trip: Trip) -> None:
    """The company pays a few days at most."""
    if trip.days > MOST_DAYS:
        raise ValueError(f"Plan a visit to a city. city: {trip.city}, days: {MOST_DAYS}")


def again(rejection: ErrorPromptContext) -> str:
    """Repeat only what the check says: so small a model answers with a call to what reads like its examples."""
    return rejection.feedback


agent = Agent(
    name="planner",
    description="Plans short trips.",
    model=MODEL,
    output=Output(Trip, name="visit", description="Plan a visit to a city.", feedback_role="text", reminder=True),
    validators=[few_days],
    error_prompt=again,
    settings=ModelSettings(max_tokens=60, temperature=0.2, seed=7),
    limits=Limits(attempts=4, iterations=3),
)
