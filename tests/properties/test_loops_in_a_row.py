"""Three event loops in a row, with runs that end in every way, leave nothing open: under `-W error`, in a program of
its own, in process and over HTTP."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.properties.loops_in_a_row import ENDINGS, LOOPS
from tests.support.messages_answers import Reply, answer, fault, stall, text, tool_use
from tests.support.messages_json import Json, as_list, as_object, as_text
from tests.support.servers import MessagesApi

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parent.parent.parent


async def program(*arguments: str) -> tuple[int | None, list[str], str]:
    """Run the program; return its exit code, its lines, and what it complained of."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "tests.properties.loops_in_a_row", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    said, complained = await running.communicate()
    return running.returncode, said.decode().splitlines(), complained.decode()


def reply(body: Json) -> Reply:
    """Answer as the prompt asks."""
    messages = [as_object(message) for message in as_list(body["messages"])]
    prompt = as_text(as_object(as_list(messages[0]["content"])[0])["text"])
    if prompt == "stall":
        return stall(answer(text("Let me see."), delta_chars=6), after_events=4)
    if prompt == "fail":
        return fault(500)
    if len(messages) > 1:
        return answer("Done.")
    return answer(tool_use("look", {"value": 1}), tool_use("look", {"value": 2}), tool_use("count", {}))


async def test_three_loops_in_a_row_leave_nothing_open_in_process() -> None:  # design 4.14
    assert await program() == (0, list(ENDINGS) * LOOPS, "")


async def test_three_loops_in_a_row_leave_nothing_open_over_http() -> None:  # design 4.14
    async with MessagesApi(reply) as api:
        assert await program(api.url) == (0, list(ENDINGS) * LOOPS, "")
        assert api.in_flight == 0
