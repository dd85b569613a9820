"""Skills: told by name and description, loaded when they are wanted, checked before a model reads any of them."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journeyman import Agent, DefinitionError, Runtime, Subagents, ToolResult, run
from journeyman.errors import InvalidArguments
from journeyman.gate import Gate
from journeyman.journal import InMemoryJournal
from journeyman.model import Request
from journeyman.permission import Permission, TaintGate
from journeyman.skills import Skills
from journeyman.skills.skills import MAX_FILES, MAX_FRONT_MATTER_BYTES, MAX_INSTRUCTIONS_BYTES
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.toolbox import Workspace
from tests.play import texts

GOOD = "---\nname: {name}\ndescription: Fill forms.\n  Use it for PDFs.\n---\n# Forms\n\nAsk first.\n"


class Shelf:
    """A folder of skills."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, name: str = "pdf-forms", text: str | bytes = GOOD, **files: str) -> Path:
        folder = self.root / name
        folder.mkdir(parents=True)
        data = text.replace("{name}", name).encode() if isinstance(text, str) else text
        (folder / "SKILL.md").write_bytes(data)
        for file, content in files.items():
            (folder / file.replace("__", ".")).write_text(content)
        return folder

    def problems(self, **options: Any) -> list[tuple[str, str]]:
        """Return what is wrong with the skills: code, and message with hint on one line."""
        with pytest.raises(DefinitionError) as raised:
            Skills(self.root, **options)
        told = [(problem.code, str(problem)) for problem in raised.value.problems]
        assert [text for _, text in told if "\n" in text or not text.isprintable()] == []
        return told


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "skills")


async def read(skills: Skills, *loads: Mapping[str, object], gate: Gate | None = None) -> list[str]:
    """Return what the model reads of these calls of the tool."""
    uses = [call(skills.name, {**load}, id=f"load-{number}") for number, load in enumerate(loads)]
    agent = Agent(name="clerk", model=ScriptedModel([*uses, "Done."]), tools=[skills], gate=gate)
    result = await run(agent, "Go.")
    assert result.unwrap() == "Done."
    return texts(result)


async def test_names_and_descriptions_are_told_at_first_the_rest_when_it_is_loaded(shelf: Shelf) -> None:
    folder = shelf.add(reference__md="The fields.")
    shelf.add("letters")
    requests: list[Request] = []
    read_last: list[str] = []

    def answer(request: Request) -> Answer:
        requests.append(request)
        read_last.extend([block.text for block in request.messages[-1].content if isinstance(block, ToolResult)])
        return call("skill", name="pdf-forms") if len(requests) == 1 else say("Done.")

    await run(Agent(name="clerk", model=FunctionModel(answer), tools=[Skills(shelf.root)]), "Go.")
    (tool,) = requests[0].prefix.tools
    assert "\n- letters: Fill forms. Use it for PDFs.\n- pdf-forms: Fill forms. Use it for PDFs." in tool.description
    assert "Ask first." not in tool.description
    assert read_last == [
        f"[The skill pdf-forms, in {folder}]\n\n# Forms\n\nAsk first.\n\n[1 file, read with file=…: reference.md]"
    ]
    assert requests[1].prefix is requests[0].prefix  # so that what is cached stays so


async def test_files_are_read_on_demand_and_long_ones_in_parts(shelf: Shelf) -> None:
    folder = shelf.add(notes__md="first\n")
    skills = Skills(folder)  # a folder that is a skill itself
    (folder / "notes.md").write_text("".join([f"{number}\n" for number in range(1, 3_001)]))
    first, last = await read(
        skills, {"name": "pdf-forms", "file": "notes.md"}, {"name": "pdf-forms", "file": "notes.md", "offset": 2_001}
    )
    assert first.splitlines()[-2:] == ["2000", "[Lines 1 to 2,000 of 3,000. Go on with offset=2001.]"]
    assert last.splitlines() == [str(number) for number in range(2_001, 3_001)]


