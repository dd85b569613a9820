"""`journeyman check`: the definition as it is, without a model."""

from __future__ import annotations

from pathlib import Path

from pydantic_core import from_json

from tests.cli.program import AGENTS, Warm

WRONG = """
from journeyman import Agent

Agent(name="a b", model="claude", nudge=True)
"""


def test_the_definition_the_limits_and_the_exact_tools_are_shown(warm: Warm) -> None:
    done = warm("check", f"{AGENTS}:planner")
    assert (done.code, done.stderr) == (0, "the file prints\n")
    head, _, rest = done.stdout.partition("\n\nInput, as JSON Schema:\n")
    assert head.splitlines() == [
        "planner",
        "",
        "model        scripted:scripted",
        "input        Trip",
        "output       Trip, handed in with output, seen as a draft, then submit",
        "validators   long_enough",
        "limits       3 attempts, 15 iterations each",
    ]
    assert '"days": {\n      "type": "integer"\n    }' in rest
    tools = rest.partition("The model sees 2 tools:\n\n")[2].split("\n\n")
    shown = [from_json(tool) for tool in tools]
    assert [tool["name"] for tool in shown] == ["output", "submit"]
    assert shown[0]["input_schema"]["required"] == ["city", "days"]
    assert shown[1]["input_schema"] == {"type": "object", "properties": {}, "additionalProperties": False}


def test_tools_show_how_they_run_and_a_model_that_cannot_be_used_now_is_no_problem(warm: Warm) -> None:
    assert "tools        look (parallel, pure, cached per run), fail\n" in warm("check", f"{AGENTS}:busy").stdout
    done = warm("check", f"{AGENTS}:claude")
    assert done.code == 0
    assert "anthropic:claude-sonnet-5-5 (cannot be used now: There is no key" in done.stdout


def test_every_problem_is_listed_with_its_code_and_hint(tmp_path: Path, warm: Warm) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    done = warm("check", "wrong.py:agent", cwd=tmp_path)
    assert (done.code, done.stderr) == (1, "")
    assert done.stdout.startswith("wrong.py, line 4: Agent 'a b' has 3 problems:\n\n  INVALID_NAME\n    The name 'a b'")
    codes = [line.strip() for line in done.stdout.splitlines() if line.strip().isupper()]
    assert codes == ["INVALID_NAME", "INVALID_MODEL_NAME", "INVALID_NUDGE"]
    assert "    Give the agent a name such as 'analyst'.\n" in done.stdout
