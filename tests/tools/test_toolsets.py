"""Toolsets as values: what is known of them before any run, and how one becomes another."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Agent, DefinitionError, Runtime, Subagents, Tasks, ToolResult, run, tool
from journeyman.gate import Allow, Approval, Ask, Decision, GateRequest
from journeyman.mcp.tools import ServerTools
from journeyman.skills import Skills
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.toolbox import Workspace, deferred_tools
from journeyman.tools import CallNext, MiddlewareCall, Toolset, ToolsetContext, toolset
from journeyman.tools.tools import AnyTool
from journeyman.tools.toolsets import RequiredApproval
from tests.play import answered, existing, make_tool, texts

NAMES = st.lists(st.sampled_from("abcdef"), unique=True)


def names_known(source: Toolset[Any]) -> list[str]:
    return [each.name for each in existing(source.known_tools)]


def two_tools() -> Toolset:
    return toolset([make_tool("read", "page {page}"), make_tool("erase", "gone {page}")])


@given(there=NAMES, kept=NAMES, prefix=st.sampled_from(["", "gh_", "x"]))
def test_toolsets_nest_and_leave_those_they_are_made_of_alone(there: list[str], kept: list[str], prefix: str) -> None:
    """`filtered` and `prefixed` in any order give the same tools; what they were made of stays as it was."""
    first = toolset([toolset([make_tool(name)]) for name in there])
    one = first.filtered(lambda tool: tool.name in kept).prefixed(prefix)
    other = first.prefixed(prefix).filtered(lambda tool: tool.name.removeprefix(prefix) in kept)
    assert names_known(one) == names_known(other) == [f"{prefix}{name}" for name in there if name in kept]
    assert names_known(first) == there
    new = {f"{prefix}{name}": name.upper() for name in there if name in kept}
    assert names_known(one.renamed(new)) == list(new.values())


async def test_a_renamed_tool_does_the_same_under_its_new_name() -> None:
    gh = two_tools().prefixed("gh_").renamed({"gh_read": "read_page"})
    assert names_known(gh) == ["read_page", "gh_erase"]
    page, erase = existing(gh.known_tools)
    assert (page.spec.name, page.name) == ("read_page", "read_page")
    assert (await answered(page, {"page": 3})).text == "page 3"
    assert (await answered(erase, {"page": 3})).text == "gone 3"


async def test_what_wraps_a_toolset_is_around_its_calls_only_and_the_last_outermost() -> None:
    def marks(mark: str) -> Callable[[MiddlewareCall, CallNext], Any]:
        async def wrap(call: MiddlewareCall, next: CallNext) -> ToolResult:
            result = await next(call)
            return replace(result, content=f"{mark}{result.text}{mark}")

        return wrap

    wrapped = two_tools().wrapped(marks("'"), marks('"')).wrapped(marks("|"))
    assert (await answered(existing(wrapped.known_tools)[0], {"page": 1})).text == "|'\"page 1\"'|"


def is_late(call: GateRequest) -> bool:
    return call.arguments["page"] == 4


def asks_late(call: GateRequest) -> str | None:
    return "Really?" if is_late(call) else None


@pytest.mark.parametrize(
    ("asks", "arguments", "question"),
    [
        ("", {"page": 1}, "Allow read?"),
        ("Read it?", {"page": 1}, "Read it?"),
        (is_late, {"page": 4}, "Allow read?"),
        (asks_late, {"page": 4}, "Really?"),
        (asks_late, {"page": 2}, None),
    ],
)
async def test_a_toolset_that_requires_approval_asks_before_a_call(
    asks: str | Callable[[GateRequest], str | bool | None], arguments: dict[str, object], question: str | None
) -> None:
    asked: list[str] = []

    async def approver(approval: Approval) -> Decision:
        asked.append(approval.question)
        return Allow()

    read = existing(two_tools().requiring_approval(asks).known_tools)[0]
    assert (await answered(read, arguments, runtime=Runtime(approver=approver))).text == f"page {arguments['page']}"
    assert asked == ([] if question is None else [question])
    alone = (await answered(read, arguments)).text
    assert alone == (f"page {arguments['page']}" if question is None else f"Error: denied: {question}")


async def test_a_function_that_fails_denies_the_call_that_it_was_to_ask_about() -> None:
    read = existing(two_tools().requiring_approval(lambda call: bool(1 // 0)).known_tools)[0]
    assert "denied: the gate failed: ZeroDivisionError" in (await answered(read, {"page": 1})).text


async def test_the_function_may_be_async() -> None:
    async def asks(call: GateRequest) -> str:
        return "Now?"

    request = GateRequest(path=("a",), tool_use_id="1", tool_name="read", arguments={}, effect="once")
    assert await RequiredApproval(asks).decide(request) == Ask("Now?")


async def test_whatever_gives_tools_is_narrowed_in_the_same_way(tmp_path: Path) -> None:
    """A subclass of `Tool` stays one, with what its host sets later; what a search finds is called as it was named."""
    (tmp_path / "tidy").mkdir()
    (tmp_path / "tidy" / "SKILL.md").write_text("---\nname: tidy\ndescription: Tidies up.\n---\nTidy up.")
    below = Agent(name="below", description="Works.", model=ScriptedModel(["Done below."]))
    kinds: list[Toolset] = [
        ServerTools([make_tool("fetch")], {}),
        Skills(tmp_path),
        Workspace(tmp_path).filtered(["ls", "read"]),
        Subagents(below),
        deferred_tools([make_tool("find", "found"), make_tool("hide")]).filtered(["find"]),
    ]
    tools = [each.prefixed("my_").requiring_approval() for each in kinds]
    calls = [
        call("my_fetch"),
        call("my_skill", name="tidy"),
        call("my_ls"),
        call("my_subagent", agent="below", task="Go."),
        call("tool_search", query="find"),
    ]
    later = [call("call_tool", name="my_find", arguments={}), call("call_tool", name="my_hide", arguments={})]
    agent = Agent(name="all", model=ScriptedModel([say(*calls), say(*later), "Done."]), tools=tools)
    asked: list[str] = []

    async def approver(approval: Approval) -> Decision:
        asked.append(approval.request.tool_name)
        return Allow()

    told = texts(await run(agent, "Go.", runtime=Runtime(approver=approver)))
    assert ("Tidy up." in told[1], "tidy/" in told[2], "Done below." in told[3]) == (True, True, True), told
    assert told[5:] == ["found", "There is no tool 'my_hide'. Find one with tool_search."]
    assert asked == ["my_fetch", "my_skill", "my_ls", "my_subagent", "my_find"]
    assert [*agent.plan.tools][-3:] == ["tool_search", "call_tool", "my_find"]
    assert "There are 1: my_find." in agent.plan.tools["tool_search"].description
    first, renamed = kinds[3], agent.plan.tools["my_subagent"]
    assert isinstance(first, Subagents)
    assert isinstance(renamed, Subagents)
    first.tasks = Tasks()
    assert renamed.tasks is first.tasks


async def test_a_toolset_of_each_moment_may_wait_behind_a_search() -> None:
    @tool(prepare=lambda tool, context: tool if context.iteration > 1 else None)
    def late() -> str:
        """Come late."""
        return "here"

    every = deferred_tools(toolset([make_tool("find"), late], each="iteration")).prefixed("a_")
    model = ScriptedModel([call("tool_search", query="late"), call("tool_search", query="late"), "Done."])
    told = texts(await run(Agent(name="all", model=model, tools=[every]), "Go."))
    assert told[0] == "No tool matches 'late'. Try other words."
    assert '"name": "a_late"' in told[1]
    with pytest.raises(DefinitionError, match=r"Write deferred_tools\(toolset"):
        deferred_tools([late])


def test_what_is_known_of_a_toolset_is_known_of_the_agent() -> None:
    """Rules, pins and digests are made of the definition: there is nothing left to ask in a run."""
    agent = Agent(name="a", model=ScriptedModel([]), tools=[two_tools().prefixed("a_"), make_tool("b")])
    assert (list(agent.plan.tools), agent.plan.sources) == (["a_read", "a_erase", "b"], ())
    asking = replace(agent, tools=[two_tools(), toolset(lambda context: []), make_tool("b")])
    assert list(asking.plan.tools) == ["read", "erase", "b"]
    assert len(asking.plan.sources) == 4


def of_moment(context: ToolsetContext[int]) -> Sequence[AnyTool]:
    return []


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (
            lambda: two_tools().filtered(["raed"]),
            "UNKNOWN_TOOL",
            "no tool 'raed'. Did you mean 'read'? It has read, erase.",
        ),
        (lambda: two_tools().filtered(3), "INVALID_ARGUMENT", "keep is 3."),  # pyright: ignore[reportArgumentType]
        (lambda: two_tools().filtered(lambda tool: True, each="turn"), "INVALID_ARGUMENT", "each is 'turn'."),  # pyright: ignore[reportArgumentType]
        (lambda: two_tools().renamed({"raed": "x"}), "UNKNOWN_TOOL", "no tool 'raed'."),
        (lambda: two_tools().renamed(["read"]), "INVALID_ARGUMENT", "names is ['read']."),  # pyright: ignore[reportArgumentType]
        (lambda: two_tools().wrapped(3), "INVALID_FUNCTION", "A middleware is 3"),  # pyright: ignore[reportArgumentType]
        (lambda: two_tools().requiring_approval(3), "INVALID_FUNCTION", "asks is 3"),  # pyright: ignore[reportArgumentType]
        (lambda: toolset(3), "INVALID_FUNCTION", "A toolset is 3"),  # pyright: ignore[reportArgumentType]
        (lambda: toolset([3]), "INVALID_TOOL", "A toolset holds 3"),  # pyright: ignore[reportArgumentType]
        (lambda: toolset(of_moment, each="turn"), "INVALID_ARGUMENT", "each is 'turn'."),  # pyright: ignore[reportArgumentType]
        (lambda: tool(prepare=3)(of_moment), "INVALID_PREPARE", "prepare is 3."),  # pyright: ignore[reportArgumentType]
        (
            lambda: Agent(name="a", model="x:y", tools=[two_tools(), two_tools()]),
            "DUPLICATE_TOOL_NAME",
            "Tool 'read' is",
        ),
        (lambda: Agent(name="a", model="x:y", tools=[two_tools().prefixed("a b")]), "INVALID_TOOL_NAME", "'a bread'"),
        (lambda: Agent(name="a", model="x:y", tools=of_moment), "INVALID_SECTION", "Write tools=[of_moment]."),  # pyright: ignore[reportArgumentType]
        (lambda: Agent(name="a", model="x:y", tools=[len]), "INVALID_TOOL", "is not a tool"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_toolset_that_cannot_be_is_refused_where_it_is_made(make: Callable[[], object], code: str, said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    assert (code, True) in [(each.code, said in str(each)) for each in caught.value.problems], caught.value
