"""Recordings on the command line: made by `run`, listed, shown, compared, followed, exported and forgotten."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import QUICK_PYTEST, Done, Warm, assert_one_error_line

AGENTS = '''
from journeyman import Agent, tool
from journeyman.testing.scripted import ScriptedModel, call, say

@tool
async def look(topic: str) -> str:
    """Look."""
    return f"all about {topic}"

answers = [say(call("look", {"topic": "tides"}, id="c1")), say("They rise.")]
scout = Agent(name="scout", model=ScriptedModel(answers), tools=[look])
lost = Agent(name="lost", model=ScriptedModel([]))
'''


@pytest.fixture
def desk(tmp_path: Path, warm: Warm) -> Callable[..., Done]:
    (tmp_path / "agents.py").write_text(AGENTS)
    return lambda *words, **env: warm(*words, cwd=tmp_path, env={"JOURNEYMAN_RECORD": "1", **QUICK_PYTEST, **env})


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.seldom(one_in=3, but=()))])
def desks(request: pytest.FixtureRequest, desk: Callable[..., Done]) -> Callable[..., Done]:
    """Commands on the nearest store, and on one in a database."""
    env = {"JOURNEYMAN_STORE": request.getfixturevalue("emptied")} if request.param == "postgres" else {}
    return lambda *words: desk(*words, **env)


def test_a_run_records_says_where_and_is_shown(desk: Callable[..., Done], tmp_path: Path) -> None:
    done = desk("run", "agents.py:scout", "What of the tides?")
    assert (done.code, done.stdout) == (0, "They rise.\n")
    assert f"Recorded in {tmp_path}/.journeyman/runs.db: journeyman show last" in done.stderr.replace("\n", "")
    folder = tmp_path / ".journeyman"
    assert (folder.stat().st_mode & 0o777, (folder / "runs.db").stat().st_mode & 0o777) == (0o700, 0o600)
    assert (folder / ".gitignore").read_text() == "*\n"
    shown = desk("show", "last").stdout.splitlines()
    assert shown[-7:] == [
        "attempt 1",
        "  iteration 1: tool_use",
        '    look({"topic":"tides"})',
        "    gate: allow",
        "    look: all about tides",
        "  iteration 2: end_turn: They rise.",
        "success: They rise.",
    ]
    [body] = desk("show", "last", "--wire", "--iteration", "2").stdout.splitlines()
    assert json.loads(body)["messages"][-1]["content"][0]["content"] == "all about tides"
    assert_one_error_line(desk("show", "last", "--path", "other"), 2, ["has no"])
    [listed] = json.loads(desk("runs", "--json").stdout)["runs"]
    assert (listed["agent"], listed["status"], listed["input"]) == ("scout", "done", "What of the tides?")


def test_nothing_is_recorded_where_that_is_said_or_under_ci(desk: Callable[..., Done], tmp_path: Path) -> None:
    assert desk("run", "agents.py:scout", "?", "--no-record").code == 0
    assert desk("run", "agents.py:scout", "?", JOURNEYMAN_RECORD="0").code == 0
    assert not (tmp_path / ".journeyman").exists()
    (tmp_path / ".journeyman").write_text("a file is in the way")
    done = desk("run", "agents.py:scout", "?")
    assert (done.code, "Nothing is recorded" in done.stderr) == (0, True)
    assert_one_error_line(desk("run", "agents.py:scout", "?", "--record"), 2, ["cannot be made"])


def test_recordings_are_compared_followed_exported_and_forgotten(desks: Callable[..., Done], tmp_path: Path) -> None:
    for agent in ("scout", "scout", "lost"):
        desks("run", f"agents.py:{agent}", "What of <b>it</b>?")
    third, second, first = [each["id"] for each in json.loads(desks("runs", "--json").stdout)["runs"]]
    assert desks("show", first, "--diff", second).stdout == "Both did the same: 9 lines.\n"
    assert desks("show", first, "--diff", third).stdout.startswith("0 lines the same")
    assert desks("show", first, "--follow").stdout.splitlines()[-1] == "success: They rise."
    assert [each["id"] for each in json.loads(desks("runs", "--status", "failed", "--json").stdout)["runs"]] == [third]
    assert desks("export", first, "--as", "html", "--out", "run.html").code == 0
    page = (tmp_path / "run.html").read_text("utf-8")
    assert "<b>it" not in page
    assert "\\u003cb>it" in page
    assert_one_error_line(desks("export", first, "--as", "html", "--out", "run.html"), 2, ["run.html is there already"])
    assert json.loads(desks("export", first).stdout.splitlines()[0])["run"]["id"] == first
    assert "### look" in desks("export", first, "--as", "markdown").stdout
    assert desks("cassette", "test", first, "agents.py:scout", "--out", "test_scout.py").code == 0
    assert json.loads(desks("show", first, "--wire").stdout.splitlines()[0])["messages"]
    assert desks("prune", "--older-than", "0s", "--status", "done", "--dry-run").stdout.split() == [first, second]
    desks("prune", "--older-than", "0s", "--status", "done")
    assert [each["id"] for each in json.loads(desks("runs", "--json").stdout)["runs"]] == [third]
    wrong = f"{third[:-1]}x"
    assert_one_error_line(desks("prune", third, wrong), 2, [wrong, "nearest is", third])
    assert desks("prune", third).stdout == f"{third}\n"
    assert desks("runs").stderr == "There is no such run.\n"


def test_a_durable_run_is_forgotten_with_its_recording_or_the_recording_alone(desks: Callable[..., Done]) -> None:
    for id in ("one", "two"):
        desks("run", "agents.py:scout", "?", "--durable", "--id", id)
    assert desks("prune", "two", "--status", "done").stdout == "two\n"
    two, one = [each["id"] for each in json.loads(desks("runs", "--json").stdout)["runs"]]
    assert desks("prune", two, one, "--dry-run").stdout.split() == [two, one, "one"]
    assert_one_error_line(desks("prune", one, "three"), 2, ["three"])
    assert desks("prune", two, one).stdout.split() == [two, one, "one"]
    assert desks("runs").stderr == "There is no such run.\n"


PLANNERS = '''
from dataclasses import dataclass

from pydantic import BaseModel

from journeyman import Agent, Limits, Output, Subagents, ToolContext, tool
from journeyman.testing.faulty import FaultyModel
from journeyman.testing.scripted import ScriptedModel, call, say


class Trip(BaseModel):
    city: str
    days: int


@dataclass
class Seen:
    cities: list[str]


def nothing_seen(trip: Trip) -> Seen:
    return Seen([])


@tool(effect="once")
async def look(city: str, ctx: ToolContext) -> str:
    """Look."""
    seen = ctx.run_state(Seen)
    ctx.set_run_state(Seen([*seen.cities, city]))
    print("looking")
    if city == "Rome":
        raise ValueError("no such city")
    return f"rain in {city}"


def long_enough(trip: Trip) -> None:
    if trip.days < 2:
        raise ValueError("too short")


def answers() -> ScriptedModel:
    calls = [call("look", {"city": city}, id=str(city)) for city in ("Rome", 5, "Oslo")]
    drafts = call("output", {"city": "Oslo", "days": 1}, id="d"), call("output", {"city": "Oslo", "days": 3}, id="e")
    return ScriptedModel([say("Well.", *calls), say(drafts[0]), say(drafts[1])])


planner = Agent(
    name="trip-planner", model=answers(), input=Trip, output=Output(Trip), tools=[look], validators=[long_enough],
    run_state=nothing_seen, final_state=lambda states: states.run.cities,
)
busy = FaultyModel(ScriptedModel([]), 1, rate=1.0, faults=["overloaded"])
down = Agent(name="down", model=busy, limits=Limits(request_retries=0))
helper = Agent(name="helper", description="Helps.", model=ScriptedModel([say("Done.")]))


def lead() -> Agent:
    said = [say(call("subagent", {"agent": "helper", "task": "Go."})), say("One.")]
    return Agent(name="lead", model=ScriptedModel(said), tools=[Subagents(helper)])
'''


@pytest.fixture
def planners(tmp_path: Path, warm: Warm) -> Callable[..., Done]:
    (tmp_path / "agents.py").write_text(PLANNERS)
    return lambda *words, **env: warm(*words, cwd=tmp_path, env={"JOURNEYMAN_RECORD": "1", **QUICK_PYTEST, **env})


@pytest.mark.parametrize(
    ("name", "code", "asserted"),
    [
        ("planner", 0, "OUTPUT = {'city': 'Oslo', 'days': 3}"),
        ("down", 1, "result.code is ErrorCode.API_ERROR"),
        ("lead", 0, "OUTPUT = 'One.'"),
    ],
)
def test_a_recorded_run_becomes_a_test_that_passes(
    planners: Callable[..., Done], tmp_path: Path, name: str, code: int, asserted: str
) -> None:
    trip = '{"city": "Oslo", "days": 3}'
    assert planners("run", f"agents.py:{name}", trip, "--quiet").code == code
    done = planners("cassette", "test", "last", "--out", f"checks/test_{name}.py")
    assert (done.code, done.stdout) == (0, ""), done.stderr
    assert asserted in (tmp_path / f"checks/test_{name}.py").read_text()


def test_a_run_below_a_recorded_one_becomes_a_test_that_passes(planners: Callable[..., Done]) -> None:
    assert planners("run", "agents.py:lead", "Go.", "--quiet").code == 0
    inside = planners(
        "cassette", "test", "last", "agents.py:helper", "--path", "lead/helper#1", "--out", "test_helper.py"
    )
    assert inside.code == 0, inside.stderr


ODD_NAMES = """
from journeyman import Agent
from journeyman.testing.scripted import ScriptedModel
agent = Agent(name="b", model=ScriptedModel(["hi"]))
runtime = given = result = cassette = INPUT = OUTPUT = run_sync = to_jsonable_python = subject = agent
def Runtime(): return agent
class Path: sys = agent
"""


@pytest.mark.share(one_in=2)
@pytest.mark.parametrize(
    ("module", "name"),
    [("b.py", "agent"), ("my-agent.py", "run_sync"), ("class.py", "Path.sys"), ("pack/runtime.py", "Runtime")],
)
def test_a_test_is_made_whatever_the_agent_and_its_module_are_called(
    warm: Warm, tmp_path: Path, module: str, name: str
) -> None:
    file = tmp_path / module
    if file.parent != tmp_path:
        file.parent.mkdir()
        (file.parent / "__init__.py").touch()
    file.write_text(ODD_NAMES)
    store = {"JOURNEYMAN_RECORD": "1", **QUICK_PYTEST}
    assert warm("run", f"{module}:{name}", "hello", cwd=tmp_path, env=store).code == 0
    done = warm("cassette", "test", "last", "--out", "checks/test_it.py", cwd=tmp_path, env=store)
    assert (done.code, "It passes: a success. Run it: pytest checks/test_it.py" in done.stderr) == (0, True), (
        done.stderr
    )


LEAVES_A_PROCESS = """
import os, subprocess
subprocess.Popen(["flock", "lock", "sh", "-c", "touch held; exec sleep 60 > /dev/null 2>&1"], start_new_session=True)
while not os.path.exists("held"):
    pass
