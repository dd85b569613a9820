"""A budget policy of one's own: asked before every model call, and able to end the run under its own name.

This one notices that the model goes round in circles. The model is a function that does.
"""

from journeyman import Agent, Failure, Limits, Message, Success, run_sync, tool
from journeyman.budget import LimitExceeded, Spending
from journeyman.model import Request
from journeyman.testing import FunctionModel, call
from journeyman.types import Price, ToolUse

ROOMS = ["hall", "kitchen", "cellar"]


class NoCircles:
    """At most so many calls that were made before. It listens to the messages, and judges before the next call."""

    name = "repetition"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.seen: set[str] = set()
        self.repeated = 0

    def hear(self, message: Message) -> None:
        for use in message.tool_uses:
            self.repeated += (key := f"{use.name} {use.input_json}") in self.seen
            self.seen.add(key)

    def check(self, spent: Spending) -> LimitExceeded | None:
        print(f"before call {spent.iterations + 1}: {self.repeated} repeated, {spent.usage.cost or 0:.4f} dollars")
        return LimitExceeded(limit=self.limit, used=self.repeated) if self.repeated > self.limit else None


@tool
def look_into(room: str) -> str:
    """Look into a room."""
    return f"There is nothing in the {room}."


def wander(request: Request) -> ToolUse:
    return call("look_into", room=ROOMS[len(request.messages) // 2 % len(ROOMS)])


policy = NoCircles(limit=2)
detective = Agent(
    name="detective",
    model=FunctionModel(wander, price=Price(input=3, output=15)),
    tools=[look_into],
    limits=Limits(iterations=100, cost=5.00, budget_policies=[policy]),
    on_message=policy.hear,
)

if __name__ == "__main__":
    match run_sync(detective, "Where are the keys?"):
        case Success(output=text):
            print(text)
        case Failure(error=error):
            print(error)
