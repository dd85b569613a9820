"""What reaches another process: errors with all they carry, results, and the agents and tools of a module."""

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from journeyman import Agent, DefinitionError, JourneymanError, Limits, Output, Rejected, run, run_sync, tool
from journeyman import errors as errors_module
from journeyman.definition.problems import StoredError, join_sentences
from journeyman.errors import (
    BudgetRefused,
    Hinted,
    InvalidArguments,
    McpUnavailable,
    ModelUnavailable,
    NotRecorded,
    OutcomeUnknown,
    PinsDiffer,
    Problem,
    ProviderError,
    RunDiffers,
    RunError,
    RunInUse,
    RunOver,
    RunUnknown,
    SessionInUse,
    StepTooLarge,
    StoreError,
    SubagentFailed,
    UnusableAnswer,
)
from journeyman.testing.scripted import ScriptedModel, call
from tests.play import failed

ERRORS: list[JourneymanError] = [
    DefinitionError("Agent 'a'", [Problem("CODE", "It is wrong.", "Write it.")]),
    ModelUnavailable("no key", model="openai:x", hint="Set it."),
    ProviderError("slow", kind="rate_limited", status=429, retry_after_s=2.0),
    UnusableAnswer("it is too large", limit=3),
    NotRecorded("nothing"),
    InvalidArguments("arguments", ["n: is required."]),
    Rejected("no", path=("a", 0)),
    BudgetRefused("tokens", limit=1, used=0, scope="run", needed=3),
    OutcomeUnknown("call/1"),
    McpUnavailable("files", "it does not start", hint="Start it."),
    PinsDiffer("pins.json", ["one"]),
    StoreError("full", hint="Make room.", may_pass=True),
    SessionInUse("open", hint="Close it.", pid=3),
    RunDiffers("one", "it is another"),
    RunInUse("one", "process 3"),
    RunUnknown("one", ["two"]),
    RunOver("one", "done"),
    StepTooLarge("call/1", n_bytes=2, most_bytes=1),
    SubagentFailed("it failed", agent="a", failure=None),
    RunError("failed", None),
    errors_module.ChatBusy("busy"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_reaches_another_process_whole(error: JourneymanError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.args == error.args
        assert vars(again) == vars(error)


def test_an_error_with_a_hint_says_both_apart() -> None:
    told = [error for error in ERRORS if hasattr(error, "hint") and not isinstance(error, ProviderError)]
    assert {type(each) for each in told} == {ModelUnavailable, McpUnavailable, StoreError, SessionInUse}
    for error in told:
        assert isinstance(error, Hinted)
        assert error.args == (join_sentences(error.message, error.hint),)


class Foreign(Exception):
    """As most exceptions with a constructor of their own, it can be pickled, and not read again."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


async def test_a_failure_reaches_another_process_also_where_its_cause_cannot() -> None:
    def refuse(output: int) -> None:
        raise Foreign("too small", code=3)

    def report(*_: object) -> None:
        raise Foreign("not told", code=4)

    agent = Agent(
        name="counter",
        model=ScriptedModel([call("output", value=1)], repeat=True),
        output=Output(int),
        validators=[refuse],
        limits=Limits(attempts=1),
    )
    failure = failed(await run(agent, "Count.", on_event=report))
    again = pickle.loads(pickle.dumps(failure))
    assert again.error == failure.error
    assert again.report == failure.report
    assert isinstance(again.report.layers[-1].error, StoredError)
    assert str(again.metadata.callback_errors[0].error) == "Foreign: not told"


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is empty."


looker = Agent(name="looker", model=ScriptedModel([call("look", place="It"), "Empty."]), tools=[look])


def work(agent: Agent[str], given: object) -> object:
    if given is not look:
        return "another tool"
    return run_sync(agent, "Look.")


def test_an_agent_and_a_tool_of_a_module_are_sent_by_name() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        result = pool.submit(work, looker, look).result(timeout=60)
    assert "Empty." in repr(result)
    assert "Empty." in repr(result)
    assert "Empty." in str(result)
    assert copy.deepcopy(looker) is looker
    assert copy.copy(look) is look


def test_what_no_module_names_says_so() -> None:
    @tool
    def inner() -> str:
        """Do it."""
        return ""

    for value, name in ((inner, "Tool 'inner'"), (Agent(name="a", model="m:x"), "Agent 'a'")):
        with pytest.raises(pickle.PicklingError, match=f"{name}.* at the top of a module"):
            pickle.dumps(value)
