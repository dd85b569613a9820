"""Whole journeys against a server that this project did not write, over every API that both of them speak."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic import BaseModel

from journeyman import Agent, ErrorCode, Event, Failure, Limits, Model, ModelSettings, Output, Usage, run, stream, tool
from journeyman.errors import ProviderError
from journeyman.events import ModelRestarted, ModelRetried, OutputDelta, TextDelta, ToolInputDelta
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.google.model import GoogleModel
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.responses import OpenAIModel
from journeyman.models.transport import Timeouts
from journeyman.result import Result, Success
from tests.aimock.server import Play, answer, call, refusal
from tests.play import Recorder, calls, check_balance, existing, succeeded, transcript
from tests.properties.wire_worlds import on_hurried_loop

KEY = "sk-aimock-any-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API, asked in one way."""

    name: str
    model: Callable[[Play, Timeouts], Model]
    settings: ModelSettings = field(default_factory=ModelSettings)
    streams_calls: bool = True
    """Whether the arguments of a call come in pieces."""
    n_chunks_to_call: int = 14
    """After how many chunks of the journey's first answer its first call has come, and the second has not."""


def _anthropic(play: Play, timeouts: Timeouts) -> Model:
    return AnthropicModel("claude-sonnet-5-5", api_key=KEY, base_url=play.url, headers=play.headers, timeouts=timeouts)


def _openai(kind: type[OpenAIChatModel] | type[OpenAIModel], *, streaming: bool) -> Callable[[Play, Timeouts], Model]:
    return lambda play, timeouts: kind(
        "gpt-4.1", api_key=KEY, base_url=f"{play.url}/v1", headers=play.headers, timeouts=timeouts, streaming=streaming
    )


def _google(*, streaming: bool) -> Callable[[Play, Timeouts], Model]:
    return lambda play, timeouts: GoogleModel(
        "gemini-3-flash-preview",
        api_key=KEY,
        base_url=f"{play.url}/v1beta",
        headers=play.headers,
        timeouts=timeouts,
        streaming=streaming,
    )


STREAMED = (
    Api(name="anthropic", model=_anthropic),
    Api(name="google", model=_google(streaming=True), streams_calls=False, n_chunks_to_call=5),
    Api(name="openai-chat", model=_openai(OpenAIChatModel, streaming=True)),
    Api(name="openai-responses", model=_openai(OpenAIModel, streaming=True)),
)
IN_ONE_PIECE = (
    Api(name="anthropic-whole", model=_anthropic, settings=ModelSettings(extra={"stream": False})),
    Api(name="google-whole", model=_google(streaming=False)),
    Api(name="openai-chat-whole", model=_openai(OpenAIChatModel, streaming=False)),
    Api(name="openai-responses-whole", model=_openai(OpenAIModel, streaming=False)),
)

PATIENT = Timeouts(connect_s=1e6, idle_s=1e6)  # of a clock that runs fast


@pytest.fixture
def play(play: Play, api: Api) -> Play:
    """Gemini's API says STOP after calls, too; what aimock would say, it does not know."""
    return replace(play, ending="STOP") if api.name.startswith("google") else play


def each(*apis: Api):
    return pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in apis])


every_api = each(*STREAMED, *IN_ONE_PIECE)
every_stream = each(*STREAMED)


class Report(BaseModel):
    """What was sold."""

    headline: str
    total: float


@tool(parallel=True, thread=False)
def sales(month: str) -> str:
    """Look up what was sold in a month."""
    if month == "Juin":
        raise ValueError("there is no such month")
    return {"May": "1.5", "June": "2"}[month]


def preview(report: Report) -> str:
    return f"{report.headline}: {report.total:g}"


def adds_up(report: Report) -> None:
    if report.total != 3.5:
        raise ValueError(f"the total is {report.total:g}, not 3.5")


def analyst(api: Api, play: Play) -> Agent[Report]:
    return Agent(
        name="analyst",
        model=api.model(play, PATIENT),
        system="Add up.",
        tools=[sales],
        output=Output(Report, reflection=preview),
        validators=[adds_up],
        settings=api.settings,
    )


