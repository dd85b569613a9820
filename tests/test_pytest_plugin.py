"""The pytest plugin: real test runs in folders of their own, recorded once and replayed offline."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from journeyman.testing import pytest_plugin
from tests.cli.program import QUICK_PYTEST

pytest_plugins = ["pytester"]

# The runs below are in this process, and forget the modules that they import. Those that are there stay.
for _name in ("loop.run", "models.anthropic.model", "models.cassette.cassette", "testing.scripted"):
    import_module(f"journeyman.{_name}")

AGENT = """
import pytest
from journeyman import Agent, Limits, Runtime, run_sync, tool
from journeyman.testing.scripted import ScriptedModel, call

@tool
def look(city: str) -> str:
    "Look at the weather."
    with open("looked.txt", "a") as file:
        file.write(city + "\\n")
    return f"clouds over {city}"

def ask(cassette, text="Is it warm?"):
    model = ScriptedModel([call("look", city="Oslo", id="1"), "Clouds."])
    agent = Agent(name="forecaster", model=model, tools=[look])
    return run_sync(agent, text, runtime=Runtime(model=cassette.model(model), journal=cassette.journal))
"""
USED = AGENT + "def test_it_answers(cassette):\n    assert ask(cassette).unwrap() == 'Clouds.'\n"


@pytest.fixture(autouse=True)
def _settings(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of others take longer to load than the tests


def ran(pytester: pytest.Pytester, source: str = "", *options: str, **expected: int) -> pytest.RunResult:
    """Run the tests of `source`, or those of before. So many of them must pass, fail, and so on."""
    if source:
        pytester.makepyfile(test_weather=source)
    result = pytester.runpytest(*options, plugins=[pytest_plugin])
    assert {name: count for name, count in result.parseoutcomes().items() if name != "warnings"} == expected
    return result


@pytest.fixture
def recorded(pytester: pytest.Pytester) -> Path:
    """Let a test be recorded. Where its cassette is."""
    ran(pytester, USED, passed=1)
    return pytester.path / "cassettes" / "test_weather" / "test_it_answers.jsonl"


def test_a_test_is_recorded_once_and_replayed_without_its_tools(pytester: pytest.Pytester, recorded: Path) -> None:
    ran(pytester, passed=1)
    assert ((pytester.path / "looked.txt").read_text(), recorded.is_file()) == ("Oslo\n", True)


def test_classes_and_parameters_get_files_of_their_own(pytester: pytest.Pytester) -> None:
    source = """class TestAll:
    @pytest.mark.parametrize('text', ['a/b', 'a_b', 'c', 'x' * 300])
    def test_it(self, cassette, text):
        ask(cassette, text)
