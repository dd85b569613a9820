"""An app that is mounted in another application, with its lifespan or without."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import aiohttp
from starlette.applications import Starlette
from starlette.routing import Mount

from journeyman.cancellation import Abort
from journeyman.durable import Durable
from journeyman.serve import AgentApp, create_app
from journeyman.serve.http_guard import listen, serve_on
from tests.play import Door
from tests.serve.http_served import Served, clerk, waiter

P = ParamSpec("P")

RUN = {"input": "Hello."}
DETACHED = {"prefer": "respond-async"}


@asynccontextmanager
async def mounted(agents: AgentApp, *, has_lifespan: bool = False) -> AsyncGenerator[Served]:
    """Serve another application with the agents below /ai."""
    around = Starlette(routes=[Mount("/ai", agents)], lifespan=agents.lifespan if has_lifespan else None)
    abort = Abort()
    with listen("127.0.0.1", 0) as listening:
        server = asyncio.create_task(serve_on(listening, around, abort=abort))
        async with aiohttp.ClientSession() as client:
            yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}/ai", client, agents)
        abort.abort()
        await server


def in_its_own_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in an event loop that ends with it: what is mounted is open until then."""

    @wraps(test)
    def run_test(*given: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*given, **named))

    return run_test


def test_a_mounted_app_opens_at_its_first_request_and_closes_with_the_event_loop(tmp_path: Path) -> None:
    store, door = str(tmp_path / "runs.db"), Door()

    async def first_life() -> None:
        async with mounted(create_app([clerk(), waiter(door)], store=store)) as served:
            at_once = await asyncio.gather(*(served.ask("GET", "/agents") for _ in range(5)))
            assert {status for status, _ in at_once} == {200}
            assert (await served.ask("GET", "/ready"))[0] == 200
            assert (await served.ask("POST", "/agents/clerk/runs", RUN, idempotency_key="a"))[1]["code"] == "SUCCESS"
            assert (await served.ask("POST", "/agents/waiter/runs", RUN, idempotency_key="b", **DETACHED))[0] == 202
            await door.reached.wait()

    async def second_life() -> None:
        async with Durable(store) as durable:
            assert (await durable.get("public:a")).id
            assert (await (await durable.get("public:b")).info()).status == "ready"  # it was given back in order

    asyncio.run(first_life())
    asyncio.run(second_life())


def test_a_mounted_app_opens_again_in_the_next_event_loop() -> None:
    agents = create_app([clerk()])

    async def life() -> None:
        async with mounted(agents) as served:
            assert (await served.ask("POST", "/agents/clerk/runs", RUN, idempotency_key="a"))[0] == 200
            assert (await served.ask("GET", "/runs/a"))[0] == 200

    for _ in range(2):
        asyncio.run(life())


@in_its_own_loop
async def test_a_mounted_app_whose_store_cannot_be_opened_says_so_at_each_request(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.mkdir()
    async with mounted(create_app([clerk()], store=str(path))) as served:
        for _ in range(2):
            assert (await served.ask("GET", "/ready"))[1]["error"]["code"] == "STORE_AWAY"
            assert (await served.ask("POST", "/agents/clerk/runs", RUN))[0] == 503
        assert (await served.ask("GET", "/health"))[0] == 200
        path.rmdir()
        assert (await served.ask("POST", "/agents/clerk/runs", RUN))[0] == 200


@in_its_own_loop
async def test_with_a_lifespan_an_app_is_closed_by_it_and_not_opened_again() -> None:
    agents = create_app([clerk()])
    async with mounted(agents, has_lifespan=True) as served:
        assert (await served.ask("GET", "/ready"))[0] == 200
    async with mounted(agents) as served:
        for method, path in (("GET", "/ready"), ("GET", "/agents"), ("POST", "/agents/clerk/runs")):
            status, shown = await served.ask(method, path, RUN if method == "POST" else None)
            assert (status, shown["error"]["code"]) == (503, "CLOSING")


@in_its_own_loop
async def test_the_place_of_a_run_is_one_that_its_client_can_ask_for() -> None:
    async with mounted(create_app([clerk()])) as served:
        url = served.url.removesuffix("/ai")
        for path in ("/agents/clerk/runs", "/agents/clerk/chats/c/turns"):
            async with served.client.post(served.url + path, json=RUN) as answer:
                place = answer.headers["Location"]
            async with served.client.get(url + place) as shown:
                assert shown.status == 200
