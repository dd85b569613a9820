"""What the functions of a generated world return, once they have done what their act says.

Each is given the act and the arguments of the call.
"""

from collections.abc import Sequence
from typing import Any, cast

from pydantic import BaseModel

from journeyman import Message, Text
from journeyman.budget import LimitExceeded, Spending
from journeyman.gate import Allow, Approval, Ask, Deny, GateRequest, Rewrite
from journeyman.output import ContinueRun, FailRun
from journeyman.prompt import ErrorPromptContext
from journeyman.tools.context import States
from tests.properties.acts import tool_value
from tests.properties.world import Act


class Report(BaseModel):
    """What an agent of these tests hands in. It can be changed, so that a validator can do wrong."""

    title: str
    total: int = 0


def nothing(act: Act, *_: object) -> None:
    return


def zero(act: Act, *_: object) -> int:
    return 0


def counted(act: Act, *_: object) -> object:
    return {"n": 1}


def stops(act: Act, *_: object) -> bool:
    return act.kind == "stop"


def exceeded(act: Act, spent: Spending) -> LimitExceeded | None:
    return LimitExceeded(limit=1, used=2) if act.kind == "deny" else None


def converted(act: Act, messages: Sequence[Message]) -> list[Message]:
    return list(messages)


def judged(act: Act, value: object) -> object:
    if act.kind == "mutate" and isinstance(value, Report):
        value.total += 1
    elif act.kind == "mutate" and isinstance(value, list):
        cast("list[int]", value).append(1)
    return 1 if act.kind == "return" else None


def shown(act: Act, draft: object) -> object:
    return f"You propose {draft}." if act.kind == "fine" else tool_value(act)


def prompted(act: Act, given: object) -> object:
    match act.kind:
        case "garbage":
            return 5
        case "nothing":
            return None
        case "blank":
            return " "
        case "blocks":
            return [Text("Look:", cache_mark=True), Text(" "), Text("there.")]
        case "surrogate":
            return "half \ud83d of a pair"
        case _:
            return "Look for it."


def error_prompted(act: Act, rejection: ErrorPromptContext) -> object:
    return f"Wrong: {rejection.feedback}." if act.kind == "fine" else prompted(act, None)


def projected(act: Act, states: States) -> object:
    return states.run


def guarded(act: Act, stopping: object) -> object:
    match act.kind:
        case "keep going":
            return ContinueRun("Go on.")
        case "blank":
            return ContinueRun(" ")
        case "escalate":
            return FailRun("it must not stop")
        case _:
            return None


def decided(act: Act, request: GateRequest | Approval) -> object:
    match act.kind:
        case "deny":
            return Deny("it is not allowed")
        case "ask":
            return Ask("May it?")
        case "rewrite":
            return Rewrite({"value": 7})
        case "bad rewrite":
            return Rewrite(cast("Any", {"value": object()}))
        case "garbage":
            return None
        case _:
            return Allow()
