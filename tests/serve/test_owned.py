"""What owners list and delete of their own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from journeyman.durable import Durable
from tests.play import Door
from tests.serve.http_served import AppOptions, Served, clerk, owner, serving, waiter

RUN = {"input": "Hello."}
DETACHED = {"prefer": "respond-async"}


@pytest.fixture(params=["plain", "file", "postgres"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> AppOptions:
    """How the server keeps what it has."""
    if request.param == "plain":
        return AppOptions(authorize=owner)
    if request.param == "file":
        return AppOptions(authorize=owner, store=str(tmp_path / "runs.db"))
    return AppOptions(authorize=owner, store=request.getfixturevalue("database"))


async def listed(served: Served, place: str, user: str, *, limit: int = 2) -> list[Any]:
    """Return all pages of a list."""
    pages, further = list[Any](), ""
    while further is not None:
        status, page = await served.ask("GET", f"/{place}?limit={limit}{further}", x_user=user)
        assert status == 200, page
        assert len(page[place]) <= limit
        pages += page[place]
        further = None if page["next"] is None else f"&before={page['next']}"
    return pages


async def test_an_owner_lists_and_deletes_their_runs_and_nobody_elses(options: AppOptions) -> None:
    async with serving([clerk()], **options) as served:
        for user in ("ada", "ada%", "a"):
            for number in range(3):
                key = {"idempotency_key": f"{user.strip('%')}{number}", "x_user": user}
                assert (await served.ask("POST", "/agents/clerk/runs", RUN, **key))[0] == 200
        runs = await listed(served, "runs", "ada")
        assert [each["id"] for each in runs] == ["ada2", "ada1", "ada0"]
        assert {(each["agent"], each["status"]) for each in runs} == {("clerk", "done")}
        assert await served.ask("DELETE", "/runs/ada1", x_user="a") == await served.ask("GET", "/runs/ada1", x_user="a")
        assert (await served.ask("DELETE", "/runs/ada1", x_user="ada"))[0] == 204
        for method, path in (("GET", "/runs/ada1"), ("GET", "/runs/ada1/events"), ("DELETE", "/runs/ada1")):
            assert (await served.ask(method, path, x_user="ada"))[0] == 404
        assert [each["id"] for each in await listed(served, "runs", "ada")] == ["ada2", "ada0"]
        assert len(await listed(served, "runs", "ada%")) == len(await listed(served, "runs", "a")) == 3
        again = await served.ask("POST", "/agents/clerk/runs", {"input": "New."}, x_user="ada", idempotency_key="ada1")
        assert again[1]["output"] == "You said: New."


async def test_an_owner_lists_and_deletes_their_chats_and_nobody_elses(options: AppOptions) -> None:
    async with serving([clerk()], **options) as served:
        for user in ("ada", "adam"):
            for number in range(3):
                place = f"/agents/clerk/chats/c{number}/turns"
                assert (await served.ask("POST", place, RUN, x_user=user))[0] == 200
        assert [each["id"] for each in await listed(served, "chats", "ada")] == ["c2", "c1", "c0"]
        assert (await served.ask("DELETE", "/chats/c1", x_user="ada"))[0] == 204
        assert [each["id"] for each in await listed(served, "chats", "ada")] == ["c2", "c0"]
        for method, path in (("GET", "/chats/c1"), ("GET", "/chats/c1/events"), ("DELETE", "/chats/c1")):
            assert (await served.ask(method, path, x_user="ada"))[0] == 404, (method, path)
        assert len(await listed(served, "chats", "adam")) == 3
        turn = await served.ask("POST", "/agents/clerk/chats/c1/turns", {"input": "New."}, x_user="ada")
        assert turn[1]["output"] == "You said: New."


async def test_what_goes_on_is_not_deleted(options: AppOptions) -> None:
    door = Door()
    async with serving([waiter(door)], **options) as served:
        for path in ("/agents/waiter/runs", "/agents/waiter/chats/k/turns"):
            assert (await served.ask("POST", path, RUN, x_user="ada", idempotency_key="k", **DETACHED))[0] == 202
        await door.reached.wait()
        refused = [await served.ask("DELETE", f"/{place}/k", x_user="ada") for place in ("runs", "chats")]
        assert [(status, shown["error"]["code"]) for status, shown in refused] == [
            (409, "NOT_OVER"),
            (409, "CHAT_IN_USE"),
        ]
        door.opened.set()
        for place in ("runs", "chats"):
            await served.told("GET", f"/{place}/k/events", x_user="ada")
            async with asyncio.timeout(30):
                while (await served.ask("DELETE", f"/{place}/k", x_user="ada"))[0] != 204:  # noqa: ASYNC110 - another task
                    await asyncio.sleep(0.01)


async def test_runs_of_other_programs_in_the_store_are_not_listed(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    async with Durable(store) as durable:
        await durable.run(clerk(), "Hello.", id="mine")
        await durable.run(clerk(), "Hello.", id="publicity")
    async with serving([clerk()], store=store) as served:
        assert await listed(served, "runs", "") == []


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "limit=", "before=", "before=x", "before=1.0_"])
async def test_what_is_no_page_is_refused(query: str) -> None:
    async with serving([clerk()]) as served:
        for place in ("runs", "chats"):
            status, shown = await served.ask("GET", f"/{place}?{query}")
            assert (status, shown["error"]["code"] in ("BAD_NUMBER", "BAD_PLACE")) == (400, True)