@pytest.mark.parametrize(
    ("load", "told"),
    [
        ({"name": "pdf-forms", "file": "../letters/SKILL.md"}, "is outside of the skill. Give a path in it."),
        ({"name": "pdf-forms", "file": "/etc/passwd"}, "is outside of the skill. Give a path in it."),
        ({"name": "pdf-forms", "file": "later.md"}, "is outside of the skill. Give a path in it."),
        ({"name": "pdf-forms", "file": "note.md"}, "note.md does not exist. Did you mean notes.md"),
        ({"name": "pdf-forms", "file": "data.bin"}, "data.bin is not a text but binary data"),
        ({"name": "pdf-forms", "file": "."}, ". is not a file. Give the path of one."),
        ({"name": "pdf-forms", "file": "notes.md", "offset": 9}, "It has 1 line, so there is no line 9."),
        ({"name": "pdf"}, 'name: is not one of "letters" or "pdf-forms", got "pdf"'),
    ],
)
async def test_what_cannot_be_read_is_said(shelf: Shelf, load: dict[str, object], told: str) -> None:
    folder = shelf.add(notes__md="a note")
    (folder / "data.bin").write_bytes(b"\0\1")
    shelf.add("letters")
    skills = Skills(shelf.root)
    (folder / "later.md").symlink_to("/etc/passwd")  # behind our back
    (said,) = await read(skills, load)
    assert told in said


async def test_a_skill_is_what_it_was_when_it_was_checked(shelf: Shelf) -> None:
    folder = shelf.add()
    skills = Skills(shelf.root)
    (folder / "SKILL.md").write_text("Do something else.")
    assert "Ask first." in (await read(skills, {"name": "pdf-forms"}))[0]


async def test_a_run_that_is_replayed_has_the_same_texts(shelf: Shelf) -> None:
    folder, journal = shelf.add(notes__md="old"), InMemoryJournal()
    calls = [call("skill", name="pdf-forms", id="a"), call("skill", name="pdf-forms", file="notes.md", id="b"), "Done."]

    async def history() -> object:
        agent = Agent(name="clerk", model=ScriptedModel(calls), tools=[Skills(shelf.root)])
        return (await run(agent, "Go.", runtime=Runtime(journal=journal))).history

    before = await history()
    (folder / "SKILL.md").write_text(GOOD.replace("{name}", "pdf-forms").replace("Ask", "Never ask"))
    (folder / "notes.md").write_text("new")
    assert await history() == before


async def test_a_sub_agent_loads_skills_of_its_own(shelf: Shelf) -> None:
    shelf.add()
    seen: list[str] = []

    def write(request: Request) -> Answer:
        seen.extend([block.text for block in request.messages[-1].content if isinstance(block, ToolResult)])
        return say("Filled.") if seen else call("skill", name="pdf-forms")

    writer = Agent(name="writer", model=FunctionModel(write), tools=[Skills(shelf.root)], description="Writes.")
    lead = Agent(
        name="lead",
        model=ScriptedModel([call("subagent", agent="writer", task="Go."), "Done."]),
        tools=[Subagents(writer)],
    )
    result = await run(lead, "Go.")
    assert result.unwrap() == "Done."
    assert len(seen) == 1
    assert "Ask first." in seen[0]


@pytest.mark.parametrize("untrusted", [False, True])
@pytest.mark.parametrize("mode", ["strict", "balanced", "plan"])
async def test_loading_is_reading_and_a_rule_may_forbid_it(shelf: Shelf, mode: Any, untrusted: bool) -> None:  # noqa: ANN401 - a mode
    shelf.add(notes__md="a note", secret__md="a secret")
    skills = Skills(shelf.root, untrusted=untrusted)
    gate = Permission(mode=mode, deny=["Read(**/secret.md)"])
    loads = [{"name": "pdf-forms"}, *[{"name": "pdf-forms", "file": file} for file in ("notes.md", "secret.md")]]
    loaded, note, secret = await read(skills, *loads, gate=gate)
    assert "Ask first." in loaded
    assert "[1 file, read with file=…: notes.md]" in loaded
    assert (note, secret) == ("a note", "secret.md may not be read: a rule forbids it.")
    denied = await read(skills, loads[0], gate=Permission(mode=mode, deny=["Read(**/SKILL.md)"]))
    assert denied == ["The skill pdf-forms may not be read: a rule forbids it."]
    assert "Ask first." not in (await read(skills, loads[0], gate=Permission(mode=mode, deny=["skill"])))[0]


