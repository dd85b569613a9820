"""Whatever was said and however long it was: a view is sendable, smaller, and grows only at its end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from journeyman import Agent, Limits, ModelSettings, Runtime, tool
from journeyman.compaction import ClearToolResults, Compaction, Summarise, TrimTexts
from journeyman.events import ContextCompacted, Event
from journeyman.history import History
from journeyman.loop.prepare import begin
from journeyman.loop.run import carry_out
from journeyman.loop.state import Options
from journeyman.model import Prefix, Request
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.testing.scripted import Answer, FunctionModel, call, say
from journeyman.types import Block, Message, RedactedThinking, Text, Thinking, ToolResult, Usage
from journeyman.window import AnyStrategy, open_turn
from tests.compaction.small_window import summary_call
from tests.play import on_virtual_clock, succeeded
from tests.properties.examples import examples, patient
from tests.support.messages_json import Json, as_list, as_object
from tests.support.messages_memory import Memory
from tests.support.messages_rules import Request as Judged
from tests.support.messages_rules import judge

WIRE = AnthropicModel("claude-test", api_key="k")
HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01", "content-type": "application/json"}


@tool
async def read(path: str = "", size: int = 0) -> str:
    return f"{path} " + "é" * size


@dataclass(frozen=True)
class Said:
    """One answer of the model."""

    thinks: bool
    is_redacted: bool
    words: int
    calls: tuple[tuple[int, int], ...]
    """The path's number and the size of each."""


@dataclass(frozen=True)
class World:
    prompts: tuple[tuple[int, tuple[Said, ...]], ...]
    """The length of each prompt, and the answers to it."""
    clear: ClearToolResults | None
    trim: TrimTexts | None
    summarise: Summarise | None
    window: int
    summary_size: int
    reports: bool
    fails_at: int
    """Which summary fails."""


def sizes() -> SearchStrategy[int]:
    return st.sampled_from([0, 3, 40, 400, 3_000, 9_000])


def answers() -> SearchStrategy[Said]:
    calls = st.lists(st.tuples(st.integers(0, 3), sizes()), max_size=3).map(tuple)
    return st.builds(Said, st.booleans(), st.booleans(), sizes(), calls)


def worlds() -> SearchStrategy[World]:
    prompts = st.tuples(sizes(), st.lists(answers(), max_size=6).map(tuple))
    clears = st.builds(ClearToolResults, keep=st.integers(0, 4), least_tokens=st.sampled_from([0, 50]))
    trims = st.builds(TrimTexts, keep_messages=st.integers(0, 5), longest_chars=st.sampled_from([2_100, 4_000]))
    summaries = st.sampled_from([Summarise(keep_tokens=keep) for keep in (None, 1, 300, 2_000)])
    return st.builds(
        World,
        prompts=st.lists(prompts, min_size=1, max_size=6).map(tuple),
        clear=st.none() | clears,
        trim=st.none() | trims,
        summarise=st.none() | summaries,
        window=st.sampled_from([2_000, 6_000, 12_000]),
        summary_size=st.sampled_from([0, 60, 4_000]),
        reports=st.booleans(),
        fails_at=st.integers(1, 5),
    )


