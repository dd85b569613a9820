"""A store without secrets: what is in the file, what stays as it was, and that the conversation goes on."""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from journeyman import Agent, Chat, Text, ToolResult, tool
from journeyman.model import Response
from journeyman.session import Step
from journeyman.store import Store
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.tools.redaction import MARK
from journeyman.types import Base64, Document, Image, Message, Opaque, RedactedThinking, Thinking, ToolUse
from tests.contracts.carriers import CARRIERS, Carrier
from tests.tools.secret_texts import INNOCENTS, SECRETS
from tests.tools.test_redaction import parts

KEY = "hf_" + "a1b2" * 8


@tool
def note(text: str, more: dict[str, str]) -> str:
    """Note a text."""
    if more.get("fail"):
        raise ValueError(text)
    return text


def noting(texts: Sequence[str], **more: str) -> Agent:
    calls = [call("note", id=f"{n}", text=text, more={"said": text, **more}) for n, text in enumerate(texts)]
    return Agent(name="a", model=ScriptedModel([calls, "\n\n".join(texts)]), tools=[note])


async def written(path: Path, agent: Agent, prompt: str, *, redact: Sequence[str] = ()) -> bytes:
    """Return the bytes of all files of a store in which an agent was asked."""
    with Store(path, redact=redact) as store:
        async with Chat.open(agent, store) as chat:
            (await chat.prompt(prompt)).unwrap()
            chat.follow_up(prompt)
        return b"".join(each.read_bytes() for each in sorted(path.parent.glob(f"{path.name}*")))


@pytest.mark.parametrize("more", [{}, {"fail": "yes"}], ids=["results", "errors"])
async def test_no_secret_of_the_corpus_is_in_the_files_of_the_store(path: Path, more: dict[str, str]) -> None:
    texts = [parts(each) for each in SECRETS]
    data = await written(path, noting([text for text, _ in texts], **more), "\n\n".join(text for text, _ in texts))
    assert len(data) > 200_000
    secrets = {secret for _, secret in texts if len(secret) > 6}
    forms = {
        form for each in secrets for form in (each, json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1])
    }
    assert [each for each in sorted(forms) if each.encode() in data] == []


async def test_what_is_no_secret_is_kept_word_for_word(path: Path) -> None:
    await written(path, noting(INNOCENTS), "Note them.")
    with Store(path) as store:
        (info,) = store.sessions()
        blocks = [block for message in store.messages(info.id) for block in message.content]
    assert [json.loads(block.input_json)["text"] for block in blocks if isinstance(block, ToolUse)] == [*INNOCENTS]
    assert [block.text for block in blocks if isinstance(block, ToolResult)] == [*INNOCENTS]


async def test_what_redact_names_is_taken_out_too(path: Path) -> None:
    assert b"Lovelace" not in await written(path, noting(["by Ada Lovelace"]), "For Lovelace.", redact=["Lovelace"])


def test_ids_media_and_what_a_provider_has_signed_stay(path: Path) -> None:
    said = f"the key is {KEY}"
    signed = Thinking("A thought.", signature=KEY)
    hidden = RedactedThinking(KEY)
    picture = Image(Base64(KEY, "image/png"))
    use = ToolUse(
        id=KEY, name="note", input_json=json.dumps({"password": 123456, "n": 1}), extra={"signature": KEY, "x": said}
    )
    item = {"type": "reasoning", "id": KEY, "encrypted_content": KEY, "summary": [{"type": "text", "text": said}]}
    result = ToolResult((Text('{"password": 123456, "user": "ada"}'), picture), tool_use_id=KEY)
    messages = (
        Message("user", (Text(said), picture, Document(Base64("QQ==", "application/pdf"), title=said))),
        Message("assistant", (signed, Thinking(said, signature="s"), hidden, Opaque("openai", json.dumps(item)), use)),
        Message("user", (result,)),
    )
    told = f"the key is {MARK}"
    with Store(path, redact=()) as store:
        session = store.session(agent="a")
        session.write(Step(position=0, messages=messages, staged=(ToolResult(said, tool_use_id="2"),)))
        session.close()
        found = store.snapshot(session.id)
    assert found.staged == (ToolResult(told, tool_use_id="2"),)
    first, answer, last = found.messages
    assert first.content == (Text(told), picture, Document(Base64("QQ==", "application/pdf"), title=told))
    assert answer.content[:3] == (signed, Thinking(told), hidden)
    opaque, used = answer.content[3:]
    assert isinstance(opaque, Opaque)
    assert json.loads(opaque.json) == {**item, "summary": [{"type": "text", "text": told}]}
    assert isinstance(used, ToolUse)
    assert (used.id, used.extra) == (KEY, {"signature": KEY, "x": told})
    assert json.loads(used.input_json) == {"password": MARK, "n": 1}
    (found_result,) = last.content
    assert isinstance(found_result, ToolResult)
    assert (json.loads(found_result.text), found_result.tool_use_id) == ({"password": MARK, "user": "ada"}, KEY)


async def test_only_what_is_new_is_written(path: Path) -> None:
    agent = Agent(name="a", model=ScriptedModel(["Yes."], repeat=True))
    with Store(path, redact=()) as store:
        async with Chat.open(agent, store) as chat:
            for _ in range(3):
                (await chat.prompt(f"Is it {KEY}?")).unwrap()
            assert f"Is it {KEY}?" in str(chat.messages)  # in memory it goes on word for word
            id = chat.session.id if chat.session else ""
        async with Chat.open(agent, store, id=id) as chat:
            (await chat.prompt(f"Is it {KEY}?")).unwrap()
    with sqlite3.connect(path) as connection:
        positions = connection.execute(
            "SELECT position FROM jm_conversation WHERE kind = 'message' ORDER BY n"
        ).fetchall()
    connection.close()
    assert [position for (position,) in positions] == [*range(8)]


@pytest.mark.parametrize(
    "carrier", [each for each in CARRIERS if "document" not in each.name], ids=lambda each: each.name
)
async def test_providers_take_a_conversation_whose_secrets_are_gone(path: Path, carrier: Carrier) -> None:
    thinking = () if "thinking" in carrier.lacks else (Thinking(f"They say {KEY}.", signature="c2ln", provider=None),)
    asked = ToolUse(id="call_1", name="note", input_json=f'{{"text":"{KEY}","more":{{"password":"hunter22"}}}}')
    answers = (
        Response(content=(*thinking, asked), stop_reason="tool_use"),
        Response(content=(Text(f"Noted {KEY}."),), stop_reason="end_turn"),
    )
    with Store(path, redact=()) as store:
        async with carrier.play(answers) as played:
            agent = Agent(name="a", model=played.model, tools=[note])
            async with Chat.open(agent, store) as chat:
                (await chat.prompt(f"Note {KEY}.")).unwrap()
                id = chat.session.id if chat.session else ""
        async with carrier.play((Response(content=(Text("Again."),), stop_reason="end_turn"),)) as played:
            agent = Agent(name="a", model=played.model, tools=[note])
            async with Chat.open(agent, store, id=id) as chat:
                assert (await chat.prompt("And again.")).unwrap() == "Again."
            assert KEY not in str(played.bodies)
            assert MARK in str(played.bodies)
