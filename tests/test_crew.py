"""The research crew: what it finds, what it is held to, and how it goes on when something is refused or fails."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from journeyman import Agent, Chat, Runtime, Subagents, Success, Tasks, run
from journeyman.events import Event, RunStarted
from journeyman.model import Request, Response
from journeyman.testing.scripted import FunctionModel
from journeyman.types import Block, Message, Text, ToolResult, ToolUse
from tests.cli.program import Warm
from tests.play import existing, instance_of, succeeded
from tests.support.stand_ins import asked, assert_keeps_no_state

CREW = Path(__file__).parent.parent / "examples" / "crew"
QUESTION = "What happens to ripe apples and lost keys?"
PAGES = {
    "apples.md": "# Apples\n\nRipe apples are picked at noon and put into boxes, see [keys](keys.md#the-shed).\n",
    "keys.md": "# Keys\n\n## The shed\n\nWhoever has lost keys asks the gardener for the second pair.\n",
    "paths.md": "# Paths\n\nSee [apples](apples.md), [a tool](tools.md), [up](../up.md) and [here](#nowhere).\n",
}
NOTE = (
    "On ripe apples: “Ripe apples are picked at noon and put into boxes, see [keys](keys.md#the-shed).” "
    "(apples.md:3)\n\n"
    "On lost keys: “Whoever has lost keys asks the gardener for the second pair.” (keys.md:5)"
)
LINKS = (
    "The links are checked, too: 4 links on 3 pages, of which 2 lead nowhere:\n"
    "- paths.md:3 tools.md\n"
    "- paths.md:3 #nowhere"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example's modules, as its own programs import them."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setattr(sys, "path", [str(CREW), *sys.path])
    names = ("agents", "offline", "offline_lead", "pages")
    for name in names:  # another program's modules may have these names
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module("agents")
    for name in names:
        sys.modules.pop(name, None)


def model_of(agent: Agent) -> FunctionModel:
    assert isinstance(agent.model, FunctionModel)
    return agent.model


def member(lead: Agent, name: str) -> Agent:
    [tool] = lead.plan.tools.values()
    assert isinstance(tool, Subagents)
    found = existing(tool.agent(name))
    return found


def test_the_program_shows_who_works_and_what_came_of_it(folder: Path, warm: Warm) -> None:
    done = warm(QUESTION, folder, program=CREW / "research.py")
    assert (done.stderr, done.code) == ("", 0)
    first, *lines = done.stdout.splitlines()
    assert first.startswith("Offline stand-in at work: a small program, not a language model. All the rest is real.")
    begun = re.findall(r" begins \((\w+)\)$", done.stdout, flags=re.MULTILINE)
    assert sorted(begun) == ["background", "chain", "chain", "parallel", "parallel"]
    assert "    bg-1        in the background: check all links" in lines
    assert f"lead: {QUESTION}\n\n{NOTE}\n" in done.stdout
    assert LINKS in done.stdout
    assert re.search(r"^\d+ requests, and 3 in the background$", done.stdout, flags=re.MULTILINE)


def test_the_command_line_runs_the_same_crew_where_nothing_may_go_on_in_the_background(
    folder: Path, warm: Warm
) -> None:
    done = warm("run", CREW / "agents.py", QUESTION, "--tree", env={"CREW_FOLDER": str(folder)})
    assert done.stdout == f"{QUESTION}\n\n{NOTE}\n\n{LINKS}\n"
    assert done.code == 0
    assert "      │ Error: Background work is not available here:" in done.stderr
    assert "    ↳ scout#1 · parallel · offline:stand-in\n" in done.stderr
    assert "  1 ✗ subagent  ✓ subagent " in done.stderr
    assert "in all · 6 runs, " in done.stderr
    assert max(len(line) for line in done.stderr.splitlines()) <= 80


def test_in_a_chat_the_check_goes_on_in_the_background_and_is_told_of(folder: Path, tmp_path: Path, warm: Warm) -> None:
    env = {"CREW_FOLDER": str(folder), "XDG_DATA_HOME": str(tmp_path / "data")}
    done = warm("chat", CREW / "agents.py", stdin=f"{QUESTION}\n".encode(), env=env)
    assert done.code == 0
    assert done.stdout == f"{QUESTION}\n\n{NOTE}\n{LINKS}\n"
    assert "◦ bg-1 checker: check all links · in the background\n" in done.stderr
    assert "    ↳ checker#1 · background · offline:stand-in\n" in done.stderr
    assert "✓ bg-1 checker: check all links · has ended" in done.stderr


def test_the_document_of_the_crew_holds_all_of_it(folder: Path, warm: Warm) -> None:
    done = warm("run", CREW / "agents.py", QUESTION, "--json", "--quiet", env={"CREW_FOLDER": str(folder)})
    document = json.loads(done.stdout)
    names = [child["path"][-1].partition("#")[0] for child in document["children"]]
    assert sorted(names) == ["checker", "reviewer", "scout", "scout", "writer"]
    own = sum(attempt["iterations"] for attempt in document["attempts"])
    assert document["usage"]["requests"] == own + sum(child["iterations"] for child in document["children"])


def test_the_definition_is_shown_without_a_model(warm: Warm) -> None:
    assert "subagent" in warm("check", CREW / "agents.py").stdout


async def test_a_quotation_that_is_not_on_the_page_is_not_accepted(folder: Path, agents: ModuleType) -> None:
    invented = '{"findings": [{"file": "keys.md", "line": 5, "quotation": "There is no second pair."}]}'
    scout = member(agents.crew(folder), "scout")

    def invents(request: Request) -> ToolUse | str:
        return "I give up." if len(request.messages) > 1 else ToolUse("1", "hand_in", invented)

    result = await run(
        replace(scout, model=FunctionModel(invents)), "What do the pages say about keys?", max_attempts=1
    )
    assert not isinstance(result, Success)
    assert "keys.md:5" in existing(result.report).feedback


@pytest.mark.parametrize(
    ("line", "target", "why"), [(3, "keys.md#the-shed", "leads somewhere"), (1, "tools.md", "has no link")]
)
def test_a_link_is_called_broken_only_if_it_is(
    folder: Path, agents: ModuleType, line: int, target: str, why: str
) -> None:
    pages = import_module("pages")
    broken = pages.BrokenLink(page="apples.md", line=line, target=target)
    with pytest.raises(ValueError, match=why):
        pages.Pages(folder).check_broken([broken])
    pages.Pages(folder).check_broken([pages.BrokenLink(page="paths.md", line=3, target="tools.md")])


def test_a_page_outside_of_the_folder_holds_nothing(folder: Path, agents: ModuleType) -> None:
    pages = import_module("pages")
    (folder.parent / "secret.md").write_text("a secret\n", encoding="utf-8")
    with pytest.raises(ValueError, match="do not stand there"):
        pages.Pages(folder).check([pages.Finding(file="../secret.md", line=1, quotation="a secret")])


async def test_the_lead_is_told_of_the_check_and_does_not_check_again(folder: Path, agents: ModuleType) -> None:
    begun: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, RunStarted) and len(event.path) > 1:
            begun.append(f"{event.path[-1].partition('#')[0]} {event.mode}")

    async with Tasks() as tasks, Chat(agents.crew(folder), runtime=Runtime(tasks=tasks), on_event=note) as chat:
        answers = [(await chat.prompt(QUESTION)).unwrap()]
        await tasks.wait()
        if chat.state.follow_ups:
            answers.append((await chat.continue_()).unwrap())
        assert answers[-1] == LINKS
        again = succeeded(await chat.prompt("And what about the gardener?"))
        assert "On gardener: “Whoever has lost keys asks the gardener for the second pair.”" in again.output
        messages = chat.messages
    assert begun.count("checker background") == 1
    assert begun.count("scout parallel") == 3
    assert begun.count("writer chain") == begun.count("reviewer chain") == 2
    assert_keeps_no_state(model_of(chat.agent).function, messages)


def answer(model: FunctionModel, messages: Sequence[Message]) -> Sequence[Block]:
    said = instance_of(Response, model.function(asked(messages)))
    return said.content


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with the lead, as far as the test wants it."""

    model: FunctionModel
    messages: tuple[Message, ...]

    def then(self, *results: str | tuple[str, bool]) -> Conversation:
        """Let the lead answer, and give each of its calls a result; with True, an error."""
        said = [
            replace(block, id=f"{len(self.messages)}-{place}") if isinstance(block, ToolUse) else block
            for place, block in enumerate(answer(self.model, self.messages))
        ]
        uses = [block for block in said if isinstance(block, ToolUse)]
        given = [each if isinstance(each, tuple) else (each, False) for each in results]
        blocks = [ToolResult(*each, use.id) for use, each in zip(uses, given, strict=True)]
        answered = (Message("assistant", tuple(said)), Message("user", tuple(blocks)))
        return replace(self, messages=(*self.messages, *answered))

    def told(self, text: str) -> Conversation:
        said = answer(self.model, self.messages)
        user = Message("user", (Text(text),))
        return replace(self, messages=(*self.messages, Message("assistant", tuple(said)), user))

    @property
    def calls(self) -> list[dict[str, object]]:
        return [dict(block.input) for block in answer(self.model, self.messages) if isinstance(block, ToolUse)]

    @property
    def words(self) -> str:
        return "".join(block.text for block in answer(self.model, self.messages) if isinstance(block, Text))


