"""A server that gives every request the same JSON document: as little work as HTTP allows. Prints its port.

Run as a process of its own: `python -m benchmarks.fixed_answer FILE [CERTIFICATE]`; with a certificate, over TLS.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path


async def serve(document: bytes, certificate: str | None) -> None:
    """Serve until the process is stopped."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(document)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = asked.partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(head + document)
        except (asyncio.IncompleteReadError, ConnectionError):  # the client has hung up
            writer.close()

    shown = None
    if certificate is not None:
        shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        shown.load_cert_chain(certificate)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**24, ssl=shown)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]).read_bytes(), sys.argv[2] if len(sys.argv) > 2 else None))
