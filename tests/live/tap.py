"""A tap between a client and a server: it passes bytes on, and knows what the server itself says that it used."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_CHUNK_HEAD = re.compile(rb"\r\n[0-9a-fA-F]+\r\n")
_COUNT = re.compile(rb'"(?:prompt_tokens|input_tokens)":\s*(\d+)|"(?:completion_tokens|output_tokens)":\s*(\d+)')
_CACHED = re.compile(rb'"cache_read_input_tokens":\s*(\d+)')


@dataclass(slots=True)
class Tap:
    """What has passed, by connection."""

    url: str = ""
    answers: list[bytearray] = field(default_factory=list[bytearray])

    def used(self) -> tuple[int, int]:
        """Return how many tokens went in, cached or not, and came out, by the last count of each answer."""
        total_in = total_out = 0
        for answer in self.answers:
            for one in re.split(rb"(?=HTTP/1\.1 \d{3})", _CHUNK_HEAD.sub(b"", bytes(answer))):
                counts = _COUNT.findall(one)
                total_in += int(next((into for into, _ in reversed(counts) if into), b"0"))
                total_in += int(next(reversed(_CACHED.findall(one)), b"0"))
                total_out += int(next((out for _, out in reversed(counts) if out), b"0"))
        return total_in, total_out


@asynccontextmanager
async def tapped(url: str) -> AsyncGenerator[Tap]:
    """Listen on a free port, and pass everything on to the server at `url`."""
    tap, there = Tap(), urlsplit(url)

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray | None) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if kept is not None:
                    kept += data
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = bytearray()
        tap.answers.append(kept)
        try:
            server_reader, server_writer = await asyncio.open_connection(there.hostname, there.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(passed(reader, server_writer, None), passed(server_reader, writer, kept))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        tap.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield tap
