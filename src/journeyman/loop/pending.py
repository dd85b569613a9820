"""Runs that do not wait for those outside: `run(…, wait=False)` returns what is open, and goes on with the answers.

Such a run keeps its finished steps. It ends where nothing of it goes on but waiting, as if its process had died there;
with the answers it is begun again, and replays: nothing finished is done twice, and its limits count both parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, get_args

from pydantic_core import PydanticSerializationError, to_json

from journeyman.agent import Agent
from journeyman.cancellation import wait_until_ended
from journeyman.definition.narrowing import is_mapping
from journeyman.endings import InvalidInputContext
from journeyman.errors import name_and_words
from journeyman.gate import Approval, Decision
from journeyman.inbox.inbox import current_conversation, enter_conversation
from journeyman.journal import About, Codec, InMemoryJournal, StoredStep
from journeyman.loop.prepare import begin
from journeyman.loop.state import Options, Run
from journeyman.result import AskedQuestion, Failure, Pending, PendingCall, Result, fail_before_start
from journeyman.step import RunStep
from journeyman.types import Effect, JsonObject, ToolResult

T = TypeVar("T")
_ROUNDS: Final = 50
"""So many turns of the event loop nothing may happen before a run counts as waiting: the next of some calls that run
together is asked in one of them."""


class PendingJournal(InMemoryJournal):
    """The finished steps of a run, and what is asked in it: whoever is to answer is not waited for."""

    def __init__(self, input: object) -> None:
        super().__init__()
        self.input: Final = input
        """The input that the run was given."""
        self.calls: dict[str, PendingCall] = {}
        self.questions: dict[str, AskedQuestion] = {}
        """The calls and questions that are open, by the ids under which they are answered."""
        self.is_running = False
        """True while a life of the run goes on."""
        self.n_working = 0
        """The number of steps that are done now."""
        self.stirred = asyncio.Event()
        self._answers: dict[str, Any] = {}
        """What was answered, by the key of what had asked."""
        self._keys: dict[str, str] = {}
        """Under which key each id is asked."""
        self._answered: set[str] = set()

    @property
    def waits(self) -> bool:
        return True

    def reserve(self, step: RunStep, *, effect: Effect, about: About | None = None) -> StoredStep:
        return _CountedStep(self, step.key, effect)

    async def wait(self, step: RunStep, approval: Approval, *, expires_s: float | None) -> Decision | None:
        request = approval.request
        asked = AskedQuestion(
            id=_id_of(request.path, request.tool_use_id),
            kind="approve",
            question=approval.question,
            tool_name=request.tool_name,
            arguments=request.arguments,
        )
        await self._wait(step.key, asked)
        return self._answers[step.key]

    async def ask(
        self, path: tuple[str, ...], question: str, options: Sequence[str], *, call: RunStep | None = None
    ) -> str | None:
        """Return the answer to what a tool asks; None for one that could not be asked again."""
        if call is None or call.call is None:
            return None
        asked = AskedQuestion(id=_id_of(path, call.call), kind="answer", question=question, options=tuple(options))
        key = "/".join((*path, call.key))
        self.n_working -= 1  # the call that asks is a step, and does nothing meanwhile
        try:
            await self._wait(key, asked)
        finally:
            self.n_working += 1
        return self._answers[key]

    async def give_result(
        self, path: tuple[str, ...], tool: str, arguments: dict[str, object], *, call: RunStep
    ) -> object:
        """Return the result of an external call."""
        key, id = "/".join((*path, call.key)), call.call or ""
        given: JsonObject = {**arguments}  # pyright: ignore[reportAssignmentType] - read from JSON by a schema
        await self._wait(key, PendingCall(id=_id_of(path, id), tool_name=tool, arguments=given, path=path))
        return self._answers[key]

    async def _wait(self, key: str, asked: AskedQuestion | PendingCall) -> None:
        """Go on if the answer is there; else wait until the run is left."""
        if key not in self._answers:
            opened: dict[str, Any] = self.calls if isinstance(asked, PendingCall) else self.questions
            opened[asked.id], self._keys[asked.id] = asked, key
            self.stirred.set()
            await asyncio.Event().wait()

    @property
    def is_waiting(self) -> bool:
        """True when something is open, and no step is done."""
        return bool(self.calls or self.questions) and not self.n_working

    async def settle_down(self) -> None:
        """Wait until the run only waits for answers."""
        self.stirred = asyncio.Event()  # belongs to one event loop, and each part of the run may have its own
        while True:
            self.stirred.clear()
            n_open = len(self.calls) + len(self.questions)
            for _ in range(_ROUNDS):
                await asyncio.sleep(0)
            if self.is_waiting and not self.stirred.is_set() and n_open == len(self.calls) + len(self.questions):
                return
            await self.stirred.wait()

    def take_answers(self, results: object) -> list[str]:
        """Take what was answered. Return the complaints about what cannot be; nothing is taken then."""
        if not is_mapping(results):
            return [f"results is {results!r:.80}. Pass a dict of results by the ids of what is open"]
        wrong = [complaint for id, value in results.items() if (complaint := self._complain(str(id), value))]
        if not wrong:
            for id, value in results.items():
                self._answers[self._keys.pop(str(id))] = value
                self._answered.add(str(id))
            self.calls, self.questions = {}, {}  # the run asks again for what is left
        return wrong

    def _complain(self, id: str, value: object) -> str:
        if id in self._answered and id not in self._keys:
            return f"results[{id!r}] was given before: the run has gone on with it"
        if id not in self._keys:
            return f"results[{id!r}] is for nothing that is open. Open: {', '.join(self._keys) or 'nothing'}"
        asked = self.questions.get(id)
        if asked is None:
            return "" if isinstance(value, ToolResult) else _fault_of_json(id, value)
        if asked.kind == "approve" and not isinstance(value, get_args(Decision)):
            return f"results[{id!r}] is {value!r:.80}. Pass Allow(), Deny('…'), Rewrite(…) or Stop()"
        if asked.kind == "answer" and not (isinstance(value, str) and value.strip()):
            return f"results[{id!r}] is {value!r:.80}. Pass the answer, a text"
        return ""


class _CountedStep(StoredStep):
    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T]) -> T:
        async def do_work() -> T:
            journal: Any = self.steps
            journal.n_working += 1
            try:
                return await work()
            finally:
                journal.n_working -= 1
                journal.stirred.set()

        return await super().step(do_work, codec=codec)


def _id_of(path: tuple[str, ...], tool_use_id: str) -> str:
    """Return the id under which a call is answered: its own, and in a run below with the way to it in front."""
    return "/".join((*path[1:], tool_use_id))


def _fault_of_json(id: str, value: object) -> str:
    try:
        to_json(value, inf_nan_mode="constants")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        return f"results[{id!r}] is no JSON ({name_and_words(error)[:200]}). Pass a text, JSON values, or a ToolResult"
    return ""


async def run_or_pause(
    agent: Agent[Any, Any, Any],
    input: object,
    options: Options,
    *,
    results: object,
    carry_out: Callable[[Run], Coroutine[object, object, Result[Any]]],
) -> Result[Any] | Pending:
    """Do a run, or go on with the one that is pending, until it has ended or only waits for answers."""
    if isinstance(input, Pending):
        journal: PendingJournal = input.steps
        wrong = journal.take_answers({} if results is None else results)
    else:
        journal = PendingJournal(input)
        wrong = [] if results is None else ["results are given to a run that begins. Pass the Pending as the input"]
    if options.runtime.journal is not None:
        wrong.append("wait is False, and such a run keeps its own steps. Leave out Runtime(journal=…), or use Durable")
    if journal.is_running:
        wrong.append("this Pending goes on already. Await that run")
    if wrong:
        return _refuse(wrong)
    journal.is_running = True
    begun = begin(agent, journal.input, replace(options, runtime=replace(options.runtime, journal=journal)))

    async def ask_through_journal() -> Result[Any]:
        enter_conversation(replace(current_conversation.get(), asker=journal))
        return await carry_out(begun)

    running = asyncio.create_task(ask_through_journal())
    waiting = asyncio.create_task(journal.settle_down())
    try:
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        waiting.result()
        journal.end_life()
        return Pending(
            calls=tuple(journal.calls.values()),
            questions=tuple(journal.questions.values()),
            history=begun.history.export(),
            steps=journal,
        )
    finally:
        for task in (running, waiting):
            task.cancel()
            await wait_until_ended(task)
        journal.is_running = False


def refuse_to_wait() -> Failure:
    """Return the end of a run that is given answers, and not told to return where it waits."""
    return _refuse(["a Pending goes on only where it may become one again. Pass wait=False"])


def _refuse(wrong: Sequence[str]) -> Failure:
    return fail_before_start(InvalidInputContext(issues=tuple(wrong)))
