"""One member of a team: a chat that lives in a background task, and whose prompts are its mail.

Mail is said before the member's next model call while it works; while it is idle, mail begins a turn. Where no mail
waits the host may have work, and where it has none the leader is told that the member is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from journeyman.agent import Agent, Maker, Runtime
from journeyman.budget import BudgetPolicy, LimitExceeded, Spending
from journeyman.cancellation import is_awaited, is_failure, own_task
from journeyman.chat.chat import Chat
from journeyman.chat.questions import Questions
from journeyman.definition.data import lazy_dataclass
from journeyman.endings import ErrorCode
from journeyman.errors import Rejected, TeamError
from journeyman.events import Identity, TeamMessage
from journeyman.inbox.inbox import Inbox, current_conversation, enter_conversation
from journeyman.loop.state import enter, sent_runs
from journeyman.prompt import SystemPrompt
from journeyman.result import Failure, Result
from journeyman.tasks.tasks import Tasks
from journeyman.team.mail import call_hook
from journeyman.team.members import LEADER, Member
from journeyman.team.messages import PostOffice
from journeyman.team.spawn import TeamSpawnRequest
from journeyman.tools.background import TaskContext
from journeyman.tools.tools import AnyTool
from journeyman.types import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLoop:
    """The loop of one member: it takes turn after turn, until it is to end."""

    member: Member
    post: PostOffice
    agent: Agent[Any, Any, Any]
    """The agent as `in_team` made it."""
    runtime: Runtime
    questions: Questions
    """The questions through which it asks the user."""
    request: TeamSpawnRequest

    def begin(self, tasks: Tasks) -> str:
        """Begin, and return the id of the background task that does the work."""
        member = self.member
        return tasks.start(
            self.run,
            description=member.description or member.name,
            kind="member",
            agent=member.agent,
            identity=Identity(member.name, member.registry.name),
            receive=self._receive,
            notify=lambda text, info: self.post.part(member, info.error),
        )

    def _receive(self, text: str) -> bool:
        """Take a message that was sent to the task: it is the leader's."""
        try:
            return bool(self.post.send(None, self.member.name, text, incarnation=self.member.incarnation))
        except TeamError:
            return False

    async def run(self, task: TaskContext) -> str:
        """Take turns until the member is to end, and return its last words; raise a `Rejected` if a turn failed."""
        member, carrier = self.member, own_task()
        member.task = task
        # The chat adds the member's own name.
        enter(path=member.path[:-1])
        enter_conversation(replace(current_conversation.get(), member=member))
        inbox = Inbox(member.box)
        chat = Chat(
            self.agent, runtime=self.runtime, history=self.request.history, inbox=inbox, questions=self.questions
        )

        def stop() -> None:
            if not chat.stop_turn(task.abort.reason or ""):
                # No turn goes on that could be stopped: the member waits for mail, or for work.
                carrier.cancel()

        unsubscribe = task.abort.subscribe(stop)
        try:
            async with chat:
                member.chat = chat
                await self._turns(chat)
            return member.last_text
        finally:
            unsubscribe()
            member.rest()

    async def _turns(self, chat: Chat[Any, Any]) -> None:
        box = self.member.box
        if self.request.prompt:
            await self._turn(chat, self._first_text())
        while not box.is_ending:
            # Noted before the host is asked for work: mail that comes meanwhile must not be slept through.
            seen = box.n_arrived
            if box.has_mail and box.pick_up():
                await self._turn(chat)
                continue
            work = await self._claim_work()
            if work:
                await self._turn(chat, work)
            elif not box.is_ending and not box.n_arrived > seen:
                await self._rest(seen)

    def _first_text(self) -> str:
        """Return the first task as the member reads it: mail of the leader without an id."""
        member, text, now = self.member, self.request.prompt, datetime.now(UTC)
        number, about = member.incarnation, member.description
        mail = TeamMessage(id="", sender=LEADER, to=member.name, text=text, summary=about, incarnation=number, sent=now)
        return member.box.text_of(mail)

    async def _turn(self, chat: Chat[Any, Any], text: str | None = None) -> None:
        """Take a turn that begins with this text, or without one, with the mail that was picked up."""
        self.post.change(self.member, "working")
        if self.post.watch.is_heard and not self.member.is_heard:
            self.member.is_heard = True
            chat.subscribe(self.post.watch.pass_on)
        self._end(await (chat.continue_() if text is None else chat.prompt(text)))
        if self.member.task is not None and self.member.task.abort.aborted:
            raise asyncio.CancelledError  # the turn was stopped for that, and has told of its end

    def _end(self, result: Result[Any]) -> None:
        member = self.member
        if member.task is not None:
            n_calls = member.task.info.n_calls + result.metadata.n_calls
            member.task.count(n_calls=n_calls, usage=member.usage)
        if not isinstance(result, Failure):
            schema = self.agent.plan.output
            member.last_text = str(result.output) if schema is None else schema.dump(result.output).decode()
        elif result.error.code != ErrorCode.EXECUTION_CANCELLED:  # one that was stopped is kept, and its member idle
            raise Rejected(f"Member {member.name!r} failed: {result.error}")

    async def _claim_work(self) -> str:
        """Return work that the host has for the member; empty if it has none."""
        claim = self.post.hooks.claim
        if claim is None:
            return ""
        try:
            given = claim(self.member.name)
            return (await given if is_awaited(given) else given) or ""
        except BaseException as error:
            if not is_failure(error):
                raise
            self.post.regret("claim", error)
            return ""

    async def _rest(self, seen: int) -> None:
        """Be idle until mail comes, or it is time to ask for work again."""
        member = self.member
        if self.post.change(member, "idle"):
            self._notify()
        try:
            await member.box.wait(self.post.hooks.claim_interval_s, after=seen)
        except TimeoutError:
            return

    def _notify(self) -> None:
        """Tell the leader that the member has nothing left to do."""
        make = self.post.hooks.idle_notice
        if make is None or self.post.registry.leader.is_closed:
            return
        name, last_text = self.member.name, self.member.last_text
        text = call_hook("idle_notice", lambda: make(name, last_text), "", failed=self.post.regret)
        if text.strip():
            self.post.send(self.member, LEADER, text, kind="idle")


