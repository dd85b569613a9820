"""`journeyman view` of a store, as a process of its own."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGINT

from tests.cli.program import Start, from_nothing, running
from tests.view.desk import TOKEN

STEERABLE = {"JOURNEYMAN_RECORD": "1", "JOURNEYMAN_VIEW_TOKEN": TOKEN, "CI": ""}
"""What commands find in their environment that record, and that are looked at."""


def with_token(url: str) -> str:
    """Return the address as it is opened first."""
    return f"{url}{'&' if '?' in url else '?'}token={TOKEN}"


@asynccontextmanager
async def served(store: Path, *words: str, start: Start = from_nothing) -> AsyncGenerator[str]:
    """Show a store with `journeyman view`, and give the address, without its token."""
    with running("view", store, "--port", "0", "--no-open", *words, env=STEERABLE, start=start) as process:
        await asyncio.to_thread(process.wait_for, "Ctrl-C ends it.")
        [url] = re.findall(rf"Open (http://\S+/)\?token={TOKEN}", process.shown())
        yield url
        process.send(SIGINT)
        done = await asyncio.to_thread(process.done)
        assert (done.code, "Traceback" in done.stderr) == (130, False), done.stderr
