"""A research crew: scouts at the same time, a writer and a reviewer in a chain, and a long check in the background.

Run it: `python examples/crew/research.py ["What happens to cancelled calls and unread messages?" [FOLDER]]`. Without a
key a policy plays all of them: it reads what the tools return. With ANTHROPIC_API_KEY they are Claude.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agents import FOLDER, crew, notice

from journeyman import Chat, Event, Runtime, Tasks
from journeyman.events import ModelResponded, RunFailed, RunStarted, RunSucceeded, TaskEnded, TaskStarted
from journeyman.result import Metadata

QUESTION = "What happens to cancelled calls, abandoned threads and unread messages?"


def show(event: Event) -> None:
    match event:
        case RunStarted(path=(_, *_, name), mode=str(mode)):
            print(f"    {name:<11} begins ({mode})")
        case RunSucceeded(path=(_, *_, name), metadata=metadata):
            print(f"    {name:<11} ends: {counted(metadata)}")
        case RunFailed(path=(_, *_, name), error=error):
            print(f"    {name:<11} fails: {error}")
        case ModelResponded(path=("lead",), text=str(text)) if text:
            print(f"\nlead: {text}\n")
        case TaskStarted(info=info):
            print(f"    {info.id:<11} in the background: {info.description}")
        case TaskEnded(info=info):
            print(f"    {info.id:<11} {info.status}: {info.n_calls} calls, {info.usage.requests} requests")
        case _:
            pass


def counted(metadata: Metadata) -> str:
    iterations = sum(record.iterations for record in metadata.attempts)
    return f"iterations: {iterations}, calls: {sum(stats.calls for stats in metadata.tools.values())}"


async def main(question: str, folder: Path) -> None:
    print(notice())
    async with Tasks(on_event=show) as tasks, Chat(crew(folder), on_event=show, runtime=Runtime(tasks=tasks)) as chat:
        result = await chat.prompt(question)
        await tasks.wait()
        if chat.state.follow_ups:  # the check took longer than the answer: now the lead is told
            result = await chat.continue_()
        result.unwrap()
        background = sum(task.usage.requests for task in tasks.list())
        print(f"{chat.usage.requests} requests, and {background} in the background")


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(given[0] if given else QUESTION, Path(given[1]) if len(given) > 1 else FOLDER))
