"""Anything that can be done to a chat, in any order: nothing is lost, nothing is said twice, nothing is left behind.

The machine plays the user, the model, the tools and the system prompt: between two rules everything waits for one of
them, and the rules say who goes on. Every text is one of a kind, so that it can be found again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from journeyman import (
    Agent,
    Chat,
    ChatBusy,
    ChatHeld,
    Failure,
    Limits,
    NothingToContinue,
    ProviderError,
    Receipt,
    Result,
    Success,
    Turn,
    dump_messages,
    load_messages,
    tool,
)
from journeyman.events import Event, TurnEnded
from journeyman.history import History
from journeyman.inbox import Queue
from journeyman.model import Request
from journeyman.models.scripted import Answer, FromFunction, call, say
from journeyman.turn import ABORTED, Hold
from journeyman.types import Message, Text
from tests.support.clock import VirtualClock
from tests.support.invariants_history import history_faults

T = TypeVar("T")

ANSWERS: dict[str, Callable[[int], Answer]] = {
    "text": lambda n: f"answer {n}",
    "call": lambda n: call("work", id=f"w{n}"),
    "calls": lambda n: [call("work", id=f"w{n}"), call("peek", id=f"p{n}"), call("peek", id=f"q{n}")],
    "together": lambda n: say("Both:", *(call("peek", id=f"{side}{n}") for side in "lmr")),
    "nothing": lambda n: [],
    "cut": lambda n: say(f"cut {n}", stop_reason="max_tokens"),
    "stop": lambda n: call("stop", id=f"s{n}"),
    "error": lambda n: ProviderError(f"error {n}", kind="bad_request"),
}

_TICKS = 60
"""More steps than anything here takes until it waits for the machine."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A text and what it was sent with."""

    receipt: Receipt
    queue: Queue


def _open(futures: list[asyncio.Future[T]]) -> list[asyncio.Future[T]]:
    return [future for future in futures if not future.done()]


