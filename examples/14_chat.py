"""A chat: say more while the agent works, stop it, answer what it asks, and go on from there."""

import asyncio

from journeyman import Agent, Chat, Event, ask_user, tool
from journeyman.events import QuestionAsked, ToolCalled, ToolFinished
from journeyman.testing import Answer, ScriptedModel, call

searching, found = asyncio.Event(), asyncio.Event()


@tool
async def search(city: str) -> str:
    """Search for hotels in a city."""
    searching.set()
    await found.wait()
    return f"3 hotels in {city}"


@tool(effect="once")
async def book(hotel: str) -> str:
    """Book a room."""
    chat.abort("the user pressed stop")
    await asyncio.sleep(1)
    return f"booked {hotel}"


answers: list[Answer] = [
    [call("search", city="Oslo"), call("book", hotel="Grand")],
    call("ask_user", question="Which one?", options=["Grand", "Harbour"]),
    "The Harbour it is. Shall I book?",
    *(call("book", hotel="Harbour"), "Nothing was booked."),
]


def show(event: Event) -> None:
    if isinstance(event, ToolCalled):
        print(f"> {event.tool_name} {event.tool_input}")
    elif isinstance(event, ToolFinished):
        print(f"  {event.tool_result}")
    elif isinstance(event, QuestionAsked):
        chat.answer(event.id, "Harbour")


chat = Chat(Agent(name="guide", model=ScriptedModel(answers), tools=[search, book, ask_user]), on_event=show)


async def main() -> None:
    async with chat:
        turn = chat.start("A room in Oslo, please.")
        await searching.wait()
        chat.steer("Don't book yet.")
        found.set()
        print((await turn).unwrap())
        await chat.prompt("Yes.")
        print((await chat.prompt("Did you book it?")).unwrap())


if __name__ == "__main__":
    asyncio.run(main())
