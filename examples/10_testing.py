"""Testing an agent: the model is an argument, so a test gives another one. No patches, no waiting, no network.

These are ordinary tests (`pytest examples/10_testing.py`); run as a program, they say what they found.
"""

from journeyman import Agent, Failure, Output, Runtime, Text, ToolResult, run_sync, tool
from journeyman.endings import AttemptsContext
from journeyman.errors import ProviderError
from journeyman.model import Request
from journeyman.testing import FunctionModel, ScriptedModel, call
from journeyman.types import ToolUse


@tool
def length(word: str) -> int:
    """Count the letters of a word."""
    return len(word)


def positive(value: int) -> None:
    if value <= 0:
        raise ValueError("A length is positive.")


counter = Agent(
    name="counter", model="anthropic:claude-sonnet-5-5", tools=[length], output=Output(int), validators=[positive]
)


def test_the_result_of_the_tool_is_handed_in() -> None:
    def policy(request: Request) -> ToolUse:
        match request.messages[-1].content[0]:
            case ToolResult(content=str(text)):
                return call("output", value=int(text))
            case _:
                return call("length", word="loop")

    assert run_sync(counter, "How long is 'loop'?", runtime=Runtime(model=FunctionModel(policy))).unwrap() == 4


def test_a_length_that_is_not_positive_is_never_handed_in() -> None:
    script = ScriptedModel([call("output", value=0)], repeat=True)
    failure = run_sync(counter, "How long?", runtime=Runtime(model=script), max_attempts=2)
    assert isinstance(failure, Failure)
    assert failure.candidate == {"value": 0}
    assert failure.error.context == AttemptsContext(attempts=2, max_attempts=2, last_error="A length is positive.")


def test_an_overloaded_provider_is_asked_again() -> None:
    script = ScriptedModel([ProviderError("Busy.", kind="overloaded", retry_after_s=0), call("output", value=4)])
    assert run_sync(counter, "How long?", runtime=Runtime(model=script)).unwrap() == 4
    assert [request.messages[0].content for request in script.requests] == [(Text("How long?"),)] * 2


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"passed: {name.removeprefix('test_').replace('_', ' ')}")
