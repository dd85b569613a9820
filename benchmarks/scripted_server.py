"""An API with scripted answers, as a process of its own: `python -m benchmarks.scripted_server FILE DELAY_S API`.

Prints its port. Every conversation walks through the script on its own; requests are neither judged nor kept, so that
the server costs as little as it can.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson

from tests.support import gemini_answers as gemini
from tests.support.messages_answers import answer, by_turn
from tests.support.messages_json import Json
from tests.support.servers import GeminiApi, MessagesApi


async def serve(script: list[list[Json]], delay_s: float, api: str) -> None:
    """Serve until the process is stopped. The script has the blocks of each answer."""
    more: dict[str, Any] = {"judging": False, "recording": False, "delay_s": delay_s, "n_writes": 1}
    if api == "gemini":
        parts = [[gemini.call(str(block["name"]), block["input"]) for block in blocks] for blocks in script]
        server = GeminiApi(by_turn([gemini.answer(*each) for each in parts]), **more)
    else:
        server = MessagesApi(by_turn([answer(*blocks) for blocks in script]), **more)
    async with server:
        sys.stdout.write(f"{server.url.rpartition(':')[2]}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(orjson.loads(Path(sys.argv[1]).read_bytes()), float(sys.argv[2]), sys.argv[3]))
