"""Every way in which texts leave a program, with every kind of secret: none leaves.

`SINKS` names each way with the modules that it goes through. A module of the package that hands texts on and stands in
no row is found by what it calls.
"""

import ast
import asyncio
import html
import io
import json
import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from journeyman import Agent, Chat, Limits, Runtime, run
from journeyman.cli.show.lines import Line
from journeyman.cli.show.log import log_shown
from journeyman.errors import ProviderError
from journeyman.mcp_server.server import served_tool
from journeyman.models.cassette import Cassette
from journeyman.models.exchange import Exchange
from journeyman.otel import OpenTelemetry
from journeyman.record import Recordings
from journeyman.store import Store
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.tools.redaction import MARK
from journeyman.tools.tools import tool
from tests.cli.program import Warm
from tests.serve.http_served import serving
from tests.test_architecture import package_modules
from tests.tools.secret_notations import secrets_of
from tests.tools.secret_texts import SECRETS

VALUES: Final = ("korrekt/pferd+batterie&heft", "plain words of mine", "q7\"x'y\\z'9w")
LOG: Final = logging.getLogger("journeyman")


class Kind(NamedTuple):
    """A text, and the secret in it."""

    text: str
    secret: str


class Place(NamedTuple):
    """Where a way out may leave files, and the command line."""

    folder: Path
    warm: Warm


def known_kinds() -> Iterator[Kind]:
    """Give texts with secrets that are known by their text, which no pattern would find."""
    for value in VALUES:
        for written in (
            value,
            json.dumps(value)[1:-1],
            quote(value, safe=""),
            html.escape(value),
            value.encode().hex(),
        ):
            yield Kind(f"It says {written} there.", written)
        for before in ("", "a", "ab"):
            coded = b64encode(f"{before}{value} on".encode()).decode()
            yield Kind(f"It says {coded} there.", coded)


def looking_kinds() -> Iterator[Kind]:
    """Give texts with secrets that are known by how they look, or by what stands before them."""
    for marked in SECRETS[::9]:
        secret = marked.partition("«")[2].partition("»")[0]
        if len(secret) > 6 and "\n" not in secret:
            yield Kind(marked.replace("«", "").replace("»", ""), secret)
    for text, secret in secrets_of(5)[::7]:
        if "\n" not in text:
            yield Kind(text, secret)


KNOWN, LOOKING = [*known_kinds()], [*looking_kinds()]


def secrets_left(kinds: Sequence[Kind], out: str) -> list[str]:
    """Return the secrets that are in what went out, as they are or as JSON and Python write them."""
    return [
        kind.secret
        for kind in kinds
        if any(form in out for form in (kind.secret, json.dumps(kind.secret)[1:-1], repr(kind.secret)[1:-1]))
    ]


@tool
def show_text(n: int) -> str:
    """Return a text."""
    return (KNOWN + LOOKING)[n].text


@tool
def spill_text(n: int) -> str:
    """Fail with a text."""
    raise ValueError((KNOWN + LOOKING)[n].text)


def agent_that_says(kinds: Sequence[Kind], failing: BaseException | None = None) -> Agent[Any]:
    """Return an agent whose tools return and raise these texts, and which then says them all, or fails."""

    def say_all(_: object) -> str:
        if failing is not None:
            raise failing
        return "\n\n".join(each.text for each in kinds)

    places = [(KNOWN + LOOKING).index(each) for each in kinds]
    calls = [call(name, id=f"{name}{n}", n=n) for name in ("show_text", "spill_text") for n in places]
    return Agent(
        name="talker",
        description="Talks.",
        model=ScriptedModel([*([calls] if calls else []), say_all]),
        tools=[show_text, spill_text],
        limits=Limits(request_retries=0, calls=None),
    )


async def log_messages(kinds: Sequence[Kind], place: Place) -> str:
    stream = io.StringIO()
    LOG.addHandler(handler := logging.StreamHandler(stream))
    for kind in kinds:
        LOG.warning(kind.text.replace("%", "%%"))
        LOG.warning("it says: %s", kind.text)
    LOG.removeHandler(handler)
    return stream.getvalue()


async def log_tracebacks(kinds: Sequence[Kind], place: Place) -> str:
    stream, lines = io.StringIO(), list[Line]()
    LOG.addHandler(handler := logging.StreamHandler(stream))
    with log_shown(lines.extend, debug=True):
        for kind in kinds:
            try:
                raise ValueError(kind.text)
            except ValueError as error:
                LOG.error("it broke", exc_info=error)
    LOG.removeHandler(handler)
    return stream.getvalue() + "\n".join(each.text for each in lines)


async def errors_of_providers(kinds: Sequence[Kind], place: Place) -> str:
    exchange = Exchange(url="https://api.example.org/v1", headers={})
    return "\n".join(str(exchange.failure("refused", "auth", kind.text)) for kind in kinds)


