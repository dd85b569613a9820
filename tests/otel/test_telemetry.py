"""What a collector receives of runs: names, parents, attributes, links and figures, over the wire."""

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.trace import NoOpTracerProvider, Tracer, get_current_span

from journeyman import (
    Agent,
    Chat,
    Limits,
    ModelSettings,
    Rejected,
    Runtime,
    Subagents,
    Tasks,
    Team,
    ToolContext,
    Usage,
    run,
    tool,
)
from journeyman.durable import Durable
from journeyman.errors import ProviderError
from journeyman.gate import Deny
from journeyman.model import Request, Response
from journeyman.otel import OpenTelemetry, names
from journeyman.record import Recordings
from journeyman.sandbox import SandboxRefusal
from journeyman.store import Store
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call, say
from tests.contracts.carriers import CARRIERS
from tests.otel.sending import Sending
from tests.play import Door, cancelled, failed, instance_of, make_gate, make_tool, raising, succeeded

SECRET = "sk-ant-api03-" + "a1B2" * 12


@tool(effect="idempotent")
async def look(topic: str) -> str:
    """Look something up."""
    return f"All about {topic}."


def scout(*answers: Response | str | ProviderError, **options: Any) -> Agent[Any]:
    return Agent(name="scout", model=ScriptedModel(answers), tools=[look], **options)


def looked() -> Response:
    return say(call("look", topic="whales", id="call_1"))


async def test_a_run_is_a_tree_of_spans_with_the_names_of_the_conventions(sending: Sending) -> None:
    succeeded(await run(scout(looked(), "Whales sing."), "Go.", runtime=sending.runtime()))
    came = sending.received()
    assert came.tree() == [
        "invoke_agent scout",
        "  attempt 1",
        "    chat scripted",
        "    execute_tool look",
        "    chat scripted",
    ]
    first = came.named("chat scripted")[0]
    assert dict(first.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.agent.name": "scout",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.max_tokens": 8192,
        "gen_ai.output.type": "text",
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "journeyman.requests": 1,
        "journeyman.attempt": 1,
        "journeyman.iteration": 1,
    }
    assert dict(came.one("execute_tool look").attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.description": "Look something up.",
        "gen_ai.agent.name": "scout",
    }
    assert dict(came.one("attempt 1").attributes) == {
        "journeyman.attempt": 1,
        "journeyman.attempt.succeeded": True,
        "gen_ai.agent.name": "scout",
        "openinference.span.kind": "CHAIN",
    }
    whole = came.one("invoke_agent scout")
    assert whole.attributes["gen_ai.usage.input_tokens"] == 20
    assert (whole.status, whole.parent, whole.scope) == (0, "", f"journeyman {version('journeyman')}")
    assert {span.trace for span in came.spans} == {whole.trace}


async def test_cached_and_reasoning_tokens_and_the_cost_are_told(sending: Sending) -> None:
    usage = Usage(
        requests=1, input_tokens=7, output_tokens=9, cache_read_tokens=100, cache_write_tokens=20, reasoning_tokens=4
    )
    await run(scout(say("Done.", usage=usage)), "Go.", runtime=sending.runtime())
    attributes = sending.received().one("chat scripted").attributes
    names = ("input_tokens", "output_tokens", "cache_read.input_tokens", "cache_write.input_tokens")
    told = [attributes[f"gen_ai.usage.{name}"] for name in (*names, "reasoning.output_tokens")]
    assert told == [127, 9, 100, 20, 4]


async def test_figures_are_counted_by_operation_and_model(sending: Sending) -> None:
    await run(scout(looked(), "Whales sing."), "Go.", runtime=sending.runtime())
    figures = sending.received().metrics
    asked = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "scripted", "gen_ai.request.model": "scripted"}
    tool = {"gen_ai.tool.name": "look", "gen_ai.tool.type": "function", "gen_ai.agent.name": "scout"}
    whose = {"gen_ai.agent.name": "scout"}
    assert figures == {
        "gen_ai.client.inference.duration": [asked],
        "gen_ai.client.inference.operation.input_tokens": [asked],
        "gen_ai.client.inference.operation.output_tokens": [asked],
        "gen_ai.client.inference.usage.input_tokens": [{**asked, "gen_ai.token.modality": "unknown"}],
        "gen_ai.client.inference.usage.output_tokens": [{**asked, "gen_ai.token.modality": "unknown"}],
        "gen_ai.execute_tool.duration": [tool],
        "gen_ai.invoke_agent.duration": [{**whose, "gen_ai.request.model": "scripted"}],
        "gen_ai.invoke_agent.inference_calls": [whose],
        "gen_ai.invoke_agent.tool_calls": [whose],
    }


