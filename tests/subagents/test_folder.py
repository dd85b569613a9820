"""Agents that stand in a folder as Claude Code has them."""

from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, DefinitionError, Subagents, run
from journeyman.testing import ScriptedModel, call
from journeyman.toolbox import Workspace, fetch_tool
from tests.play import look, succeeded, texts

REVIEWER = """---
name: code-reviewer
description: Reviews code.
  Use it after each change.
tools: Read, Grep, look
disallowedTools: [Grep]
model: haiku
maxTurns: 3
color: pink
---

You review code, and change nothing.
"""


def folder_with(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / ".claude" / "agents"
    for name, text in files.items():
        (folder / name.replace("__", "/")).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name.replace('__', '/')}.md").write_text(text)
    return folder


def crew_of(folder: Path, **options: Any) -> Subagents[Any]:
    tools = [*Workspace(folder).tools("read", "grep", "write"), fetch_tool(), look]
    given: dict[str, Any] = {"model": "none:main", "models": {"haiku": "none:small"}, "tools": tools, **options}
    return Subagents.from_folder(folder, **given)


def test_an_agent_has_what_its_file_says_and_all_else_of_the_program(tmp_path: Path) -> None:
    everything = "---\nname: helper\ndescription: Helps.\n---\nHelp."
    web = "---\nname: web\ndescription: Reads.\ntools: [WebFetch]\nmodel: bridge:any\n---\nRead the web."
    crew = crew_of(folder_with(tmp_path, reviewer=REVIEWER, deep__helper=everything, web=web), modes=("single",))
    helper, reviewer, reader = crew.agents
    assert crew.modes == ("single",)
    assert [agent.name for agent in crew.agents] == ["helper", "code-reviewer", "web"]
    assert [agent.model for agent in crew.agents] == ["none:main", "none:small", "bridge:any"]
    assert [[*agent.plan.tools] for agent in crew.agents] == [
        ["read", "grep", "write", "fetch", "look"],
        ["read", "look"],
        ["fetch"],
    ]
    assert (reviewer.description, reviewer.system) == (
        "Reviews code. Use it after each change.",
        "You review code, and change nothing.",
    )
    assert (reviewer.limits.iterations, helper.limits, reader.limits) == (
        3,
        Agent(name="a", model="m:m").limits,
        helper.limits,
    )


async def test_such_an_agent_works_for_a_lead(tmp_path: Path) -> None:
    model = ScriptedModel([call("subagent", agent="code-reviewer", task="Review."), "All is well.", "Done."])
    crew = crew_of(folder_with(tmp_path, reviewer=REVIEWER), models={"haiku": model})
    [text] = texts(succeeded(await run(Agent(name="lead", model=model, tools=[crew]), "Go.")))
    assert "All is well." in text
    assert model.requests[1].prefix.system[0].text == "You review code, and change nothing."


HEAD = "name: a\ndescription: b"
WRONG: list[tuple[str, str]] = [
    ("no head", "a.md has no front matter"),
    (
        f"---\n{HEAD}\nhooks: {{x: y}}\npermissionMode: plan\n---\nGo.",
        r"(?s)carry its hooks.*|carry its permissionMode",
    ),
    (f"---\n{HEAD}\nskills: pdf\n---\nGo.", r"a\.md: A sub-agent cannot carry its skills"),
    (f"---\n{HEAD}\ntools: Read, NotebookEdit\n---\nGo.", "names the tool 'NotebookEdit'.*Now there is: read"),
    (f"---\n{HEAD}\ntools: Bash(git *)\n---\nGo.", r"names the tool 'Bash\(git \*\)'"),
    (f"---\n{HEAD}\nmodel: opus\n---\nGo.", "wants the model 'opus'.*models="),
    (f"---\n{HEAD}\nmaxTurns: many\n---\nGo.", "maxTurns is 'many'"),
    (f"---\n{HEAD}\n---\n", "no system prompt"),
    ("---\nname: a\n---\nGo.", "no description"),
    ("---\nname: [a\n---\nGo.", "front matter of .* cannot be read"),
]


@pytest.mark.parametrize(("text", "told"), WRONG)
def test_what_a_sub_agent_cannot_carry_is_refused_by_name(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        crew_of(folder_with(tmp_path, a=text))


def test_links_out_of_the_folder_two_of_one_name_and_no_agents_are_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, a=REVIEWER, b=REVIEWER)
    with pytest.raises(DefinitionError, match="'code-reviewer' is given twice"):
        crew_of(folder)
    (tmp_path / "secret.md").write_text(REVIEWER)
    (folder / "b.md").unlink()
    (folder / "b.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(DefinitionError, match="a link that leads out of the folder"):
        crew_of(folder)
    for empty in (tmp_path / "nowhere", tmp_path / "a.file"):
        with pytest.raises(DefinitionError, match="holds no agents"):
            Subagents.from_folder(empty, model="none:main")
