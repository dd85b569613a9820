"""Anything that can be done to a chat, in any order: nothing is lost, nothing is said twice, nothing is left behind.

The machine plays the user, the model, the tools and the system prompt: between two rules everything waits for one of
them, and the rules say who goes on. Every text is one of a kind, so that it can be found again.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from journeyman import Agent, Chat, Failure, Limits, Result, Success, Turn, tool
from journeyman.chat.turn import ABORTED, Hold
from journeyman.errors import ChatBusy, ChatHeld, NothingToContinue, ProviderError
from journeyman.events import Event, TurnEnded
from journeyman.history import History
from journeyman.inbox import Queue, Receipt
from journeyman.model import Request
from journeyman.store.store import Store
from journeyman.testing.scripted import Answer, FunctionModel, call, say
from journeyman.types import Message, Text, dump_messages, load_messages
from tests.play import existing, make_tool
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

CALLS = ("call", "calls", "together")
ENDS = ("text", "text", "text", "nothing", "cut", "stop", "error")
QUEUES: tuple[Queue, ...] = ("steering", "follow_ups")
CANCELLED = "EXECUTION_CANCELLED"


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
        self.sent: list[tuple[Receipt, Queue]] = []
        self.prompts: dict[str, Turn] = {}
        self.holds: list[Hold] = []
        self.continuing: list[asyncio.Task[object]] = []
        self.waiting: list[tuple[asyncio.Task[object], Turn]] = []
        self.n_markers = 0
        self.n_requests = 0
        self.takeover: str | None = None
        self.faults: list[str] = []
        self.withdrawn: set[str] = set()
        self.agent = self._agent()
        self.chat = Chat(self.agent)
        self.opened: AbstractAsyncContextManager[Chat] = self.chat

    def _agent(self) -> Agent:
        @tool
        async def work() -> str:
            return await self._at_work()

        @tool(parallel=True, effect="pure")
        async def peek() -> str:
            return await self._at_work()

        model, tools = FunctionModel(self._answer), [work, peek, make_tool("stop", "stopped")]
        limits = Limits(iterations=4, max_concurrency=2)
        return Agent(name="tester", model=model, system=self._system, tools=tools, limits=limits, stop_after=["stop"])

    async def _system(self, given: str) -> str:
        if not self.prepares_slowly:
            return "Be brief."
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

    def _play(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def _settle(self) -> None:
        self._play(asyncio.sleep(1))  # the clock moves on when nothing else can

    def _text(self) -> str:
        self.n += 1
        return f"text {self.n}."

    def _begin(self) -> Turn:
        text = self._text()
        turn = self.prompts[text] = self.chat.start(text)
        return turn

    def _send(self, how: Callable[[str], Receipt], queue: Queue) -> None:
        self.sent.append((how(self._text()), queue))

    def _do(self, act: Callable[[], object]) -> None:
        """Do something in the loop, and let everything go on until it waits again."""

        async def step() -> None:
            act()

        self._play(step())
        self._settle()

    async def _open(self, history: list[Message]) -> None:
        self.opened = self._chat_from(history)
        self.chat = await self.opened.__aenter__()
        self.n_requests = 0
        self.holds.clear()

    def _chat_from(self, history: list[Message]) -> AbstractAsyncContextManager[Chat]:
        return Chat(self.agent, history=history, on_event=self._listen)

    def _leave(self) -> None:
        self._play(self.opened.__aexit__(None, None, None))
        for futures in (self.asked, self.at_work, self.preparing):
            futures.clear()
        assert not self.chat.state.is_running
        assert all(receipt.status != "queued" for receipt, _ in self.sent)

    @initialize()
    def enter(self) -> None:
        self._play(self._open([]))
        self._do(self._begin)

    @precondition(lambda self: not self._is_running())
    @rule()
    def prompt(self) -> None:
        self._prompt()

    @precondition(lambda self: self._is_running())
    @rule(how=st.sampled_from(["prompt", "continue"]))
    def begin_another(self, how: str) -> None:
        self._prompt() if how == "prompt" else self._continue()

    def _prompt(self) -> None:
        before = self.chat.state

        def act() -> None:
            refused: type[Exception] | None = None
            try:
                self._begin()
            except (ChatHeld, ChatBusy) as error:
                refused = type(error)
            assert refused is (ChatHeld if before.is_held else ChatBusy if before.is_running else None)

        self._do(act)

    @precondition(lambda self: not self._is_running())
    @rule()
    def continue_(self) -> None:
        self._continue()

    def _continue(self) -> None:
        async def go_on() -> None:
            try:
                await self.chat.continue_()
            except (ChatBusy, ChatHeld, NothingToContinue, asyncio.CancelledError):
                return

        self._do(lambda: self.continuing.append(self.loop.create_task(go_on())))

    @rule(queue=st.sampled_from(QUEUES))
    def send(self, queue: Queue) -> None:
        self._do(lambda: self._send(self.chat.steer if queue == "steering" else self.chat.follow_up, queue))

    @rule()
    def inject(self) -> None:
        before = self.chat.state

        def act() -> None:
            try:
                self._send(self.chat.inject, "steering")
            except ChatHeld:
                assert before.is_held
                return
            assert not before.is_held
            disposition = self.sent[-1][0].disposition
            assert (disposition == "steered") == before.is_running
            assert self.chat.state.is_running == (disposition != "queued")

        self._do(act)

    @precondition(lambda self: self._has_waiting())
    @rule(queue=st.sampled_from(QUEUES))
    def clear(self, queue: Queue) -> None:
        waiting = self.chat.state.steering if queue == "steering" else self.chat.state.follow_ups
        withdrawn: list[str] = []
        self._do(lambda: withdrawn.extend(self.chat.clear(queue)))
        self.withdrawn.update(withdrawn)
        assert waiting[len(waiting) - len(withdrawn) :] == tuple(withdrawn)
        assert len(withdrawn) == len(waiting) or _open(self.preparing)  # what a run begins with is not withdrawn

    @precondition(lambda self: self._is_running())
    @rule(whole_chat=st.booleans())
    def abort(self, whole_chat: bool) -> None:
        turn = self._last_turn()
        is_stopped = whole_chat or (turn is not None and not turn.is_over)
        self.n_markers += is_stopped and not _open(self.preparing)
        if whole_chat or turn is None:
            self._do(self.chat.abort if whole_chat else lambda: None)
        else:
            self._do(turn.abort)
        error = self.chat.state.last_error
        assert not is_stopped or self.chat.state.is_running or (error is not None and str(error.code) == CANCELLED)

    @precondition(lambda self: self._is_running())
    @rule()
    def cancel(self) -> None:
        """Cancel the turn, or whoever continues the chat; a turn that an injection began is nobody's to cancel."""
        turn = self._last_turn()
        if turn is not None and not turn.is_over:
            self._do(turn.cancel)
            assert turn.is_over
        for task in self.continuing:
            self._do(task.cancel)
            assert task.done()

    @rule(how=st.sampled_from(["hold", "hold", "release", "release twice"]))
    def hold_or_release(self, how: str) -> None:
        if how == "hold" and len(self.holds) < 2:
            self.holds.append(self._play(self.chat.hold().__aenter__()))
            assert not self.chat.state.is_running
            self._settle()
        elif self.holds:
            hold = self.holds.pop()
            hold.release()
            if how == "release twice":
                hold.release()
        assert self.chat.state.is_held == bool(self.holds)

    @rule(how=st.sampled_from(["left", "killed", "reset"]))
    def start_over(self, how: str) -> None:
        """Go on in a new chat from what was stored, when the old one was left, or died; or with nothing."""
        self.takeover = None
        if how == "reset":
            self._reset()
        else:
            self._reload(killed=how == "killed")
        if not self.holds:
            self._do(self._begin)

    def _reload(self, *, killed: bool) -> None:
        stored = dump_messages(self.chat.messages)
        self._leave()
        self._play(self._open(load_messages(stored if killed else dump_messages(self.chat.messages))))

    def _reset(self) -> None:
        self._play(self.chat.reset())
        assert all(receipt.status != "queued" for receipt, _ in self.sent)
        self.sent.clear()
        self.prompts.clear()
        self.n_markers = self.n_requests = 0
        assert self.chat.messages == ()

    @precondition(lambda self: self._is_running())
    @rule()
    def wait_idle(self) -> None:
        turn = self._last_turn()
        if turn is not None and not turn.is_over:
            self._do(lambda: self.waiting.append((self.loop.create_task(self.chat.wait_idle()), turn)))

    @rule(what=st.sampled_from(["prompt", "inject", "slowly"]))
    def from_now_on(self, what: str) -> None:
        """Let a listener take over at the next end; or let runs begin slowly, or at once again."""
        if what == "slowly":
            self.prepares_slowly = not self.prepares_slowly
        else:
            self.takeover = what

    @precondition(lambda self: self._is_running())
    @rule(kind=st.sampled_from(CALLS))
    def go_on_with_calls(self, kind: str) -> None:
        self._go_on(kind)

    @precondition(lambda self: self._is_running())
    @rule(kind=st.sampled_from(ENDS))
    def go_on_to_an_end(self, kind: str) -> None:
        self._go_on(kind)

    def _go_on(self, kind: str) -> None:
        """Let the model, the oldest call or the system prompt do what it is waited for."""
        self.n += 1
        asked, others = _open(self.asked), [*_open(self.at_work), *_open(self.preparing)]
        assert asked or others, "a turn goes on, and waits for nothing"
        self._do(lambda: asked[0].set_result(ANSWERS[kind](self.n)) if asked else others[0].set_result("done"))

    @precondition(lambda self: len(_open(self.at_work)) > 1)
    @rule()
    def the_second_call_ends_first(self) -> None:
        self._do(lambda: _open(self.at_work)[1].set_result("done"))

    @precondition(lambda self: bool(_open(self.preparing)))
    @rule()
    def the_system_prompt_fails(self) -> None:
        self._do(lambda: _open(self.preparing)[0].set_exception(LookupError("no")))

    @invariant()
    def the_conversation_is_sendable(self) -> None:
        messages = self.chat.messages if not self.chat.state.is_running else History(self.chat.messages).export()
        assert list(history_faults(messages)) == []
        assert self.faults == []

    @invariant()
    def every_text_is_where_its_receipt_says(self) -> None:
        state = self.chat.state
        said = self._said()
        for receipt, name in self.sent:
            text, status = receipt.text, receipt.status
            queue = state.steering if name == "steering" else state.follow_ups
            if status == "kept":  # it went on to wait in the chat that was opened next
                assert said.count(text) + queue.count(text) == (text not in self.withdrawn), (text, said, queue)
                continue
            assert said.count(text) == (status == "delivered"), (text, status, said)
            assert queue.count(text) == (status == "queued"), (text, status, queue)

    @invariant()
    def texts_of_a_queue_are_said_in_order(self) -> None:
        said = self._said()
        for queue in QUEUES:
            order = [receipt.text for receipt, name in self.sent if name == queue and receipt.text in said]
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

    def _last_turn(self) -> Turn | None:
        """Return the turn that the last prompt began."""
        return list(self.prompts.values())[-1] if self.prompts else None

    def _is_running(self) -> bool:
        return self.chat.state.is_running

    def _has_waiting(self) -> bool:
        return bool(self.chat.state.steering or self.chat.state.follow_ups)

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


