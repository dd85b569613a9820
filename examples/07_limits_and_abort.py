"""Limits and stopping: every run ends, and says why. What was gathered until then can be used.

The model here is a function that never stops asking.
"""

import asyncio

from journeyman import Abort, Agent, Failure, Limits, Result, Success, run, tool
from journeyman.model import Request
from journeyman.testing import FunctionModel, call
from journeyman.types import ToolUse

third_page = asyncio.Event()


@tool
async def search(page: int) -> str:
    """Search one page of the archive."""
    if page == 3:
        third_page.set()
    await asyncio.sleep(0.01)
    return f"page {page}: nothing"


def next_page(request: Request) -> ToolUse:
    return call("search", page=len(request.messages) // 2 + 1)


def archivist(limits: Limits) -> Agent:
    return Agent(name="archivist", model=FunctionModel(next_page), tools=[search], limits=limits)


def report(title: str, result: Result[str]) -> None:
    match result:
        case Success(output=text):
            print(f"{title}: {text}")
        case Failure(error=error, history=history):
            print(f"{title}: {error.code}, after {history[2].content[0]}\n    {error.hint}")


async def main() -> None:
    report("4 iterations", await run(archivist(Limits(iterations=4)), "Find the letter."))
    report("1 second", await run(archivist(Limits(iterations=999, seconds=1)), "Find the letter."))

    third_page.clear()
    abort = Abort()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run(archivist(Limits(iterations=999)), "Find the letter.", abort=abort))
        await third_page.wait()
        abort.abort("the user has found it")
    report("stopped", running.result())
    try:
        async with asyncio.timeout(0.1):
            await run(archivist(Limits(iterations=999)), "Find the letter.")
    except TimeoutError:
        print("timeout: a cancellation from outside is an exception, as everywhere in asyncio")


if __name__ == "__main__":
    asyncio.run(main())
