"""Resources and prompts of MCP servers: read by programs, and by models where they are let."""

import asyncio
import json

import pytest

from journeyman import DefinitionError, Image, Message, Rejected, Text
from journeyman.mcp import (
    ConnectedServer,
    PromptArgument,
    Resource,
    ResourceContent,
    ResourceTemplate,
    ServerPrompt,
    ServerTools,
    mcp,
)
from tests.mcp.small import Small, by_name
from tests.play import answered, cancelled

pytestmark = pytest.mark.timeout(60)


async def test_resources_are_listed_from_all_pages(either: str) -> None:
    async with mcp({"notes": either}) as tools:
        notes = tools.servers["notes"]
        listed = await notes.resources()
        assert [each.uri for each in listed] == [f"note://{number}" for number in range(5)]
        assert listed[3] == Resource(
            uri="note://3", name="note-3", description="Note 3.", media_type="text/plain", size=3
        )
        template = ResourceTemplate(uri_template="note://{number}", name="note", description="A note.")
        assert await notes.templates() == [template]
        assert (notes.name, [each.name for each in tools]) == ("notes", ["ask"])


async def test_a_resource_is_read_as_text_or_bytes(either: str) -> None:
    async with mcp({"notes": either}) as tools:
        notes = tools.servers["notes"]
        text = ResourceContent(uri="note://1", content="The text of note://1", media_type="text/plain")
        assert await notes.read("note://1") == [text]
        assert await notes.read("note://bytes") == [ResourceContent(uri="note://bytes", content=bytes(range(256)))]
        with pytest.raises(Rejected, match="the MCP server 'notes': there is no note://9"):
            await notes.read("note://9")
        with pytest.raises(Rejected, match="what it sent of note://damaged is damaged"):
            await notes.read("note://damaged")


async def test_prompts_are_listed_and_become_messages(either: str) -> None:
    async with mcp({"notes": either}) as tools:
        notes = tools.servers["notes"]
        town = PromptArgument(name="town", description="Where.", is_required=True)
        greet, *others = await notes.prompts()
        assert greet == ServerPrompt(name="greet", description="Prompt 0.", arguments=(town,))
        assert [each.name for each in others] == ["draw", "plain"]
        first, second, third = await notes.prompt("greet", town="Bern")
        assert (first, second) == (
            Message("user", (Text("Say hello to Bern."),)),
            Message("assistant", (Text("In which language?"),)),
        )
        assert (third.role, third.content[0]) == ("user", Text("As they speak there:"))
        assert isinstance(third.content[1], Image)
        with pytest.raises(Rejected, match="town is missing"):
            await notes.prompt("greet")


async def test_a_server_without_resources_and_prompts_has_none(small: Small) -> None:
    async with mcp({"small": small.at("server")}, resources=True) as tools:
        server = tools.servers["small"]
        assert (await server.resources(), await server.templates(), await server.prompts()) == ([], [], [])
        assert [each.name for each in tools] == ["echo"]
        with pytest.raises(Rejected, match="no method resources/read"):
            await server.read("note://1")


async def test_a_model_reads_resources_where_it_is_let(either: str) -> None:
    async with mcp({"notes": either, "more": either}, resources=True, max_chars=2_000) as tools:
        named = by_name(tools)
        assert [*named] == ["notes_ask", "more_ask", "list_resources", "read_resource"]
        assert all(each.untrusted and each.effect == "once" for each in tools)
        lines = [json.loads(line) for line in (await answered(named["list_resources"], {})).text.splitlines()]
        assert len(lines) == 12
        assert lines[5] == {
            **{"server": "notes", "uri_template": "note://{number}"},
            **{"name": "note", "description": "A note."},
        }
        read = named["read_resource"]
        text = (await answered(read, {"server": "more", "uri": "note://1"})).text
        assert text == "[Resource note://1]\nThe text of note://1"
        (pixel,) = (await answered(read, {"server": "more", "uri": "note://pixel"})).content
        assert isinstance(pixel, Image)
        assert "256 bytes: not shown" in (await answered(read, {"server": "more", "uri": "note://bytes"})).text
        assert "[Cut: the first 2,000 of" in (await answered(read, {"server": "more", "uri": "note://long"})).text
        wrong = await answered(read, {"server": "more", "uri": "note://9"})
        assert (wrong.is_error, "there is no note://9" in wrong.text) == (True, True)
        assert (await answered(read, {"server": "others", "uri": "note://1"})).is_error


async def test_the_user_says_what_reading_does(either: str) -> None:
    async with mcp({"notes": either}, resources=True, effects={"read_resource": "pure"}) as tools:
        assert [(each.name, each.effect) for each in tools][1:] == [
            ("list_resources", "once"),
            ("read_resource", "pure"),
        ]
    with pytest.raises(DefinitionError, match="There is no tool 'read_resource'"):
        async with mcp({"notes": either}, effects={"read_resource": "pure"}):
            pass


@pytest.mark.parametrize("kind", ["paging", "slow"])
async def test_a_list_without_end_is_given_up(kind: str, small: Small) -> None:
    async with mcp({"small": small.at(kind)}, call_timeout_s=0.5 if kind == "slow" else 20) as tools:
        why = "did not answer within 0.5s" if kind == "slow" else "lists more than 10,000, or 100 pages"
        with pytest.raises(Rejected, match=why):
            await tools.servers["small"].resources()
        assert (await answered(tools[0], {"word": "ok"})).text == "ok"


async def test_a_server_is_not_read_when_its_block_was_left(either: str) -> None:
    async with mcp({"notes": either}) as tools:
        assert isinstance(tools, ServerTools)
        notes: ConnectedServer = tools.servers["notes"]
    with pytest.raises(Rejected, match="was ended with the block that started it"):
        await notes.read("note://1")


async def test_a_read_that_is_cancelled_leaves_the_server_in_use(either: str) -> None:
    async with mcp({"notes": either}) as tools:
        notes = tools.servers["notes"]
        reading = asyncio.create_task(notes.read("note://long"))
        await asyncio.sleep(0)
        await cancelled(reading)
        assert len(await notes.resources()) == 5
