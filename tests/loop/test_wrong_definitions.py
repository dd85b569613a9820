"""Definitions and arguments of the wrong kind: all are refused where they are given, each with what to do instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, Callbacks, Chat, Limits, ModelSettings, Output, Runtime, Subagents, Tasks, run, run_sync
from journeyman.agent import TeamPrompt
from journeyman.compaction import Compaction
from journeyman.endings import InvalidInputContext
from journeyman.errors import DefinitionError, SubagentMisused
from journeyman.output.output import PerRun, Reflection
from journeyman.testing.scripted import FunctionModel, ScriptedModel
from journeyman.toolbox import deferred_tools
from tests.play import Report, Stage, context_of, failed, look, talker

HELPER = Agent(name="helper", model=ScriptedModel([]))


def settings(**given: Any) -> dict[str, Any]:
    return {"settings": ModelSettings(**given)}


def of_none() -> None: ...
def of_two(one: object, two: object) -> None: ...


# What is given, the codes of the problems, and words that one of them says.
REFUSED: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "a level of thinking": (settings(thinking="ultra"), ["INVALID_THINKING"], "'off', 'minimal', 'low', 'medium'"),
    "a provider's level": (settings(thinking="xhigh"), ["INVALID_THINKING"], "Did you mean 'max'?"),
    "a choice of tools": (settings(tool_choice="required"), ["INVALID_TOOL_CHOICE"], "Did you mean 'any'?"),
    "a text of stops": (settings(stop="END"), ["INVALID_STOP"], "('END',)"),
    "blank stops": (settings(stop=("",)), ["INVALID_STOP"], "not empty"),
    "a cache": (settings(cache="yes"), ["INVALID_CACHE"], "Did you mean 'auto'?"),
    "extra fields": (settings(extra=5), ["INVALID_EXTRA"], "Pass a dict"),
    "a compaction": ({"compaction": 3}, ["INVALID_SECTION"], "compaction is 3."),
    "a strategy": ({"compaction": [3]}, ["INVALID_COMPACTION"], "ClearToolResults()"),
    "a policy": ({"limits": Limits(budget_policies=[3])}, ["INVALID_ARGUMENT"], "check(spent)"),  # pyright: ignore[reportArgumentType]
    "policies": ({"limits": Limits(budget_policies="x")}, ["INVALID_LIMIT"], "limits.budget_policies is 'x'."),  # pyright: ignore[reportArgumentType]
    "an effect": ({"default_effect": "safe"}, ["INVALID_SECTION"], "'pure', 'idempotent' or 'once'"),
    "a mode of a team": ({"system": TeamPrompt("Go.", mode=3)}, ["INVALID_SECTION"], "TeamPrompt.mode is 3."),  # pyright: ignore[reportArgumentType]
    "a blank prompt for a team": ({"system": TeamPrompt(" ")}, ["EMPTY_PROMPT"], "The system prompt is blank"),
    "a prompt of none for a team": ({"system": TeamPrompt(of_none)}, ["INVALID_PROMPT"], "the input"),  # pyright: ignore[reportArgumentType]
    "no prompt for a team": ({"system": TeamPrompt(3)}, ["INVALID_SECTION"], "TeamPrompt.prompt is 3."),  # pyright: ignore[reportArgumentType]
    "a run state": ({"run_state": 3}, ["INVALID_FUNCTION"], "run_state is 3, not a function."),
    "an attempt state": ({"attempt_state": of_none}, ["INVALID_FUNCTION"], "attempt_state, of_none, cannot be called"),
    "a projection": ({"final_state": of_two}, ["INVALID_FUNCTION"], "the States"),
    "a conversion": ({"compaction": Compaction(transform_messages="x")}, ["INVALID_FUNCTION"], "the messages"),  # pyright: ignore[reportArgumentType]
    "a guard": ({"stop_guard": of_two}, ["INVALID_FUNCTION"], "a StopContext"),
    "a factory of guards": ({"stop_guard": PerRun(of_none)}, ["INVALID_FUNCTION"], "its task"),  # pyright: ignore[reportArgumentType]
    "who hears messages": ({"on_message": of_none}, ["INVALID_FUNCTION"], "a Message"),
    "a middleware": ({"tool_middleware": [of_none]}, ["INVALID_FUNCTION"], "what comes next"),
    "a gate": ({"gate": 5}, ["INVALID_ARGUMENT"], "gate is 5."),
    "a misspelt tool": ({"stop_after": ["lok"]}, ["INVALID_STOP_AFTER"], "Did you mean 'look'? Use one of: look."),
    "a rule of stops": ({"stop_after": ["look", of_none]}, ["INVALID_STOP_AFTER"], "its result"),
    "a text to stop after": ({"stop_after": "look"}, ["INVALID_SECTION"], "Write stop_after=['look']."),
    "a text among blocks": ({"system": ["a"]}, ["INVALID_PROMPT"], "system[0] is 'a', not a block. Pass Text('a')."),
    "a prompt of texts": ({"prompt": ["a"]}, ["INVALID_PROMPT"], "Pass Text('a')."),
    "a prompt": ({"prompt": 3}, ["INVALID_SECTION"], "prompt is 3."),
    "a prompt of nothing": ({"prompt": of_none}, ["INVALID_PROMPT"], "the input"),
    "an error prompt": ({"error_prompt": of_none}, ["INVALID_PROMPT"], "an ErrorPromptContext"),
    "a validator": ({"validators": [of_none]}, ["INVALID_VALIDATOR"], "of_none, cannot be called with an output"),
    "a validator of two": ({"validators": [of_two]}, ["INVALID_VALIDATOR"], "and no more"),
    "a reflection": ({"output": Output(Report, reflection=Reflection(of_two))}, ["INVALID_REFLECTION"], "a draft"),  # pyright: ignore[reportArgumentType, reportUnknownArgumentType]
    "an agent as tool": ({"tools": [HELPER]}, ["INVALID_TOOL"], "tools=[Subagents(agent)]"),
    "an agent as tools": ({"tools": HELPER}, ["INVALID_SECTION"], "Subagents(agent)"),
    "an unentered server": ({"tools": Tasks()}, ["INVALID_SECTION"], "async with mcp(…) as tools"),
    "a bare type": ({"output": Report}, ["INVALID_SECTION"], "Write output=Output(Report)."),
    "a feedback": ({"output": Output(Report, feedback_role="tool")}, ["INVALID_SECTION"], "'result' or 'text'"),  # pyright: ignore[reportCallIssue, reportArgumentType]
    "a name of no text": ({"output": Output(Report, name=3)}, ["INVALID_TOOL_NAME"], "The output tool's name 3"),  # pyright: ignore[reportCallIssue, reportArgumentType]
    "instructions": ({"instructions": "Be brief."}, ["UNKNOWN_NAME"], "Write system='Be brief.'."),
    "an output type": ({"output_type": Report}, ["UNKNOWN_NAME"], "Write output=Output(Report)."),
    "dependencies": ({"deps_type": int}, ["UNKNOWN_NAME"], "Write deps=int."),
    "a misspelt name": ({"validator": []}, ["UNKNOWN_NAME"], "Did you mean 'validators'?"),
}


def refused(make: Callable[[], object]) -> DefinitionError:
    with pytest.raises(DefinitionError) as raised:
        make()
    assert all(problem.message and problem.hint for problem in raised.value.problems)
    return raised.value


@pytest.mark.parametrize("what", REFUSED)
def test_an_agent_refuses_what_it_could_not_use_later(what: str) -> None:  # D44, X29, R73
    given, codes, words = REFUSED[what]
    error = refused(lambda: talker("anthropic:claude", **given))
    assert [problem.code for problem in error.problems][: len(codes)] == codes
    assert words in str(error)


def test_an_agent_names_all_that_is_wrong_also_beside_a_name_that_it_lacks() -> None:  # D44
    error = refused(
        lambda: talker(
            "claude",
            instructions="Be brief.",
            settings=ModelSettings(thinking="ultra", tool_choice="required", stop="END", cache="yes"),  # pyright: ignore[reportArgumentType]
            run_state=3,
            limits=Limits(budget_policies=[3]),  # pyright: ignore[reportArgumentType]
            stop_after=["lok"],
        )
    )
    assert [problem.code for problem in error.problems] == [
        *("UNKNOWN_NAME", "INVALID_MODEL_NAME", "INVALID_STOP_AFTER", "INVALID_FUNCTION", "INVALID_ARGUMENT"),
        *("INVALID_THINKING", "INVALID_TOOL_CHOICE", "INVALID_CACHE", "INVALID_STOP"),
    ]


def test_a_function_that_may_take_more_or_less_is_accepted() -> None:  # D44
    def any_number(*given: object, **named: object) -> None: ...
    def with_default(one: object, two: object = None) -> None: ...

    agent = talker("anthropic:claude", validators=[any_number, with_default, print], run_state=with_default)
    assert len(agent.validators) == 3


@pytest.mark.parametrize("name", ["callbacks", "on_event", "runtime", "abort", "history", "max_attempts"])
async def test_a_wrong_argument_is_a_failure_and_no_exception(stage: Stage, name: str) -> None:  # D44, R38
    wrong: Any = {name: 3.5}
    failure = failed(await run(talker(stage.model(["Never."])), "Go.", **wrong))
    assert (failure.code, failure.history, stage.n_requests) == ("INVALID_INPUT", (), 0)
    assert name in failure.error.message


async def test_all_wrong_arguments_and_the_input_are_told_at_once(stage: Stage) -> None:  # D44
    bad: Any = 3
    broken = Runtime(gate=bad, journal=bad)
    wrong: Any = {"callbacks": Callbacks(on_success=bad), "runtime": broken, "abort": True, "input": 5}
    ended: Any = await run(talker(stage.model(["Never."])), **wrong)
    issues = context_of(ended, InvalidInputContext).issues
    assert [words.split()[0] for words in issues] == [
        *("Callbacks.on_success", "abort", "Runtime.journal", "Runtime.gate"),
        "it",
    ]


async def test_what_is_no_agent_is_a_failure() -> None:  # D44
    wrong: Any = "poet"
    failure = failed(await run(wrong, "Go."))
    assert failure.error.message.endswith("the agent is 'poet'. Pass an Agent(name='assistant', model=…).")


async def test_run_sync_in_a_running_loop_says_what_to_use() -> None:
    with pytest.raises(RuntimeError, match=r"Use 'await run\(…\)' instead"):
        run_sync(HELPER, "Go.")


def test_a_chat_refuses_all_that_is_wrong_at_once() -> None:  # D44
    wrong: Any = {"runtime": 3, "callbacks": print, "on_event": 4, "history": 5}
    assert [problem.message.split()[0] for problem in refused(lambda: Chat(HELPER, **wrong)).problems] == [
        *("history", "runtime", "callbacks", "on_event")
    ]


def test_tasks_refuse_all_that_is_wrong_at_once() -> None:  # D44
    wrong: Any = {"notify": 5, "output": 6, "on_event": 7, "grace_s": "x"}
    names = [problem.message.split()[0] for problem in refused(lambda: Tasks(**wrong)).problems]
    assert names == ["notify", "output", "grace_s", "on_event"]


def test_subagents_refuse_what_they_could_not_use_when_they_are_made_and_later() -> None:  # D44
    wrong: Any = {"tasks": 1, "notify": 5, "create_model": "x", "background_output": 3, "team": 4}
    names = [problem.message.split()[0] for problem in refused(lambda: Subagents(HELPER, **wrong)).problems]
    assert names == list(wrong)
    made = Subagents(HELPER)
    for name, value in wrong.items():
        refused(lambda name=name, value=value: setattr(made, name, value))


async def test_a_subagent_is_not_run_with_wrong_arguments() -> None:  # D44
    wrong: Any = {"runtime": 3, "abort": True}
    with pytest.raises(SubagentMisused, match=r"runtime is 3\..* abort is True"):
        await Subagents(HELPER).run("helper", "Go.", **wrong)


async def test_a_model_for_a_subagent_may_be_made_by_an_async_function() -> None:
    async def made(name: str) -> ScriptedModel:
        return ScriptedModel(f"I am {name}.")

    outcome = await Subagents(HELPER, create_model=made).execute({"agent": "helper", "task": "Go.", "model": "big"})
    assert "I am big." in outcome.to_json()


async def test_a_function_that_makes_no_model_is_told() -> None:
    made: Any = Subagents(HELPER, create_model=lambda name: None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SubagentMisused, match="create_model gave None, which is not a model"):
        await made.execute({"agent": "helper", "task": "Go.", "model": "big"})


async def test_the_output_of_background_work_may_be_a_folder(tmp_path: Path) -> None:
    helper = Agent(name="helper", model=ScriptedModel("Done."))
    async with Tasks(notify=lambda text, info: None) as tasks:
        given = Subagents(helper, tasks=tasks, background_output=tmp_path / "out")
        await given.execute({"agent": "helper", "task": "Go.", "background": True})
        await tasks.wait()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["bg-1.jsonl"]


@pytest.mark.parametrize("answer", [None, 3, [3], {"text": "x"}, object()])
async def test_a_function_that_gives_no_answer_is_told_so(answer: Any) -> None:  # noqa: ANN401 - a wrong answer
    failure = failed(await run(talker(FunctionModel(lambda request: answer)), "Go."))
    assert failure.code == "API_ERROR"
    assert "which is not an answer. Give a text" in str(failure)


def test_what_holds_agents_cannot_be_deferred() -> None:
    unfit: Any = [Subagents(HELPER), print, look]
    error = refused(lambda: deferred_tools(unfit))
    assert [problem.code for problem in error.problems] == ["NOT_DEFERRABLE", "INVALID_TOOL"]