async def test_the_time_to_the_first_chunk_is_that_of_the_stream(sending: Sending) -> None:
    carrier = next(each for each in CARRIERS if each.name == "anthropic-events")
    async with carrier.play([say("Whales sing.")]) as played:
        agent = Agent(name="scout", model=played.model)
        (await run(agent, "Go.", runtime=sending.runtime())).unwrap()
    came = sending.received()
    asked = came.named(f"chat {played.model.name}")[0]
    first_s = instance_of(float, asked.attributes["gen_ai.response.time_to_first_chunk"])
    assert first_s > 0
    assert asked.attributes["gen_ai.request.stream"] is True
    assert len(came.metrics["gen_ai.client.inference.time_to_first_chunk"]) == 1


async def test_a_request_says_how_the_model_picks_its_words_wherever_the_provider_has_that(sending: Sending) -> None:
    flat = ModelSettings(extra={"temperature": 1, "top_p": 0.5, "seed": 7, "top_k": "many"}, thinking="low")
    within = ModelSettings(extra={"generationConfig": {"temperature": 0.25, "topK": 40, "seed": True}})
    for settings in (flat, within):
        (await run(scout("Done.", settings=settings), "Go.", runtime=sending.runtime())).unwrap()
    first, second = [span.attributes for span in sending.received().named("chat scripted")]
    names = ("temperature", "top_p", "top_k", "seed", "reasoning.level", "stream")
    assert [first.get(f"gen_ai.request.{name}") for name in names] == [1.0, 0.5, None, 7, "low", None]
    assert [second.get(f"gen_ai.request.{name}") for name in names] == [0.25, None, 40, None, None, None]


NEWER = {
    *("gen_ai.request.reasoning.level", "gen_ai.usage.cache_write.input_tokens", "gen_ai.token.modality"),
    "gen_ai.evaluation.result",
}
"""Names of release 0.1.0 that are in no package yet, and an event."""


def test_every_name_is_one_of_the_conventions() -> None:
    package: Mapping[str, Any] = vars(import_module("opentelemetry.semconv._incubating.attributes.gen_ai_attributes"))
    known = {value for name, value in package.items() if name.startswith("GEN_AI_")} | NEWER
    values = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    values |= {attribute for attribute, _ in names.SAMPLING.values()}
    metrics = ("gen_ai.client.", "gen_ai.invoke_agent.", "gen_ai.execute_tool.")
    assert {each for each in values if each.startswith("gen_ai.") and not each.startswith(metrics)} <= known
    providers = {each.value for each in package["GenAiProviderNameValues"]} | {"moonshot_ai"}
    assert set(names.PROVIDERS.values()) <= providers
    operations = {each.value for each in package["GenAiOperationNameValues"]}
    assert {names.CHAT, names.INVOKE_AGENT, names.EXECUTE_TOOL} <= operations


async def test_a_request_that_was_refused_counts_as_one_without_tokens(sending: Sending) -> None:
    busy = ProviderError("Busy.", kind="overloaded", retry_after_s=0)
    failed(await run(scout(busy, limits=Limits(request_retries=0)), "Go.", runtime=sending.runtime()))
    figures = sending.received().metrics
    assert [point["error.type"] for point in figures["gen_ai.client.inference.duration"]] == ["overloaded"]
    assert len(figures["gen_ai.client.inference.usage.input_tokens"]) == 1
    assert "gen_ai.client.inference.usage.cache_read.input_tokens" not in figures


async def test_a_run_says_what_its_agent_is_for(sending: Sending) -> None:
    helper = Agent(name="helper", description="Checks.", model=ScriptedModel("Yes."))
    lead = scout(say(call("subagent", agent="helper", task="Is it?")), "Done.", description="Looks things up.")
    (await run(replace(lead, tools=[look, Subagents(helper)]), "Go.", runtime=sending.runtime())).unwrap()
    told = {span.name: span.attributes.get("gen_ai.agent.description") for span in sending.received().spans}
    assert (told["invoke_agent scout"], told["invoke_agent helper"]) == ("Looks things up.", "Checks.")


