"""The Messages API with scripted answers, as a process of its own: `python -m benchmarks.scripted_server FILE DELAY_S`.

Prints its port. Every conversation walks through the script on its own; requests are neither judged nor kept, so that
the server costs as little as it can.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import orjson

from tests.support.messages_answers import answer, by_turn
from tests.support.messages_api import MessagesApi
from tests.support.messages_json import Json


async def serve(script: list[list[Json]], delay_s: float) -> None:
    """Serve until the process is stopped. The script has the blocks of each answer."""
    answers = [answer(*blocks) for blocks in script]
    async with MessagesApi(by_turn(answers), judging=False, recording=False, delay_s=delay_s, n_writes=1) as api:
        sys.stdout.write(f"{api.url.rpartition(':')[2]}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(orjson.loads(Path(sys.argv[1]).read_bytes()), float(sys.argv[2])))
