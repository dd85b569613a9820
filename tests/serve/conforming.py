"""The agents that the official conformance suite calls, by the names that it gives them."""

from pydantic import BaseModel, ConfigDict

from journeyman import Agent, Limits, Output, ToolContext, tool
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call
from tests.serve.served import Careful, last_result, remove


class Nothing(BaseModel):
    """The input of an agent that needs none."""


class Message(BaseModel):
    message: str


class address(BaseModel):
    street: str = ""
    city: str = ""


class Person(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema"}
    )

    name: str = ""
    address: address


@tool
async def work(context: ToolContext) -> str:
    """Work in three steps."""
    for percent in (0, 50, 100):
        context.progress(f"{percent} of 100", fraction=percent / 100)
    return "done"


AGENTS = (
    Agent(
        name="test_simple_text",
        model=ScriptedModel(["This is a simple text response for testing."], repeat=True),
        input=Nothing,
    ),
    Agent(
        name="test_error_handling",
        model=ScriptedModel([call("output", message=3)], repeat=True),
        input=Nothing,
        output=Output(Message),
        limits=Limits(attempts=1),
    ),
    Agent(
        name="test_tool_with_progress",
        model=FunctionModel(lambda request: "done" if len(request.messages) > 1 else call("work")),
        input=Nothing,
        tools=[work],
    ),
    Agent(name="test_elicitation", model=last_result(), input=Message, tools=[remove], gate=Careful()),
    Agent(name="json_schema_2020_12_tool", model=ScriptedModel(["done"], repeat=True), input=Person),
)
