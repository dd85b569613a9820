"""Servers that do not start, die, hang, flood, or talk nonsense: the error says what happened, and the run goes on."""

import sys
from dataclasses import replace

import pytest

from journeyman import Agent
from journeyman.errors import McpUnavailable
from journeyman.mcp import Stdio, mcp
from tests.mcp.small import Small
from tests.play import answered

pytestmark = pytest.mark.timeout(60)

CANNOT = "The MCP server 'small' cannot be used:"
BY_HAND = "Try the command by hand. If it only is slow, give it more time: start_timeout_s"
UNKNOWN = "Whether the call took effect is not known. The next call restarts it."


async def refusal(target: Stdio, *, start_timeout_s: float = 30.0) -> str:
    with pytest.raises(McpUnavailable) as caught:
        async with mcp({"small": replace(target, sandbox=None)}, start_timeout_s=start_timeout_s):
            pass
    return str(caught.value)


async def test_a_program_that_is_not_there() -> None:
    why = "'no-such-program' cannot be started: No such file or directory."
    assert await refusal(Stdio("no-such-program")) == f"{CANNOT} {why} {BY_HAND} (now 30)."


async def test_a_program_that_is_no_server(small: Small) -> None:
    assert await refusal(small.at("none")) == (
        f"{CANNOT} it ended with exit code 2; it wrote 1 line to its standard output that are no MCP messages, the"
        " first: 'Usage: no-server [--help]'; its last words on standard error: \"Traceback (most recent call last):"
        f" ModuleNotFoundError: No module named 'sqlite'\". {BY_HAND} (now 30)."
    )


@pytest.mark.parametrize(
    ("kind", "start_timeout_s", "reason"),
    [
        ("silent", 0.5, f"{CANNOT} it did not answer. {BY_HAND} (now 0.5)."),
        ("endless", 30, "it has more than 1,000 tools or 100 pages of them"),
        ("twice", 30, "it lists the tool 'echo' twice"),
        ("wordy", 30, "it describes the tool 'echo' with 1,000,000 characters, of at most 200,000"),
        ("badlist", 30, "its list of tools is not what the protocol says: "),
    ],
)
async def test_a_server_whose_list_of_tools_does_not_come_or_cannot_be_used(
    kind: str, start_timeout_s: float, reason: str, small: Small
) -> None:
    assert reason in await refusal(small.at(kind), start_timeout_s=start_timeout_s)


async def test_tools_that_are_wanted_and_not_there(small: Small) -> None:
    told = await refusal(small.at("server", only=["echo", "sing"]))
    assert told == f"{CANNOT} it does not offer 'sing'. It offers: echo. Correct only=."


async def test_a_server_without_tools_gives_none(small: Small) -> None:
    async with mcp({"small": small.at("toolless")}) as tools:
        assert tools == []


async def test_a_union_at_the_top_of_a_schema_is_said_in_the_description(small: Small) -> None:
    async with mcp({"small": small.at("unusable")}) as tools:
        for model in ("openai:gpt-5.2", "anthropic:claude-sonnet-4-5"):
            assert Agent(name="a", model=model, tools=tools).tools == tuple(tools)
        odd = next(tool for tool in tools if tool.name == "odd")
        assert "anyOf" not in odd.input_schema
        assert 'must also fit this JSON Schema: {"anyOf": ' in odd.description


async def test_one_bad_tool_of_a_server_costs_that_tool_alone_and_is_told(
    small: Small, caplog: pytest.LogCaptureFixture
) -> None:
    for only, names in ((None, ["good", "untyped", "faulty", "told"]), (["good"], ["good"])):
        async with mcp({"small": small.at("mixed", only=only)}) as tools:
            assert [tool.name for tool in tools] == names
            assert Agent(name="a", model="openai:gpt-5.2", tools=tools).tools == tuple(tools)
            if only is None:
                faulty = tools[2]
                assert (faulty.input_schema, '"type": "str"' in faulty.description) == ({"type": "object"}, True)
                assert faulty.parse('{"word": 7}') == {"word": 7}
    said = "\n".join(caplog.messages)
    for told in ("The tool 'listed' of an MCP", "The tool 'none' of an MCP", "arguments of the tool 'faulty' are not"):
        assert told in said
    wanted = await refusal(small.at("mixed", only=["good", "listed"]))
    assert "it does not offer 'listed'" in wanted