FINDING = {"file": "keys.md", "line": 5, "quotation": "asks the gardener"}
SCOUTED = json.dumps(
    {"results": [{"agent": "scout", "task": "What do the pages say about keys?", "output": {"findings": [FINDING]}}]}
)
RUNNING = '{"task_id": "bg-1"}'


@pytest.fixture
def so_far(folder: Path, agents: ModuleType) -> Conversation:
    return Conversation(model_of(agents.crew(folder)), (Message("user", (Text("What about lost keys?"),)),))


def test_a_chain_that_stopped_goes_on_from_the_step_that_failed_once(so_far: Conversation) -> None:
    written = {"agent": "writer", "task": "Write.", "output": "A note."}
    stopped = json.dumps({"error": "Step 2 failed.", "results": [written, {"agent": "reviewer", "is_error": True}]})
    after = so_far.then(RUNNING, SCOUTED).then(stopped)
    [again] = after.calls
    assert (again["start_at"], again["previous"]) == (2, "A note.")
    assert after.then(stopped).words == "The note could not be written: Step 2 failed."


def test_scouts_that_found_nothing_or_failed_leave_nothing_to_write(so_far: Conversation) -> None:
    failed = {"agent": "scout", "task": "What do the pages say about a?", "is_error": True, "output": "ill"}
    empty = {"agent": "scout", "task": "What do the pages say about b?", "output": {"findings": list[str]()}}
    assert so_far.then(RUNNING, json.dumps({"results": [failed, empty]})).words.startswith("The pages say nothing")
    assert so_far.then(RUNNING, ("Error: too deep", True)).words == "My scouts could not be sent out: Error: too deep"


def test_a_check_that_failed_is_said_to_have_failed(so_far: Conversation) -> None:
    reviewed = json.dumps({"output": {"note": "The note.", "removed": ["“x” (a.md:1)"]}})
    after = so_far.then(RUNNING, SCOUTED).then(reviewed)
    assert after.words == "The note.\n\nThe reviewer took out 1."
    notice = "<background-task-completed>\n<status>failed</status>\n<summary>Agent &quot;x&quot; failed</summary>\n"
    assert after.told(notice).words == 'The check of the links came to nothing: Agent "x" failed'


def test_a_reviewer_takes_out_what_does_not_stand(folder: Path, agents: ModuleType) -> None:
    reviewer = model_of(member(agents.crew(folder), "reviewer"))
    task = "Check it.\n\nIt is “right” (a.md:1) and “wrong” (a.md:2)."
    after = Conversation(reviewer, (Message("user", (Text(task),)),)).then("1\tright so", "2\tno")
    note = "It is “right” (a.md:1) and (a citation was taken out)."
    assert after.calls == [{"note": note, "removed": ["“wrong” (a.md:2)"]}]
