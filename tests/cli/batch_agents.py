"""The agents of the tests of `journeyman batch`. What they do is noted in the current folder."""

import asyncio
import resource
from base64 import b64decode
from pathlib import Path

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from journeyman import Agent, Output, tool
from journeyman.errors import ProviderError
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, call, say
from journeyman.types import Base64, Document, Text


class Trip(BaseModel):
    city: str
    days: int


def note(words: str) -> None:
    with Path("done.log").open("a", encoding="utf-8") as file:
        file.write(f"{words}\n")


if Path("small-disk").exists():  # no file may become larger: as on a disk that is full
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_200, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


async def limited(request: Request) -> Answer:
    text = request.messages[0].text
    note(f"asked {text}")
    if not Path("limited").exists():
        Path("limited").touch()
        raise ProviderError("Too many requests.", kind="rate_limited", retry_after_s=0.05)
    return say(text)


async def echoed(request: Request) -> Answer:
    text = request.messages[0].text
    note(f"asked {text}")
    if text == "bad":
        raise ProviderError("The provider does not want it.", kind="bad_request")
    if text == "long":
        return say("The first half", stop_reason="max_tokens")
    if text == "slow" and Path("stuck").exists():
        print("stuck", flush=True)  # noqa: T201 - users' files do
        await asyncio.Event().wait()
    return say(text)


@tool(effect="once")
async def pay(invoice: str) -> str:
    """Pay."""
    note(f"paid {invoice}")
    return "paid"


async def paying(request: Request) -> Answer:
    text = request.messages[0].text
    if len(request.messages) == 1:
        return call("pay", invoice=text, id="pay")
    if text == "slow" and Path("stuck").exists():
        print("stuck", flush=True)  # noqa: T201 - users' files do
        await asyncio.Event().wait()
    return say("done")


patient = Agent(name="patient", model=FunctionModel(limited))
echo = Agent(name="echo", model=FunctionModel(echoed))
clerk = Agent(name="clerk", model=FunctionModel(paying), tools=[pay])
planner = Agent(
    name="planner", input=Trip, model=FunctionModel(lambda _: call("output", city="Oslo", days=3)), output=Output(Trip)
)


class Journey(BaseModel):
    city: str
    days: int = 1


class Renamed(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    town: str = Field(validation_alias="city")
    days: int = Field(default=1, validation_alias=AliasChoices("days", "day"))


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")

    city: str = ""


travelled = FunctionModel(lambda request: request.messages[0].text)
traveller = Agent(name="traveller", input=Journey, model=travelled)
renamed = Agent(name="renamed", input=Renamed, model=travelled)
open_to_all = Agent(name="open_to_all", input=Anything, model=travelled)


def told_blocks(request: Request) -> Answer:
    """Say which blocks the model was sent."""
    blocks = request.messages[0].content
    return say(" + ".join([block.text if isinstance(block, Text) else contents(block) for block in blocks]))


def contents(block: object) -> str:
    assert isinstance(block, Document)
    assert isinstance(block.source, Base64)
    return b64decode(block.source.data).decode()


blocks = Agent(name="blocks", model=FunctionModel(told_blocks))