async def test_scripts_run_through_bash_alone_and_its_permissions(shelf: Shelf, tmp_path: Path) -> None:
    folder = shelf.add(run__sh="echo ran > ran.txt\n")
    uses = [call("skill", name="pdf-forms", file="run.sh", id="a"), call("bash", command=f"sh {folder}/run.sh", id="b")]
    with Workspace(tmp_path) as workspace:
        tools = [Skills(shelf.root), *workspace.tools("bash")]
        for gate, is_run in ((Permission(mode="strict"), False), (None, True)):
            await run(Agent(name="clerk", model=ScriptedModel([*uses, "Done."]), tools=tools, gate=gate), "Go.")
            assert (tmp_path / "ran.txt").exists() is is_run


@pytest.mark.parametrize("untrusted", [False, True])
async def test_the_text_of_an_untrusted_skill_taints(shelf: Shelf, untrusted: bool) -> None:
    shelf.add()
    skills = Skills(shelf.root, untrusted=untrusted)
    assert skills.untrusted == ("throughout" if untrusted else False)
    with Workspace(shelf.root) as workspace:
        tools = [skills, *workspace.tools("write")]
        write = call("write", path="x.txt", content="mallory@evil.example", id="w")
        model = ScriptedModel([call("skill", name="pdf-forms", id="s"), write, "Done."])
        await run(Agent(name="clerk", model=model, tools=tools, gate=TaintGate()), "Go.")
    assert (shelf.root / "x.txt").exists() is not untrusted


def front(*lines: str) -> str:
    return "\n".join(["---", *lines, "---", "Body."])


def field(*lines: str) -> str:
    return front("name: pdf-forms", "description: x", *lines)


def linked_folder(shelf: Shelf) -> None:
    elsewhere = Shelf(shelf.root.parent / "elsewhere").add()
    shelf.root.mkdir()
    (shelf.root / "pdf-forms").symlink_to(elsewhere)


def large(shelf: Shelf) -> None:
    with (shelf.add() / "font.ttf").open("wb") as file:
        file.truncate(10_000_000)


def many(shelf: Shelf) -> None:
    folder = shelf.add()
    for number in range(MAX_FILES + 1):
        (folder / f"{number}.txt").touch()


ALIASES = [f"a{n}: &a{n + 1} [{f'*a{n}, ' * 9}]" for n in range(1, 99)]
WRONG: dict[str, list[tuple[str | bytes | Callable[[Shelf], object], str]]] = {
    "NO_FRONT_MATTER": [
        ("# Forms", "pdf-forms/SKILL.md has no front matter between two lines ---. Begin with"),
        ("", "has no front matter"),
    ],
    "MISSING_SKILL_NAME": [(front("description: x"), "has no name. Add its folder's: name: pdf-forms")],
    "INVALID_SKILL_NAME": [
        (front("name: PDF", "description: x"), "The name 'PDF' in"),
        (front("name: a--b", "description: x"), "The name 'a--b' in"),
        (front(f"name: {'a' * 65}", "description: x"), "Use 1 to 64"),
        (front("name: [a]", "description: x"), "The name an array of 1 in"),
        (front("name: letters", "description: x"), "is 'letters', and its folder's 'pdf-forms'."),
    ],
    "MISSING_SKILL_DESCRIPTION": [
        (front("name: pdf-forms"), "has no description."),
        (field("description: ' '"), "has no description."),
    ],
    "INVALID_SKILL_FIELD": [
        (field(f"description: {'x' * 1025}"), "has 1,025 characters; the most is 1,024"),
        (field("compatibility: [x]"), "compatibility in {shown} is an array of 1. Write one text."),
        (field("metadata: {a: [b]}"), "metadata in"),
        (field("metadata: x"), "metadata in {shown} is 'x'. Write names with one text each below it."),
        (field("allowed-tools: {a: b}"), "allowed-tools in"),
        (field("disable-model-invocation: maybe"), "disable-model-invocation in"),
        (
            field("a: &a1 [x]", *ALIASES, "description: *a99"),
            "description in {shown} is an array of 9. Write one text.",
        ),
    ],
    "INVALID_FRONT_MATTER": [
        (field("license: MIT: 2"), "line 4: mapping values are not allowed here. Put a value that holds ': '"),
        (front("- name"), "it is not a list of fields"),
        (front("a: &a [*a]"), "line 2: found unconstructable recursive node."),
        (front("? [a]", ": b"), "line 2: found unhashable key."),
        (front(f"a: {'[' * 9_000}"), "nested too deeply"),
        (front("a: \x07"), "special characters are not allowed"),
        (front("a: " + "x" * MAX_FRONT_MATTER_BYTES), "it is larger than 16,384 bytes"),
    ],
    "UNREADABLE_SKILL": [(b"---\nname: pdf\xff", "is not UTF-8: byte 0xff at offset 13. Save it in UTF-8.")],
    "SKILL_TOO_LARGE": [
        ("x" * (MAX_INSTRUCTIONS_BYTES + 1), "SKILL.md is larger than 262,144 bytes."),
        (large, "has more than 8,388,608 bytes. Keep in it what its tasks need, or raise max_bytes."),
        (many, "has more than 1,000 files."),
    ],
    "OUTSIDE_SKILL": [
        (f"{GOOD}[a](../../letters/SKILL.md)", "a link that leads out of the skill: '../../letters/SKILL.md'"),
        (f"{GOOD}[a](/etc/passwd)", "a link that leads out of the skill: '/etc/passwd'"),
        (lambda shelf: (shelf.add() / "keys").symlink_to(Path.home()), "pdf-forms/keys is a link that leads out of"),
        (linked_folder, "elsewhere/pdf-forms. Give the folder that it leads to, too: Skills("),
    ],
    "NO_SKILL_FILE": [
        (lambda shelf: (shelf.add() / "SKILL.md").rename(shelf.root / "pdf-forms/skill.md"), "SKILL.md does not exist.")
    ],
    "INVALID_SKILL_FILE": [
        (lambda shelf: os.mkfifo(shelf.add() / "pipe"), "pdf-forms/pipe is neither a file nor a folder."),
        (lambda shelf: (shelf.add() / "a\nb.md").touch(), "a\\nb.md' has a name that is not plain text."),
    ],
    "NO_SKILLS": [
        (
            lambda shelf: (shelf.root / "notes").mkdir(parents=True),
            "skills holds no skills. Put each skill into a folder",
        ),
        (lambda shelf: None, "skills holds no skills: No such file or directory."),
    ],
}


