"""What a store holds and hands out, who may use it, and what it says when it cannot be used."""

import json
import re
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from journeyman import Agent, Chat, load_messages
from journeyman.errors import SessionInUse, StoreError
from journeyman.session import Step
from journeyman.store.file import VERSION, File, Lock
from journeyman.store.sessions import INFO
from journeyman.store.store import Store
from journeyman.testing.scripted import ScriptedModel
from journeyman.types import Message, Text, ToolUse
from tests.support.kept import Kept
from tests.support.room import no_room


def agent(*answers: str) -> Agent:
    return Agent(name="tester", model=ScriptedModel(answers or ["Hello."], repeat=True))


def message(text: str, role: str = "user") -> Message:
    return Message("assistant" if role == "assistant" else "user", (Text(text),))


async def spoken(place: str | Path, *prompts: str) -> str:
    async with Chat.open(agent(), place) as chat:
        for prompt in prompts:
            (await chat.prompt(prompt)).unwrap()
        assert chat.session is not None
        return chat.session.id


async def test_sessions_are_listed_with_what_one_looks_for_the_last_written_first(kept: Kept) -> None:
    first = await spoken(kept.place, "Compare May\n and June. " + "Please. " * 20, "And July?")
    second = await spoken(kept.place, "Hi.")
    with kept.stored() as store:
        infos = store.sessions()
    assert [info.id for info in infos] == [second, first]
    assert infos[1].title == "Compare May and June. Please. Please. Please. Please. Please. Please. Please. P…"
    assert (infos[1].agent, infos[1].messages, infos[1].usage.requests, infos[1].cost) == ("tester", 4, 2, None)
    assert infos[1].created <= infos[1].updated <= infos[0].updated


def test_a_list_goes_through_no_conversation(path: Path) -> None:
    with closing(File(path)) as file:
        assert str(file.rows(f"EXPLAIN QUERY PLAN {INFO}")).count("jm_conversation_facts") == 2


async def test_a_chat_in_which_nothing_was_said_leaves_nothing(path: Path) -> None:
    async with Chat.open(agent(), path):
        pass
    with Store(path) as store:
        assert store.sessions() == []
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_two_sessions_in_one_file_do_not_meet(kept: Kept) -> None:
    async with Chat.open(agent(), kept.place) as one, Chat.open(agent(), kept.place) as two:
        await one.prompt("One.")
        await two.prompt("Two.")
        await one.prompt("One more.")
        ids = [chat.session.id for chat in (one, two) if chat.session]
        said = [chat.messages for chat in (one, two)]
    with kept.stored() as store:
        async with Chat.open(agent(), store, id=ids[0]) as one, Chat.open(agent(), store, id=ids[1]) as two:
            assert [one.messages, two.messages] == said


async def test_a_session_is_branched_at_a_message_and_both_go_on(kept: Kept) -> None:
    id = await spoken(kept.place, "One.", "Two.")
    with kept.stored() as store:
        branch = store.branch(id, 2)
        async with Chat.open(agent("Another."), store, id=branch) as chat:
            assert [each.text for each in chat.messages] == ["One.", "Hello."]
            await chat.prompt("Three.")
        assert [each.text for each in store.messages(id)] == ["One.", "Hello.", "Two.", "Hello."]
        assert [each.text for each in store.messages(branch)] == ["One.", "Hello.", "Three.", "Another."]
        assert (store.sessions()[0].parent, store.sessions()[0].usage.requests) == (id, 1)
        with pytest.raises(StoreError, match=f"{id} cannot be branched at message 5: it has 4"):
            store.branch(id, 5)


async def test_an_export_is_json_with_messages_that_load(kept: Kept) -> None:
    id = await spoken(kept.place, "Hi.")
    with kept.stored() as store, closing(store.session(id, agent="tester")) as session:
        session.write(Step(position=2, messages=[message("Go."), Message("assistant", (ToolUse("a", "look"),))]))
        session.add("Later.", "follow_ups")
        document = json.loads(store.export(id))
    assert (document["agent"], document["usage"]["requests"]) == ("tester", 1)
    assert document["waiting"] == [{"queue": "follow_ups", "text": "Later."}]
    loaded = load_messages(json.dumps(document["messages"]))
    assert [each.role for each in loaded] == ["user", "assistant", "user", "assistant", "user"]  # closed


async def test_a_deleted_session_is_gone_and_one_that_is_open_cannot_be_deleted(kept: Kept) -> None:
    id = await spoken(kept.place, "Hi.")
    with kept.stored() as store:
        async with Chat.open(agent(), store, id=id):
            with pytest.raises(SessionInUse, match="is open in this process"):
                store.delete(id)
        store.delete(id)
        assert store.sessions() == []
        with pytest.raises(StoreError, match=f"has no session '{id}'. It has none yet: leave the id out"):
            store.session(id, agent="tester")


async def test_of_an_unknown_id_the_one_that_is_like_it_is_named(kept: Kept) -> None:
    id = await spoken(kept.place, "Hi.")
    with kept.stored() as store, pytest.raises(StoreError, match=f"Did you mean {id}?"):
        store.session(f"{id[:-1]}x", agent="tester")


