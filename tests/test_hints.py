"""A hint leads somewhere: the line that an error suggests is pasted, and works."""

import importlib
import re
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import journeyman
from journeyman import Agent, Chat, DefinitionError, Subagents, Success, Team, run, run_many, run_sync, stream
from journeyman.compaction import Compaction
from journeyman.definition.foreign import OLD_ARGUMENTS, UNNAMED, foreign_names, read_names
from journeyman.definition.problems import join_sentences
from journeyman.durable import Durable, Queue, RunHandle, Worker
from journeyman.mcp_server import create_mcp_server
from journeyman.models import RateLimitedModel
from journeyman.models.cassette import Cassette
from journeyman.models.openai import Endpoint, InputMedia, Reasoning
from journeyman.serve import ServeLimits, create_app
from journeyman.store import Store
from journeyman.testing.scripted import ScriptedModel, call
from tests.play import Report, failed

MODEL = ScriptedModel("Hello.", repeat=True)
HINT = re.compile(r"Write (.*)\.(?:$|\s)")


def one(value: object) -> None: ...
def two(value: object, other: object) -> None: ...
def three(value: object, other: object, third: object) -> None: ...
def too_small(n: int) -> None:
    raise ValueError("too small")


async def listen(event: object) -> None: ...


AGENT = Agent(name="helper", model=MODEL, description="Helps.")
NAMES: dict[str, Any] = {
    **{name: getattr(journeyman, name) for name in journeyman.__all__},
    **{
        each.__name__: each
        for each in (Cassette, Compaction, Endpoint, InputMedia, Reasoning, Report, ScriptedModel, ServeLimits)
    },
    **{each.__name__: each for each in (one, two, three, too_small)},
    **{"agent": AGENT, "call": call},
}
"""What a pasted line may name."""

BASE: dict[str, dict[str, Any]] = {
    "Agent": {"name": "a", "model": MODEL},
    "Output": {"type": int},
    "Tool": {"name": "t", "description": "Do it.", "input_schema": {"type": "object"}, "handler": one},
    "Chat": {"agent": AGENT},
    "Endpoint": {"provider": "ours"},
    "Cassette": {"path": "cassette.jsonl"},
    "ScriptedModel": {"answers": []},
}
"""By class: what it needs beside the argument that is tried."""

VALUES: dict[str, object] = {
    **{"temperature": 0.2, "top_p": 0.9, "seed": 7, "stop": ("END",), "max_tokens": 500, "thinking": "low"},
    **{
        "hosted": (),
        "extra": {"a": 1},
        "tool_choice": "auto",
        "cache": "off",
        "request_retries": 1,
        "budget_policies": (),
    },
    **{"iterations": 3, "attempts": 3, "tokens": 9_000, "calls": 4, "seconds": 2, "cost": 0.5, "max_concurrency": 2},
    **{"result_chars": 80, "track_tokens": False},
    **{"system": "Be brief.", "deps": int, "description": "Helps.", "input": str, "name": "b", "model": "a:b"},
    **{"prompt": "Go.", "type": int, "mode": "tool", "input_schema": {"type": "object"}, "Output": int},
    **{"grace_s": 2.5, "timeout_s": 3, "max_chars": 80, "recorder": "runs.db", "answers": ["Hi."]},
    **dict.fromkeys(("validators", "compaction", "tool_middleware", "tools", "stop_after", "history"), ()),
    **dict.fromkeys(("journal", "gate", "telemetry", "tasks", "budget", "reflection", "callbacks")),
    **dict.fromkeys(
        ("on_run_start", "on_iteration_start", "approver", "on_event", "handler", "final_state", "transform_messages"),
        one,
    ),
    **dict.fromkeys(("on_model_response", "on_success", "on_failure"), two),
    **dict.fromkeys(("on_tool_call", "on_tool_result"), three),
    **dict.fromkeys(("settings", "limits")),
}
"""By argument of ours: a value that it takes."""


def refusal(make: Callable[[], object]) -> str:
    with pytest.raises(DefinitionError) as caught:
        make()
    return str(caught.value.problems[0])


def paste(kind: str, line: str) -> object:
    """Make an object of the class with the arguments as the line has them."""
    given = eval(f"dict({line})", dict(NAMES))
    return NAMES[kind](*([AGENT] if kind == "Subagents" else []), **{**BASE.get(kind, {}), **given})