@pytest.mark.parametrize(("code", "make", "told"), [(code, *each) for code, cases in WRONG.items() for each in cases])
def test_a_skill_with_something_wrong_is_one_line_each(
    shelf: Shelf, code: str, make: str | bytes | Callable[[Shelf], object], told: str
) -> None:
    if isinstance(make, str | bytes):
        shelf.add(text=make)
    else:
        make(shelf)
    ((found, said),) = shelf.problems()
    assert found == code
    assert told.replace("{shown}", f"{shelf.root}/pdf-forms/SKILL.md") in said


def test_what_is_no_link_out_of_the_skill_may_stand(shelf: Shelf) -> None:
    body = (
        "[a](notes.md) [b](https://x.example/../y) [c](#top) [d](mailto:x@y.example) `[e](../f)`\n```\n[g](/h)\n```\n"
    )
    folder = shelf.add(text=f"{GOOD}{body}", notes__md="x")
    (folder / "same.md").symlink_to("notes.md")
    (skill,) = Skills(shelf.root).skills.values()
    assert skill.files == ("notes.md", "same.md")


def test_all_fields_of_the_format_are_read_and_unknown_ones_may_stand(shelf: Shelf) -> None:
    lines = ["description: y", "description: !!int x", "license: MIT", "metadata:", "  version: 1.0", "mine: [1]"]
    shelf.add("a", front("name: a", *lines, "compatibility: Needs git", "allowed-tools: Bash(git:*) Read"))
    lines = ["license:", "metadata:", "description: >", "  one", "  two", "allowed-tools:", "  - Read"]
    shelf.add("b", front("name: b", *lines))
    one, two = Skills(shelf.root).skills.values()
    assert one.description == "x", "of two fields of one name, the last counts"
    assert (one.license, one.compatibility, one.metadata) == ("MIT", "Needs git", {"version": "1.0"})
    assert (one.allowed_tools, two.allowed_tools, two.description) == (("Bash(git:*)", "Read"), ("Read",), "one two")
    assert (one.instructions, one.folder) == ("Body.", str(shelf.root / "a"))


def test_a_larger_skill_may_be_allowed(shelf: Shelf) -> None:
    large(shelf)
    assert [*Skills(shelf.root, max_bytes=20_000_000).skills] == ["pdf-forms"]