"""
    ran(pytester, AGENT + source, passed=4)
    names = sorted(path.name for path in (pytester.path / "cassettes" / "test_weather").iterdir())
    assert names[1:3] == ["TestAll.test_it-a_b.jsonl", "TestAll.test_it-c.jsonl"]
    assert names[0].startswith("TestAll.test_it-a_b-")
    assert len(names) == 4
    assert max(map(len, names)) < 150


@pytest.mark.parametrize(("ci", "passes"), [("true", False), ("1", False), ("false", True), ("", True)])
def test_ci_records_nothing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, passes: bool) -> None:
    monkeypatch.setenv("CI", ci)
    result = ran(pytester, USED, **{"passed" if passes else "failed": 1})
    assert (pytester.path / "cassettes").exists() is passes
    if not passes:
        result.stdout.fnmatch_lines(["request 1: there is no file cassettes*test_it_answers.jsonl."])
        ran(pytester, "", "--journeyman-record=once", passed=1)


CHANGED = USED.replace("ask(cassette)", "ask(cassette, 'Is it cold?')")


def test_a_changed_prompt_fails_with_the_diff_and_is_recorded_again(pytester: pytest.Pytester, recorded: Path) -> None:
    result = ran(pytester, CHANGED, failed=1)
    headline = "request 1: messages[[]0[]].content[[]0[]].text differs (cassettes*, line 3; - recorded, + now):"
    diff = ['- *.text: "Is it warm?"', '+ *.text: "Is it cold?"']
    result.stdout.fnmatch_lines([headline, *diff, "Undo the change, or record again: *--journeyman-record=all*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    ran(pytester, "", "--journeyman-record=new", passed=1)
    ran(pytester, passed=1)
    ran(pytester, USED, "--journeyman-record=none", passed=1)
    ran(pytester, USED, "--journeyman-record=all", passed=1)


def test_a_miss_that_the_test_does_not_notice_fails_it_all_the_same(pytester: pytest.Pytester, recorded: Path) -> None:
    source = AGENT + "def test_it_answers(cassette):\n    ask(cassette, 'Is it cold?')\n"
    ran(pytester, source, failed=1).stdout.fnmatch_lines(['- *.text: "Is it warm?"', '+ *.text: "Is it cold?"'])
    result = ran(pytester, source + "    assert 1 == 2\n", failed=1)
    result.stdout.fnmatch_lines(['+ *.text: "Is it cold?"', "The test then failed with AssertionError: *1 == 2*"])


def test_a_connection_over_our_transport_fails_a_test_that_replays(pytester: pytest.Pytester, recorded: Path) -> None:
    other = "    from journeyman.models.anthropic.model import AnthropicModel\n"
    other += "    other = AnthropicModel('claude-x', api_key='key', base_url='http://127.0.0.1:9')\n"
    asking = "    run_sync(Agent(name='other', model=other), 'Hello?')\ndef test_without_it_may_connect():\n"
    failing = "    once = Agent(name='other', model=other, limits=Limits(request_retries=0))\n"
    failing += "    assert 'network' in str(run_sync(once, 'Hello?'))\n"
    result = ran(pytester, USED + other + asking + other + failing, failed=1, passed=1)
    result.stdout.fnmatch_lines(["A connection to 127.0.0.1:9 would have been opened, although the test replays*"])


def test_an_async_test_is_recorded_and_replayed(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfilterwarnings = error\nanyio_mode = auto\naddopts = -p anyio\n")
    pytester.makepyfile(
        test_weather=AGENT + "from journeyman import run\n"
        "@pytest.fixture(scope='session')\ndef anyio_backend():\n    return 'asyncio'\n"
        "async def test_it(cassette):\n    model = ScriptedModel(['Yes.'])\n"
        "    agent = Agent(name='a', model=cassette.model(model))\n"
        "    assert (await run(agent, 'Warm?')).unwrap() == 'Yes.'\n"
        "    assert model.remaining == cassette.is_replaying\n"
    )
    for _ in range(2):
        ran(pytester, passed=1)


def test_a_malformed_cassette_is_one_line(pytester: pytest.Pytester, recorded: Path) -> None:
    recorded.write_text(recorded.read_text()[:-30])
    result = ran(pytester, errors=1)
    result.stdout.fnmatch_lines(["*answers.jsonl, line 7: this is not JSON, or is cut off (*). Record it again."])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_options_come_from_a_fixture(pytester: pytest.Pytester) -> None:
    options = "def cassette_options():\n    return {'redact': ['warm'], 'tools': 'run'}\n"
    pytester.makeconftest(f"import pytest\n@pytest.fixture\n{options}")
    for _ in range(2):
        ran(pytester, USED, passed=1)
    assert (pytester.path / "looked.txt").read_text() == "Oslo\nOslo\n"
    assert "Is it [redacted]?" in (pytester.path / "cassettes" / "test_weather" / "test_it_answers.jsonl").read_text()


def test_a_script_must_be_used_up_by_a_test_that_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_weather=AGENT + "def test_all(scripted):\n"
        "    assert run_sync(Agent(name='a', model=scripted(['Yes.'])), '?').unwrap() == 'Yes.'\n"
        "def test_some(scripted):\n    model = scripted(['Yes.', 'No.', 'Well.'], name='script')\n"
        "    assert run_sync(Agent(name='a', model=model), '?').unwrap() == 'Yes.'\n"
        "def test_wrong(scripted):\n    scripted(['Yes.'])\n    assert 1 == 2\n"
    )
    ran(pytester, passed=1, failed=2).stdout.fnmatch_lines(["A script was not used up: it has 2 answers left."])


def test_only_a_test_that_is_marked_may_ask_a_provider(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOURNEYMAN_MODEL_CALLS")
    pytester.makepyfile(
        test_weather=AGENT + "import os\n"
        "def ask_nobody():\n    agent = Agent(name='a', model='anthropic:claude-sonnet-5-5')\n"
        "    return str(run_sync(agent, '?'))\n"
        "def test_unit():\n    assert 'JOURNEYMAN_MODEL_CALLS=0 forbids it' in ask_nobody()\n"
        "@pytest.mark.live\ndef test_live():\n    assert 'JOURNEYMAN_MODEL_CALLS' not in os.environ\n"
        "def test_recorded(cassette):\n    assert ('JOURNEYMAN_MODEL_CALLS' in os.environ) == cassette.is_replaying\n"
        "    assert ask(cassette).unwrap() == 'Clouds.'\n"
    )
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    for _ in range(2):
        ran(pytester, "", "--strict-markers", passed=3)
    assert "JOURNEYMAN_MODEL_CALLS" not in os.environ


def test_the_options_are_in_the_help_and_the_fixtures_are_listed_where_it_is_installed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    pytester.runpytest("--help").stdout.fnmatch_lines(["*--journeyman-record={none,once,new,all}"])
    pytester.runpytest("--fixtures").stdout.fnmatch_lines(["cassette -- *", "scripted -- *"])


def test_whoever_does_not_use_it_pays_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\ndef test_nothing():\n"
        "    loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "    assert not loaded & {'aiohttp', 'pydantic', 'orjson', 'cyclopts'}\n"
        "    ours = {name for name in sys.modules if name.startswith('journeyman.')}\n"
        "    assert {name.partition('.')[2] for name in ours} == {'definition', 'definition.faces', 'testing',"
        " 'testing.pytest_plugin'}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "."]
    env = {**os.environ, **QUICK_PYTEST}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
