"""`journeyman cassette record` and `replay`: the same run again, offline, with or without the agent."""

import asyncio
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.program import AGENTS, Done, Warm, assert_one_error_line, timeless
from tests.support.messages_answers import answer, fault, tool_use
from tests.support.servers import MessagesApi

TRIP = '{"city": "Oslo", "days": 3}'

CLERK = """
import os
from journeyman import Agent, tool

@tool
def pay(invoice: str) -> str:
    "Pay an invoice."
    with open("paid.txt", "a") as file:
        file.write(invoice)
    return f"paid {invoice}"

clerk = Agent(
    name="clerk", model="anthropic:claude-sonnet-5-5", tools=[pay], system=os.environ.get("SYSTEM", "You pay.")
)
"""


def recorded(warm: Warm, folder: Path) -> Path:
    cassette = folder / "trip.jsonl"
    done = warm("cassette", "record", f"{AGENTS}:planner", TRIP, "--out", cassette, "--quiet")
    assert (done.code, done.stderr) == (0, "")
    return cassette


async def recorded_clerk(warm: Warm, folder: Path) -> Done:
    (folder / "clerk.py").write_text(CLERK)
    paying = answer("I pay.", tool_use("pay", {"invoice": "A7"}, id="1"))
    async with MessagesApi([fault(529, headers={"retry-after": "0"}), paying, answer("It is paid.")]) as api:
        env = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "ANTHROPIC_BASE_URL": api.url}
        words = ("cassette", "record", "clerk.py:clerk", "Pay A7.", "--out", "clerk.jsonl")
        return await asyncio.to_thread(warm, *words, env=env, cwd=folder)


def test_a_recorded_run_replays_with_the_same_tree_and_result(tmp_path: Path, warm: Warm) -> None:
    first = warm("cassette", "record", f"{AGENTS}:planner", TRIP, "--out", "trip.jsonl", cwd=tmp_path)
    second = warm("cassette", "replay", "trip.jsonl", f"{AGENTS}:planner", cwd=tmp_path)
    assert (first.code, second.code) == (0, 0)
    assert first.stdout == second.stdout == '{\n  "city": "Oslo",\n  "days": 2\n}\n'
    assert "Recording to trip.jsonl.\n" in first.stderr
    assert "Replaying trip.jsonl.\n" in second.stderr
    assert timeless(first.stderr).partition("\n\n")[2] == timeless(second.stderr).partition("\n\n")[2]


async def test_a_provider_is_replayed_without_key_network_or_tools(tmp_path: Path, warm: Warm) -> None:
    first = await recorded_clerk(warm, tmp_path)
    assert (first.code, first.stdout) == (0, "It is paid.\n")
    assert "sk-ant-0123456789" not in (tmp_path / "clerk.jsonl").read_text()
    for words in (["clerk.py:clerk"], ["clerk.py:clerk", "Pay A7."]):
        again = warm("cassette", "replay", "clerk.jsonl", *words, cwd=tmp_path)
        assert (again.code, again.stdout) == (0, "It is paid.\n")
        assert "overloaded: " in again.stderr
    assert (tmp_path / "paid.txt").read_text() == "A7"


async def test_a_document_of_a_replay_is_that_of_the_run(tmp_path: Path, warm: Warm) -> None:
    await recorded_clerk(warm, tmp_path)
    document = json.loads(
        warm("cassette", "replay", "clerk.jsonl", "clerk.py", "--json", "--quiet", cwd=tmp_path).stdout
    )
    assert (document["output"], document["usage"]["requests"]) == ("It is paid.", 2)
    assert document["history"][2]["content"][0]["content"] == "paid A7"


async def test_an_agent_that_changed_fails_with_the_difference(tmp_path: Path, warm: Warm) -> None:
    await recorded_clerk(warm, tmp_path)
    done = warm("cassette", "replay", "clerk.jsonl", "clerk.py", cwd=tmp_path, env={"SYSTEM": "You never pay."})
    assert_one_error_line(done, 1, ["API_ERROR: ", "(not_recorded): request 1: system[0].text differs"])
    assert '  │ - system[0].text: "You pay."\n  │ + system[0].text: "You never pay."\n' in done.stderr
    done = warm("cassette", "replay", "clerk.jsonl", "clerk.py", "Pay B8.", "--quiet", cwd=tmp_path)
    said = ["messages[0].content[0].text differs (clerk.jsonl, line 3", '+ messages[0].content[0].text: "Pay B8."']
    assert_one_error_line(done, 1, said)
    assert done.stderr.count("\n") == 1


