"""Tools that the provider runs: what it is asked for, what is seen of them, and what they cost.

Each conversation is held with the strict server of the wire, which refuses what the provider would refuse.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from journeyman import Agent, DefinitionError, ErrorCode, Limits, ModelSettings, Runtime, Success, run
from journeyman.errors import ProviderError
from journeyman.events import Event, HostedToolRan, ModelResponded
from journeyman.hosted import CodeExecution, FileSearch, HostedTool, Location, SearchHit, WebSearch, hosted_calls
from journeyman.model import Model, facts_of
from journeyman.models import FallbackModel, price_for
from journeyman.models.anthropic.client import on_vertex
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.google import GoogleModel
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import VLLM
from journeyman.models.openai.responses import OpenAIModel
from journeyman.testing.scripted import ScriptedModel, say
from journeyman.types import Message, Opaque, Price, Text, Usage
from tests.contracts import makers
from tests.models.asking import Json, ask
from tests.play import existing, failed, make_tool, succeeded
from tests.support import gemini_answers as gemini
from tests.support import messages_answers as messages
from tests.support import openai_answers as openai
from tests.support.servers import GeminiApi, MessagesApi, OpenAiApi

BERLIN: Final = Location(city="Berlin", country="DE")
SEARCHED: Final[list[Json]] = [
    messages.server_tool_use("web_search", {"query": "umbrellas"}, id="srvtoolu_1"),
    messages.web_search_tool_result("srvtoolu_1", "May", "June"),
]
RAN: Final[list[Json]] = [
    messages.server_tool_use("bash_code_execution", {"command": "ls"}, id="srvtoolu_2"),
    {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_2",
        "content": {
            "type": "bash_code_execution_result",
            "stdout": "a.txt",
            "stderr": "",
            "return_code": 0,
            "content": [],
        },
    },
]
ITEMS: Final[list[Json]] = [
    openai.item(
        type="web_search_call",
        id="ws_1",
        status="completed",
        action={
            "type": "search",
            "query": "umbrellas",
            "queries": ["umbrellas"],
            "sources": [{"type": "url", "url": "https://example.com/0"}],
        },
    ),
    openai.item(
        type="web_search_call",
        id="ws_2",
        status="completed",
        action={"type": "open_page", "url": "https://example.com/0"},
    ),
    openai.item(
        type="code_interpreter_call",
        id="ci_1",
        status="completed",
        container_id="cntr_1",
        code="print(2)",
        outputs=[{"type": "logs", "logs": "2"}],
    ),
    openai.item(
        type="file_search_call",
        id="fs_1",
        status="completed",
        queries=["rain"],
        results=[{"file_id": "f", "filename": "rain.txt", "score": 0.9, "text": "It rains."}],
    ),
]
GROUNDING: Final[Json] = {
    "webSearchQueries": ["umbrellas", "rain"],
    "groundingChunks": [{"web": {"uri": "https://example.com/0", "title": "May"}}],
}
SCRIPTED_CODE: Final[list[Json]] = [
    {"executableCode": {"language": "PYTHON", "code": "print(2)"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
]


def agent(model: Model, *hosted: HostedTool, **more: Any) -> Agent[str, str]:
    return Agent(name="searcher", model=model, system="Search.", settings=ModelSettings(hosted=hosted), **more)


async def played(searcher: Agent[str, str], *, history: Sequence[Message] = ()) -> tuple[Success[str], list[Event]]:
    events: list[Event] = []
    return succeeded(await run(searcher, "What sells in May?", on_event=events.append, history=history)), events


def told(events: Sequence[Event]) -> list[tuple[str, str, str, tuple[SearchHit, ...], str | None]]:
    calls = [event.call for event in events if isinstance(event, HostedToolRan)]
    return [(call.tool, call.asked, call.output, call.found, call.error) for call in calls]


def used_by(ended: Success[str]) -> Usage:
    return existing(ended.metadata.usage)


def body_of(api: MessagesApi | OpenAiApi | GeminiApi, index: int) -> Json:
    return api.requests[index].body


async def test_anthropic_searches_and_runs_code_and_pauses_in_between() -> None:
    usage = {"server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0}}
    replies = [
        messages.answer("I look. ", SEARCHED[0], stop_reason="pause_turn"),
        messages.answer(SEARCHED[1], *RAN, "Umbrellas.", usage=usage),
        messages.answer("Hats."),
    ]
    search = WebSearch(max_uses=3, allowed_domains=("example.com",), location=BERLIN)
    price = Price(input=1, output=1, web_search=10, code_execution=1)
    async with MessagesApi(replies) as api, makers.anthropic(api.url, price=price) as model:
        searcher = agent(model, search, CodeExecution())
        ended, events = await played(searcher)
        await played(searcher, history=ended.history)
    assert body_of(api, 0)["tools"] == [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "user_location": {"type": "approximate", "city": "Berlin", "country": "DE"},
            "max_uses": 3,
            "allowed_domains": ["example.com"],
        },
        {"type": "code_execution_20250825", "name": "code_execution"},
    ]
    found = tuple([SearchHit(title=title, url=f"https://example.com/{n}") for n, title in enumerate(("May", "June"))])
    assert told(events) == [("web_search", "umbrellas", "", found, None), ("code_execution", "ls", "a.txt", (), None)]
    kinds = [type(event) for event in events if isinstance(event, HostedToolRan | ModelResponded)]
    assert kinds == [ModelResponded, ModelResponded, HostedToolRan, HostedToolRan]
    used = used_by(ended)
    assert (used.web_searches, used.code_executions, used.file_searches) == (1, 1, None)
    tokens = (used.total_tokens) / 1_000_000
    assert used.cost == pytest.approx(tokens + 0.010 + 0.001)


async def test_responses_search_run_code_and_look_into_files() -> None:
    asked = [WebSearch(context_size="low"), CodeExecution(), FileSearch(stores=("vs_1",), max_results=4)]
    replies = [openai.answer(*ITEMS, "Umbrellas."), openai.answer("Hats.")]
    async with OpenAiApi(replies) as api, makers.responses(api.url) as model:
        searcher = agent(model, *asked)
        ended, events = await played(searcher)
        await played(searcher, history=ended.history)
    body = body_of(api, 0)
    assert body["tools"] == [
        {"type": "web_search", "search_context_size": "low"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 4},
    ]
    assert body["include"] == [
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "code_interpreter_call.outputs",
        "file_search_call.results",
    ]
    assert told(events) == [
        ("web_search", "umbrellas", "", (SearchHit(url="https://example.com/0"),), None),
        ("web_search", "https://example.com/0", "", (), None),
        ("code_execution", "print(2)", "2", (), None),
        ("file_search", "rain", "", (SearchHit(title="rain.txt", text="It rains."),), None),
    ]
    used = used_by(ended)
    assert (used.web_searches, used.code_executions, used.file_searches) == (1, 1, 1)  # to open a page is no search
    sent_back = [item["type"] for item in body_of(api, 1)["input"]]
    assert sent_back.count("web_search_call") == 2
    assert "file_search_call" in sent_back


async def test_responses_limit_searches_that_stand_alone() -> None:
    domains = WebSearch(max_uses=2, allowed_domains=("example.com",))
    async with OpenAiApi([openai.answer("Umbrellas.")]) as api, makers.responses(api.url) as model:
        await played(agent(model, domains))
    body = body_of(api, 0)
    assert body["max_tool_calls"] == 2
    assert body["tools"] == [{"type": "web_search", "filters": {"allowed_domains": ["example.com"]}}]


async def test_a_search_model_of_chat_completions_cites_its_pages() -> None:
    cited = {"start_index": 0, "end_index": 9, "title": "May", "url": "https://example.com/0"}
    text = openai.text("Umbrellas.", annotations=[{"type": "url_citation", "url_citation": cited}])
    async with OpenAiApi([openai.answer(text)]) as api, makers.chat(api.url, "gpt-5-search-api") as model:
        ended, events = await played(agent(model, WebSearch(location=BERLIN, context_size="high")))
    approximate = {"type": "approximate", "approximate": {"city": "Berlin", "country": "DE"}}
    assert body_of(api, 0)["web_search_options"] == {"search_context_size": "high", "user_location": approximate}
    assert "tools" not in body_of(api, 0)
    assert told(events) == [("web_search", "", "", (SearchHit(title="May", url="https://example.com/0"),), None)]
    assert used_by(ended).web_searches == 1


async def test_gemini_searches_and_runs_code_beside_tools() -> None:
    replies = [
        gemini.answer(*SCRIPTED_CODE, gemini.call("note", {"text": "2"}), grounding=GROUNDING),
        gemini.answer("Umbrellas."),
    ]
    price = Price(input=1, output=1, web_search=14, code_execution=0)
    async with GeminiApi(replies) as api, makers.google(api.url, price=price) as model:
        asked = [WebSearch(), CodeExecution(), FileSearch(stores=("fileSearchStores/a",), max_results=4)]
        ended, events = await played(agent(model, *asked, tools=[make_tool("note", "noted")]))
    body = body_of(api, 0)
    assert body["tools"][1:] == [
        {"googleSearch": {}},
        {"codeExecution": {}},
        {"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/a"], "topK": 4}},
    ]
    assert body["toolConfig"]["includeServerSideToolInvocations"] is True
    assert told(events) == [
        ("code_execution", "print(2)", "2", (), None),
        ("web_search", "umbrellas\nrain", "", (SearchHit(title="May", url="https://example.com/0"),), None),
    ]
    sent_back = body_of(api, 1)["contents"][1]["parts"]
    assert [min(part.keys() - {"thoughtSignature"}) for part in sent_back] == [
        *("executableCode", "codeExecutionResult", "functionCall")
    ]
    used = used_by(ended)
    assert (used.web_searches, used.code_executions) == (2, 1)
    assert used.cost == pytest.approx(used.total_tokens / 1_000_000 + 0.028)


async def test_vertex_leaves_domains_out() -> None:
    async with GeminiApi([gemini.answer("Umbrellas.")]) as api, makers.vertex(api.url) as model:
        await played(agent(model, WebSearch(blocked_domains=("example.com",))))
    assert body_of(api, 0)["tools"] == [{"googleSearch": {"excludeDomains": ["example.com"]}}]


async def test_a_conversation_with_searches_goes_on_with_any_provider() -> None:
    anthropic = [messages.answer(*SEARCHED, *RAN, "Umbrellas.")]
    async with MessagesApi(anthropic) as api, makers.anthropic(api.url) as model:
        first, _ = await played(agent(model, WebSearch(), CodeExecution()))
    async with GeminiApi([gemini.answer("Hats.", grounding=GROUNDING)]) as api, makers.google(api.url) as model:
        second, _ = await played(agent(model, WebSearch()), history=first.history)
    async with OpenAiApi([openai.answer(*ITEMS, "Scarves.")]) as api, makers.responses(api.url) as model:
        third, _ = await played(agent(model, WebSearch()), history=second.history)
        said = [item["content"] for item in body_of(api, 0)["input"] if item.get("role") == "assistant"]
    assert said[-2:] == ["Umbrellas.", "Hats."]  # nothing of Gemini's grounding
    async with MessagesApi([messages.answer("Gloves.")]) as api, makers.anthropic(api.url) as model:
        await played(agent(model, WebSearch()), history=third.history)
    kinds = [block["type"] for message in body_of(api, 0)["messages"] for block in message["content"]]
    assert kinds.count("server_tool_use") == 2  # Anthropic gets its own back


def claude(name: str = makers.CLAUDE) -> AnthropicModel:
    return AnthropicModel(name, api_key="k")


DOMAINS: Final = WebSearch(allowed_domains=("example.com",))
LACKING: Final[dict[str, tuple[Model, HostedTool, str]]] = {
    "claude has no files": (claude(), FileSearch(stores=("a",)), "it has no hosted file_search"),
    "claude takes no size": (claude(), WebSearch(context_size="low"), "its hosted web_search has no context_size"),
    "an early claude runs no code": (claude("claude-3-haiku"), CodeExecution(), "it has no hosted code_execution"),
    "responses block no domains": (
        OpenAIModel("gpt-5.2"),
        WebSearch(blocked_domains=("example.com",)),
        "its hosted web_search has no blocked_domains",
    ),
    "chat has no tools": (OpenAIChatModel("gpt-5.2"), WebSearch(), "it has no hosted web_search"),
    "a search model takes no domains": (OpenAIChatModel("gpt-5-search-api"), DOMAINS, "has no allowed_domains"),
    "a server of one's own has none": (OpenAIModel("qwen3", endpoint=VLLM), WebSearch(), "no hosted web_search"),
    "gemini takes no domains": (GoogleModel("gemini-3-flash-preview", api_key="k"), DOMAINS, "has no allowed_domains"),
    "vertex has no file search": (
        GoogleModel("gemini-3-flash-preview", token=lambda: "t"),
        FileSearch(stores=("a",)),
        "it has no hosted file_search",
    ),
    "one of two lacks it": (FallbackModel(claude(), OpenAIModel("gpt-5.2")), CodeExecution(), ""),
    "neither of two lacks it all": (
        FallbackModel(claude(), OpenAIModel("gpt-5.2")),
        WebSearch(context_size="low"),
        "its hosted web_search has no context_size",
    ),
}


@pytest.mark.parametrize("name", LACKING)
async def test_what_a_model_lacks_is_said_before_any_call(name: str) -> None:
    model, hosted, words = LACKING[name]
    if not words:
        assert agent(model, hosted).settings.hosted == (hosted,)
        return
    with pytest.raises(DefinitionError) as raised:
        agent(model, hosted)
    assert [problem.code for problem in raised.value.problems] == ["NOT_HOSTED"]
    assert words in str(raised.value)
    ended = failed(await run(agent(ScriptedModel([say("Hm.")]), hosted), "Hi.", runtime=Runtime(model=model)))
    assert ended.error.code == ErrorCode.MODEL_UNAVAILABLE
    assert words in str(ended.error)


async def test_early_gemini_has_hosted_tools_only_alone() -> None:
    early = GoogleModel("gemini-2.5-flash", api_key="k")
    with pytest.raises(DefinitionError, match="it has no hosted web_search beside other tools"):
        agent(early, WebSearch(), tools=[make_tool("note", "{text}")])
    assert agent(early, WebSearch()).settings.hosted


def test_claude_elsewhere_has_what_is_documented_there() -> None:
    hosted = existing(facts_of(on_vertex("claude-sonnet-5-5", region="global", project_id="p")).hosted)
    assert hosted.web_search is not None
    assert hosted.code_execution is None


@pytest.mark.parametrize(
    ("hosted", "words"),
    [
        ("web_search", "settings.hosted is 'web_search'"),
        ((WebSearch,), "which is not a hosted tool. Pass WebSearch(…), with its parentheses."),
        ((WebSearch(), WebSearch()), "has WebSearch twice"),
        ((WebSearch(max_uses=0),), "WebSearch.max_uses is 0"),
        ((WebSearch(max_uses=True),), "WebSearch.max_uses is True"),
        ((WebSearch(allowed_domains=("https://a.com",)),), "has 'https://a.com', which is not a domain"),
        ((WebSearch(allowed_domains="a.com"),), "has 'a.com', which is not a domain"),  # pyright: ignore[reportArgumentType] - the mistake
        ((WebSearch(allowed_domains=("a.com",), blocked_domains=("b.com",)),), "both allowed_domains and"),
        ((WebSearch(location="Berlin"),), "WebSearch.location is 'Berlin'"),  # pyright: ignore[reportArgumentType] - the mistake
        ((WebSearch(context_size="huge"),), "WebSearch.context_size is 'huge'"),  # pyright: ignore[reportArgumentType] - the mistake
        ((FileSearch(stores=()),), "FileSearch.stores is ()"),
        ((FileSearch(stores=("",)),), "FileSearch.stores is ('',)"),
        ((FileSearch(stores=("a",), max_results=-1),), "FileSearch.max_results is -1"),
    ],
)
def test_wrong_hosted_tools_are_named(hosted: Any, words: str) -> None:  # noqa: ANN401 - the mistakes
    with pytest.raises(DefinitionError) as raised:
        Agent(name="searcher", model=ScriptedModel([]), settings=ModelSettings(hosted=hosted))
    assert {problem.code for problem in raised.value.problems} == {"INVALID_HOSTED"}
    assert words in str(raised.value)


def test_lists_that_the_caller_changes_later_are_copied() -> None:
    domains: Any = ["example.com"]
    searcher = agent(claude(), WebSearch(allowed_domains=domains))
    domains.append("evil.example")
    assert searcher.settings.hosted == (WebSearch(allowed_domains=("example.com",)),)


async def test_a_limit_on_cost_needs_the_price_of_a_call() -> None:
    priced = replace(claude(), price=price_for("anthropic", "claude-sonnet-5-5"))
    ended = failed(await run(agent(priced, CodeExecution(), limits=Limits(cost=1.0)), "Hi."))
    assert ended.error.code == ErrorCode.MODEL_UNAVAILABLE
    assert "its hosted code_execution has no known price" in str(ended.error)


def test_a_call_without_a_price_has_no_cost() -> None:
    listed = existing(price_for("openai", "gpt-5.2"))
    assert (listed.web_search, listed.file_search, listed.code_execution) == (10.0, 2.5, None)


@pytest.mark.parametrize(
    ("block", "error"),
    [
        (
            '{"type":"web_search_tool_result","tool_use_id":"s","content":{"error_code":"max_uses_exceeded"}}',
            "max_uses_exceeded",
        ),
        (
            '{"type":"code_execution_tool_result","tool_use_id":"s","content":{"stderr":"no","return_code":1}}',
            "return code 1",
        ),
        ('{"type":"web_search_call","status":"failed","action":null}', "failed"),
        ('{"type":"codeExecutionResult","codeExecutionResult":{"outcome":"OUTCOME_FAILED"}}', "OUTCOME_FAILED"),
    ],
)
def test_a_call_that_failed_says_why(block: str, error: str) -> None:
    assert [call.error for call in hosted_calls([Opaque("anthropic", block)])] == [error]


@pytest.mark.parametrize(
    "block",
    [
        "no json",
        "[]",
        '{"type":7}',
        '{"type":"container_upload"}',
        '{"type":"server_tool_use","id":[],"input":3}',
        '{"type":"groundingMetadata","groundingMetadata":{"webSearchQueries":7,"groundingChunks":[3]}}',
    ],
)
def test_what_is_no_call_is_left_out(block: str) -> None:
    assert hosted_calls([Opaque("anthropic", block), Text("a", extra={"annotations": [3, {"url_citation": 4}]})]) == ()


async def test_a_model_without_facts_is_asked() -> None:
    succeeded(await run(agent(ScriptedModel([say("Hm.")]), WebSearch()), "Hi."))


async def test_settings_for_one_request_are_checked_as_well() -> None:
    with pytest.raises(ProviderError, match="google:gemini-3-flash cannot be asked: its hosted web_search has no"):
        await ask(GoogleModel("gemini-3-flash", api_key="k"), hosted=(DOMAINS,))
