"""A database that answers slowly: whoever does not need it is served meanwhile."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from tests.serve.http_served import clerk, serving


@asynccontextmanager
async def through_this_loop(database: str) -> AsyncGenerator[str]:
    """Give the URL of a database whose bytes pass this event loop: what keeps the loop waiting for an answer waits for
    good."""
    parts = urlsplit(database)
    query = parse_qs(parts.query)
    socket = f"{query['host'][0]}/.s.PGSQL.{query.get('port', ['5432'])[0]}"
    tasks = set[asyncio.Task[None]]()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(socket)
        tasks.update((asyncio.create_task(copy(reader, far_writer)), asyncio.create_task(copy(far_reader, writer))))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"{parts.scheme}://tests@127.0.0.1:{port}{parts.path}?sslmode=disable&gssencmode=disable"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_no_chat_in_a_database_keeps_the_event_loop_waiting(emptied: str) -> None:
    async with through_this_loop(emptied) as url, serving([clerk()], store=url) as served:
        for number in range(2):
            place = "/agents/clerk/chats/c/turns"
            async with asyncio.timeout(30):
                status, document = await served.ask("POST", place, {"input": f"Hello {number}."})
            assert (status, document["code"]) == (200, "SUCCESS")
        assert (await served.ask("GET", "/chats/c"))[1]["is_running"] is False
        assert (await served.ask("DELETE", "/chats/c"))[0] == 204