async def test_a_cassette_is_shown_without_its_agent(tmp_path: Path, warm: Warm) -> None:
    await recorded_clerk(warm, tmp_path)
    (tmp_path / "clerk.py").unlink()
    done = warm("cassette", "replay", "clerk.jsonl", cwd=tmp_path)
    assert (done.code, done.stdout) == (0, "It is paid.\n")
    for line in ("clerk · anthropic:claude-sonnet-5-5", "Pay A7.", "  2 I pay.", "    ✓ pay A7", "overloaded: "):
        assert line in done.stderr
    assert "✓ end of the recording · 3 requests, 1 recorded call" in done.stderr


def test_what_was_handed_in_is_shown_without_the_agent(tmp_path: Path, warm: Warm) -> None:
    done = warm("cassette", "replay", recorded(warm, tmp_path), "--quiet")
    assert (done.code, done.stdout, done.stderr) == (0, "{}\n", "")  # the last call was submit


def test_what_is_not_asked_for_any_more_is_named(tmp_path: Path, warm: Warm) -> None:
    cassette = tmp_path / "a.jsonl"
    warm("cassette", "record", f"{AGENTS}:greeter", "Hello", "--out", cassette)
    lines = cassette.read_text().splitlines(keepends=True)
    second = lines[2].replace('"request": 1', '"request": 2').replace('"run": 1', '"run": 2')
    cassette.write_text("".join([*lines, second, lines[3].replace('"request": 1', '"request": 2')]))
    done = warm("cassette", "replay", cassette, f"{AGENTS}:greeter")
    assert (done.code, "! not asked for: request 2 (line 5)" in done.stderr) == (0, True)


def test_a_failed_run_is_recorded_as_well(tmp_path: Path, warm: Warm) -> None:
    cassette = tmp_path / "a.jsonl"
    first = warm("cassette", "record", f"{AGENTS}:hopeless", "Hello", "--out", cassette, "--quiet")
    second = warm("cassette", "replay", cassette, f"{AGENTS}:hopeless", "--quiet")
    assert (first.code, first.stderr) == (second.code, second.stderr) == (1, second.stderr)


GREETER = shlex.quote(f"{AGENTS}:greeter")
CASES: dict[str, tuple[str, list[str]]] = {
    "a cut cassette": (f"cassette replay cut.jsonl {GREETER}", ["cut.jsonl, line 4: this is not JSON"]),
    "another version": ("cassette replay new.jsonl", ["new.jsonl, line 1: ", "version 9", "Update journeyman"]),
    "a missing field": ("cassette replay field.jsonl", ["field.jsonl, line 2: model has no 'model'. Record it again."]),
    "a cassette without input": (
        f"cassette replay nobody.jsonl {GREETER}",
        ["nobody.jsonl does not hold the agent's input. Give it as text after the agent."],
    ),
    "a document without an agent": ("cassette replay nobody.jsonl --json", ["--json is for an agent that runs again."]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    made = tmp_path_factory.mktemp("cassettes")
    whole = recorded(warm, made).read_text()
    first, *rest = whole.splitlines(keepends=True)
    (made / "text.jsonl").write_text("hello\n")
    (made / "empty.jsonl").write_text("")
    (made / "cut.jsonl").write_text("".join([first, *rest[:3]])[:-20])
    (made / "new.jsonl").write_text(whole.replace('"version": 1', '"version": 9'))
    (made / "field.jsonl").write_text(first + '{"event": "model"}\n')
    header = {name: value for name, value in json.loads(first).items() if name not in ("agent", "input")}
    (made / "nobody.jsonl").write_text(f"{json.dumps(header)}\n{''.join(rest)}")
    return made


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(case: str, folder: Path, warm: Warm) -> None:
    words, parts = CASES[case]
    done = warm(*shlex.split(words), cwd=folder)
    assert_one_error_line(replace(done, stdout=""), 2, parts)  # a run that was not recorded has printed its result