@pytest.mark.parametrize("kind", read_names()["arguments"])
def test_the_line_for_a_foreign_name_works_when_it_is_pasted(kind: str) -> None:
    for name, line in foreign_names("arguments", kind).items():
        ours = [*re.findall(r"(\w+)[=(](?:\{\}|\{'\w+': )", line), ""][0]
        value = VALUES.get(ours, True)
        base = {key: each for key, each in BASE.get(kind, {}).items() if key != ours}
        told = refusal(lambda base=base, name=name, value=value: NAMES[kind](**base, **{name: value}))
        assert told.startswith(f"{kind} has no {name!r}. Write ")
        if value is not None or ours not in ("settings", "limits"):
            assert paste(kind, told.partition(" Write ")[2].removesuffix(".")) is not None, name


def test_no_name_of_ours_is_called_foreign() -> None:
    named = [(table, kind) for table in ("arguments", "elsewhere") for kind in read_names()[table]]
    ours = [foreign_names(table, kind).keys() & signature(NAMES[kind]).parameters.keys() for table, kind in named]
    assert len(named) > 5
    assert {name for each in ours for name in each} == set()


@pytest.mark.parametrize("name", foreign_names("elsewhere", "ServeLimits"))
def test_a_limit_that_is_a_constant_now_is_refused_in_one_line(name: str) -> None:
    made: Any = ServeLimits
    told = refusal(lambda: made(**{name: 1}))
    assert re.fullmatch(rf"ServeLimits has no '{name}'\. Leave it out: .* [0-9]+ s[^\n]*\.", told)