async def errors_of_models(kinds: Sequence[Kind], place: Place) -> str:
    told: list[str] = []
    for kind in kinds:
        await run(agent_that_says([], ValueError(kind.text)), "Go.", on_event=lambda event: told.append(repr(event)))
    return "\n".join(told)


async def errors_of_tools(kinds: Sequence[Kind], place: Place) -> str:
    agent = agent_that_says(kinds)
    result = await run(agent, "Go.")
    blocks = [block for message in result.history for block in message.content if block.type == "tool_result"]
    return "\n".join(each.text for each in blocks if each.is_error)


def exported_spans(exporter: InMemorySpanExporter) -> str:
    spans = exporter.get_finished_spans()
    assert spans
    return "\n".join(each.to_json() for each in spans)


async def spans_with_content(kinds: Sequence[Kind], place: Place, failing: BaseException | None = None) -> str:
    exporter, tracers = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = OpenTelemetry(tracers, content=True, max_content_bytes=1_000_000)
    said = "\n".join(["Go.", *(each.text for each in kinds)])
    await run(agent_that_says(kinds, failing), said, runtime=Runtime(telemetry=telemetry))
    return exported_spans(exporter)


async def spans_of_failures(kinds: Sequence[Kind], place: Place) -> str:
    errors = [ProviderError(kind.text, kind="auth") for kind in kinds]
    return "\n".join([await spans_with_content([], place, each) for each in errors])


async def recordings(kinds: Sequence[Kind], place: Place) -> str:
    await run(
        agent_that_says(kinds),
        "\n".join(each.text for each in kinds),
        runtime=Runtime(recorder=place.folder / "runs.db"),
    )
    with Recordings(place.folder / "runs.db") as stored:
        found = stored.find("last")
        bodies = [stored.body(each) or b"" for each in stored.requests(found)]
        events = [json.dumps(each.document(), default=repr) for each in stored.all_events(found)]
    assert len(events) > 2 * len(kinds)
    return "\n".join([*events, *(each.decode() for each in bodies), found.input or ""])


async def cassettes(kinds: Sequence[Kind], place: Place) -> str:
    agent = agent_that_says(kinds)
    with Cassette(place.folder / "a.jsonl", "all") as cassette:
        runtime = Runtime(model=cassette.model(agent.model), journal=cassette.journal)
        await run(agent, "\n".join(each.text for each in kinds), runtime=runtime)
    return (place.folder / "a.jsonl").read_text(encoding="utf-8")


async def sessions_without_secrets(kinds: Sequence[Kind], place: Place) -> str:
    path = place.folder / "chats.db"
    async with Chat.open(agent_that_says(kinds), Store(path, redact=()), id="a", create=True) as chat:
        await chat.prompt("\n".join(each.text for each in kinds))
    async with Chat.open(agent_that_says(kinds), Store(path), id="a") as chat:
        assert len(chat.messages) > 3
        return repr(chat.messages)


async def answers_over_http(kinds: Sequence[Kind], place: Place) -> str:
    said = {"input": "\n".join(each.text for each in kinds)}
    async with serving([agent_that_says(kinds)]) as served:
        told = await served.told("POST", "/agents/talker/runs", said)
        assert len(told) > 2 * len(kinds)
        # Texts come in pieces: what they say together counts.
        pieces = "".join(each["text"] for each in told if each["event"] == "TextDelta")
        _, document = await served.ask("POST", "/agents/talker/runs", said)
        _, refused = await served.ask("POST", "/agents/talker/runs", {"inputs": said["input"]})
        return "\n".join([json.dumps(told), pieces, json.dumps(document), json.dumps(refused)])


async def answers_over_agui(kinds: Sequence[Kind], place: Place) -> str:
    message = {"id": "1", "role": "user", "content": "\n".join(each.text for each in kinds)}
    body: dict[str, object] = {
        "threadId": "t",
        "runId": "r",
        "messages": [message],
        "tools": [],
        "context": [],
        "state": {},
    }
    async with serving([agent_that_says(kinds)]) as served:
        status, text = await served.ask("POST", "/agents/talker/agui", {**body, "forwardedProps": {}})
        assert status == 200, text
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert len(events) > 2 * len(kinds)
        return f"{json.dumps(events)}\n{''.join(each.get('delta') or '' for each in events if 'TEXT' in each['type'])}"


async def answers_over_mcp(kinds: Sequence[Kind], place: Place) -> str:
    agent = agent_that_says(kinds)
    return served_tool(agent).answer(await run(agent, "Go.")).model_dump_json()


async def failures_over_mcp(kinds: Sequence[Kind], place: Place) -> str:
    agents = [agent_that_says([], ProviderError(kind.text, kind="auth")) for kind in kinds]
    return "\n".join([served_tool(each).answer(await run(each, "Go.")).model_dump_json() for each in agents])


