"""A server like `fixed_answer`, but late, and with faults: `python -m benchmarks.failing_answer FILE DELAY_S SHARE`.

Every answer comes after the delay. Of all requests the given share is refused with 529, the same ones for each process.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

BUSY = b'{"type":"error","error":{"type":"overloaded_error","message":"Busy."}}'
HEAD = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\nretry-after: 0\r\ncontent-length: %d\r\n\r\n"


async def serve(document: bytes, delay_s: float, share: float) -> None:
    """Serve until the process is stopped."""
    random = Random(5)
    fine, busy = HEAD % (b"200 OK", len(document)) + document, HEAD % (b"529 Overloaded", len(BUSY)) + BUSY

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = asked.partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                await asyncio.sleep(delay_s)
                writer.write(busy if random.random() < share else fine)
        except (asyncio.IncompleteReadError, ConnectionError):  # the client has hung up
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**24, backlog=1_000)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]).read_bytes(), float(sys.argv[2]), float(sys.argv[3])))