@pytest.mark.parametrize("name", ["openai:gpt-5", "anthropic:claude-sonnet-5-5"])
def test_a_model_alone_is_told_as_a_whole_line(name: str) -> None:
    make: Any = Agent
    told = refusal(lambda: make(name))
    assert told == f"Agent cannot take {name!r} without a name. Write {UNNAMED['Agent'].replace('{}', repr(name))}."
    assert eval(HINT.findall(told)[0], dict(NAMES)).model == name


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"validators": one}, "Write validators=[one]."),
        ({"tools": one}, "Write tools=[tool(one)]."),
        ({"tool_middleware": two}, "Write tool_middleware=[two]."),
        ({"settings": {"temperature": 0.2}}, "Write settings=ModelSettings(temperature=0.2)."),
        ({"limits": {"iterations": 2}}, "Write limits=Limits(iterations=2)."),
        ({"output": Report}, "Write output=Output(Report)."),
        ({"model": ScriptedModel}, "Write model=ScriptedModel(…)."),
    ],
)
def test_a_section_of_another_kind_is_told_with_the_line_to_write(given: dict[str, Any], told: str) -> None:
    every: dict[str, Any] = {"name": "a", "model": MODEL, **given}
    said = refusal(lambda: Agent(**every))
    assert said.endswith(told)
    pasted = "tools=[]" if "tool(one)" in told else told.removeprefix("Write ").removesuffix(".").replace("…", "[]")
    assert paste("Agent", pasted) is not None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"history": [{"role": "user", "content": "Hi."}]}, "Write Message('user', (Text('Hi.'),))."),
        ({"history": "Hi."}, "history is 'Hi.'. Pass messages, such as the history of a result."),
        ({"on_event": listen}, "on_event, listen, is an async function."),
        ({"callbacks": journeyman.Callbacks(on_tool_call=one)}, "Callbacks.on_tool_call, one, cannot be called with"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_is_passed_to_a_run_is_told_when_it_begins(given: dict[str, Any], words: str) -> None:
    model = ScriptedModel(["Never."])
    failure = failed(run_sync(Agent(name="a", model=model), "Go.", **given))
    assert (failure.code, model.requests) == ("INVALID_INPUT", [])
    assert words in str(failure.error)


def test_a_script_may_be_one_call_and_a_wrong_one_is_told_as_a_script() -> None:
    alone = run_sync(
        Agent(name="a", model=ScriptedModel(call("output", {"value": 1})), output=journeyman.Output(int)), "Go."
    )
    assert alone.unwrap() == 1
    wrong: Any = [{"a": 1}]
    assert refusal(lambda: ScriptedModel(wrong)).startswith("Answer 1 of the script is {'a': 1}. Give a text, blocks")
    late = run_sync(Agent(name="a", model=ScriptedModel([lambda _: wrong[0]])), "Go.")
    assert "Model 'scripted' gave {'a': 1}, which is not an answer. Give a text" in str(late)
    assert "provider" not in str(late)


def test_a_message_and_its_hint_are_two_sentences() -> None:
    agent = Agent(
        name="a",
        model=ScriptedModel([call("output", {"value": 1})], repeat=True),
        output=journeyman.Output(int),
        validators=[too_small],
    )
    assert ", the last with: too small. Look at the report:" in str(run_sync(agent, "Go."))
    assert join_sentences("It broke", "", " Fix it") == "It broke. Fix it"
    assert join_sentences("Is it broken?", "Fix it.") == "Is it broken? Fix it."


def test_an_attribute_of_other_libraries_is_told_with_ours(tmp_path: Path) -> None:
    failure = run_sync(Agent(name="a", model=ScriptedModel([])), "Go.")
    success = run_sync(Agent(name="a", model=MODEL), "Go.")
    for holder, kind in ((AGENT, "Agent"), (success, "Success"), (failure, "Failure")):
        for name, line in foreign_names("attributes", kind).items():
            assert not hasattr(holder, name)
            with pytest.raises(AttributeError) as caught:
                getattr(holder, name)
            assert str(caught.value).endswith(line)
    with pytest.raises(AttributeError, match="has no output, since it ended as API_ERROR: The model call failed"):
        _ = getattr(failure, "output")  # noqa: B009 - for checkers it is not there
    assert isinstance(success, Success)
    with pytest.raises(AttributeError, match=r"Write await durable\.stop"):
        _ = getattr(Durable("runs.db"), "cancel")  # noqa: B009 - for checkers it is not there
    with Store(tmp_path / "kept.db") as store, pytest.raises(AttributeError, match=r"Write Runtime\(recorder=store\)"):
        _ = getattr(store, "events")  # noqa: B009 - for checkers it is not there


def test_limits_know_two_words_for_max_tokens() -> None:
    limits: Any = journeyman.Limits
    assert refusal(lambda: limits(max_tokens=500)) == (
        "Limits has no 'max_tokens'. Write tokens=500 for all that a run may use, or"
        " Agent(settings=ModelSettings(max_tokens=500)) for one answer."
    )


@pytest.mark.parametrize("package", read_names()["renamed"])
def test_old_names_are_refused_and_the_lines_with_the_new_ones_work(package: str) -> None:
    now: list[str] = []
    for row in read_names()["renamed"][package].split(", "):
        old, _ = row.split()
        with pytest.raises(ImportError, match=rf"^{old} (is called|stands in) .* now: ") as caught:
            getattr(importlib.import_module(package), old)
        line = "from journeyman import Runtime." if old == "Host" else str(caught.value).partition(" now: ")[2]
        exec(line.removesuffix("."))
        now.append(re.split(r"[ .]", line)[-2])
    assert now == [re.split(r"[ .]", row)[-1] for row in read_names()["renamed"][package].split(", ")]


AS_BEFORE: list[tuple[Callable[..., object], str]] = [
    *((function, "host") for function in (run, run_sync, stream, run_many, create_app, create_mcp_server)),
    *((each, "host") for each in (Chat, Chat.open, Durable.run, Durable.start, Durable.resume, Subagents.run, Team)),
    *((Worker, old) for old in ("host", "slots", "equip")),
    *((each, "concurrency") for each in (RateLimitedModel, run_many)),
    *((Queue, "at_once"), (Subagents, "max_parallel"), (Durable, "linger_s"), (Durable.start, "dedup")),
    *((each, "dedup") for each in (RunHandle.steer, RunHandle.follow_up)),
    *((each, "digest") for each in (RunHandle.approve, RunHandle.answer)),
]


@pytest.mark.parametrize(("made", "old"), AS_BEFORE)
def test_an_old_argument_is_refused_with_the_new_one(made: Callable[..., object], old: str) -> None:
    with pytest.raises((TypeError, DefinitionError), match=rf"has no '{old}'. Write {OLD_ARGUMENTS[old]}="):
        made(**{old: None})