def test_two_skills_of_one_name_are_refused_and_all_problems_told_at_once(shelf: Shelf, tmp_path: Path) -> None:
    other = Shelf(tmp_path / "more")
    for each in (shelf, other):
        each.add()
    other.add("broken", "")
    with pytest.raises(DefinitionError) as raised:
        Skills(shelf.root, other.root)
    assert [problem.code for problem in raised.value.problems] == ["NO_FRONT_MATTER", "DUPLICATE_SKILL_NAME"]
    assert [*Skills(shelf.root, other.root, skip_broken=True).skills.values()] == [*Skills(shelf.root).skills.values()]


def test_broken_skills_may_be_left_out_and_are_named(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    shelf.add("broken", "")
    assert [code for code, _ in shelf.problems(skip_broken=True)] == ["NO_FRONT_MATTER"]  # nothing is left
    shelf.add()
    with caplog.at_level(logging.WARNING, "journeyman"):
        skills = Skills(shelf.root, skip_broken=True)
    assert ([*skills.skills], [problem.code for problem in skills.skipped]) == (["pdf-forms"], ["NO_FRONT_MATTER"])
    (warning,) = caplog.records
    assert str(shelf.root / "broken") in warning.getMessage()


def test_wrong_arguments_are_told(shelf: Shelf) -> None:
    shelf.add()
    assert shelf.problems(max_bytes=0) == [("INVALID_ARGUMENT", "max_bytes is 0. Pass a whole number of at least 1.")]
    with pytest.raises(DefinitionError, match="No folder is given"):
        Skills()
    with pytest.raises(DefinitionError, match="A folder of skills is 7"):
        Skills(7)  # pyright: ignore[reportArgumentType] - what is not typed may do it


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200), lines=st.lists(st.text(max_size=20), max_size=6))
def test_no_skill_file_does_more_than_being_refused(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    folder = tmp_path / "skill"
    folder.mkdir(exist_ok=True)
    for each in (data, front("name: skill", *lines).encode("utf-8", "replace")):
        (folder / "SKILL.md").write_bytes(each)
        try:
            (skill,) = Skills(folder).skills.values()
        except DefinitionError as error:
            told = [str(problem) for problem in error.problems]
        else:
            told = [skill.description]
        assert all(told)
        assert [text for text in told if "\n" in text] == []


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("Read, Write, Bash(npm run *)", ("Read", "Write", "Bash(npm run *)")),
        ("Read,Write", ("Read", "Write")),
        (
            "Bash(git add:*), Bash(git commit -m a, b) Edit(src/**)",
            ("Bash(git add:*)", "Bash(git commit -m a, b)", "Edit(src/**)"),
        ),
        ("['Read, Grep', 'Bash(ls -l)']", ("Read", "Grep", "Bash(ls -l)")),
        ("mcp__git__log mcp__docs", ("mcp__git__log", "mcp__docs")),
        ("''", ()),
        (f"[&a '{'Read ' * 1_000}', {'*a, ' * 2_000}]", ("Read",) * 1_000),
    ],
)
def test_commas_and_blanks_separate_tools_and_parentheses_hold_together(
    shelf: Shelf, written: str, names: tuple[str, ...]
) -> None:
    shelf.add("a", front("name: a", "description: x", f"allowed-tools: {written}"))
    assert Skills(shelf.root).skills["a"].allowed_tools == names


def test_a_link_to_another_skill_is_a_warning(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    shelf.add("a", front("name: a", "description: x") + "See [letters](../letters/SKILL.md).")
    (warning,) = Skills(shelf.root).skills["a"].warnings
    assert "a link to another skill, which a model cannot follow: '../letters/SKILL.md'" in str(warning)
    assert str(warning) in caplog.text


def test_a_skill_that_models_may_not_load_is_not_offered(shelf: Shelf) -> None:
    shelf.add("a", front("name: a", "description: x", "disable-model-invocation: true"))
    with pytest.raises(DefinitionError, match="No model may load any of the skills: a"):
        Skills(shelf.root)
    shelf.add("b", front("name: b", "description: y", "disable-model-invocation: false"))
    skills = Skills(shelf.root)
    assert [*skills.skills] == ["a", "b"]
    assert "- a:" not in skills.description
    with pytest.raises(InvalidArguments):
        skills.parse('{"name": "a"}')
    assert skills.parse('{"name": "b"}') == {"name": "b"}