class Provider:
    """Judges every request as the Messages API does with the newest models, and remembers what it said."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.memory = Memory()
        self.bodies: list[Json] = []
        self.requests: list[list[Message]] = []
        self.faults: list[str] = []
        self.n_summaries = 0
        self.n_calls = 0
        self.script: Iterator[Said] = iter(())

    def play(self, request: Request) -> Answer:
        if request.prefix.tools[0].name == "record_summary":
            self.n_summaries += 1
            if self.n_summaries == self.world.fails_at:
                return say("No.", stop_reason="refusal", usage=Usage(requests=1))
            return say(summary_call(facts=["f" * self.world.summary_size]), usage=Usage(requests=1))
        raw = WIRE.body(request)
        judged = Judged(as_object(orjson.loads(raw)), HEADERS, self.memory)
        self.faults += judge(judged.body, HEADERS, memory=self.memory, bind_thinking=True)
        self.bodies.append(judged.body)
        self.requests.append(list(request.messages))
        content = self.content(next(self.script, None))
        served = as_list(as_object(orjson.loads(WIRE.body(answered(content))))["messages"])[0]
        blocks = map(as_object, as_list(as_object(served)["content"]))
        self.memory.remember(blocks, paused=False, prefix=judged.prefix())
        tokens = len(raw) // 4 if self.world.reports else 0
        return say(*content, usage=Usage(requests=1, input_tokens=tokens, output_tokens=tokens // 50))

    def content(self, said: Said | None) -> list[Block]:
        if said is None:
            return [Text("Done.")]
        self.n_calls += 1
        thought = Thinking(f"Thought {self.n_calls}.", f"signature{self.n_calls}")
        hidden = RedactedThinking(f"hidden{self.n_calls}")
        blocks: list[Block] = [hidden if said.is_redacted else thought] if said.thinks else []
        blocks += [Text(f"{self.n_calls} " + "w" * said.words)] if said.words or not said.calls else []
        for number, (path, size) in enumerate(said.calls):
            blocks.append(call("read", path=f"file {path}", size=size, id=f"c{self.n_calls}_{number}"))
        return blocks


def answered(content: Sequence[Block]) -> Request:
    return Request(
        prefix=Prefix(), messages=[Message("assistant", tuple(content)), asked("")], settings=ModelSettings()
    )


def asked(text: str) -> Message:
    return Message("user", (Text(f"Prompt. {text}"),))


async def played(world: World) -> tuple[Provider, History, list[ContextCompacted]]:
    """Let one conversation of several prompts run, each its own run."""
    provider, history, events = Provider(world), History(), list[Event]()
    strategies: list[AnyStrategy] = [each for each in (world.clear, world.trim, world.summarise) if each is not None]
    agent = Agent(
        name="reader",
        model=FunctionModel(provider.play),
        tools=[read],
        settings=ModelSettings(max_tokens=100, cache="off"),
        compaction=Compaction(strategies, window_tokens=world.window),
        limits=Limits(iterations=20),
    )
    for length, script in world.prompts:
        provider.script = iter(script)
        options = Options(history=history, listeners=[events.append], runtime=Runtime())
        succeeded(await carry_out(begin(agent, "Prompt. " + "p" * length, options)))
    return provider, history, [event for event in events if isinstance(event, ContextCompacted)]


@patient
@pytest.mark.fuzz
@examples(one_in=4)
@given(world=worlds())
def test_whatever_was_said_is_compacted_into_something_sendable(world: World) -> None:
    provider, history, events = on_virtual_clock(played, world)
    assert provider.faults == []
    logs = [as_list(body["messages"]) for body in provider.bodies]
    n_breaks = sum(list(after[: len(before)]) != list(before) for before, after in pairwise(logs))
    assert n_breaks <= sum(event.after_tokens != event.before_tokens for event in events)
    for event in events:
        assert event.after_tokens < event.before_tokens or not any(step.saved_tokens for step in event.steps)
    _the_open_turns_are_whole(provider, history)


def _the_open_turns_are_whole(provider: Provider, history: History) -> None:
    """What each request ends with stands so in the history, but for reasoning, and for a summary in front."""
    log = list(history.messages)
    ends = [index for index, message in enumerate(log) if message.role == "assistant"]
    assert len(ends) == len(provider.requests)
    for end, sent in zip(ends, provider.requests, strict=True):
        start = open_turn(log[:end])
        mine, theirs = sent[len(sent) - (end - start) :], log[start:end]
        for message, original in zip(mine, theirs, strict=True):
            said = _without_thinking(original)
            assert message.role == original.role
            assert _without_thinking(message)[-len(said) :] == said or message.text == "(nothing said)"


def _without_thinking(message: Message) -> list[Block]:
    return [block for block in message.content if not isinstance(block, Thinking | RedactedThinking)]


def test_a_result_is_never_cleared_in_the_turn_that_is_open() -> None:
    reading = Message("assistant", (call("read", id="a"),))
    assert open_turn([asked(""), reading, Message("user", (ToolResult("x"),))]) == 1
