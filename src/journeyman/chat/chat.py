"""A conversation of many prompts: a chat lends its history and its inbox to one run after the other.

A *turn* is what one prompt begins: a run, and then, while steering or follow-ups wait at its natural stop, further runs
that go on from there. A chat has one turn at a time. The loop does all the work. This module decides who may begin a
turn, what becomes of texts that come meanwhile, and how everything stops.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from functools import partial
from threading import get_ident
from typing import Any, Final, Generic, TypeAlias, Unpack, cast, overload

from typing_extensions import TypeVar

from journeyman.agent import Agent, Runtime
from journeyman.cancellation import call_in, own_task, running_loop, wait_until_ended
from journeyman.chat.questions import Questions
from journeyman.chat.runs import Runs, end_of
from journeyman.chat.turn import ChatOptions, ChatState, Hold, OpenOptions, Turn, opened_model, problems_of
from journeyman.connect import connect, connect_session
from journeyman.definition.foreign import refuse_old_arguments
from journeyman.definition.problems import explain_arguments, raise_problems
from journeyman.endings import ErrorCode
from journeyman.errors import ChatBusy, ChatHeld, DefinitionError, NothingToContinue, NothingToUndo, Problem
from journeyman.events import Callbacks, ContextCompacted, Event, Listener, TurnEnded
from journeyman.gate import Decision
from journeyman.inbox.inbox import Inbox, Queue, Receipt
from journeyman.loop.prepare import runtime_problems
from journeyman.loop.streaming import Events
from journeyman.loop.watch import Watch, begin_tape, end_tape
from journeyman.model import Model, opened
from journeyman.result import Failure, Result, Success
from journeyman.session import Session, Sessions
from journeyman.tools.check import callback_problems, listener_problems, model_problems
from journeyman.types import Content, Message, Usage

Out = TypeVar("Out", default=str, covariant=True)
In = TypeVar("In", default=str, contravariant=True)
ChatOut = TypeVar("ChatOut", default=str)
ChatIn = TypeVar("ChatIn", default=str)
ChatDeps = TypeVar("ChatDeps", default=object)

SessionPlace: TypeAlias = str | os.PathLike[str] | Sessions
"""Where sessions are kept: a path, a URL, or what opens them."""


@explain_arguments  # noqa: PLR0904 - one verb for each thing that can be done to a conversation
class Chat(Generic[Out, In]):
    """A conversation with `agent`: `async with Chat(agent) as chat: result = await chat.prompt("…")`.

    Leaving the block stops the turn that goes on, and waits for its end.
    """

    @overload
    def __init__(self, agent: Agent[Out, In], **options: Unpack[ChatOptions]) -> None: ...
    @overload
    def __init__(self, agent: Agent[Out, In, ChatDeps], *, deps: ChatDeps, **options: Unpack[ChatOptions]) -> None: ...
    def __init__(  # noqa: PLR0913 - one for each option, all by name
        self,
        agent: Agent[Out, In, Any],
        *,
        deps: object = None,
        runtime: Runtime | None = None,
        history: Sequence[Message] = (),
        callbacks: Callbacks | None = None,
        on_event: Listener | None = None,
        inbox: Inbox | None = None,
        questions: Questions | None = None,
        session: Session | None = None,
    ) -> None:
        """Every turn gets `deps`. `history` is an earlier conversation; calls in it that have no result are closed,
        according to their declared effect. `inbox` and `questions` replace the chat's own, for a host that takes texts
        or asks questions elsewhere. `session` keeps the conversation; see `open`.

        Raises:
            DefinitionError: what is given cannot be used; it lists every problem.
        """
        problems = [*problems_of(agent, deps, history), *runtime_problems(runtime), *callback_problems(callbacks)]
        if on_event is not None:
            problems += listener_problems(on_event)
        raise_problems("Chat", problems)
        self.agent: Final = agent if deps is None else agent.with_deps(deps)
        self._path = (agent.name,)
        self._listeners = [] if on_event is None else [on_event]
        self._watch = Watch(path=self._path, listeners=self._listeners)
        self._questions = questions or Questions(self._watch)
        self._inbox = inbox or Inbox()
        self._runs = Runs(
            self.agent,
            runtime=runtime,
            callbacks=callbacks,
            listeners=self._listeners,
            history=history,
            session=session,
            inbox=self._inbox,
            questions=self._questions,
        )
        self._open: AsyncExitStack | None = None
        self._has_closed = False
        self._holds = 0
        self._turn: Turn[Out] | None = None
        self._last: Result[Out] | None = None
        self._compaction: asyncio.Task[ContextCompacted] | None = None

    @overload
    @staticmethod
    def open(
        agent: Agent[ChatOut, ChatIn], place: SessionPlace, **options: Unpack[OpenOptions]
    ) -> AbstractAsyncContextManager[Chat[ChatOut, ChatIn]]: ...
    @overload
    @staticmethod
    def open(
        agent: Agent[ChatOut, ChatIn, ChatDeps], place: SessionPlace, *, deps: ChatDeps, **options: Unpack[OpenOptions]
    ) -> AbstractAsyncContextManager[Chat[ChatOut, ChatIn]]: ...
    @staticmethod
    @refuse_old_arguments
    @asynccontextmanager
    async def open(  # noqa: PLR0913 - one for each option, all by name
        agent: Agent[ChatOut, ChatIn, Any],
        place: SessionPlace,
        *,
        deps: object = None,
        id: str | None = None,
        runtime: Runtime | None = None,
        callbacks: Callbacks | None = None,
        on_event: Listener | None = None,
        any_agent: bool = False,
        create: bool = False,
    ) -> AsyncGenerator[Chat[ChatOut, ChatIn]]:
        """Chat with `agent` in a session kept at `place`: `async with Chat.open(agent, "chats.db") as chat:`.

        Every text and answer is stored before it has any effect.

        Args:
            agent: Whom to chat with.
            place: The path of a file, `sqlite:PATH`, `postgresql://…`, an open `Store`, or an open `Durable`: then each
                turn is a durable run. One that was cut off goes on as soon as the chat is open: it is `turn`.
            deps: What the agent's tools and functions use, in every turn. They are never stored.
            id: The id of an earlier session. None begins a new one, whose id is then in `chat.session.id`.
            runtime: What surrounds the chat.
            callbacks: As for `run`.
            on_event: Hears every event.
            any_agent: Also open a session of another agent.
            create: Begin the session with this id if there is none. It may have up to 200 characters that can be shown,
                but no slashes, and not only dots.

        Raises:
            DefinitionError: sessions cannot be kept at `place`.
            StoreError: the place cannot be used, there is no such session, it is another agent's, or the id cannot be
                one.
            SessionInUse: somebody has the session open, or begins it at this moment.
            RunBlocked, RunDiffers: in a `Durable`, a turn that was cut off cannot go on, or not with this agent.
        """
        if isinstance(place, str | os.PathLike):
            session = connect_session(place, id, agent=agent.name, any_agent=any_agent, create=create)
        elif not hasattr(place, "session"):  # users' code may not be typed
            problem = Problem("INVALID_ARGUMENT", f"The place is {place!r}.", "Pass a path, a Store, or a Durable.")
            raise DefinitionError("Chat.open", [problem])
        else:
            session = place.session(id, agent=agent.name, any_agent=any_agent, create=create)
        with closing(session):
            options = ChatOptions(runtime=runtime, callbacks=callbacks, on_event=on_event, session=session)
            async with Chat[ChatOut, ChatIn](agent, deps=deps, **options) as chat:
                yield chat

    async def __aenter__(self) -> Chat[Out, In]:
        if self._open is not None or self._has_closed:
            raise RuntimeError("The chat was entered before. Make another one, with history=chat.messages.")
        self._open = AsyncExitStack()
        self._inbox.is_left = False  # it may be that of a chat before
        self._loop, self._thread = running_loop(), get_ident()
        model = await opened_model(self._runs.runtime.model or self.agent.model, self._open)
        self._path = self._runs.enter(model)
        self._watch.tape = self._runs.tape = begin_tape(
            self._runs.runtime, "chat", self.agent.name, conversation="" if self.session is None else self.session.id
        )
        self._runs.listen(self.inject, self.abort)
        try:
            if await self._runs.find():
                self._begin(None, goes_on=True, is_new=False, resumes=True)
        except BaseException:
            # Python leaves no block that could not be entered.
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        # First, so that a text that comes from now on is refused: nobody would say it.
        self._has_closed = True
        stack, self._open = self._open, None
        try:
            if any(raised) and self._turn is not None and self._runs.unfinished is not None:
                self._turn.cancel()  # whoever opens the chat next goes on with it
                await self._turn.wait_until_settled()
            await self._stop("the chat was left")
            if self._compaction is not None:
                # It uses the model and the session, which are closed next.
                self._compaction.cancel()
                await wait_until_ended(self._compaction)
        finally:
            # Also after a failure: somebody may wait for what becomes of a text.
            self._runs.writer.leave()
            await end_tape(self._runs.runtime, self._watch.tape, "left")
            if stack is not None:
                await stack.aclose()

    @overload
    async def prompt(self, input: In) -> Result[Out]: ...
    @overload
    async def prompt(self: Chat[Out, str], input: Content) -> Result[Out]: ...
    async def prompt(self, input: Any) -> Result[Out]:
        """Say `input`, and return the result when the turn has ended: at its natural stop, with nothing left in the
        queues, or before.

        The result is that of the last run. Cancelling this cancels the turn.

        Raises:
            ChatBusy: a turn goes on.
            ChatHeld: the chat is held.
        """
        turn = self.start(input)
        await turn.wait_until_stopped()
        return await turn

    @overload
    def start(self, input: In) -> Turn[Out]: ...
    @overload
    def start(self: Chat[Out, str], input: Content) -> Turn[Out]: ...
    def start(self, input: Any) -> Turn[Out]:
        """Begin a turn with `input`, and return at once.

        Raises:
            ChatBusy: a turn goes on.
            ChatHeld: the chat is held.
        """
        self._check_free()
        return self._begin(input, goes_on=False)

    @overload
    def stream(self, input: In) -> Events[Out]: ...
    @overload
    def stream(self: Chat[Out, str], input: Content) -> Events[Out]: ...
    def stream(self, input: Any) -> Events[Out]:
        """Say `input`, and show every event of the turn as it happens, up to its `TurnEnded`.

        Use it as `async with chat.stream(input) as events:`, iterate over `events`, then read `events.result`. Leaving
        the block early aborts the turn and waits for its end; the chat goes on. Entering it raises what `start` raises.
        """

        def start(put: Listener) -> tuple[asyncio.Task[Result[Out]], Callable[[], None]]:
            def show(event: Event) -> None:
                put(event)
                if isinstance(event, TurnEnded) and event.path == self._path:
                    unsubscribe()

            turn = self.start(input)
            unsubscribe = self.subscribe(show)  # before the turn does anything
            return cast("asyncio.Task[Result[Out]]", turn.task), partial(turn.abort, "the stream was left")

        return Events(start)

    async def continue_(self) -> Result[Out]:
        """Go on without a prompt: with the texts that wait in a queue, or where the last turn was interrupted.

        Raises:
            NothingToContinue: nothing waits, and the last word is the model's.
            ChatBusy: a turn goes on.
            ChatHeld: the chat is held.
        """
        self._check_free()
        if self._runs.unfinished is not None:
            turn = self._begin(None, goes_on=True, is_new=False, resumes=True)
            await turn.wait_until_stopped()
            return await turn
        has_texts = self._is_at_rest() and self._inbox.pick_up()
        if self._is_at_rest() and not has_texts:
            raise NothingToContinue("The model has nothing to answer, and no text waits. Use prompt().")
        turn = self._begin(self._runs.input, goes_on=True, is_new=has_texts or not self._runs.turns)
        await turn.wait_until_stopped()
        return await turn

    def undo(self) -> None:
        """Hide the last turn, here and in the session: what began it, and everything that followed until it ended.

        Nothing is deleted, usage stays counted, and what tools have done is not undone. The queues stay; texts from
        them that this turn said are hidden, too. What `continue_` has added without a new text belongs to the turn that
        it goes on with. A second call hides the turn before. `replace` and `reset` leave nothing to undo.

        Raises:
            NothingToUndo: there is no turn.
            ChatBusy: a turn goes on.
            StoreError: the session could not be written. The turn is hidden here, and there with the next step.
        """
        self._check_idle()
        self._check_ended()
        self._last, last = None, self._last
        if not self._runs.undo():
            # Nothing was hidden, so the last result still holds.
            self._last = last
            raise NothingToUndo("There is no turn to undo: no turn has said anything, or all are undone.")

    async def compact(self) -> ContextCompacted:
        """Make the part of the conversation that is sent half as long now, as far as the agent's strategies can. Return
        what they did: `before_tokens`, `after_tokens`, and their `steps`, which say what went wrong.

        `messages` stay as they are. The session keeps what is sent in their place, and a chat that is opened again goes
        on with that. What the strategies use is counted in `usage`. No turn can begin meanwhile; cancelling this call
        cancels the strategies.

        Raises:
            DefinitionError: the agent has no strategies.
            ModelUnavailable: the chat has no model.
            ChatBusy: a turn goes on.
            ChatHeld: the chat is held.
            StoreError: the session could not be written.
        """
        self._check_free()
        self._check_ended()
        # A hold, so that no turn begins while the strategies work.
        self._holds += 1
        try:
            work = self._runs.compact()
            self._compaction = task = asyncio.create_task(work, name=f"compaction of chat {self.agent.name}")
            await wait_until_ended(task, on_cancel=task.cancel)
            return task.result()
        finally:
            self._holds -= 1

    async def use(self, model: Model | str) -> None:
        """Go on with another model, which may be another provider's, from the next turn until the chat is left.

        The new model is opened, and the one before it is closed; no turn can begin meanwhile. If the new model cannot
        be opened, the chat goes on with the one before. A session does not store which model it is.

        Raises:
            ModelUnavailable: there is no model of that name here.
            DefinitionError: it is not a model.
            ChatBusy: a turn goes on.
            ChatHeld: the chat is held.
        """
        self._check_free()
        raise_problems("Chat.use", () if isinstance(model, str) else model_problems("The model", model or ""))
        # A hold: a turn that began now would lose its model below.
        self._holds += 1
        try:
            # Opened before the other one is closed: if it fails, the chat goes on with that.
            stack = AsyncExitStack()
            model = connect(model) if isinstance(model, str) else model
            await stack.enter_async_context(opened(model))
            before, self._open = self._open, stack
            self._runs.use(model)
            if before is None:  # the chat was left meanwhile
                before, self._open = stack, None
            await before.aclose()
        finally:
            self._holds -= 1

    def _check_free(self) -> None:
        if self._holds:
            raise ChatHeld("The chat is held, so no turn may begin. Try again when it has been released.")
        self._check_idle()

    def _check_idle(self) -> None:
        if self._open is None:
            raise RuntimeError("The chat is not open. Use it inside 'async with Chat(agent) as chat:'.")
        # A task belongs to the loop of its thread, and asyncio makes none from another.
        if get_ident() != self._thread:
            raise RuntimeError("A turn can begin only in the thread of the chat. From another thread, use inject().")
        if self._turn is not None:
            raise ChatBusy("A turn goes on. Use steer() or follow_up(), or abort() it first.")

    def _check_ended(self) -> None:
        if self._runs.unfinished is not None:
            raise ChatBusy("The last turn was cut off, and has not ended. Use continue_(), or reset().")

    def _is_at_rest(self) -> bool:
        """Tell whether the conversation came to a natural stop, so that only something new can make it go on."""
        is_at_rest = isinstance(self._last, Success) or not self._runs.history.expects_answer
        return is_at_rest and self._runs.unfinished is None

    def _begin(self, input: Any, *, goes_on: bool, is_new: bool = True, resumes: bool = False) -> Turn[Out]:  # noqa: ANN401 - `In` may not stand here
        if is_new:
            self._runs.begin_turn()
        self._turn = turn = Turn[Out](self.agent.name)
        self._last = None
        # Before the task exists: a text that comes before its first step is steered, and said in this turn.
        self._inbox.open()
        turn.task = asyncio.create_task(
            self._drive(turn, input, goes_on=goes_on, resumes=resumes), name=f"turn of chat {self.agent.name}"
        )
        turn.task.add_done_callback(lambda _: self._end(turn, None))  # a task may be cancelled before it begins
        return turn

    async def _drive(self, turn: Turn[Out], input: Any, *, goes_on: bool, resumes: bool) -> Result[Out]:  # noqa: ANN401 - see `_begin`
        result: Result[Out] | None = None
        # An eager task takes this step before `_begin` has it.
        turn.task = own_task()
        try:
            # Only what this run says may be taken back.
            start = end_of(self._runs.history.messages)
            begun = self._runs.resume(turn) if resumes else self._runs.run(turn, input, goes_on=goes_on)
            result = await begun
            while isinstance(result, Success) and result.terminal_result is None:
                # An abort between two runs finds no run that could end with it.
                if turn.signal.aborted or not self._inbox.pick_up():
                    break
                start = end_of(self._runs.history.messages)
                result = await self._runs.run(turn, self._runs.input, goes_on=True)
            if isinstance(result, Failure) and result.code == ErrorCode.CONTEXT_OVERFLOW:
                # What was said since then is hidden if the model has answered nothing of it: else it would be sent with
                # all that is said from now on, and refused each time.
                is_answered = any(each.role == "assistant" for each in self._runs.history.messages[start.position :])
                if not is_answered and self._runs.cut(start):
                    await self._runs.keep_patiently()
            return result
        finally:
            self._end(turn, result)

    def _end(self, turn: Turn[Out], result: Result[Out] | None) -> None:
        """Make the chat idle, then tell the end of the turn. Whoever is told may begin another turn, so nothing changes
        after that."""
        if turn.is_over:
            return
        turn.is_over = True
        self._inbox.put_back()
        self._inbox.close()
        self._turn, self._last = None, result
        self._watch.show(TurnEnded(path=self._path, result=result, usage=turn.usage))

    def steer(self, text: str) -> Receipt:
        """Say `text` before the next model call. Calls that have not begun by then are not made.

        While no turn goes on, it waits for the next one. Any thread may.
        """
        return self._put(text, "steering")

    def follow_up(self, text: str) -> Receipt:
        """Say `text` when there is nothing else left to do. While no turn goes on, it waits. Any thread may."""
        return self._put(text, "follow_ups")

    def inject(self, text: str) -> Receipt:
        """Steer a turn that goes on; resume a chat that came to a natural stop; else let `text` wait. Any thread may.

        Raises:
            ChatHeld: the chat is held. Nothing was queued.
        """
        if self._holds:
            raise ChatHeld("The chat is held. Nothing was queued; try again when it has been released.")
        receipt = self._put(text, "steering")
        if receipt.disposition == "queued" and self._may_resume():
            # Told here: from another thread, the turn begins later than this returns.
            receipt.disposition = "resumed"
            call_in(self._loop, self._resume)
        elif receipt.disposition == "queued" and self._turn is not None:  # in another thread, while a turn was ending
            call_in(self._loop, lambda: self._resume(receipt))
        return receipt

    def clear(self, *queues: Queue) -> tuple[str, ...]:
        """Withdraw the texts that wait in these queues, or in both, and return them. A text that is about to be said is
        not withdrawn."""
        return self._runs.writer.clear(*queues)

    def _put(self, text: str, queue: Queue) -> Receipt:
        if self._has_closed:
            raise RuntimeError("The chat is closed: nobody will read this.")
        return self._inbox.put(text, queue)

    def _may_resume(self) -> bool:
        is_free = self._open is not None and self._turn is None and not self._holds
        return is_free and bool(self._runs.history.messages) and self._is_at_rest()

    def _resume(self, receipt: Receipt | None = None) -> None:
        """Go on with what waits, if the chat came to a natural stop. Then `receipt` says so."""
        if self._may_resume() and self._inbox.pick_up():
            if receipt is not None:
                receipt.disposition = "resumed"
            self._begin(self._runs.input, goes_on=True)

    def abort(self, reason: str = "aborted by the user") -> None:
        """Stop the turn that goes on; see `Turn.abort`. The queues stay. Without a turn nothing happens."""
        if self._turn is not None:
            self._turn.abort(reason)

    def hold(self) -> Hold:
        """Return a `Hold`, which keeps the chat from beginning turns: `async with chat.hold():` stops the one that goes
        on first. The model is not told, and the queues stay. Holds add up.
        """
        return Hold(self._hold, self._release)

    async def _hold(self) -> None:
        self._check_elsewhere("held")
        # Counted before the turn is stopped, so that none begins while its end is awaited.
        self._holds += 1
        try:
            await self._stop("the chat is held")
        except BaseException:
            # Nobody releases what could not be held.
            self._holds -= 1
            raise

    def _release(self) -> None:
        self._holds -= 1

    def stop_turn(self, reason: str) -> bool:
        """Stop the turn that goes on, without a word to the model. False: there is none."""
        if self._turn is None:
            return False
        self._turn.stop(reason)
        return True

    async def _stop(self, reason: str) -> None:
        """Stop the turn that goes on, without a word to the model, and wait for its end."""
        turn = self._turn
        if turn is not None:
            turn.stop(reason)
            await turn.wait_until_stopped()

    async def reset(self) -> None:
        """Stop, and forget the conversation, the queues, the usage and the last error.

        Background work that was started by then goes on, but its notifications no longer come here.
        """
        async with self.hold():
            # Whoever opens the chat next would go on with a turn that was cut off.
            await self._runs.finish()
            self._last = None
            self._runs.reset()

    async def wait_idle(self) -> None:
        """Wait until the turn that goes on has ended, and all listeners were told. If another turn has begun by then,
        this does not wait for it."""
        self._check_elsewhere("waited for")
        if self._turn is not None:
            await self._turn.wait_until_settled()

    def _check_elsewhere(self, what: str) -> None:
        if self._turn is not None and self._turn.is_here():
            raise RuntimeError(f"A chat cannot be {what} from inside its own turn: that would never end.")

    def answer(self, id: str, answer: Decision | str) -> None:
        """Answer an `ApprovalRequested` with a decision, or a `QuestionAsked` with a text. Any thread may.

        Raises:
            KeyError: nothing waits under that id, or no longer.
            TypeError: a call needs `Allow`, `Deny`, `Rewrite` or `Stop`, a question a text.
        """
        self._questions.answer(id, answer)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Let `listener` hear every event from now on, after those before it. Return a function that unsubscribes it.

        If nobody listened before, the listener does not hear a run that already goes on, only the next one.

        Raises:
            DefinitionError: it is not a function, or it is async: listeners are not awaited.
        """
        raise_problems("The listener", listener_problems(listener))
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far. While a turn goes on, the last calls may have no results yet."""
        return self._runs.history.export()

    def replace(self, messages: Sequence[Message]) -> None:
        """Go on from another conversation. The queues stay.

        Raises:
            ChatBusy: a turn goes on.
        """
        if self._turn is not None:
            raise ChatBusy("A turn goes on, so its conversation cannot be replaced. Abort it, or hold the chat.")
        self._check_ended()
        self._last = None
        self._runs.replace(messages)

    @property
    def turn(self) -> Turn[Out] | None:
        """The turn that goes on; None if there is none. A chat that is opened with a `Durable` goes on by itself with a
        turn that was cut off when its process died."""
        return self._turn

    @property
    def session(self) -> Session | None:
        """The session that keeps the conversation; None if there is none."""
        return self._runs.writer.session

    @property
    def usage(self) -> Usage:
        """The usage of all turns so far, including the one that goes on."""
        return self._runs.usage if self._turn is None else self._runs.usage + self._turn.sum_usage()

    @property
    def state(self) -> ChatState:
        """The chat as it is now."""
        return ChatState(
            is_running=self._turn is not None,
            is_held=self._holds > 0,
            steering=self._inbox.waiting("steering"),
            follow_ups=self._inbox.waiting("follow_ups"),
            pending_calls=() if self._turn is None else self._turn.pending_calls(),
            open_questions=self._questions.open,
            usage=self.usage,
            last_error=self._last.error if isinstance(self._last, Failure) else None,
            listener_errors=tuple(self._watch.errors),
        )
