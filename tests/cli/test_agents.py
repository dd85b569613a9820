"""`--agents FOLDER`: Claude Code's agents as sub-agents of any agent."""

from pathlib import Path

import pytest

from journeyman import Subagents
from journeyman.cli.load_agent import AgentLoop
from journeyman.cli.options import LentOptions
from tests.cli.program import Warm, assert_one_error_line

FILE = """
from journeyman import Agent, tool
from journeyman.testing import FunctionModel, call

@tool(effect="pure")
def look(topic: str) -> str:
    '''Look something up.'''
    return f"about {topic}"

def answer(request):
    if request.prefix.system and request.prefix.system[0].text.startswith("You review"):
        return "Fine; I have " + ", ".join(tool.name for tool in request.prefix.tools)
    said = [block.text for block in request.messages[-1].content if block.type == "tool_result"]
    return said[0] if said else call("subagent", agent="reviewer", task="Review it.")

lead = Agent(name="lead", model=FunctionModel(answer), tools=[look])
"""
HEAD = "---\nname: reviewer\ndescription: Reviews.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(FILE)
    for name, more in (("good", "tools: look\n"), ("tool", "tools: Read\n"), ("model", "model: opus\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text(f"{HEAD}{more}---\nYou review code.\n")
    return tmp_path


@pytest.mark.parametrize("command", ["run agents.py:lead Go.", "chat agents.py:lead --session-file s.db"])
def test_the_agents_of_a_folder_work_for_the_agent_with_its_tools(folder: Path, warm: Warm, command: str) -> None:
    done = warm(*command.split(), "--agents", "good", cwd=folder, stdin=b"Go.\n")
    assert done.code == 0, done.stderr
    assert "Fine; I have look" in done.stdout


@pytest.mark.parametrize("model", [None, "none:other"])
def test_those_that_name_no_model_have_that_of_the_command_line_or_of_the_agent(
    folder: Path, model: str | None
) -> None:
    with AgentLoop() as loop:
        lead = loop.agent(str(folder / "agents.py:lead"), LentOptions(agents=folder / "good"), model=model)
    [crew] = [tool for tool in lead.plan.tools.values() if isinstance(tool, Subagents)]
    assert [agent.model for agent in crew.agents] == [model or lead.model]


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        ("tool", "--agents: tool/a.md: It names the tool 'Read', which is not there. Take it out of the file, or give"),
        ("model", "--agents: model/a.md: It wants the model 'opus'. Write provider:name there, or inherit."),
    ],
)
def test_what_the_command_cannot_carry_is_one_line(folder: Path, warm: Warm, agents: str, said: str) -> None:
    assert_one_error_line(warm("run", "agents.py:lead", "Go.", "--agents", agents, cwd=folder), 2, [said])