ChatMachine.TestCase.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=50)

TestChatMachine = ChatMachine.TestCase


class KeptChatMachine(ChatMachine):
    """The same with a chat that is kept in a file. One that is killed goes on from the file as it was then."""

    def __init__(self) -> None:
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "chats.db"
        self.id: str | None = None
        super().__init__()

    def _chat_from(self, history: list[Message]) -> AbstractAsyncContextManager[Chat]:
        return Chat.open(self.agent, self.path, id=self.id, on_event=self._listen)

    def _reload(self, *, killed: bool) -> None:
        n_requests, n_in_flight = self.n_requests, len(_open(self.asked))
        session = existing(self.chat.session)
        copy = self.path.with_name(f"copy {self.n}.db")
        if killed:
            with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
        self._leave()
        left = self.chat.messages
        if killed:
            self.path = copy
        with Store(self.path) as store:  # a session in which nothing was ever said is not kept
            self.id = session.id if session.id in [info.id for info in store.sessions()] else None
        self._play(self._open([]))
        self.n_requests = n_requests - n_in_flight if killed else n_requests
        assert killed or self.chat.messages == left

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


KeptChatMachine.TestCase.settings = settings(max_examples=settings().max_examples // 4, stateful_step_count=50)

TestKeptChatMachine = pytest.mark.timeout(120)(KeptChatMachine.TestCase)
