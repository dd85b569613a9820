"""Functions of the program that a server calls: one may raise once, never return, or be async. Nothing hangs for it."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from starlette.requests import Request as HttpRequest

from journeyman import Agent, Subagents, Text, ToolContext, ToolResult, tool
from journeyman.durable import Durable
from journeyman.model import Request
from journeyman.serve import ServeLimits
from journeyman.testing.scripted import Answer, FunctionModel, call
from tests.serve.http_served import AppOptions, Json, Served, serving

AGUI: Json = {"threadId": "c", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Go."}]}
REQUESTS: Mapping[str, tuple[str, Json]] = {
    "run": ("/agents/teller/runs", {"input": "Go."}),
    "turn": ("/agents/teller/chats/c/turns", {"input": "Go."}),
    "AG-UI": ("/agents/teller/agui", {**AGUI, "state": {}, "tools": [], "context": [], "forwardedProps": {}}),
}


@tool
def name(context: ToolContext[str]) -> str:
    """Say whose the deps are."""
    return context.deps


def told(request: Request) -> str:
    return " ".join([block.text for block in request.messages[-1].content if isinstance(block, ToolResult | Text)])


def answer(request: Request) -> Answer:
    return call("name") if told(request) == "Go." else f"It is {told(request)}."


def teller() -> Agent[str, str, str]:
    """Return an agent that says what its deps are."""
    return Agent(name="teller", description="Tells.", model=FunctionModel(answer), deps=str, tools=[name])


class Factory:
    """Makes deps, and fails as often as it is told to."""

    def __init__(self, n_failures: int = 0) -> None:
        self.n_failures = n_failures
        self.owners: list[str] = []

    def __call__(self, owner: str) -> str:
        self.owners.append(owner)
        if len(self.owners) <= self.n_failures:
            raise ConnectionError(f"no database for {owner}: secret-host")
        return f"{owner}'s"


async def asynchronous(owner: str) -> str:
    await asyncio.sleep(0)
    return f"{owner}'s"


async def hanging(_: str) -> str:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def ask(served: Served, what: str, **headers: str) -> tuple[int, str]:
    """Return the status, and the body as a text."""
    path, body = REQUESTS[what]
    status, shown = await served.ask("POST", path, body, idempotency_key="k", **headers)
    return status, str(shown)


def options(tmp_path: Path, *, is_stored: bool, **given: object) -> AppOptions:
    store = AppOptions(store=str(tmp_path / "runs.db")) if is_stored else AppOptions()
    return {**store, **given}  # pyright: ignore[reportReturnType] - its fields, by name


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("what", REQUESTS)
async def test_deps_that_fail_once_are_a_request_to_come_back_and_then_the_same_request_is_answered(
    tmp_path: Path, what: str, is_stored: bool
) -> None:
    factory = Factory(n_failures=1)
    async with serving([teller()], **options(tmp_path, is_stored=is_stored, deps=factory)) as served:
        path, body = REQUESTS[what]
        async with served.client.post(served.url + path, json=body, headers={"Idempotency-Key": "k"}) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            refused = await response.text()
        assert "NO_DEPS" in refused
        assert "secret-host" not in refused
        status, shown = await ask(served, what)
        assert (status, "It is public's." in shown) == (200, True), shown
    assert factory.owners == ["public", "public"]


@pytest.mark.parametrize("what", REQUESTS)
async def test_deps_may_be_made_by_an_async_function(what: str) -> None:
    async with serving([teller()], deps=asynchronous) as served:
        assert "It is public's." in (await ask(served, what))[1]


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("what", REQUESTS)
async def test_deps_that_never_come_are_given_up_and_the_server_closes(
    tmp_path: Path, what: str, is_stored: bool
) -> None:
    given = options(tmp_path, is_stored=is_stored, deps=hanging, limits=ServeLimits(hook_s=0.05))
    async with asyncio.timeout(30), serving([teller()], **given) as served:
        for _ in range(2):
            status, shown = await ask(served, what)
            assert (status, "NO_DEPS" in shown) == (503, True), shown


async def test_a_client_that_leaves_before_the_deps_have_come_leaves_nothing_behind(tmp_path: Path) -> None:
    come = asyncio.Event()

    async def slow(owner: str) -> str:
        await come.wait()
        if not late:
            raise ConnectionError("no database")
        return owner

    late = list[str]()
    async with serving([teller()], deps=slow, store=str(tmp_path / "runs.db")) as served:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await ask(served, "turn")
        come.set()
        assert (await ask(served, "turn"))[0] in (409, 503), "the first one fails, and is told to nobody"
        late.append("now")
        assert "It is public." in (await ask(served, "turn"))[1]


async def test_a_run_that_was_left_ready_is_taken_by_a_server_whose_deps_fail_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journeyman.durable.worker._PATIENCE_S", 0.01)
    store, factory = str(tmp_path / "runs.db"), Factory(n_failures=2)
    async with Durable(store) as durable:
        await durable.start(teller(), "Go.", id="public:k")
    async with serving([teller()], deps=factory, store=store) as served:
        assert (await served.ended("k"))["output"] == "It is public's."
    assert factory.owners == ["public"] * 3


async def test_a_background_run_gets_the_deps_of_whoever_owns_the_run_above(tmp_path: Path) -> None:
    def leads(request: Request) -> Answer:
        said = "".join([message.text for message in request.messages])
        if "task-completed" in said:
            return said.partition("<result>")[2].partition("</result>")[0]
        sent = call("subagent", agent="teller", task="Go.", background=True, description="Ask", id="1")
        return sent if len(request.messages) == 1 else "It works."

    lead = Agent(name="lead", model=FunctionModel(leads), deps=str, tools=[Subagents(teller())])
    factory, store = Factory(), str(tmp_path / "runs.db")
    async with Durable(store) as durable:
        await durable.start(lead, "Go.", id="ann:k")
    async with serving([lead], deps=factory, store=store, authorize=lambda _: "ann") as served:
        assert (await served.ended("k"))["output"] == "It is ann's."
    assert {*factory.owners} == {"ann"}


@pytest.mark.parametrize("how", ["raises once", "never returns"])
async def test_an_authorize_that_fails_is_an_error_of_that_request_alone(how: str) -> None:
    asked = list[str]()

    async def authorize(request: HttpRequest) -> str:
        asked.append(request.url.path)
        if len(asked) == 1:
            await (asyncio.Event().wait() if how == "never returns" else asyncio.sleep(0))
            raise ConnectionError("no directory: secret-host")
        return "ann"

    async with serving([teller()], deps=Factory(), authorize=authorize, limits=ServeLimits(hook_s=0.05)) as served:
        status, refused = await ask(served, "run")
        assert status == (500 if how == "raises once" else 503)
        assert "secret-host" not in refused
        assert "It is ann's." in (await ask(served, "run"))[1]