class ChatMachine(RuleBasedStateMachine):  # noqa: PLR0904 - one rule for each thing that can happen
    """A chat, and everything that was ever said to it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualClock()
        self.n = 0
        self.asked: list[asyncio.Future[Answer]] = []
        self.at_work: list[asyncio.Future[str]] = []
        self.preparing: list[asyncio.Future[str]] = []
        self.prepares_slowly = False
        self.sent: list[Sent] = []
        self.prompts: dict[str, Turn] = {}
        self.holds: list[Hold] = []
        self.continuing: list[asyncio.Task[object]] = []
        self.waiting: list[tuple[asyncio.Task[object], Turn]] = []
        self.n_markers = 0
        self.n_requests = 0
        self.takeover: str | None = None
        self.faults: list[str] = []
        self.agent = self._agent()
        self.chat = Chat(self.agent)

    # -- who plays

    def _agent(self) -> Agent:
        @tool
        async def work() -> str:
            """Work."""
            return await self._at_work()

        @tool(parallel=True, effect="pure")
        async def peek() -> str:
            """Peek."""
            return await self._at_work()

        @tool
        def stop() -> str:
            """Stop."""
            return "stopped"

        return Agent(
            name="tester",
            model=FromFunction(self._answer),
            system=self._system,
            tools=[work, peek, tool(stop.handler, thread=False)],
            limits=Limits(iterations=4, parallel_calls=2),
            stop_after=["stop"],
        )

    async def _system(self, given: str) -> str:
        if not self.prepares_slowly:
            return ""
        future: asyncio.Future[str] = self.loop.create_future()
        self.preparing.append(future)
        return await future

    async def _answer(self, request: Request) -> Answer:
        self.n_requests += 1
        self.faults += history_faults(request.messages)
        if request.messages[-1].role != "user":
            self.faults.append("the model was asked to answer itself")
        future: asyncio.Future[Answer] = self.loop.create_future()
        self.asked.append(future)
        return await future

    async def _at_work(self) -> str:
        future: asyncio.Future[str] = self.loop.create_future()
        self.at_work.append(future)
        return await future

    def _listen(self, event: Event) -> None:
        if not isinstance(event, TurnEnded):
            return
        how, self.takeover = self.takeover, None
        if self.chat.state.is_running:
            self.faults.append("the chat is not idle at the end of its turn")
        try:
            if how == "prompt":
                self._begin()
            elif how == "inject":
                self._send(self.chat.inject, "steering")
        except (ChatHeld, RuntimeError):
            return

    # -- machinery

    def _play(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def _settle(self) -> None:
        async def settle() -> None:
            for _ in range(_TICKS):
                await asyncio.sleep(0)

        self._play(settle())

    def _text(self) -> str:
        self.n += 1
        return f"text {self.n}."

    def _begin(self) -> Turn:
        text = self._text()
        turn = self.prompts[text] = self.chat.start(text)
        return turn

    def _send(self, how: Callable[[str], Receipt], queue: Queue) -> None:
        self.sent.append(Sent(how(self._text()), queue))

    def _do(self, act: Callable[[], object]) -> None:
        """Do something in the loop, and let everything go on until it waits again."""

        async def step() -> None:
            act()

        self._play(step())
        self._settle()

    async def _open(self, history: list[Message]) -> None:
        self.chat = await Chat(self.agent, history=history, on_event=self._listen).__aenter__()
        self.n_requests = 0
        self.holds.clear()

    def _leave(self) -> None:
        self._play(self.chat.__aexit__(None, None, None))
        for futures in (self.asked, self.at_work, self.preparing):
            futures.clear()
        assert not self.chat.state.is_running
        assert all(each.receipt.status != "queued" for each in self.sent)

    # -- rules

    @initialize()
    def enter(self) -> None:
        self._play(self._open([]))

    @rule()
    def prompt(self) -> None:
        state = self.chat.state

        def act() -> None:
            try:
                self._begin()
            except ChatHeld:
                assert state.is_held
            except ChatBusy:
                assert state.is_running
            else:
                assert not (state.is_held)
                assert not (state.is_running)

        self._do(act)

    @rule()
    def steer(self) -> None:
        self._do(lambda: self._send(self.chat.steer, "steering"))

    @rule()
    def follow_up(self) -> None:
        self._do(lambda: self._send(self.chat.follow_up, "follow_ups"))

    @rule()
    def inject(self) -> None:
        before = self.chat.state

        def act() -> None:
            try:
                self._send(self.chat.inject, "steering")
            except ChatHeld:
                assert before.is_held
                return
            disposition = self.sent[-1].receipt.disposition
            assert (disposition == "steered") == before.is_running
            assert self.chat.state.is_running == (disposition != "queued")

        self._do(act)

    @rule(queue=st.sampled_from(["steering", "follow_ups"]))
    def clear(self, queue: Queue) -> None:
        waiting = self.chat.state.steering if queue == "steering" else self.chat.state.follow_ups
        withdrawn: list[str] = []
        self._do(lambda: withdrawn.extend(self.chat.clear(queue)))
        assert waiting[len(waiting) - len(withdrawn) :] == tuple(withdrawn)
        assert len(withdrawn) == len(waiting) or _open(self.preparing)  # what a run begins with is not withdrawn

    @precondition(lambda self: bool(_open(self.asked)))
    @rule(kind=st.sampled_from(sorted(ANSWERS)))
    def model_answers(self, kind: str) -> None:
        self.n += 1
        self._do(lambda: _open(self.asked)[0].set_result(ANSWERS[kind](self.n)))

    @precondition(lambda self: bool(_open(self.at_work)))
    @rule(which=st.integers(0, 2))
    def tool_ends(self, which: int) -> None:
        waiting = _open(self.at_work)
        self._do(lambda: waiting[which % len(waiting)].set_result("done"))

    @rule()
    def prepare_slowly_or_not(self) -> None:
        self.prepares_slowly = not self.prepares_slowly

    @precondition(lambda self: bool(_open(self.preparing)))
    @rule(works=st.booleans())
    def prepared(self, works: bool) -> None:
        (future,) = _open(self.preparing)
        self._do(lambda: future.set_result("Be brief.") if works else future.set_exception(LookupError("no")))

    @rule()
    def abort(self) -> None:
        before = self.chat.state
        self.n_markers += before.is_running and not _open(self.preparing)
        self._do(self.chat.abort)
        if before.is_running and self.takeover is None and not self.chat.state.is_running:
            assert self.chat.state.last_error is not None
            assert self.chat.state.last_error.code == "EXECUTION_CANCELLED"

    @precondition(lambda self: self.prompts)
    @rule()
    def abort_the_last_turn(self) -> None:
        turn = list(self.prompts.values())[-1]
        self.n_markers += not (turn.is_over or _open(self.preparing))
        self._do(turn.abort)

    @precondition(lambda self: self.prompts)
    @rule()
    def cancel_the_last_turn(self) -> None:
        self._do(list(self.prompts.values())[-1].cancel)

    @rule()
    def hold(self) -> None:
        self.holds.append(self._play(self.chat.hold().__aenter__()))
        assert not self.chat.state.is_running
        self._settle()

    @precondition(lambda self: self.holds)
    @rule(twice=st.booleans())
    def release(self, twice: bool) -> None:
        hold = self.holds.pop()
        hold.release()
        if twice:
            hold.release()
        assert self.chat.state.is_held == bool(self.holds)

    @rule()
    def continue_(self) -> None:
        async def go_on() -> Result[str] | None:
            try:
                return await self.chat.continue_()
            except (ChatBusy, ChatHeld, NothingToContinue):
                return None
            except asyncio.CancelledError:
                return None

        self._do(lambda: self._keep(go_on()))

    def _keep(self, work: Coroutine[Any, Any, object]) -> None:
        task = self.loop.create_task(work)
        self.continuing.append(task)

    @rule(how=st.sampled_from(["prompt", "inject"]))
    def take_over_at_the_next_end(self, how: str) -> None:
        self.takeover = how

    @rule()
    def wait_idle(self) -> None:
        turn = list(self.prompts.values())[-1] if self.prompts else None
        if turn is None or turn.is_over:
            return
        self._do(lambda: self.waiting.append((self.loop.create_task(self.chat.wait_idle()), turn)))

    @rule(in_mid_turn=st.booleans())
    def reload(self, in_mid_turn: bool) -> None:
        """Go on in a new chat from what was stored: when the old one was left, or died."""
        self.takeover = None
        stored = dump_messages(self.chat.messages)
        self._leave()
        self._play(self._open(load_messages(stored if in_mid_turn else dump_messages(self.chat.messages))))
        self._settle()

    @rule()
    def reset(self) -> None:
        self.takeover = None
        self._play(self.chat.reset())
        self.sent = [each for each in self.sent if each.receipt.status != "delivered"]
        self.prompts.clear()
        self.n_markers = self.n_requests = 0
        self._settle()
        assert self.chat.messages == ()

    # -- what always holds

    @invariant()
    def the_conversation_is_sendable(self) -> None:
        messages = self.chat.messages if not self.chat.state.is_running else History(self.chat.messages).export()
        assert list(history_faults(messages)) == []
        assert self.faults == []

    @invariant()
    def every_text_is_where_its_receipt_says(self) -> None:
        state = self.chat.state
        said = self._said()
        for each in self.sent:
            text, status = each.receipt.text, each.receipt.status
            queue = state.steering if each.queue == "steering" else state.follow_ups
            assert said.count(text) == (status == "delivered"), (text, status, said)
            assert queue.count(text) == (status == "queued"), (text, status, queue)

    @invariant()
    def texts_of_a_queue_are_said_in_order(self) -> None:
        said = self._said()
        for queue in ("steering", "follow_ups"):
            order = [each.receipt.text for each in self.sent if each.queue == queue and each.receipt.text in said]
            assert order == sorted(order, key=said.index)

    @invariant()
    def every_prompt_was_said_once_or_refused(self) -> None:
        said = self._said()
        for text, turn in self.prompts.items():
            assert said.count(text) <= 1
            result = self._result(turn)
            if isinstance(result, Success) or (isinstance(result, Failure) and result.phase == "iteration"):
                assert said.count(text) == 1

    @invariant()
    def the_model_reads_of_every_abort_once(self) -> None:
        if not self.chat.state.is_running:
            assert self._said().count(ABORTED) == self.n_markers

    @invariant()
    def an_idle_chat_leaves_no_task(self) -> None:
        if not self.chat.state.is_running:
            assert asyncio.all_tasks(self.loop) == set()
            assert self.chat.state.pending_calls == ()
        else:
            assert _open(self.asked) or _open(self.at_work) or _open(self.preparing)

    @invariant()
    def who_waited_for_a_turn_that_is_over_goes_on(self) -> None:
        for task, turn in self.waiting:
            assert task.done() == turn.is_over

    @invariant()
    def usage_counts_every_request(self) -> None:
        in_flight = len(_open(self.asked))
        assert self.chat.usage.requests == self.n_requests - in_flight

    def _said(self) -> list[str]:
        users = [message for message in self.chat.messages if message.role == "user"]
        return [block.text for message in users for block in message.content if isinstance(block, Text)]

    def _result(self, turn: Turn) -> Result[str] | None:
        if not turn.is_over:
            return None

        async def wait() -> Result[str] | None:
            try:
                return await turn
            except asyncio.CancelledError:
                return None

        return self._play(wait())

    def teardown(self) -> None:
        self.takeover = None
        self._leave()
        self._play(self.chat.wait_idle())
        self._settle()
        assert asyncio.all_tasks(self.loop) == set()
        self.loop.close()


ChatMachine.TestCase.settings = settings(stateful_step_count=40)

TestChatMachine = ChatMachine.TestCase