@dataclass(frozen=True, slots=True)
class Pulse:
    """A policy that notes a sign of life before each model call of a member. It limits nothing."""

    member: Member
    name: str = "pulse"

    def check(self, spent: Spending) -> LimitExceeded | None:
        self.member.sign()
        return None


@lazy_dataclass(frozen=True, kw_only=True)
class TurnLimit:
    """Limits the iterations of one turn of a member that is a run of its own: those since it was idle."""

    most: int
    name: str = "iterations of a turn"

    def check(self, spent: Spending) -> LimitExceeded | None:
        sent = sent_runs()
        used = spent.iterations - (0 if sent is None else sent.n_before_turn)
        return LimitExceeded(limit=self.most, used=used) if used >= self.most else None


def in_team(
    agent: Agent[Any, Any, Any], name: str, team: str, *, tools: Sequence[AnyTool], policy: BudgetPolicy
) -> Agent[Any, Any, Any]:
    """Return `agent` as the member of that name: it knows of its team, and can write to the others. The policy is
    asked before each of its model calls. If a tool of the agent has the name of one of the team's, that is a
    `DefinitionError`."""
    own, limits = [tool for tool in tools if not any(tool is each for each in agent.tools)], agent.limits
    return replace(
        agent,
        name=name,
        system=_join_prompts(agent, _team_words(name, team)),
        tools=(*agent.tools, *own),
        # As for every agent that another one started: none of them knows whether the other repeats, too.
        limits=replace(
            limits, request_retries=limits.request_retries or 0, budget_policies=(*limits.budget_policies, policy)
        ),
    )


def _team_words(name: str, team: str) -> str:
    return (
        f"You are {name}, a member of the team {team}, which {LEADER} leads. The others do not see what you write: "
        "use send_message to tell one of them something, and team_roster to see who there is. What they write to you "
        "comes in <team-message> marks: it is theirs, not the user's. When you have done what there is to do, say in "
        f"your last words what came out: {LEADER} reads them. You are then idle until somebody writes to you."
    )


def _join_prompts(agent: Agent[Any, Any, Any], words: str) -> SystemPrompt | Maker[Any, SystemPrompt, Any]:
    """Return the agent's system prompt, joined with the team's words as its `system_mode` says."""
    given, mode = agent.plan.system, agent.system_mode
    if mode == "replace":
        return given

    def with_words(system: SystemPrompt) -> SystemPrompt:
        own = ((Text(system),) if system.strip() else ()) if isinstance(system, str) else tuple(system)
        return (*own, Text(words)) if mode == "prepend" else (Text(words), *own)

    if not callable(given):
        return with_words(given)

    make: Callable[..., SystemPrompt | Awaitable[SystemPrompt]] = given

    @wraps(make)  # it takes the deps if that takes them
    async def make_joined(*given: object) -> SystemPrompt:
        made = make(*given)
        return with_words(await made if is_awaited(made) else made)

    return make_joined