async def test_spans_of_the_programs_own_code_are_below_what_they_are_part_of(sending: Sending) -> None:
    @tool
    async def fetch() -> str:
        """Fetch."""
        with sending.own.start_as_current_span("GET page"):
            return "page"

    @tool
    def count() -> str:
        """Count, in a thread."""
        with sending.own.start_as_current_span("count words"):
            return "3"

    answers = iter([say(call("fetch"), call("count")), say("Done.")])

    async def answer(request: Request) -> Response:
        with sending.own.start_as_current_span("POST model"):
            return next(answers)

    agent = Agent(name="scout", model=FunctionModel(answer), tools=[fetch, count])
    with sending.own.start_as_current_span("GET /ask"):
        await run(agent, "Go.", runtime=sending.runtime())
        assert get_current_span().get_span_context().span_id == int(_current(sending), 16)
    assert sending.received().tree() == [
        "GET /ask",
        "  invoke_agent scout",
        "    attempt 1",
        "      chat function",
        "        POST model",
        "      execute_tool fetch",
        "        GET page",
        "      execute_tool count",
        "        count words",
        "      chat function",
        "        POST model",
    ]


def _current(sending: Sending) -> str:
    """Return the id of the span that is current, as hexadecimal: nothing of a run is left behind."""
    return f"{get_current_span().get_span_context().span_id:x}"


async def test_runs_below_are_children_of_the_call_that_asked_for_them(sending: Sending) -> None:
    helper = Agent(name="helper", model=FunctionModel(_helped))
    tasks = [{"agent": "helper", "task": "a"}, {"agent": "helper", "task": "b"}]
    lead = Agent(
        name="lead", model=ScriptedModel([say(call("subagent", tasks=tasks)), "Done."]), tools=[Subagents(helper)]
    )
    await run(lead, "Go.", runtime=sending.runtime())
    assert sending.received().tree() == [
        "invoke_agent lead",
        "  attempt 1",
        "    chat scripted",
        "    execute_tool subagent",
        *["      invoke_agent helper", "        attempt 1", "          chat function"] * 2,
        "    chat scripted",
    ]


async def _helped(request: Request) -> Response:
    return say("Helped.")


@pytest.mark.parametrize("is_recorded", [False, True])
async def test_work_that_nobody_waits_for_is_a_trace_of_its_own_with_a_link(
    sending: Sending, tmp_path: Path, is_recorded: bool
) -> None:
    helper = Agent(name="helper", model=FunctionModel(_helped))
    starts = call("subagent", agent="helper", task="a", background=True, id="call_1")
    async with Tasks() as tasks:
        lead = Agent(name="lead", model=ScriptedModel([say(starts), "Done."]), tools=[Subagents(helper, tasks=tasks)])
        runtime = replace(sending.runtime(), recorder=tmp_path / "runs.db" if is_recorded else None)
        await run(lead, "Go.", runtime=runtime)
    came = sending.received()
    helped, asked = came.one("invoke_agent helper"), came.one("execute_tool subagent")
    assert helped.trace != asked.trace
    assert (helped.parent, helped.links) == ("", (asked.id,))
    assert helped.attributes["journeyman.run.mode"] == "background"


async def test_a_member_of_a_team_is_linked_with_the_call_that_made_it(sending: Sending) -> None:
    helper = Agent(name="helper", description="Helps.", model=FunctionModel(_helped))
    async with Team("crew") as team:
        starts = call("subagent", agent="helper", task="Help.", name="ada", id="call_1")
        lead = Agent(
            name="lead",
            model=ScriptedModel([say(starts), "Ok.", "Done."]),
            tools=[Subagents(helper, team=team), *team.tools()],
        )
        async with Chat(lead, runtime=sending.runtime()) as chat:
            await chat.prompt("Go.")
            while await team.news():
                await chat.continue_()
    came = sending.received()
    helped, asked = came.one("invoke_agent ada"), came.one("execute_tool subagent")
    assert helped.trace != asked.trace
    assert (helped.parent, helped.links) == ("", (asked.id,))


async def test_the_turns_of_a_chat_have_one_conversation_and_each_its_trace(sending: Sending) -> None:
    async with Chat(scout("One.", "Two."), runtime=sending.runtime()) as chat:
        await chat.prompt("Go.")
        await chat.prompt("On.")
    turns = sending.received().named("invoke_agent scout")
    assert len({turn.trace for turn in turns}) == 2
    assert len({span.attributes["gen_ai.conversation.id"] for span in sending.received().spans}) == 1