async def test_only_its_owner_can_read_a_store(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "chats.db"
    async with Chat.open(agent(), path) as chat:
        await chat.prompt("Hi.")
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert (len(modes), set(modes.values()), stat.S_IMODE(path.parent.stat().st_mode)) == (4, {0o600}, 0o700)


def changed(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize("kind", ["a text", "a database", "a newer version", "an older version"])
async def test_a_file_of_somebody_else_or_of_another_version_is_refused_and_not_changed(path: Path, kind: str) -> None:
    why = r"is not a store of journeyman. Give another path."
    if kind == "a text":
        path.write_text("Dear diary, " * 100)
    elif kind == "a database":
        changed(path, "CREATE TABLE diary (day TEXT)")
    else:
        await spoken(path, "Hi.")
        version, why = (
            (VERSION + 1, rf"has format {VERSION + 1}; this version of journeyman knows those up to {VERSION}\. Update")
            if kind == "a newer version"
            else (
                VERSION - 1,
                f"has format {VERSION - 1}, which only versions of journeyman before the first release read",
            )
        )
        changed(path, f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=why):
        Store(path)
    assert (path.read_bytes(), [each.name for each in path.parent.iterdir()]) == (before, [path.name])


def test_a_place_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"could not be opened: (Not a directory|File exists)"):
        Store(tmp_path / "file" / "chats.db")
    with pytest.raises(StoreError, match="could not be opened: unable to open database file"):
        Store(tmp_path)


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    why = (
        r"could not be opened: (Permission denied|No such file or directory)\. Make the folder writable, or use another"
    )
    with pytest.raises(StoreError, match=why):  # root, too, can make no file there
        Store(Path("/proc/chats.db"))
    (tmp_path / "chats.db-7.lock").mkdir()
    (tmp_path / "chats.db-8.lock").symlink_to(tmp_path / "elsewhere")
    for name, fault in (("7", "Is a directory"), ("8", "Too many levels of symbolic links")):
        with pytest.raises(StoreError, match=rf"chats\.db-{name}\.lock could not be opened: {fault}\. Make the folder"):
            Lock(tmp_path / "chats.db", name, what="It")
    assert not (tmp_path / "elsewhere").exists()


async def test_a_full_disk_is_told_and_nothing_is_lost_when_there_is_room_again(path: Path) -> None:
    async with Chat.open(agent(), path) as chat:
        assert chat.session is not None
        await chat.prompt("One.")
        with no_room(path.parent):
            with pytest.raises(StoreError, match=r"chats\.db could not be written: .* The disk .* full"):
                await chat.prompt("Two. " * 5_000)
            with pytest.raises(StoreError, match="could not be written"):
                chat.follow_up("Not queued. " * 1_000)
            assert chat.state.follow_ups == ()
        (await chat.prompt("Three.")).unwrap()
        said, id = chat.messages, chat.session.id
    async with Chat.open(agent(), path, id=id) as chat:
        assert (chat.messages, [each.text[:6] for each in said]) == (said, ["One.", "Hello.", "Two. T", "Hello."])
        assert said[2].text.endswith("Three.")


def test_a_block_that_raises_writes_nothing_and_the_next_one_writes(path: Path) -> None:
    with closing(File(path)) as file:
        insert = "INSERT INTO jm_sessions (id, agent, created) VALUES (?, '', 0)"

        def fall() -> None:
            with file.transaction() as connection:
                connection.execute(insert, ["first"])
                raise KeyError

        with pytest.raises(KeyError):
            fall()
        with file.transaction() as connection:
            connection.execute(insert, ["second"])
        assert file.rows("SELECT id FROM jm_sessions") == [("second",)]


GONE_MEANWHILE = """
import sys
from pathlib import Path
from journeyman.errors import SessionInUse
from journeyman.store.file import Lock

def release(event, arguments):
    if event.startswith("fcntl.") and held:  # another has opened the file, and has not locked it yet
        held.pop().release()

held, store = [], Path(sys.argv[1])
held.append(Lock(store, "7", what="It"))
sys.addaudithook(release)
mine = Lock(store, "7", what="It")
try:
    Lock(store, "7", what="It")
except SessionInUse as error:
    print(error)
"""


def test_a_lock_that_is_released_while_another_takes_it_is_held_by_one(path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", GONE_MEANWHILE, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (
        "It is open in this process. Close it there first, or open another one.\n",
        "",
    )


WITHOUT_LOCKS = """
import importlib, pkgutil, sys
sys.modules["fcntl"] = sys.modules["msvcrt"] = None
import journeyman.cli.chat, journeyman.permission, journeyman.store
from journeyman.errors import ApprovalsUnreadable, StoreError
for room in (journeyman.cli.chat, journeyman.permission, journeyman.store):
    for each in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        importlib.import_module(each.name)
store = journeyman.store.Store(sys.argv[1])
for work in (lambda: store.session(agent="tester"), lambda: store.sessions()):
    try:
        print(work())
    except StoreError as error:
        print(error)
approvals = journeyman.permission.Approvals(sys.argv[2])
try:
    print(approvals.pending())
    approvals.grant("tool:a", "always")
except ApprovalsUnreadable as error:
    print(error)
"""


def test_where_files_cannot_be_locked_all_can_be_imported_and_opening_a_session_says_so(path: Path) -> None:
    approvals = path.with_name("approvals.json")
    command = [sys.executable, "-W", "error", "-c", WITHOUT_LOCKS, path, approvals]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    why = "this system cannot lock files: its Python has neither fcntl nor msvcrt"
    hint = "Use a system, and a disk, on which files can be locked."
    session, sessions, pending, granted = done.stdout.splitlines()
    assert re.sub(r"Session \w+ in", "Session … in", session) == f"Session … in {path} cannot be opened: {why}. {hint}"
    assert (sessions, pending) == ("[]", "()")
    assert granted.startswith(f"The approvals in {approvals} cannot be used: {why}.")
    assert (done.stderr, approvals.exists()) == ("", False)