raise OSError("no such disk")
"""


def test_a_made_test_that_does_not_pass_is_told_so(planners: Callable[..., Done], tmp_path: Path) -> None:
    planners("run", "agents.py:down", "?", "--quiet")
    (tmp_path / "conftest.py").write_text(LEAVES_A_PROCESS)
    done = planners("cassette", "test", "last", "--out", "test_down.py")
    assert subprocess.run(["flock", "--nonblock", tmp_path / "lock", "true"], check=False).returncode == 0
    assert (done.code, "does not pass: OSError: no such disk. See all: pytest test_down.py" in done.stderr) == (1, True)
    (tmp_path / "types.py").write_text(PLANNERS)
    words = ["has the name of a module of Python", "Give it another name"]
    assert_one_error_line(planners("cassette", "test", "last", "types.py:down", "--out", "test_types.py"), 2, words)


def test_the_run_of_the_demo_says_where_its_agent_is(warm: Warm, tmp_path: Path) -> None:
    store = {"JOURNEYMAN_RECORD": "1", **QUICK_PYTEST}
    assert warm("demo", "--quiet", cwd=tmp_path, env=store).code == 0
    done = warm("cassette", "test", "last", cwd=tmp_path, env=store)
    assert (done.code, "It passes: a success." in done.stderr) == (0, True), done.stderr


def test_a_cassette_of_a_recording_gives_the_states_back(planners: Callable[..., Done], tmp_path: Path) -> None:
    trip = '{"city": "Oslo", "days": 3}'
    first = json.loads(planners("run", "agents.py:planner", trip, "--json").stdout)
    assert planners("export", "last", "--as", "cassette", "--out", "trip.jsonl").code == 0
    done = planners("cassette", "replay", "trip.jsonl", "agents.py:planner", "--json")
    again = json.loads(done.stdout)
    assert "looking" not in done.stderr
    assert [again[name] for name in ("code", "output", "state", "history")] == [
        first[name] for name in ("code", "output", "state", "history")
    ]
    assert again["state"] == ["Oslo"]


def test_files_that_are_there_are_replaced_only_with_force(planners: Callable[..., Done], tmp_path: Path) -> None:
    planners("run", "agents.py:down", "?", "--quiet")
    made = tmp_path / "test_down.py"
    made.write_text("mine")
    words = ["is there already", "--force"]
    assert_one_error_line(planners("cassette", "test", "last", "--out", "test_down.py"), 2, words)
    assert_one_error_line(planners("export", "last", "--as", "cassette", "--out", "test_down.py"), 2, words)
    assert (made.read_text(), (tmp_path / "cassettes").exists()) == ("mine", False)
    assert planners("cassette", "test", "last", "--out", "test_down.py", "--force").code == 0
    assert "def test_down_ends_as_recorded" in made.read_text()


def test_no_test_is_made_that_would_not_pass_or_cannot_be(planners: Callable[..., Done], tmp_path: Path) -> None:
    planners("run", "agents.py:down", "?", "--quiet")
    for words, code, parts in (
        (("last", "agents.py:helper"), 1, ["asks now what it did not ask then"]),
        (("last", "agents.py:nobody"), 2, ["has no 'nobody'"]),
        (("last", "agents.py"), 2, ["agents.py"]),
        (("last", "--out", "test down.py"), 2, ["test down.py is no name"]),
        (("last", "--path", "down/other", "agents.py:down"), 1, ["no request of down/other"]),
        (("nothing",), 2, ["no recording 'nothing'"]),
    ):
        assert_one_error_line(planners("cassette", "test", *words), code, parts)
    (tmp_path / "agents.py").write_text(PLANNERS.replace('name="down"', 'name="down", system="Be brief."'))
    assert_one_error_line(planners("cassette", "test", "last"), 1, ["asks now what it did not ask then"])
    made = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert made == {".journeyman", "agents.py"}