@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_conversation_that_is_kept_has_the_id_of_its_session(
    sending: Sending, tmp_path: Path, is_durable: bool
) -> None:
    async with AsyncExitStack() as stack:
        store: Any = stack.enter_context(closing(Store(tmp_path / "chats.db")))
        if is_durable:
            store = await stack.enter_async_context(Durable(tmp_path / "runs.db"))
        for answer in (looked(), "Two."):
            agent = scout(answer, "Whales sing.")
            async with Chat.open(agent, store, id="whales", runtime=sending.runtime(), create=True) as chat:
                (await chat.prompt("Go.")).unwrap()
    came = sending.received()
    assert len(came.named("execute_tool look")) == 1
    assert {span.attributes["gen_ai.conversation.id"] for span in came.spans if "queue" not in span.name} == {"whales"}


async def test_failures_have_the_codes_of_this_library(sending: Sending) -> None:
    @tool(timeout_s=0.01)
    async def slow() -> str:
        """Be slow."""
        await asyncio.Event().wait()
        return ""

    broken = make_tool("broken", ValueError("Broken."))
    forbidden = make_tool("forbidden", "")
    gate = make_gate(Deny("No."), "forbidden")
    uses = [call("slow"), call("broken"), call("forbidden"), call("unknown"), call("look")]
    busy = ProviderError("Busy.", kind="overloaded", retry_after_s=0)
    model = ScriptedModel([busy, say(*uses), "Done.", "Done."])

    tools, validators = [slow, broken, forbidden, look], [raising(Rejected("Never."))]
    agent = Agent(
        name="scout", model=model, tools=tools, gate=gate, validators=validators, limits=Limits(request_retries=1)
    )
    failed(await run(agent, "Go.", runtime=sending.runtime(), max_attempts=2))
    came = sending.received()
    errors = {span.name: span.attributes.get("error.type") for span in came.spans if span.status == 2}
    assert errors == {
        "invoke_agent scout": "MAX_ATTEMPTS_EXCEEDED",
        "chat scripted": "overloaded",
        "execute_tool slow": "timeout",
        "execute_tool broken": "raised",
        "execute_tool forbidden": "denied",
        "execute_tool unknown": "unknown",
        "execute_tool look": "invalid_input",
    }
    attempts = [span.attributes["journeyman.attempt.succeeded"] for span in came.spans if "attempt" in span.name]
    assert attempts == [False, False]
    judged = came.one("attempt 1").events
    assert judged == (
        ("gen_ai.evaluation.result", {"gen_ai.evaluation.name": "fail", "gen_ai.evaluation.score.label": "failed"}),
    )
    decisions = [facts["journeyman.decision"] for _, facts in came.one("execute_tool forbidden").events]
    assert decisions == ["deny"]


@pytest.mark.parametrize("content", [True, False])
async def test_what_a_sandbox_refused_is_told_at_the_span_of_the_call(sending: Sending, content: bool) -> None:
    @tool(effect="once")
    async def touch(ctx: ToolContext) -> str:
        ctx.report_refusal("bubblewrap", SandboxRefusal(cause="write", what="/srv/x", need="write:/srv/x"))
        return "It cannot be."

    agent = Agent(name="scout", model=ScriptedModel([say(call("touch")), "Done."]), tools=[touch])
    await run(agent, "Go.", runtime=sending.runtime(content=content))
    facts = {
        **{"journeyman.sandbox.name": "bubblewrap", "journeyman.sandbox.cause": "write"},
        **({"journeyman.sandbox.need": "write:/srv/x", "journeyman.sandbox.what": "/srv/x"} if content else {}),
    }
    assert sending.received().one("execute_tool touch").events == (("journeyman.sandbox.refused", facts),)


async def test_all_spans_of_a_cancelled_run_end(sending: Sending) -> None:
    door = Door()
    agent = Agent(name="scout", model=ScriptedModel([say(call("wait"))]), tools=[door.tool()])
    running = asyncio.create_task(run(agent, "Go.", runtime=sending.runtime()))
    await cancelled(running, when=door.reached)
    came = sending.received()
    assert came.tree() == ["invoke_agent scout", "  attempt 1", "    chat scripted", "    execute_tool wait"]
    assert came.one("invoke_agent scout").attributes["error.type"] == "EXECUTION_CANCELLED"