TALKER: Final = """
import json
from pathlib import Path

from journeyman import Agent, Limits, tool
from journeyman.testing.scripted import ScriptedModel, call

TEXTS = json.loads(Path("texts.json").read_text())

@tool
def show_text(n: int) -> str:
    '''Return a text.'''
    return TEXTS[n]

@tool
def spill_text(n: int) -> str:
    '''Fail with a text.'''
    raise ValueError(TEXTS[n])

calls = [call(name, id=f"{name}{n}", n=n) for name in ("show_text", "spill_text") for n in range(len(TEXTS))]
model = ScriptedModel([calls, "\\n\\n".join(TEXTS)])
talker = Agent(name="talker", model=model, tools=[show_text, spill_text], limits=Limits(calls=None))
"""
"""An agent that says what stands in a file, as `agent_that_says` does; that one needs all that the tests need."""


async def command_line(kinds: Sequence[Kind], place: Place) -> str:
    (place.folder / "agents.py").write_text(TALKER)
    (place.folder / "texts.json").write_text(json.dumps([each.text for each in kinds]))
    line = ("run", "agents.py:talker", "Go.", "--no-record")
    told: list[str] = []
    for more in (("--stream", "jsonl"), ("--json",), ()):
        done = await asyncio.to_thread(place.warm, *line, *more, cwd=place.folder)
        assert done.code == 0, done.stderr
        told.append(done.stdout)
    return "\n".join(told)


class Sink(NamedTuple):
    """A way out: what sends texts that way and returns what went out, what is taken out there, and its modules."""

    send: Callable[[Sequence[Kind], Place], Awaitable[str]]
    promises: Literal["all", "known"]
    """`known`: only what is known by its text; a client of an agent reads what the agent says otherwise."""
    modules: str


SINKS: Final = (
    Sink(log_messages, "all", "tools.redaction"),
    Sink(log_tracebacks, "all", "tools.redaction cli.show.log"),
    Sink(errors_of_providers, "all", "models.exchange models.vendor_errors"),
    Sink(errors_of_models, "all", "loop.retry loop.finish loop.validation"),
    Sink(errors_of_tools, "all", "tools.results"),
    Sink(spans_with_content, "all", "otel.content otel.spans otel.telemetry"),
    Sink(spans_of_failures, "all", "otel.spans"),
    Sink(recordings, "all", "record.packing record.live record.rows record.writer record.recorder"),
    Sink(cassettes, "all", "models.cassette.record models.cassette.cassette models.cassette.vcr"),
    Sink(sessions_without_secrets, "all", "store.redacted"),
    Sink(failures_over_mcp, "all", "mcp_server.server"),
    Sink(answers_over_mcp, "known", "mcp_server.server"),
    Sink(answers_over_http, "known", "serve.live serve.api"),
    Sink(answers_over_agui, "known", "serve.live serve.agui"),
    Sink(command_line, "known", "cli.run"),
)


@pytest.fixture(autouse=True)
def secrets_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for n, value in enumerate(VALUES):
        monkeypatch.setenv(f"HELD_TOKEN_{n}", value)


def test_there_are_at_least_840_pairs_of_a_sink_and_a_kind() -> None:
    assert sum(len(KNOWN) + (len(LOOKING) if each.promises == "all" else 0) for each in SINKS) >= 840


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.send.__name__)
async def test_no_secret_leaves_by_any_sink(sink: Sink, tmp_path: Path, warm: Warm) -> None:
    kinds = KNOWN + LOOKING if sink.promises == "all" else KNOWN
    out = await sink.send(kinds, Place(tmp_path, warm))
    assert secrets_left(kinds, out) == []
    assert out.count(MARK) >= len(kinds), "each text went out, with a mark in place of its secret"


CALLS: Final = {
    **dict.fromkeys(("set_attribute", "set_attributes", "add_event", "set_status", "record_exception"), "otel"),
    **dict.fromkeys(("format_exception", "format_exc", "print_exc", "print_exception"), "traceback"),
    **dict.fromkeys(("getLogger",), "log"),
}
"""The calls by which texts leave, and of what kind."""
QUIETED: Final = frozenset(("mcp.connection", "otel.export"))
"""Modules that name the logs of others only to quiet them."""


def unnamed_sinks(name: str, source: str) -> list[str]:
    """Return the calls of a module by which texts leave it, if no row of `SINKS` names it, or the log is another."""
    named = {module for sink in SINKS for module in sink.modules.split()}
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        if called == "getLogger":
            given = [each.value for each in node.args if isinstance(each, ast.Constant)]
            if not str(*given[:1]).startswith("journeyman") and name not in named | QUIETED:
                found.append(f"{name}: logs to {given}")
        elif called in CALLS and name not in named:
            found.append(f"{name}: {called}")
    return found


def test_no_module_hands_texts_on_by_a_way_that_is_not_tried_here() -> None:
    assert [each for module in package_modules() for each in unnamed_sinks(module.name, module.source)] == []


@pytest.mark.parametrize(
    "line", ["span.set_attribute('a', text)", "print(traceback.format_exc())", "logging.getLogger('other').info(text)"]
)
def test_a_new_way_out_is_found(line: str) -> None:
    assert len(unnamed_sinks("toolbox.planted", line)) == 1