def writer(api: Api, play: Play, *, retries: int | None = None, timeouts: Timeouts = PATIENT) -> Agent:
    return Agent(
        name="writer", model=api.model(play, timeouts), limits=Limits(request_retries=retries), settings=api.settings
    )


def told(scenario: Agent[Any], task: str = "How much?") -> tuple[Result[Any], Recorder]:
    """Run an agent on a clock that runs fast."""
    recorder = Recorder()
    result = on_hurried_loop(lambda: run(scenario, task, on_event=recorder))
    check_balance(recorder.events)
    assert KEY not in f"{result!r} {recorder.events}"
    return result, recorder


def played_well(scenario: Agent[Any]) -> tuple[Success[Any], Recorder]:
    """Run an agent as `told` does; it must succeed."""
    result, recorder = told(scenario)
    return succeeded(result), recorder


def counted(usage: Usage | None) -> tuple[int, int, int]:
    assert usage is not None
    return usage.requests, usage.input_tokens, usage.output_tokens


REJECTED = "Validation failed: adds_up\nthe total is 3, not 3.5\n\nCorrect the output and hand it in again."
TASK = "How much?"
JOURNEY = (
    answer(TASK, "I look.", call("sales", "call_a", month="May"), call("sales", "call_b", month="Juin")),
    answer("#call_b", call("sales", "call_c", month="June")),
    answer("#call_c", call("output", "call_d", headline="Sold", total=3)),
    answer("#call_d", call("submit", "call_e")),
    answer("#call_e", call("output", "call_f", headline="Sold “à prix d'or”", total=3.5)),
    answer("#call_f", "Now it adds up.", call("submit", "call_g")),
)


@every_api
def test_an_agent_looks_reflects_is_rejected_and_hands_in(play: Play, api: Api) -> None:
    play.answers(*JOURNEY)
    result, recorder = played_well(analyst(api, play))
    assert result.output == Report(headline="Sold “à prix d'or”", total=3.5)
    assert len(result.metadata.attempts) == 2
    assert counted(result.metadata.usage) == (6, 60, 30)
    assert play.statuses() == [200] * 6
    assert calls(recorder.events) == [
        "sales#call_a?",
        "sales#call_b?",
        "sales#call_a: 1.5",
        "sales#call_b! Error: there is no such month",
        "sales#call_c?",
        "sales#call_c: 2",
        "output#call_d?",
        "output#call_d: Sold: 3",
        "submit#call_e?",
        f"submit#call_e! {REJECTED}",
        "output#call_f?",
        "output#call_f: Sold “à prix d'or”: 3.5",
        "submit#call_g?",
        "submit#call_g: Accepted.",
    ]
    assert transcript(result.history) == [
        ("user", "How much?"),
        ("assistant", "I look.", 'sales({"month":"May"})#call_a', 'sales({"month":"Juin"})#call_b'),
        ("user", "#call_a: 1.5", "#call_b! Error: there is no such month"),
        ("assistant", 'sales({"month":"June"})#call_c'),
        ("user", "#call_c: 2"),
        ("assistant", 'output({"headline":"Sold","total":3})#call_d'),
        ("user", "#call_d: Sold: 3"),
        ("assistant", "submit({})#call_e"),
        ("user", f"#call_e! {REJECTED}"),
        ("assistant", 'output({"headline":"Sold “à prix d\'or”","total":3.5})#call_f'),
        ("user", "#call_f: Sold “à prix d'or”: 3.5"),
        ("assistant", "Now it adds up.", "submit({})#call_g"),
        ("user", "#call_g: Accepted."),
    ]


