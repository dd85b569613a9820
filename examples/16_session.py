"""A session: a chat that is kept in a file. It is left, or dies, and another one goes on where it was.

Offline: the model is a script.
"""

import asyncio
import tempfile
from pathlib import Path

from journeyman import Agent, Chat, tool
from journeyman.model import Request
from journeyman.store import Store
from journeyman.testing import Answer, FunctionModel, call


@tool(effect="pure")
async def rooms(city: str) -> str:
    """Look for free rooms in a city."""
    return f"2 rooms in {city}"


def answer(request: Request) -> Answer:
    last = request.messages[-1]
    if last.content[0].type == "tool_result":
        return "Two rooms are free."
    return call("rooms", city="Oslo") if "room" in last.text else f"You said: {last.text}"


guide = Agent(name="guide", model=FunctionModel(answer), tools=[rooms])


async def main(file: Path) -> None:
    async with Chat.open(guide, file) as chat:  # begins a session
        print((await chat.prompt("A room in Oslo, please.")).unwrap())
        chat.follow_up("Near the harbour.")  # nothing goes on, so it waits, in the file too
        session = chat.session.id if chat.session else ""

    async with Chat.open(guide, file, id=session) as chat:  # goes on with it, as after a crash
        print(len(chat.messages), "messages,", chat.usage.requests, "requests, waiting:", *chat.state.follow_ups)
        print((await chat.continue_()).unwrap())

    with Store(file) as store:
        branch = store.branch(session, 4)  # the first four messages, to try something else
        async with Chat.open(guide, store, id=branch) as chat:
            print((await chat.prompt("By train.")).unwrap())
        for info in store.sessions():
            print(f"{info.title} {info.messages} messages, {'a branch' if info.parent else 'the first'}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder) / "chats.db"))
