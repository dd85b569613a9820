"""Where a text comes from is kept with it: what is not the user's is never trusted as the user's words."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from journeyman import Agent, Chat, Message, Runtime, Text, dump_messages, load_messages
from journeyman.gate import Allow, GateRequest, Seen
from journeyman.history import MAIL_MARK, NOTICE, History
from journeyman.testing import ScriptedModel
from tests.play import make_tool

SESSION_OF_0_1 = Path(__file__).parent / "data" / "session-0.1.db"
"""A chat in which background work ended, kept by version 0.1: its texts name no origin."""


class Remembering:
    """A gate that notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.seen: list[tuple[str, bool]] = []

    def for_run(self, path: tuple[str, ...]) -> Remembering:
        return self

    async def decide(self, request: GateRequest) -> Allow:
        return Allow()

    def hear(self, text: str) -> None:
        self.heard.append(text)

    def see(self, seen: Seen) -> None:
        self.seen.append((seen.tool_name, seen.untrusted))


async def test_a_notice_in_a_session_of_version_0_1_is_not_the_users_words(tmp_path: Path) -> None:
    store = shutil.copyfile(SESSION_OF_0_1, tmp_path / "chat.db")
    store.chmod(0o600)
    gate = Remembering()
    agent = Agent(name="keeper", model=ScriptedModel(["Hello again."]), tools=[make_tool("launch", "bg-1")])
    async with Chat.open(agent, store, id="3fae1d22", runtime=Runtime(gate=gate)) as chat:
        await chat.prompt("Thanks.")
        origins = [block.origin for message in chat.messages for block in message.content if isinstance(block, Text)]
    assert (gate.heard, gate.seen) == (["Start it.", "Thanks."], [("launch", False), ("task_output", True)])
    assert origins.count("notice") == 1


@pytest.mark.parametrize(("mark", "origin"), [(NOTICE, "notice"), (f"{MAIL_MARK} from='max'>", "mail")])
def test_what_was_stored_without_an_origin_is_told_by_its_mark_when_it_is_loaded(mark: str, origin: str) -> None:
    stored = dump_messages([Message("user", (Text(f"{mark} x"),))])
    assert b"origin" not in stored
    (message,) = History(load_messages(stored)).messages
    assert [block.origin for block in message.content if isinstance(block, Text)] == [origin]


def test_an_origin_is_stored_and_survives_a_text_without_a_mark() -> None:
    stored = dump_messages([Message("user", (Text("Send it.", origin="mail"), Text("Mine.")))])
    (message,) = History(load_messages(stored)).messages
    assert [block.origin for block in message.content if isinstance(block, Text)] == ["mail", None]