@every_stream
def test_a_run_can_be_watched_while_it_is_written(play: Play, api: Api) -> None:
    play.answers(*JOURNEY)

    async def watched() -> tuple[list[Event], Result[Report]]:
        async with stream(analyst(api, play), "How much?") as events:
            seen = [event async for event in events]
            return seen, events.result

    events, result = on_hurried_loop(watched)
    assert isinstance(result, Success)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "I look.Now it adds up."
    inputs = [event.json for event in events if isinstance(event, ToolInputDelta) and event.tool_use_id == "call_a"]
    assert len(inputs) > 3 or not api.streams_calls
    assert "".join(inputs) == '{"month":"May"}'
    drafts = [event.partial() for event in events if isinstance(event, OutputDelta) and event.tool_use_id == "call_f"]
    assert len(drafts) > 3 or not api.streams_calls
    assert drafts[-1] == {"headline": "Sold “à prix d'or”", "total": 3.5}
    assert {"headline": "Sol"} in drafts or not api.streams_calls


@every_api
def test_a_conversation_goes_on(play: Play, api: Api) -> None:
    play.answers(answer("Hello?", "Hello."), answer("Still there?", "You asked twice."))
    first, _ = told(writer(api, play), "Hello?")
    again = on_hurried_loop(lambda: run(writer(api, play), "Still there?", history=first.history))
    assert succeeded(again).output == "You asked twice."
    assert [message["content"] for message in play.asked()[-1]["body"]["messages"]] == [
        "Hello?",
        "Hello.",
        "Still there?",
    ]


def refused(result: Result[Any]) -> ProviderError:
    """Return the provider's error that a run ended with."""
    assert isinstance(result, Failure)
    assert isinstance(result.error.cause, ProviderError)
    return result.error.cause


@every_api
def test_a_rate_limit_is_waited_for(play: Play, api: Api) -> None:
    play.answers(refusal(TASK, 429, "rate_limit_error", retryAfter=7), answer(TASK, "Hello."))
    result, recorder = played_well(writer(api, play))
    assert (result.output, counted(result.metadata.usage)) == ("Hello.", (1, 10, 5))
    assert [(event.kind, event.delay_s) for event in recorder.of(ModelRetried)] == [("rate_limited", 7.0)]
    assert play.statuses() == [429, 200]


@every_api
def test_an_overload_in_the_middle_of_a_journey_is_waited_for(play: Play, api: Api) -> None:
    play.answers(*JOURNEY[:3], refusal("#call_d", 529, "overloaded_error"), *JOURNEY[3:])
    result, recorder = played_well(analyst(api, play))
    assert counted(result.metadata.usage) == (6, 60, 30)
    assert [event.kind for event in recorder.of(ModelRetried)] == ["overloaded"]
    assert play.statuses() == [200, 200, 200, 529, 200, 200, 200]


@every_api
@pytest.mark.parametrize(
    ("status", "type", "kind"),
    [
        (400, "invalid_request_error", "bad_request"),
        (401, "authentication_error", "auth"),
        (403, "permission_error", "auth"),
        (404, "not_found_error", "not_found"),
        (413, "request_too_large", "context_overflow"),
    ],
)
def test_a_refusal_that_stays_is_not_repeated(play: Play, api: Api, status: int, type: str, kind: str) -> None:
    play.answers(refusal(TASK, status, type))
    result, _ = told(writer(api, play))
    error = refused(result)
    assert (error.kind, error.status, error.type) == (kind, status, type)
    assert result.metadata.usage == Usage()
    assert play.statuses() == [status]


@every_api
def test_a_request_that_the_server_has_no_answer_for_is_a_failure(play: Play, api: Api) -> None:
    result, _ = told(writer(api, play))
    assert isinstance(result, Failure)
    assert "404" in str(result.error)
    assert "No fixture matched" in str(result.error)


UNTOLD = Usage(requests=1, exact=False)


def chaos(**rates: float) -> dict[str, Any]:
    return answer(TASK, "Never said.", chaos=rates)


