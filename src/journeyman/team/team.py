"""A team: long-lived members that work side by side and write to one another, and the leader that made them.

A member is a chat in a background task; mail is its prompts. What is done inside a member's turn counts as done by that
member; everything else counts as done by the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

from journeyman.agent import DEFAULT_RUNTIME, Runtime
from journeyman.chat.questions import Questions
from journeyman.definition.problems import explain_arguments
from journeyman.errors import TeamError
from journeyman.events import DeadLetter, Listener, TeamMessage
from journeyman.gate import Decision
from journeyman.inbox.inbox import Inbox, current_conversation
from journeyman.journal import RecordingSink, Section, SentRuns, SharedTape
from journeyman.loop.state import run_context, sent_runs
from journeyman.loop.watch import Watch, begin_tape, end_tape
from journeyman.result import CallbackError
from journeyman.tasks.tasks import Tasks
from journeyman.team.life import MemberLoop, Pulse, in_team
from journeyman.team.mail import TeamHooks
from journeyman.team.members import EVERYBODY, LEADER, Member, MemberInfo, TeamSnapshot, check_name, find_members_to_go
from journeyman.team.messages import PostOffice, ShutdownResult
from journeyman.team.spawn import DEFAULT_NAME, MAX_DEPTH, TeamSpawner, TeamSpawnRequest, TeamSpawnResult
from journeyman.texts import shorten_line
from journeyman.tools.context import ToolContext
from journeyman.tools.tools import AnyTool, tool
from journeyman.types import Message, RunPath, Usage

GRACE_S: Final = 30.0
"""How many seconds a member has to end its turn when it is let go."""
FORCE_S: Final = 10.0
"""How many seconds a member that was stopped has to end."""
# A roster is a line for each: a long letter would hide the others.
_SHOWN_CHARS: Final = 60
# Dead letters are kept as long as the team lives, and each look at the roster stays in a conversation.
_SHOWN_LETTERS: Final = 20

_DEFAULT_HOOKS: Final = TeamHooks()


@explain_arguments  # noqa: PLR0904 - one verb for each thing that can be done to a team
class Team:
    """A team: `async with Team("crew") as team: await team.spawn(TeamSpawnRequest(agent=scout, prompt="…"))`.

    The team's leader is whoever makes members: a chat, by a tool call, or a program. Leaving the block stops all
    members and waits for them.
    """

    def __init__(
        self,
        name: str = "",
        *,
        description: str = "",
        tasks: Tasks | None = None,
        runtime: Runtime | None = None,
        hooks: TeamHooks = _DEFAULT_HOOKS,
        on_event: Listener | None = None,
    ) -> None:
        """Without a `name`, the team takes the name in the first request. `runtime` surrounds the runs of the members,
        so they share its budget. `tasks` runs the members; without it, the team opens its own.

        `description` says what the team is for. `hooks` change how mail is read and what idle members do. `on_event` is
        called with the events of the team and of its members' runs."""
        self._is_named = bool(name)
        self._given_host = runtime or DEFAULT_RUNTIME
        self._given_tasks = tasks
        self._tasks: Tasks | None = None
        self._stack: AsyncExitStack | None = None
        self._tape: RecordingSink | None = None
        """Records the team, if no chat that is recorded leads it."""
        self._watch = Watch(path=(), listeners=[] if on_event is None else [on_event])
        self._post = PostOffice(hooks, self._watch, name=name or DEFAULT_NAME, description=description)
        self._registry = self._post.registry
        self._questions = Questions(self._watch)
        self._asks: Questions = self._questions
        """Where members ask the user: the chat that leads the team, or the team itself."""
        self._inbox: Inbox | None = None
        """The inbox of the chat that leads the team."""
        self._tools = _tools_of(self, self._post)

    async def __aenter__(self) -> Team:
        if self._stack is not None:
            raise RuntimeError("The team was entered before. Make another Team().")
        self._stack = AsyncExitStack()
        self._post.loop = asyncio.get_running_loop()
        self._tape = self._watch.tape = begin_tape(self._given_host, "team", self._registry.name)
        self._tasks = self._given_tasks or await self._stack.enter_async_context(Tasks())
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._stack or AsyncExitStack():
            if not self._registry.is_deleted:
                await self.delete()
        await end_tape(self._given_host, self._tape, "left")

    @property
    def is_open(self) -> bool:
        """True once the team was entered: then its members live in this process, also those of durable runs."""
        return self._stack is not None

    async def delete(self) -> ShutdownResult:
        """Stop all members, close every mailbox, and make dead letters of what nobody has read.

        Raises:
            TeamError: it was deleted before.
        """
        self._registry.check_open()
        try:
            return await self.shutdown(grace_s=0.0)
        finally:
            self._close()

    def _close(self) -> None:
        registry, leader = self._registry, self._registry.leader
        if registry.is_deleted:
            return
        registry.is_deleted = True
        for member in registry.members:
            if not member.box.is_closed:  # only if the wait for them was cancelled
                self._stop(member.task_id)
                self._post.part(member)
        self._follow(None)
        left = leader.leftovers()
        leader.close()
        self._post.bury(left, "closed")
        self._post.changes.wake()

    async def spawn(self, request: TeamSpawnRequest) -> TeamSpawnResult:
        """Make a member, and return as soon as it is registered: it works on by itself.

        Raises:
            TeamError: there is no such team, the member's name is taken, it would be too deep, or it would have nothing
                to do.
            DefinitionError: its agent has another tool with the name of one of the team's.
        """
        tasks, registry = self._open_tasks(), self._registry
        path = (*run_context.get().path, request.name or request.agent.name)
        # First: a request that is refused changes nothing.
        self._check(request, path)
        self._take_name(request.team_name)
        self._lead()
        member = Member(
            name=path[-1],
            agent=request.agent.name,
            box=self._post.mailbox(path[-1]),
            path=path,
            description=request.description,
            color=request.color,
            registry=registry,
        )
        member.liveness = "working" if request.prompt else "idle"
        # Without the last one: only the leader lets members go.
        agent = in_team(request.agent, member.name, registry.name, tools=self._tools[:2], policy=Pulse(member))
        registry.register(member)
        runtime = self._runtime_of(member, request)
        loop = MemberLoop(
            member=member, post=self._post, agent=agent, runtime=runtime, questions=self._asks, request=request
        )
        try:
            member.task_id = loop.begin(tasks)
        except BaseException:
            # The name is free again, since there never was such a member.
            registry.forget(member)
            raise
        return TeamSpawnResult(
            task_id=member.task_id,
            agent_id=f"{member.name}@{registry.name}",
            name=member.name,
            team_name=registry.name,
            incarnation=member.incarnation,
        )

    def _check(self, request: TeamSpawnRequest, path: RunPath) -> None:
        agent, depth = request.agent, len(path) - 1
        self._registry.check_open()
        check_name(path[-1], is_taken=self._registry.alive(path[-1]) is not None)
        if agent.input is not str:
            raise TeamError(
                f"Agent {agent.name!r} takes {agent.input!r}, but the prompts of a member are texts. Leave input= out."
            )
        if depth > MAX_DEPTH:
            raise TeamError(f"A member would be at depth {depth}, and {MAX_DEPTH} is the last. Do the work yourself.")
        if not request.prompt.strip() and not request.history:
            raise TeamError("The prompt is blank, so the member would have nothing to do. Say what its task is.")

    def _take_name(self, name: str) -> None:
        """Be the team that is meant: one without a name and without members takes the name."""
        registry = self._registry
        if not name or name == registry.name:
            return
        if self._is_named or registry.teammates:
            raise TeamError(
                f"There is no team {name!r}. The team is {registry.name!r}; leave the name out for that one."
            )
        registry.rename(name)
        self._is_named = True

    def _runtime_of(self, member: Member, request: TeamSpawnRequest) -> Runtime:
        given = self._given_host
        # By its number, too: a later member of that name must not find the steps of this one.
        journal = given.journal and Section(given.journal, f"member/{member.name}/{member.incarnation}")
        record = None if self._watch.tape is None else SharedTape(self._watch.tape)
        model, tasks = request.model or given.model, given.tasks or self._tasks
        return replace(given, journal=journal, model=model, tasks=tasks, recorder=record)

    def _open_tasks(self) -> Tasks:
        if self._tasks is None:
            raise RuntimeError("The team is not open. Use it inside 'async with Team() as team:'.")
        return self._tasks

    def rename(self, name: str, description: str | None = None) -> None:
        """Give the team another name, while it has no members. An empty name keeps the name and changes only the
        description.

        Raises:
            TeamError: the team has members, whose ids hold its name, or it is deleted.
        """
        self._registry.rename(name, description)
        self._is_named = self._is_named or bool(name)

    def _lead(self) -> None:
        """Let the chat whose turn goes on here, if any, be the leader from now on."""
        conversation = current_conversation.get()
        inbox, questions, run = conversation.inbox, conversation.questions, run_context.get().run
        if self._post.sender() is not None or (inbox is None and self._inbox is not None):
            return
        self._post.path = run_context.get().path
        self._asks = questions or self._questions
        self._watch.above = questions.watch if questions is not None else run.watch if run is not None else None
        if self._watch.above is not None and self._watch.above.tape is not None:
            self._watch.tape = self._watch.above.tape
        self._follow(inbox)

    def _follow(self, inbox: Inbox | None) -> None:
        """Let the leader's mail be said in the conversation of this inbox, and in no other."""
        if inbox is self._inbox:
            return
        leader = self._registry.leader
        if self._inbox is not None:
            self._inbox.posts = tuple([post for post in self._inbox.posts if post is not leader])
            # What it has in hand was not said there, so it waits for whoever leads next.
            leader.put_back()
        if inbox is not None:
            inbox.posts = (*inbox.posts, leader)
        self._inbox = inbox

    def send(
        self, to: str, text: str, *, summary: str = "", id: str = "", incarnation: int | None = None
    ) -> tuple[TeamMessage, ...]:
        """Send a message as the member whose turn goes on here, or else as the leader. Return what is on its way.

        `to` is a name, `"team-lead"`, or `"*"` for all other members. Messages with the same `id` are sent once. With
        `incarnation`, the message is only for that member of the name. Any thread may send; a message from another
        thread than the team's waits for the next step of the event loop.

        Raises:
            TeamError: nothing can be sent to that name, or nothing can be sent from here.
        """
        return self._post.send(self._post.sender(), to, text, summary=summary, id=id, incarnation=incarnation)

    async def receive(self, timeout_s: float | None = None) -> tuple[TeamMessage, ...]:
        """Wait for mail to the leader, and take all of it. This is for a program that leads; a chat gets its mail by
        itself.

        Raises:
            TeamError: the team is deleted.
            TimeoutError: `timeout_s` seconds have passed.
        """
        await self._registry.leader.wait(timeout_s)
        return self._registry.leader.drain()

    async def news(self) -> bool:
        """Wait until there is mail for the leader. False: no member works, and there is no mail.

        `while await team.news(): await chat.continue_()` lets a chat lead its team to the end.
        """
        while not self._registry.leader.has_mail:
            # An idle member with mail is about to begin a turn.
            if all(each.liveness in ("idle", "gone") and not each.box.has_mail for each in self._registry.members):
                return False
            await self._post.changes.wait()
        return True

    async def shutdown(
        self, *names: str, incarnation: int | None = None, grace_s: float = GRACE_S, force_s: float = FORCE_S
    ) -> ShutdownResult:
        """Let members go: those with these names, or all. This takes no longer than both times together.

        An idle member ends at once. A member that works is asked to end its turn within `grace_s` seconds, and is then
        stopped. If it does not end within `force_s` more seconds, it is out of the team anyway. With `incarnation`,
        members of another incarnation are left alone.

        Raises:
            TeamError: there never was a member of one of the names, or a member would wait for its own end.
        """
        post, registry, here = self._post, self._registry, self._post.sender()
        wanted = [
            registry.last[name] for name in find_members_to_go(names, alive=registry.teammates, known=registry.last)
        ]
        members = [member for member in wanted if incarnation in (None, member.incarnation)]
        if here is not None and here in members:
            raise TeamError(f"{here.name!r} cannot wait for its own end. Let {LEADER!r} do it.")
        for member in members:
            post.ask_to_end(member, grace_s)
        late = await post.wait_until_gone(members, grace_s)
        for member in late:
            self._stop(member.task_id)
        abandoned = await post.wait_until_gone(late, force_s)
        for member in abandoned:
            post.part(member, f"{member.name} was stopped, and does not end.")
        return ShutdownResult(
            finished=tuple([member.name for member in members if member not in late]),
            stopped=tuple([member.name for member in late if member not in abandoned]),
            abandoned=tuple([member.name for member in abandoned]),
        )

    def _stop(self, task_id: str) -> None:
        self._open_tasks().stop(task_id, "the team let it go")

    def answer(self, id: str, answer: Decision | str) -> None:
        """Answer what a member asks, if a program leads the team. If a chat leads, use `Chat.answer`.

        Raises:
            KeyError: nothing waits under that id, or it waits no longer.
            TypeError: a call needs `Allow`, `Deny`, `Rewrite` or `Stop`, a question a text.
        """
        self._questions.answer(id, answer)

    def roster(self) -> TeamSnapshot:
        """Return who is in the team, and what could not be delivered, as it is now."""
        registry = self._registry
        return TeamSnapshot(
            name=registry.name,
            description=registry.description,
            members=tuple([member.info() for member in registry.members]),
            n_waiting=len(registry.leader.waiting),
            dead_letters=tuple(self._post.dead_letters),
        )

    def member(self, name: str) -> MemberInfo:
        """Return the member of that name as it is now, or the last one that had the name.

        Raises:
            KeyError: there was none.
        """
        return self._find_member(name).info()

    def transcript(self, name: str) -> tuple[Message, ...]:
        """Return the conversation so far of the member of that name, or of the last one that had it. Another member can
        go on from it: `TeamSpawnRequest(agent=…, prompt="", history=team.transcript("ada"))`.

        Raises:
            KeyError: there was none.
        """
        return self._find_member(name).transcript

    def _find_member(self, name: str) -> Member:
        found = self._registry.last.get(name)
        if found is None:
            raise KeyError(f"There is no member {name!r}. There are: {list(self._registry.teammates)}.")
        return found

    @property
    def name(self) -> str:
        """The name of the team."""
        return self._registry.name

    @property
    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Mail that could not be delivered, oldest first."""
        return tuple(self._post.dead_letters)

    @property
    def usage(self) -> Usage:
        """The usage of all members so far, including those that are gone."""
        return Usage.total([self._registry.usage_of_gone, *(member.usage for member in self._registry.members)])

    @property
    def errors(self) -> tuple[CallbackError, ...]:
        """The errors that hooks and listeners have raised, in order. No member fails because of one."""
        return tuple(self._watch.errors)

    def tools(self) -> Sequence[AnyTool]:
        """Return the tools of a leader: `send_message`, `team_roster` and `team_shutdown`. Members have two of them."""
        return self._tools


def _tools_of(team: Team, post: PostOffice) -> tuple[AnyTool, AnyTool, AnyTool]:
    """Return `send_message`, `team_roster` and `team_shutdown`. Whoever calls is the member whose turn goes on, or else
    the leader."""

    @tool(effect="idempotent")
    async def send_message(to: str, message: str, context: ToolContext, summary: str = "") -> str:
        """Send a message to a member of your team. It is read before the addressee's next step.

        Args:
            to: the name of a member, "team-lead" for the leader, or "*" for all members but you.
            message: what the addressee shall read. It knows nothing else of your conversation.
            summary: what it is about, in a few words.
        """
        sent = _runs_of_journal(team)
        if sent is not None:
            return _words_after_sending(to, await sent.mail(context.step, to, message, summary=summary))
        member = post.sender()
        who = LEADER if member is None else f"{member.name}.{member.incarnation}"
        # Made of the place of the call: a call that is made again sends nothing twice.
        id = f"{who}/{'/'.join(context.path)}/{context.attempt}.{context.iteration}/{context.tool_use_id}"
        n_dead = len(post.dead_letters)
        mail = post.send(member, to, message, summary=summary, id=id)
        # `send` does not raise for a member that has ended: programs read `dead_letters`, but a model has to be told.
        if len(post.dead_letters) > n_dead:
            raise TeamError(GONE.format(to))
        return _words_after_sending(to, [each.to for each in mail])

    @tool(effect="pure")
    async def team_roster() -> str:
        """Show who is in the team, what each member does, and which messages could not be delivered."""
        sent = _runs_of_journal(team)
        if sent is not None:
            return await sent.roster()
        seen = team.roster()
        letters = [
            f"- {mail.sender} to {mail.to} ({why}): {shorten_line(mail.summary or mail.text, _SHOWN_CHARS)}"
            for mail, why in [(each.mail, each.reason) for each in seen.dead_letters]
        ]
        return write_roster(seen.name, seen.description, [*map(_write_info, seen.members)], letters)

    @tool(effect="idempotent")
    async def team_shutdown(name: str) -> str:
        """Let a member of the team go: it may end what it does, and is stopped if that takes too long.

        Args:
            name: the name of a member, or "*" for all members.
        """
        sent = _runs_of_journal(team)
        if sent is not None:
            there = await sent.let_go(name)
            return f"Ends after its turn: {', '.join(there)}" if there else "Nobody was there."
        if post.sender() is not None:
            raise TeamError(LEADER_ONLY)
        ended = await team.shutdown(name)
        ways = {"ended": ended.finished, "stopped": ended.stopped, "does not end": ended.abandoned}
        return "; ".join([f"{way}: {', '.join(names)}" for way, names in ways.items() if names]) or "Nobody was there."

    return send_message, team_roster, team_shutdown


# One set for everybody, since `in_team` knows tools by identity.
@cache
def member_tools() -> Sequence[AnyTool]:
    """Return the tools of members that are runs of their own: they find their team by the run that calls them."""
    return Team().tools()[:2]


LEADER_ONLY: Final = f"Only {LEADER} lets members go. Send it a message instead."
GONE: Final = "{!r} has ended, so it will not read that. See team_roster for who is there."


def _runs_of_journal(team: Team) -> SentRuns | None:
    """Return where the members are that the durable run has sent out which goes on here; None if they live in a team
    that was entered, or in no such run."""
    return None if team.is_open else sent_runs()


def _words_after_sending(to: str, names: Sequence[str]) -> str:
    if not names and to == EVERYBODY:
        return "Nobody else is there, so nothing was sent."
    return f"Sent to {', '.join(names)}." if names else "That message was sent before."


def write_roster(name: str, about: str, members: Sequence[str], letters: Sequence[str]) -> str:
    """Return a roster as a model reads it: a line for each member, and for each of the last dead letters."""
    lines = [f"team {name}, led by {LEADER}{about and f': {about}'}", *(members or ["- no members"])]
    return "\n".join([*lines, *(["not delivered:", *letters[-_SHOWN_LETTERS:]] if letters else [])])


def write_member(name: str, agent: str, about: str, facts: Sequence[str]) -> str:
    """Return the line of a member in a roster."""
    return f"- {name} ({agent}{about and f', {about}'}): {'; '.join(filter(None, facts))}"


def _write_info(member: MemberInfo) -> str:
    signs = f"{member.liveness}, last sign {member.quiet_s:.0f} s ago"
    unread = f"{member.n_waiting} unread" if member.n_waiting else ""
    return write_member(member.name, member.agent, member.description, [signs, unread, member.error or ""])


if TYPE_CHECKING:
    _spawner: TeamSpawner = Team()