async def test_one_server_that_fails_ends_the_others(small: Small) -> None:
    with pytest.raises(McpUnavailable, match="The MCP server 'bad'"):
        async with mcp({"good": small.at("server"), "bad": small.at("none")}):
            pass


FULL = "it ended with exit code 3; its last words on standard error: 'cannot go on: the disk is full'"
LINES = "it does not speak MCP; it wrote 1,001 lines to its standard output that are no MCP messages"


@pytest.mark.parametrize(
    ("word", "reason", "n_starts"),
    [
        ("die", f"it failed during the call: {FULL}. {UNKNOWN}", 2),
        ("flood", "it failed during the call: it sent 20,000 messages in a row that nobody asked for", 2),
        ("too big", "it failed during the call: it wrote a line of more than 32 MB", 2),
        ("deep", "it failed during the call: it sent a message that is nested more than 190 deep", 2),
        ("only garbage", f"it failed during the call: {LINES}", 2),
        ("wrong", "its answer is not what the protocol says: ", 1),
    ],
)
async def test_a_server_that_dies_or_talks_nonsense_is_an_error_and_is_used_again(
    word: str, reason: str, n_starts: int, small: Small
) -> None:
    async with mcp({"small": small.at("sour")}) as (echo,):
        text = (await answered(echo, {"word": word})).text
        assert text.startswith(f"Error: the MCP server 'small': {reason}")
        assert (text.endswith(UNKNOWN), (await answered(echo, {"word": "ok"})).text) == (n_starts == 2, "ok")
    assert small.n_starts == n_starts


async def test_a_server_that_goes_by_itself_may_tidy_up_first(small: Small) -> None:
    async with mcp({"small": replace(small.at("departing"), grace_s=20.0)}) as (echo,):
        text = (await answered(echo, {"word": "hello"})).text
    assert "it failed during the call: it closed its standard output" in text
    assert small.lines[-1] == "tidied up"


async def test_a_server_that_keeps_dying_is_given_time(small: Small) -> None:
    async with mcp({"small": small.at("fragile")}) as (echo,):
        await answered(echo, {"word": "die"})
        again = (await answered(echo, {"word": "ok"})).text
        assert again == (
            "Error: not called: 'small' is an MCP server that is down: it ended with exit code 5; its last words on"
            " standard error: 'still broken'."
        )
        assert "it failed 2 times in a row, and is started again in 0." in (await answered(echo, {"word": "ok"})).text
    assert small.n_starts == 2


async def test_garbage_between_messages_is_passed_over(small: Small) -> None:
    async with mcp({"small": small.at("sour")}) as (echo,):
        assert (await answered(echo, {"word": "garbage"})).text == "said"
        text = (await answered(echo, {"word": "die"})).text
        assert "it wrote 2 lines to its standard output that are no MCP messages, the first: 'Warning: all is " in text


async def test_no_error_shows_a_secret(small: Small) -> None:
    target = small.at("sour", env={"TEST_TOKEN": "hunter2"})
    assert "hunter2" not in repr(target)
    async with mcp({"small": target}) as (echo,):
        assert "login with [redacted] failed" in (await answered(echo, {"word": "secret"})).text
    telling = small.at("telling", env={"TEST_TOKEN": "hunter2"})
    assert "it does not list its tools: no method [redacted]." in await refusal(telling)


async def test_no_arguments_of_a_command_are_shown() -> None:
    target = Stdio(sys.executable, ["-c", "raise SystemExit(7)", "--token=hunter2"])
    assert "hunter2" not in repr(target)
    assert "hunter2" not in await refusal(target)
