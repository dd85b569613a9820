"""Pins: what somebody has looked at is shown to a model, and nothing else."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman import Agent, Runtime, run
from journeyman.errors import PinsDiffer
from journeyman.mcp import mcp, pin
from journeyman.mcp.pins import Definition, Offer, Pins, differences, pin_offer
from journeyman.permission.taint import TaintGate
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.tools.tools import AnyTool
from tests.mcp.small import Small, by_name
from tests.play import answered, make_tool

pytestmark = pytest.mark.timeout(60)

ECHO = Definition(
    name="echo",
    title=None,
    description="Does echo.",
    input_schema={"type": "object"},
    output_schema=None,
    annotations={"readOnlyHint": True},
)
OFFER = Offer(server="small", identity={"transport": "stdio", "program": "echoer", "name": "echo-server"}, tools=[ECHO])
PINS = Pins(servers={"small": pin_offer(OFFER)})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mcp-pins.json"


async def refused(small: Small, kind: str, file: Path, *, only: list[str] | None = None) -> PinsDiffer:
    with pytest.raises(PinsDiffer) as caught:
        async with mcp({"small": small.at(kind, only=only)}, pins=file):
            pass
    return caught.value


async def test_what_was_pinned_is_used(small: Small, file: Path) -> None:
    assert await pin({"small": small.at("server")}, file) == [
        f"server 'small' is new: {json.loads(file.read_text())['servers']['small']['identity']}",
        "tool 'echo' of server 'small' is new: 'Does echo.'",
    ]
    async with mcp({"small": small.at("server")}, pins=file) as (echo,):
        assert (await answered(echo, {"word": "hello"})).text == "hello"
    assert await pin({"small": small.at("server")}, file) == []


async def test_what_nobody_has_pinned_is_untrusted_throughout(small: Small, file: Path) -> None:
    paid: list[str] = []

    pay = make_tool("pay", "paid", into=paid, effect="once")

    async def pay_with(tools: Sequence[AnyTool]) -> None:
        model = ScriptedModel([call("pay", to="mallory@evil.example"), "Done."])
        await run(Agent(name="clerk", model=model, tools=[*tools, pay]), "Go.", runtime=Runtime(gate=TaintGate()))

    async with mcp({"small": small.at("server")}) as tools:
        await pay_with(tools)
    assert paid == []
    await pin({"small": small.at("server")}, file)
    async with mcp({"small": small.at("server")}, pins=file) as tools:
        await pay_with(tools)
    assert paid == ["mallory@evil.example"]


async def test_a_changed_description_is_refused(small: Small, file: Path) -> None:
    await pin({"small": small.at("server")}, file)
    assert str(await refused(small, "mutated", file)) == (
        f"The MCP tools are not those pinned in {file}, and no model was shown them:\n"
        "  - tool 'echo' of server 'small' changed: description\n"
        "Look at what the servers offer now. If it is right, pin it: journeyman mcp pin."
    )
    assert await pin({"small": small.at("mutated")}, file) == ["tool 'echo' of server 'small' changed: description"]
    async with mcp({"small": small.at("mutated")}, pins=file):
        pass


async def test_a_new_tool_is_refused_unless_it_is_not_taken(small: Small, file: Path) -> None:
    await pin({"small": small.at("server")}, file)
    error = await refused(small, "more", file)
    assert error.differences == ("tool 'shell' of server 'small' is new: 'Runs \\u202eanything.'",)
    async with mcp({"small": small.at("more", only=["echo"])}, pins=file) as tools:
        assert [each.name for each in tools] == ["echo"]


async def test_a_tool_that_is_gone_is_refused(small: Small, file: Path) -> None:
    await pin({"small": small.at("more")}, file)
    assert (await refused(small, "server", file)).differences == ("tool 'shell' of server 'small' is gone",)


async def test_without_a_file_nothing_is_started(small: Small, file: Path) -> None:
    assert (await refused(small, "server", file)).differences == ("there is no such file: nothing was pinned yet",)
    assert small.lines == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2, "servers": {}}', '{"servers": {"small": {}}}'])
async def test_a_damaged_file_is_refused(text: str, small: Small, file: Path) -> None:
    file.write_text(text)
    assert "the file is damaged, at " in str(await refused(small, "server", file))
    with pytest.raises(PinsDiffer):
        await pin({"small": small.at("server")}, file)
    assert small.lines == []


async def test_pins_of_other_servers_stay(small: Small, file: Path) -> None:
    await pin({"small": small.at("server")}, file)
    await pin({"other": small.at("more")}, file)
    assert sorted(json.loads(file.read_text())["servers"]) == ["other", "small"]
    assert sorted(each.name for each in file.parent.iterdir()) == ["mcp-pins.json", "server.log"]


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        (replace(ECHO, title="Echo"), "title"),
        (replace(ECHO, description="Does Echo."), "description"),
        (replace(ECHO, input_schema={"type": "object", "properties": {}}), "input_schema"),
        (replace(ECHO, output_schema={"type": "object"}), "output_schema"),
        (replace(ECHO, annotations=None), "annotations"),
        (replace(ECHO, description="x", annotations={"readOnlyHint": 1}), "description, annotations"),
    ],
)
def test_every_field_counts(changed: Definition, fields: str) -> None:
    assert differences(PINS, replace(OFFER, tools=[changed])) == [f"tool 'echo' of server 'small' changed: {fields}"]


def test_the_order_of_names_in_a_schema_does_not_count() -> None:
    one = replace(ECHO, input_schema={"type": "object", "title": "x"})
    assert one.digests() == replace(ECHO, input_schema={"title": "x", "type": "object"}).digests()


def test_another_server_is_told_by_its_identity() -> None:
    identity = {"transport": "http", "url": "https://example.org/mcp", "name": "echo-server"}
    assert differences(PINS, replace(OFFER, identity=identity)) == [
        "server 'small': its program was 'echoer' and is None",
        "server 'small': its transport was 'stdio' and is 'http'",
        "server 'small': its url was None and is 'https://example.org/mcp'",
    ]
    assert differences(PINS, replace(OFFER, server="big")) == ["server 'big' was not pinned"]


CHANGED = (
    "Error: not called: the MCP server 'small' has changed this tool (description) since it was listed. Go on without"
    " it; somebody has to look at it and pin it (journeyman mcp pin)."
)


async def test_a_tool_that_changes_when_the_server_says_so_is_not_called(small: Small) -> None:
    async with mcp({"small": small.at("changing")}) as tools:
        named = by_name(tools)
        assert (await answered(named["echo"], {"word": "chatter"})).text == "changed"
        assert (await answered(named["echo"], {"word": "hello"})).text == CHANGED
        assert (await answered(named["same"], {"word": "hello"})).text == "hello"
        assert named["echo"].description == "Does echo."
    assert sum('"tools/call"' in line for line in small.lines) == 2


async def test_a_tool_that_is_another_after_a_restart_is_not_called(small: Small) -> None:
    async with mcp({"small": small.at("changing")}) as tools:
        named = by_name(tools)
        await answered(named["same"], {"word": "die"})
        assert (await answered(named["echo"], {"word": "hello"})).text == CHANGED
        assert (await answered(named["same"], {"word": "hello"})).text == "hello"
    assert small.n_starts == 2