@every_api
@pytest.mark.parametrize(
    ("rates", "kind", "status", "usage"),
    [
        pytest.param({"dropRate": 1}, "overloaded", 500, Usage(), id="drop"),
        pytest.param({"rateLimitRate": 1}, "rate_limited", 429, Usage(), id="rate limit"),
        pytest.param({"disconnectRate": 1}, "network", None, UNTOLD, id="disconnect"),
        pytest.param({"malformedRate": 1}, "stream_cut", 200, UNTOLD, id="malformed"),
    ],
)
def test_chaos_passes_or_ends_the_run(
    play: Play, api: Api, rates: dict[str, float], kind: str, status: int | None, usage: Usage
) -> None:
    play.answers(chaos(**rates), answer(TASK, "Hello."))
    result, recorder = played_well(writer(api, play))
    assert result.output == "Hello."
    assert [event.kind for event in recorder.of(ModelRetried)] == [kind]

    lasting = Play(f"{play.name}-lasting", play.url)
    lasting.answers(chaos(**rates))
    result, _ = told(writer(api, lasting, retries=1))
    error = refused(result)
    assert (error.kind, error.status) == (kind, status)
    assert result.metadata.usage == usage + usage
    assert len(lasting.asked()) == 2


@every_api
def test_latency_is_waited_out_or_given_up(play: Play, api: Api) -> None:
    play.answers(answer(TASK, "Late.", chaos={"latencyMs": 50}))
    result, _ = played_well(writer(api, play))
    assert result.output == "Late."

    later = Play(f"{play.name}-later", play.url)
    later.answers(answer(TASK, "Too late.", chaos={"latencyMs": 30_000}))
    hasty = Timeouts(idle_s=10.0)  # of the fast clock: a tenth of a second
    result, recorder = told(writer(api, later, retries=1, timeouts=hasty))
    assert isinstance(result, Failure)
    assert result.code is ErrorCode.API_ERROR
    assert [event.kind for event in recorder.of(ModelRetried)] == ["timeout"]
    assert result.metadata.usage == UNTOLD + UNTOLD


@every_stream
@pytest.mark.parametrize(
    "interruption",
    [
        pytest.param({"truncateAfterChunks": 6, "latency": 2}, id="after some chunks"),
        pytest.param({"disconnectAfterMs": 150, "latency": 20}, id="after some time"),
    ],
)
def test_a_stream_that_is_cut_begins_again(play: Play, api: Api, interruption: dict[str, int]) -> None:
    said = "It was a bright cold day in April, and the clocks were striking thirteen."
    play.answers(answer(TASK, said, **interruption), answer(TASK, said))
    result, recorder = played_well(writer(api, play))
    assert result.output == said
    assert [event.kind for event in recorder.of(ModelRetried)] == ["stream_cut"]
    started = recorder.events.index(recorder.of(ModelRestarted)[0])
    before, after = (
        "".join(event.text for event in part if isinstance(event, TextDelta))
        for part in (recorder.events[:started], recorder.events[started:])
    )
    assert said.startswith(before)
    assert len(before) < len(said)
    assert after == said
    usage = existing(result.metadata.usage)
    assert (usage.requests, usage.exact) == (2, False)


@every_stream
def test_a_call_that_is_cut_is_never_made(play: Play, api: Api) -> None:
    play.answers({**JOURNEY[0], "truncateAfterChunks": api.n_chunks_to_call, "latency": 2}, *JOURNEY)
    _, recorder = played_well(analyst(api, play))
    assert [event.kind for event in recorder.of(ModelRetried)] == ["stream_cut"]
    assert [call for call in calls(recorder.events) if "call_a" in call] == ["sales#call_a?", "sales#call_a: 1.5"]
    assert len(play.asked()) == 7


@each(STREAMED[0])
def test_thinking_comes_back_as_it_was_signed(play: Play, api: Api) -> None:
    reasoning = {"reasoning": "Hm.", "reasoningSignature": "c2lnbmVk", "redactedThinking": ["ZGF0YQ=="]}
    play.answers({**JOURNEY[0], "response": JOURNEY[0]["response"] | reasoning}, *JOURNEY[1:])
    result, _ = played_well(analyst(api, replace(play, strict=True)))
    kinds = [type(block).__name__ for block in result.history[1].content]
    assert sorted(kinds) == ["RedactedThinking", "Text", "Thinking", "ToolUse", "ToolUse"]
    assert play.statuses() == [200] * 6
