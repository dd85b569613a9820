"""`journeyman check`: the definition as it is, without a model."""

from pathlib import Path

from pydantic_core import from_json

from tests.cli.program import AGENTS, Warm

WRONG = """
from journeyman import Agent

Agent(name="a b", model="claude", tools=[3])
"""


def test_the_definition_the_limits_and_the_exact_tools_are_shown(warm: Warm) -> None:
    done = warm("check", f"{AGENTS}:planner")
    assert (done.code, done.stderr) == (0, "the file prints\n")
    head, _, rest = done.stdout.partition("\n\nInput, as JSON Schema:\n")
    assert head.splitlines() == [
        "planner",
        "",
        "model        scripted:scripted",
        "system       none",
        "settings     the provider's defaults",
        "input        Trip",
        "output       Trip, handed in with output, seen as a draft, then submit",
        "validators   long_enough",
        "limits       3 attempts, 15 iterations each",
        "prefix       about 99 tokens: output 55, submit 44",
    ]
    assert '"days": {\n      "type": "integer"\n    }' in rest
    tools = rest.partition("The model sees 2 tools:\n\n")[2].split("\n\n")
    shown = [from_json(tool) for tool in tools]
    assert [tool["name"] for tool in shown] == ["output", "submit"]
    assert shown[0]["input_schema"]["required"] == ["city", "days"]
    assert shown[1]["input_schema"] == {"type": "object", "properties": {}, "additionalProperties": False}


def test_the_schema_of_an_input_that_is_no_object_has_all_to_which_it_refers(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "lists.py").write_text(
        "from journeyman import Agent\nfrom journeyman.testing import ScriptedModel\nfrom pydantic import BaseModel\n"
        "class Leaf(BaseModel):\n    size: int\n"
        "a = Agent(name='a', model=ScriptedModel([]), input=list[Leaf])\n"
    )
    shown = warm("check", "lists.py:a", cwd=tmp_path).stdout
    schema = from_json(shown.partition("Input, as JSON Schema:\n")[2].partition("\n\n")[0])
    assert (schema["items"], [*schema["$defs"]]) == ({"$ref": "#/$defs/Leaf"}, ["Leaf"])


def test_an_output_without_a_tool_is_read_out_of_the_answer(warm: Warm, tmp_path: Path) -> None:
    begun = (
        "from journeyman import Agent, Output\nfrom journeyman.testing import ScriptedModel\nm = ScriptedModel([])\n"
    )
    for mode, told in (("prompted", "words"), ("native", "JSON")):
        (tmp_path / f"{mode}.py").write_text(
            f"{begun}a = Agent(name='a', model=m, output=Output(int, mode={mode!r}))\n"
        )
        shown = warm("check", f"{mode}.py:a", cwd=tmp_path).stdout
        assert f"output       int, read out of the {told} of the answer\n" in shown
        assert ("tokens: output" in shown) == (mode == "prompted")
    (tmp_path / "forms.py").write_text(
        begun.replace("Output", "OneOf, Output")
        + "def book(flight: str) -> bool: return True\n"
        + "a = Agent(name='a', model=m, output=OneOf(Output(book), Output(int, name='n', reflection=str), str))\n"
        + "b = Agent(name='b', model=m, output=Output(int, mode='auto'))\n"
    )
    shown = warm("check", "forms.py:a", cwd=tmp_path).stdout
    assert "bool, handed in with book; or int, handed in with n, seen as a draft, then submit; or text\n" in shown
    assert (
        "int, handed in by what the model can: tool, native, prompted"
        in warm("check", "forms.py:b", cwd=tmp_path).stdout
    )


def test_tools_show_how_they_run_and_a_model_that_cannot_be_used_now_is_no_problem(warm: Warm) -> None:
    assert "tools        look (parallel, pure, cached per run), fail\n" in warm("check", f"{AGENTS}:busy").stdout
    done = warm("check", f"{AGENTS}:claude")
    assert done.code == 0
    assert "anthropic:claude-sonnet-5-5 (cannot be used now: There is no key" in done.stdout


def test_a_toolset_that_has_to_be_asked_is_named(warm: Warm, tmp_path: Path) -> None:
    """Nothing is asked here: there is no run."""
    (tmp_path / "a.py").write_text(
        "from journeyman import Agent, tool\nfrom journeyman.testing import ScriptedModel\n"
        "from journeyman.tools import toolset\n@tool\ndef look() -> str:\n    'Look.'\n    return ''\n"
        "def of_user(context):\n    raise AssertionError\n"
        "ts = [toolset([look]).prefixed('a_'), of_user, toolset(of_user, each='iteration').prefixed('b_')]\n"
        "a = Agent(name='a', model=ScriptedModel([]), tools=ts)\n"
    )
    done = warm("check", "a.py:a", cwd=tmp_path)
    asked = "whatever of_user gives, asked once for each run, whatever of_user gives, asked once for each iteration"
    assert f"tools        a_look, {asked}\n" in done.stdout
    assert "The model sees 1 tool, and those of toolsets:" in done.stdout


SAYS_ALL = """
from journeyman import Agent, ModelSettings, tool
from journeyman.compaction import ClearToolResults
from journeyman.testing.scripted import ScriptedModel
from journeyman.permission import Permission

class Clerk:
    async def decide(self, request): ...

@tool
def look(place: str) -> str:
    "Look around."
    return place

agent = Agent(
    name="scout", model=ScriptedModel([]), system="You look \\x1b[2J around.\\n" * 50, tools=[look],
    settings=ModelSettings(max_tokens=1_000, thinking="low"), gate=[Permission(mode="plan"), Clerk()],
    compaction=[ClearToolResults()],
)
made = Agent(name="made", model=ScriptedModel([]), system=lambda text: text)
"""


def test_system_prompt_settings_gates_compaction_and_the_tokens_of_the_prefix_are_shown(
    tmp_path: Path, warm: Warm
) -> None:
    (tmp_path / "all.py").write_text(SAYS_ALL)
    lines = warm("check", "all.py:agent", cwd=tmp_path).stdout.splitlines()
    shown = {line[:12].rstrip(): line[13:] for line in lines if line[:1].isalpha() and len(line) > 13}
    assert shown["system"].startswith("You look around. You look around. You ")
    assert shown["system"].endswith("… (1,100 characters)")
    assert shown["settings"] == 'max_tokens 1000, thinking "low"'
    assert shown["gates"] == "Permission (plan), Clerk"
    assert shown["compaction"] == "clear tool results"
    assert shown["prefix"] == "about 309 tokens: system 275, look 34"
    assert "prefix       about 0 tokens and the system prompt\n" in warm("check", "all.py:made", cwd=tmp_path).stdout


def test_every_problem_is_listed_with_its_code_and_hint(tmp_path: Path, warm: Warm) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    done = warm("check", "wrong.py:agent", cwd=tmp_path)
    assert (done.code, done.stderr) == (1, "")
    assert done.stdout.startswith("wrong.py, line 4: Agent 'a b' has 3 problems:\n\n  INVALID_NAME\n    The name 'a b'")
    codes = [line.strip() for line in done.stdout.splitlines() if line.strip().isupper()]
    assert codes == ["INVALID_NAME", "INVALID_MODEL_NAME", "INVALID_TOOL"]
    assert "    Give the agent a name such as 'analyst'.\n" in done.stdout
