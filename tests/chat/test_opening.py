"""Chats of an application: opened under an id of its choosing, wherever it keeps them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, Chat, ToolContext, tool
from journeyman.durable import Durable, InMemoryEngine, Memory
from journeyman.errors import DefinitionError, SessionInUse, StoreError
from journeyman.store import Store
from journeyman.testing.scripted import call
from journeyman.types import ToolResult
from tests.chat.opening import talker
from tests.chat.test_sessions import session_of
from tests.play import cancelled, following, script_of
from tests.support.kept import Kept


async def test_a_chat_with_an_id_of_the_users_choosing_is_begun_and_then_gone_on_with(kept: Kept) -> None:
    for number in (1, 2):
        async with Chat.open(talker(), kept.place, id="user-42", create=True) as chat:
            assert session_of(chat).id == "user-42"
            await chat.prompt(f"{number}.")
    assert script_of(chat) == [("user", "1."), ("assistant", "<1.>"), ("user", "2."), ("assistant", "<2.>")]
    with kept.stored() as store:
        assert [info.id for info in store.sessions()] == ["user-42"]


async def test_a_chat_in_which_nothing_was_said_is_not_made_by_its_id_either(kept: Kept) -> None:
    async with Chat.open(talker(), kept.place, id="user-42", create=True):
        pass
    with kept.stored() as store:
        assert store.sessions() == []


async def test_an_unknown_id_is_an_error_that_says_how_to_begin_one(kept: Kept) -> None:
    with pytest.raises(StoreError, match=r"has no session 'user-42'.*To begin one of this id, give create=True"):
        async with Chat.open(talker(), kept.place, id="user-42"):
            pass


GOOD = ["7", "user-42", "Ada Lovelace", "ada@example.org", "a:b", "run 7", "…", "Größe", "用户", "a" * 200]
BAD = {
    "": "The session id '' is blank",
    " \t": "is blank",
    "a/b": "The session id 'a/b' looks like a path",
    "..\\b": "looks like a path",
    ".": "looks like a path",
    "...": "looks like a path",
    "a\nb": r"The session id 'a\\nb' begins or ends with a blank, or has a character that cannot be shown",
    "a\x00": "cannot be shown",
    "\u202eabc": r"The session id '\\u202eabc' begins or ends with a blank, or has",
    "\ud800": "cannot be shown",
    " a": "begins or ends with a blank",
    "a" * 1_000: "The session id 'a{40}…' has 1,000 characters",
}


@pytest.mark.parametrize(
    ("kept", "id"), [*(("file", id) for id in GOOD), ("postgres", "Größe"), ("postgres", GOOD[-1])], indirect=["kept"]
)
async def test_a_good_id_may_be_any_text_that_can_be_shown(kept: Kept, id: str) -> None:
    for _ in range(2):
        async with Chat.open(talker(), kept.place, id=id, create=True) as chat:
            await chat.prompt("Hi.")
    with kept.stored() as store:
        assert [(info.id, info.messages) for info in store.sessions()] == [(id, 4)]
    if kept.place.endswith("chats.db"):
        path = Path(kept.place)
        assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("id", BAD)
@pytest.mark.parametrize("create", [True, False])
async def test_a_bad_id_is_refused_in_one_line_that_says_which_ids_are_good(path: Path, id: str, create: bool) -> None:
    with pytest.raises(StoreError, match=BAD[id]) as e:
        async with Chat.open(talker(), path, id=id, create=create):
            pass
    assert str(e.value).endswith(
        ". Give 1 to 200 characters that can be shown, without slashes and not only dots, as in 'user-42'."
    )
    assert str(e.value).isprintable()


async def test_what_is_no_id_and_what_is_no_place_are_refused(path: Path) -> None:
    wrong: Any = 42
    with pytest.raises(StoreError, match=r"The session id 42 is not a text. Give 1 to 200"):
        async with Chat.open(talker(), path, id=wrong, create=True):
            pass
    places: list[Any] = [wrong, None]
    for place in places:
        with pytest.raises(DefinitionError, match=f"The place is {place}. Pass a path, a Store, or a Durable"):
            async with Chat.open(talker(), place):
                pass
    with pytest.raises(StoreError, match="there is no kind 'redis'"):
        async with Chat.open(talker(), "redis://localhost/1"):
            pass


async def test_each_place_keeps_the_chat_under_its_id(path: Path) -> None:
    with Store(path) as store:
        async with Durable(path) as durable:
            for place in (path, str(path), f"sqlite:{path}", store, durable):
                async with Chat.open(talker(), place, id="user-42", create=True) as chat:
                    await chat.prompt("Hi.")
        assert [(info.id, info.messages) for info in store.sessions()] == [("user-42", 10)]


async def test_a_durable_in_memory_keeps_chats_as_long_as_the_memory_is_there() -> None:
    memory = Memory()
    for number in (1, 2):
        async with (
            Durable(InMemoryEngine(memory)) as durable,
            Chat.open(talker(), durable, id="a", create=True) as chat,
        ):
            with pytest.raises(SessionInUse, match="Session a in the memory is open in this process"):
                async with Chat.open(talker(), durable, id="a", create=True):
                    pass
            assert len(chat.messages) == 2 * (number - 1)
            assert (await chat.prompt(f"{number}.")).unwrap() == f"<{number}.>"


async def test_who_begins_a_session_that_is_being_begun_is_told_that_it_is_in_use(kept: Kept) -> None:
    async with Chat.open(talker(), kept.place, id="user-42", create=True) as chat:
        with pytest.raises(SessionInUse, match=r"Session user-42 in .* is open in this process"):
            async with Chat.open(talker(), kept.place, id="user-42", create=True):
                pass
        await chat.prompt("Hi.")
    with kept.stored() as store:
        store.delete("user-42")
    async with Chat.open(talker(), kept.place, id="user-42", create=True) as chat:
        assert chat.messages == ()


async def test_a_chat_that_is_cancelled_while_it_opens_leaves_its_session_free(kept: Kept) -> None:
    agent, said = talker(), asyncio.Event()

    async def talk() -> None:
        async with Chat.open(agent, kept.place, id="a", create=True) as chat:
            await chat.prompt("Hi.")
            said.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(talk())
    await cancelled(task, when=said)
    async with Chat.open(agent, kept.place, id="a") as chat:
        assert chat.messages[0].text == "Hi."


async def test_a_result_is_stored_once_while_other_calls_of_its_message_go_on(kept: Kept) -> None:
    stored = list[list[str]]()

    @tool
    async def look(context: ToolContext) -> str:
        """Look at what is stored of the calls before this one."""
        with kept.stored() as store:
            stored.append([b.tool_use_id for b in store.snapshot("1").staged if isinstance(b, ToolResult)])
        return "seen"

    model = following([call("look", id=each) for each in "abc"], "Done.")
    async with Chat.open(Agent(name="scout", model=model, tools=[look]), kept.place, id="1", create=True) as chat:
        await chat.prompt("Look.")
    assert stored == [[], ["a"], ["a", "b"]]