class BrokenTracers(NoOpTracerProvider):
    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        class Broken:
            def start_span(self, *args: object, **kwargs: object) -> None:
                raise RuntimeError("No more spans.")

        return cast("Tracer", Broken())


async def test_a_provider_that_raises_costs_spans_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    runtime = Runtime(telemetry=OpenTelemetry(BrokenTracers()))
    with caplog.at_level(logging.WARNING, "journeyman"):
        result = await run(scout(looked(), "Whales sing."), "Go.", runtime=runtime)
    assert result.unwrap() == "Whales sing."
    (warning,) = caplog.records
    assert (warning.levelname, "RuntimeError: No more spans." in warning.getMessage()) == ("WARNING", True)


async def test_what_is_no_telemetry_is_refused() -> None:
    result = failed(await run(scout("Done."), "Go.", runtime=Runtime(telemetry=cast("Any", 42))))
    assert "Runtime.telemetry is 42" in result.error.message
    assert "OpenTelemetry() of journeyman.otel" in result.error.message


async def test_nothing_that_is_said_goes_out_unless_it_is_asked_for(sending: Sending) -> None:
    agent = scout(looked(), "Whales sing.", system="Be brief about whales.")
    await run(agent, "Tell me of whales.", runtime=sending.runtime())
    came = b"".join(sending.received().bodies)
    assert len(came) > 1_000
    assert b"hales" not in came


async def test_content_has_the_shapes_of_the_conventions_and_no_secrets(sending: Sending) -> None:
    agent = scout(say("Hm.", call("look", topic=SECRET, id="call_1")), "Whales sing.", system="Be brief.")
    await run(agent, f"My key is {SECRET}.", runtime=sending.runtime(content=True))
    came = sending.received()
    assert SECRET.encode() not in b"".join(came.bodies)
    second = came.named("chat scripted")[1].attributes
    told = {name: json.loads(str(second[f"gen_ai.{name}"])) for name in _CONTENT}
    assert told["system_instructions"] == [{"type": "text", "content": "Be brief."}]
    asked, answered, results = told["input.messages"]
    assert asked["parts"][0]["content"].startswith("My key is ")
    assert [part["type"] for part in answered["parts"]] == ["text", "tool_call"]
    assert (answered["role"], answered["parts"][1]["id"]) == ("assistant", "call_1")
    assert (results["role"], results["parts"][0]["type"]) == ("tool", "tool_call_response")
    assert told["output.messages"] == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Whales sing."}], "finish_reason": "stop"}
    ]
    assert [each["name"] for each in told["tool.definitions"]] == ["look"]
    assert json.loads(str(came.one("execute_tool look").attributes["gen_ai.tool.call.arguments"]))["topic"] != SECRET


_CONTENT = ("system_instructions", "input.messages", "output.messages", "tool.definitions")


@pytest.mark.parametrize("size", [10, 1_000, 100_000])
async def test_content_is_cut_to_its_limit_and_stays_json(sending: Sending, size: int) -> None:
    answers = [*[say("x" * size, call("read")) for _ in range(8)], say("y" * size)]
    agent = Agent(name="scout", model=ScriptedModel(answers), tools=[make_tool("read", "ü" * size)], system="z" * size)
    await run(agent, "w" * size, runtime=sending.runtime(content=True, max_content_bytes=4_000))
    values = {
        (name, value)
        for span in sending.received().spans
        for name, value in span.attributes.items()
        if isinstance(value, str) and name.startswith("gen_ai.") and value[:1] in "[{"
    }
    assert max(len(value.encode()) for _, value in values) < 4_000 * 1.4
    for _, value in values:
        json.loads(value)
    newest = json.loads(str(sending.received().named("chat scripted")[-1].attributes["gen_ai.input.messages"]))
    assert newest[0]["role"] == "user"
    assert newest[-1]["role"] == "tool"


def test_a_limit_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_content_bytes is 10\. Give at least 256"):
        OpenTelemetry(content=True, max_content_bytes=10)


def _lasting(facts: Mapping[str, object]) -> str:
    """Return the facts that are the same in each run: no times, and no ids of answers."""
    passing = ("duration", "_s", "ms", "chunk", "id", "n_chunks", "metadata", "port", "url")
    return re.sub(r"127\.0\.0\.1:\d+", "", str(sorted(item for item in facts.items() if not item[0].endswith(passing))))


