"""A team: three members divide a list of tasks by messages, help one another, and tell what came out.

Without a key a policy plays all three: it reads the messages that it is sent. With ANTHROPIC_API_KEY they are Claude.
"""

import asyncio
import os
import re

from journeyman import Agent, Event, Team, Text, ToolContext, ToolResult, tool
from journeyman.events import MailReturned, MailSent, MemberChanged, ToolFinished
from journeyman.model import Request
from journeyman.team import TeamSpawnRequest
from journeyman.testing import Answer, FunctionModel, call
from journeyman.types import ToolUse

SHELVES = {"A": 12, "B": 7, "C": 31, "D": 4, "E": 18, "F": 9}
KEYS = {"ada": "AB", "max": "CDF", "eve": "E"}  # who can open which shelf


@tool
async def count(shelf: str, context: ToolContext) -> int:
    """Count what is on a shelf.

    Args:
        shelf: its letter.
    """
    if shelf not in KEYS[context.agent]:
        raise PermissionError(f"no key for shelf {shelf}")
    return SHELVES[shelf]


def play(request: Request) -> Answer:
    """Do the first thing that is called for by all that was said to this member, and not done yet."""
    me = re.findall(r"You are (\w+),", request.prefix.system[0].text)[0]
    blocks = [block for message in request.messages for block in message.content]
    read = "\n".join([block.text for block in blocks if isinstance(block, Text)])
    uses = [block for block in blocks if isinstance(block, ToolUse)]
    results = {block.tool_use_id: block for block in blocks if isinstance(block, ToolResult)}
    counts = dict(re.findall(r"([A-F]) = (\d+)", read))  # what others have told
    steps = [write(to, f"Please count {what}.") for to, what in {"max": "C and D", "eve": "E and F"}.items()]
    steps = steps if me == "ada" else []
    for shelf in "AB" if me == "ada" else re.findall(r"\b([A-F])\b", " ".join(re.findall(r"Please count .*", read))):
        steps.append(call("count", shelf=shelf))
        result = next((results[use.id] for use in uses if use.input == {"shelf": shelf}), None)
        if result is None:
            continue
        if result.is_error:
            steps.append(write("max", f"Please count {shelf} for me, and tell ada."))
        elif me == "ada":
            counts[shelf] = result.text
        else:
            steps.append(write("ada", f"{shelf} = {result.text}"))
    for step in steps:
        if step.input not in [use.input for use in uses]:
            return step
    if me == "ada" and len(counts) == len(SHELVES):
        return f"{sum(map(int, counts.values()))} things are in stock."
    return "I have done what I can, and wait."


def write(to: str, text: str) -> ToolUse:
    return call("send_message", to=to, message=text)


def show(event: Event) -> None:
    match event:
        case MailSent(mail=mail) if mail.kind == "message":
            print(f"{mail.sender:>9} -> {mail.to:<9} {mail.text}")
        case MailReturned(letter=letter):
            print(f"          not delivered ({letter.reason}): {letter.mail.text}")
        case ToolFinished(tool_name="count"):
            print(f"{event.path[-1]:>9} counts       {event.tool_result}")
        case MemberChanged(liveness="gone"):
            print(f"{event.name:>9} is gone")
        case _:
            pass


async def main() -> None:
    model = "anthropic:claude-sonnet-5-5" if os.environ.get("ANTHROPIC_API_KEY") else FunctionModel(play)
    counter = Agent(name="counter", model=model, tools=[count], system="You take stock. Be brief.")
    tasks = {
        "max": "Count the shelves that ada or eve ask you for, and tell ada what you found, as 'C = 31'.",
        "eve": "Count the shelves that ada asks you for, and tell her, as 'E = 18'. Ask max where you have no key.",
        "ada": f"Take stock of shelves {', '.join(SHELVES)}. You have keys for A and B, max and eve for the others: "
        "let each of them count two. When you have all six, say how many things there are in all.",
    }
    async with Team("stocktaking", on_event=show) as team:
        for name, task in tasks.items():
            await team.spawn(TeamSpawnRequest(agent=counter, prompt=task, name=name))
        while await team.news():
            await team.receive()  # ada's last words are kept, so the notices need not be
        print(f"ada says: {team.member('ada').last_text}")
        print(f"{team.usage.requests} requests")


asyncio.run(main())