@pytest.mark.parametrize("last", [say("Whales sing."), ProviderError("No more.", kind="bad_request")])
async def test_a_run_that_is_recorded_and_told_at_once_is_both_as_it_is_alone(
    sending: Sending, tmp_path: Path, last: Response
) -> None:
    fail = make_tool("fail", Rejected("Not today."))
    carrier = next(each for each in CARRIERS if each.name == "anthropic-events")
    told, recorded, told_before = list[object](), list[object](), 0
    for place, telemetry in (("", sending.telemetry()), ("alone.db", None), ("both.db", sending.telemetry())):
        runtime = Runtime(telemetry=telemetry, recorder=tmp_path / place if place else None)
        async with carrier.play([say(call("look", topic="a"), call("fail")), last]) as played:
            agent = Agent(name="scout", model=played.model, tools=[look, fail], gate=make_gate(Deny("No."), "look"))
            await run(agent, "Go.", runtime=runtime)
        if telemetry is not None:
            spans, told_before = sending.received().spans[told_before:], len(sending.received().spans)
            names = {span.id: span.name for span in spans}
            told.append(
                sorted(
                    str((each.name, names.get(each.parent), each.status, each.events, _lasting(each.attributes)))
                    for each in spans
                )
            )
        if place:
            with Recordings(tmp_path / place) as stored:
                found = stored.find("last")
                events = sorted((each.kind, each.path, _lasting(each.facts)) for each in stored.all_events(found))
                recorded.append([events, [(each.form, _lasting(each.answer or {})) for each in stored.requests(found)]])
    assert told[0] == told[1]
    assert recorded[0] == recorded[1]


async def test_all_lives_of_a_durable_run_are_in_the_trace_that_stored_it(sending: Sending, tmp_path: Path) -> None:
    begun, is_broken = asyncio.Event(), True

    @tool(effect="idempotent")
    async def fetch() -> str:
        """Fetch."""
        with sending.own.start_as_current_span("GET page"):
            begun.set()
            if is_broken:
                await asyncio.Event().wait()
            return "page"

    telemetry = sending.telemetry()
    answers = {1: say(call("look", topic="a")), 3: say(call("fetch")), 5: say("Done.")}

    async def answer(request: Request) -> Response:
        return answers[len(request.messages)]

    agent = Agent(name="scout", model=FunctionModel(answer), tools=[look, fetch])
    async with Durable(tmp_path / "runs.db", on_event=telemetry.hear) as durable:
        with sending.own.start_as_current_span("GET /ask"):
            first = asyncio.create_task(durable.run(agent, "Go.", id="whales", runtime=Runtime(telemetry=telemetry)))
        await cancelled(first, when=begun)
    is_broken = False
    async with Durable(tmp_path / "runs.db", on_event=telemetry.hear) as durable:
        result = await durable.run(agent, "Go.", id="whales", runtime=Runtime(telemetry=telemetry))
    assert result.unwrap() == "Done."
    came = sending.received()
    whole = "\n".join(came.tree())
    first_life, second_life = came.named("invoke_agent scout")
    stored = came.named("queue scout")[0]
    assert (first_life.parent, second_life.parent) == (stored.id, stored.id), whole
    assert stored.parent == came.one("GET /ask").id
    assert {span.trace for span in came.spans if span.name != "queue scout"} == {stored.trace}
    assert [life.attributes.get("journeyman.run.resumed") for life in (first_life, second_life)] == [None, True]
    assert first_life.attributes["journeyman.run.id"] == second_life.attributes["journeyman.run.id"]
    done_again = came.named("execute_tool fetch")[1]
    assert came.named("GET page")[1].parent == done_again.id, whole
    assert done_again.parent == second_life.id
    assert len(came.named("execute_tool look")) == 1
    durable_figures = {name for name in came.metrics if name.startswith("journeyman.durable.")}
    assert {f"journeyman.durable.{name}" for name in ("claims", "claim.duration", "step.duration")} <= durable_figures


@pytest.mark.parametrize(
    ("buckets", "factor"),
    [(names.DURATION_BUCKETS, 2), (names.AGENT_BUCKETS, 2), (names.CALL_BUCKETS, 2), (names.TOKEN_BUCKETS, 4)],
)
def test_each_bucket_of_a_histogram_is_as_many_times_the_one_before(buckets: Sequence[float], factor: int) -> None:
    assert [later / earlier for earlier, later in pairwise(buckets)] == pytest.approx([factor] * (len(buckets) - 1))
