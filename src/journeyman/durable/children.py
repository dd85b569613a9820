"""The runs that a durable run starts in the background, which are runs of their own, and the texts that it sends them.

Such a run is stored in the transaction of the step that starts it, and its end tells the run above in the transaction
in which it ends: neither is lost, and neither happens twice. It may be driven wherever the run above may be, since only
a program that has that one's agent gives it the same gates and deps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from json import dumps, loads
from typing import Any, Final, Protocol

from typing_extensions import Unpack

from journeyman.agent import Agent
from journeyman.budget import Budget
from journeyman.durable.binding import Program
from journeyman.durable.engine import WriteOptions, result_of
from journeyman.durable.journal import Lease, RunProcess
from journeyman.durable.records import DONE, OVER, Head, Row, check_record, load_head, make_row, prints_of, taken_by
from journeyman.errors import DefinitionError, RunBlocked, SubagentMisused, TeamError
from journeyman.events import Delivery, Identity, MailKind, TaskInfo, TeamMessage
from journeyman.inbox.inbox import Post
from journeyman.inbox.signals import Signal, SignalKind
from journeyman.journal import Above, Lives, SentRun, SentRuns, StepFacts, decode_step, encode_step
from journeyman.loop.watch import traceparent_of
from journeyman.result import Result
from journeyman.step import RunStep
from journeyman.subagents.results import ended_task
from journeyman.tasks.task import notice, unknown_task
from journeyman.team.mail import idle_notice, text_of_mail
from journeyman.team.members import EVERYBODY, LEADER, check_name, find_addressees, find_members_to_go
from journeyman.team.spawn import DEFAULT_NAME
from journeyman.team.team import GONE, LEADER_ONLY, write_member, write_roster
from journeyman.types import JsonObject

_LOOK_S: Final = 1.0
# It bounds what a list of members reads.
_MOST_RUNS: Final = 10_000


class Here(RunProcess, Protocol):
    """The process in which runs are driven, and its services for them."""

    @property
    def strict(self) -> bool:
        """True: a run whose agent differs is not driven."""
        ...

    def adopt(self, id: str, program: Program) -> None:
        """Drive a run here, unless another process does, until it is over."""
        ...

    def mark(self) -> asyncio.Future[None]: ...

    async def changed(self, timeout_s: float = 1.0, *, since: asyncio.Future[None] | None = None) -> None: ...

    def notify(self) -> None: ...


def sent_id(row: Row, key: str) -> str:
    """Return the id of the run that a step of another one starts: runs of a tree lie together."""
    root = row.id.partition(".")[0]
    # Digits that follow from the step: a second life that starts it again finds the run that is there. With the root in
    # front, the rows of a tree lie together in the index.
    return f"{root}.{blake2b(f'{row.id}/{key}'.encode(), digest_size=8).hexdigest()}"


def member_id(leader: Row, name: str, incarnation: int) -> str:
    """Return the id of the run of a member: whoever knows the leader and the name finds it."""
    return sent_id(leader, f"member/{name}/{incarnation}")


def short_id(run: str) -> str:
    """Return the id by which a model knows a run that it has started."""
    # Eight digits, which a model can repeat. That only one run has them is checked when it is looked up.
    return f"bg-{run.rpartition('.')[2][:8]}"


class SentOut(SentRuns):  # noqa: PLR0904 - those of the port
    """The runs that one durable run has sent out, in one of its lives."""

    def __init__(self, life: Lease, lives: Lives, head: Head, *, program: Program, here: Here) -> None:
        self._life = life
        self._row = life.claim.row
        self._lives = lives
        self._head = head
        self._program = program
        self._here = here
        self._over: set[str] = set()
        """The ids of the runs that are known to have ended."""
        self._idle: dict[str, int] = {}
        """How many signals each member had when it said that it was idle."""
        self._joining = asyncio.Lock()
        self.n_before_turn = 0
        """How many model calls of a member were before its turn."""
        self._runs: list[str] = []
        """Their ids, in the order in which they were started."""
        for key, known in life.known.items():
            if known.kind == "idle" and known.value is not None:
                self.n_before_turn = max(self.n_before_turn, int(loads(decode_step(known.value)[1])["calls"]))
            elif known.kind in ("sent", "member") and (run := self._run_of(key)) is not None:
                self._runs.append(run)

    @property
    def is_resumed(self) -> bool:
        return self._row.lives > 1

    async def start(self, step: RunStep, sent: SentRun) -> str:
        async with self._joining:  # two members of one name must not join at once
            run = self._run_of(step.key)
            if run is None:
                row = await self._row_to_start(step.key, sent)
                await self._write_step(step, {"run": row.id}, starts=row)
                run = row.id
                self._runs.append(run)
        if not self._program.is_worker and (row := await self._life.engine.get(run)) is not None:
            self._here.adopt(run, self._program.sent(load_head(row)))
        return short_id(run)

    async def _write_step(self, step: RunStep, value: JsonObject, **options: Unpack[WriteOptions]) -> None:
        """Do a step that is nothing but a record, with what is stored with it."""
        life = self._life
        await life.opened()
        self._lives.go_live(step.key)
        life.n_working += 1
        try:
            stored = encode_step(dumps(value).encode(), StepFacts(kind=step.kind))
            await life.put(step, DONE, effect="pure", value=stored, **options)
        finally:
            life.n_working -= 1
        self._here.notify()

    async def _row_to_start(self, key: str, sent: SentRun) -> Row:
        """Return the run that is to be sent out, if another process would find the same agent."""
        row, above, text = self._row, replace(sent.above, run=self._row.id), sent.input
        id = sent_id(row, key)
        try:
            given: Any = sent.definition
            is_known = prints_of(self._program.below(sent.agents).agent) == prints_of(given)
            why = "" if is_known else f"There are two agents {sent.agents[-1]!r}."
        except SubagentMisused as misused:
            why = str(misused)
        if why:
            raise SubagentMisused(
                f"Sub-agent {sent.agents[-1]!r} cannot work in the background of a durable run: another process would"
                f" not find it. {why} (A program gives it to the agent above by Subagents(...), or"
                " Subagents(tasks=...).)"
            )
        if above.member:
            above = replace(above, incarnation=await self._incarnation(above.member))
            id = member_id(row, above.member, above.incarnation)
            text = self._mail(LEADER, above.member, sent.input, summary=above.description)
        head = Head(
            agent="/".join((self._head.agent, *sent.agents)),
            input=text,
            exact=sent.exact,
            prints={},
            gates=(),
            target=self._head.target,
            version=self._head.version,
            traceparent=traceparent_of(self._program.runtime, sent.agents[-1]) or None,
            above=above,
        )
        try:
            program = self._program.sent(head)
        except DefinitionError as error:
            raise TeamError(str(error)) from error
        head = replace(head, prints=prints_of(program.agent), gates=program.gates())
        return make_row(
            head,
            id=id,
            name=None,
            parent=row.id,
            app=row.app,
            queue=row.queue,
            priority=row.priority,
            created=self._life.now(),
            status="ready",
        )

    async def _incarnation(self, name: str) -> int:
        """Return which member of a name the next one is."""
        if self._own != LEADER:
            raise TeamError(f"Only {LEADER} makes members. Send it a message instead.")
        number = 1
        while (row := await self._life.engine.get(member_id(self._row, name, number))) and row.status in OVER:
            number += 1
        check_name(name, is_taken=row is not None)
        return number

    def _run_of(self, key: str) -> str | None:
        known = self._life.known.get(key)
        return None if known is None or known.value is None else str(loads(decode_step(known.value)[1])["run"])

    async def all(self) -> Sequence[TaskInfo]:
        return [await self._info(run) for run in self._runs]

    async def get(self, id: str) -> TaskInfo:
        return await self._info(self._run(id))

    async def _info(self, run: str) -> TaskInfo:
        row = await self._life.engine.get(run)
        if row is None:
            gone = "what was stored of it was forgotten"
            began = datetime.fromtimestamp(0, UTC)
            return TaskInfo(
                id=short_id(run), kind="agent", description=gone, started=began, status="failed", error=gone
            )
        head = load_head(row)
        try:
            agent = self._program.sent(head).agent
        except (SubagentMisused, DefinitionError):
            agent = None
        info = info_of_sent(row, head, now=self._life.now())
        if row.status not in OVER:
            return info
        try:
            return ended_task(info, agent, await result_of(self._life.engine, row, agent))
        except RunBlocked as blocked:
            return replace(info, status="failed", error=blocked.why)

    def _run(self, id: str) -> str:
        found = [run for run in self._runs if id in (run, short_id(run))]
        if len(found) != 1:
            raise unknown_task(id, map(short_id, self._runs))
        return found[0]

    @property
    def has_sent(self) -> bool:
        """True once the run has sent out another."""
        return bool(self._runs)

    async def has_open(self) -> bool:
        """Tell whether any of them goes on; a member that is idle does not. Those that another run had sent, of which
        this one is a fork, are not its own."""
        for run in list(self._runs):
            if run in self._over:
                continue
            seen = await self._life.engine.glance(run)
            if seen is None or seen.status in OVER or seen.parent != self._row.id:
                self._over.add(run)
            elif seen.n_signals != self._idle.get(run):
                return True
        return False

    async def message(self, id: str, text: str, *, dedup: str) -> Delivery:
        # Numbered by the step of the sender, so that a second life of it says nothing twice.
        is_read = await self._say(self._run(id), "mail", f"{self._row.id}/{dedup}", {"text": text})
        return "queued" if is_read else "gone"

    async def stop(self, id: str, reason: str) -> bool:
        # Always the same: to stop it once is enough.
        return await self._say(self._run(id), "stop", "stop", {"reason": reason})

    async def _say(self, run: str, kind: SignalKind, dedup: str, body: JsonObject, *, who: str = "") -> bool:
        """Say something to a run, once. False: it has ended."""
        signal = Signal(0, run, kind, dedup, body, self._life.now(), who or self._row.agent)
        taken = await self._life.engine.signal(signal)
        self._here.notify()
        return taken != "over"

    async def wait(self, id: str) -> None:
        run = self._run(id)
        while True:
            mark = self._here.mark()
            seen = await self._life.engine.glance(run)
            if seen is None or seen.status in OVER:
                return
            await self._here.changed(_LOOK_S, since=mark)

    def note(self, signal: Signal) -> None:
        """Note that a member has said that it is idle."""
        seen, run = signal.body.get("seen"), signal.body.get("run")
        if isinstance(seen, int) and isinstance(run, str):
            self._idle[run] = max(seen, self._idle.get(run, 0))

    async def rest(self, step: RunStep, words: str, *, n_calls: int, n_seen: int) -> None:
        """Tell the leader, once, that this member has answered, and has nothing more to do."""
        above = self._head.above
        # What was known when it said so is part of the key: after new mail, it may say once more that it is idle.
        step = replace(step, key=f"{step.key}/{n_seen}")
        if above is None or step.key in self._life.known:
            return
        is_said = any(each.kind == "idle" and each.at == step.at for each in self._life.known.values())
        text = "" if is_said else self._mail(above.member, LEADER, idle_notice(above.member, words), kind="idle")
        self.n_before_turn = n_calls
        body: JsonObject = {"text": text, "run": self._row.id, "seen": n_seen}
        await self._write_step(step, {"calls": n_calls}, posts=self._post(step, above.run, body))

    @property
    def _own(self) -> str:
        """The name of this run in its team."""
        above = self._head.above
        return LEADER if above is None or not above.member else above.member

    def _post(self, step: RunStep, run: str, body: JsonObject) -> Signal:
        """Return what is posted to another run of the team in this step, once over all lives."""
        return Signal(0, run, "mail", f"{self._row.id}/{step.key}", body, self._life.now(), self._own)

    def _mail(self, sender: str, to: str, text: str, *, summary: str = "", kind: MailKind = "message") -> str:
        """Return mail as a model reads it."""
        id, sent = "" if sender == LEADER else "m", datetime.fromtimestamp(0, UTC)
        return text_of_mail(TeamMessage(id=id, sender=sender, to=to, text=text, summary=summary, kind=kind, sent=sent))

    async def _team(self) -> dict[str, tuple[Row, Above]]:
        """Return the last member of each name in the team of this run."""
        above, row = self._head.above, self._row
        leader = row.id if above is None or self._own == LEADER else above.run
        rows = await self._life.engine.rows(prefix=f"{row.id.partition('.')[0]}.", limit=_MOST_RUNS)
        found: dict[str, tuple[Row, Above]] = {}
        for listed in [row for row in rows if row.parent == leader]:
            each = await self._life.engine.get(listed.id)
            made = None if each is None else load_head(each).above
            if each is not None and made is not None and made.member and made.run == leader:
                last = found.get(made.member, (each, made))
                found[made.member] = max(last, (each, made), key=lambda one: one[1].incarnation)
        return found

    async def mail(self, call: RunStep, to: str, text: str, *, summary: str) -> Sequence[str]:
        above, team = self._head.above, await self._team()
        runs = {each: member.id for each, (member, _) in team.items() if member.status not in OVER}
        names = find_addressees(self._own, to, text, alive=[*runs], known=team)
        if above is not None:
            runs[LEADER] = above.run
        for each in names:
            # What an earlier life has sent on the way through the names is not sent again.
            step = replace(call, key=f"{call.key}/mail/{each}", kind="mail")
            if step.key in self._life.known:
                continue
            if each not in runs:
                raise TeamError(GONE.format(each))
            body: JsonObject = {"text": self._mail(self._own, each, text, summary=summary)}
            await self._write_step(step, {"to": runs[each]}, posts=self._post(step, runs[each], body))
        return names

    async def roster(self) -> str:
        team, lines, dead = await self._team(), list[str](), list[str]()
        for name, (row, above) in sorted(team.items()):
            unread = await self._unread(row.id)
            states = {"running": "working", "waiting": "idle", "ready": "waits for a worker", "done": "gone"}
            is_idle = row.status == "running" and self._idle.get(row.id) == row.n_signals
            state = "idle" if is_idle else states.get(row.status) or f"{row.status}: {row.why}"
            waiting = f"{len(unread)} unread" if unread and row.status not in OVER else ""
            lines.append(write_member(name, row.agent.rpartition("/")[2], above.description, [state, waiting]))
            dead += [f"- {each.who} to {name}" for each in unread if row.status in OVER]
        return write_roster(next(iter(team.values()))[1].team if team else DEFAULT_NAME, "", lines, dead)

    async def _unread(self, run: str) -> list[Signal]:
        """Return the mail to a run that it has not read."""
        mail = [
            each for each in await self._life.engine.signals(run=run) if each.kind == "mail" and "text" in each.body
        ]
        taken = set[int]()
        for each in await self._life.engine.records(run):
            check_record(each)
            taken.update(taken_by(each))
        return [each for each in mail if each.n not in taken]

    async def let_go(self, name: str) -> Sequence[str]:
        if self._own != LEADER:
            raise TeamError(LEADER_ONLY)
        team = await self._team()
        alive = [each for each, (member, _) in team.items() if member.status not in OVER]
        names = find_members_to_go([name], alive=alive, known=team)
        for each in names:
            await self._say(team[each][0].id, "mail", f"{self._row.id}/gone", {"ends": True}, who=LEADER)
        return names

    async def leave(self) -> None:
        """Let all members go, since this run ends, which leads them."""
        # Only who leads a team has such steps: nobody else asks the store.
        if any([each.kind == "member" for each in self._life.known.values()]):
            await self.let_go(EVERYBODY)


def info_of_sent(row: Row, head: Head, *, now: float) -> TaskInfo:
    """Return a run that was sent out, as a task, without what came of it."""
    waits = {"ready": "waits for a worker", "blocked": f"blocked: {row.why}", "held": "held", "waiting": "waits"}
    above = head.above
    info = TaskInfo(
        id=short_id(row.id),
        kind="member" if above is not None and above.member else "agent",
        identity=Identity(above.member, above.team) if above is not None and above.member else None,
        description="" if above is None else above.description,
        started=datetime.fromtimestamp(row.created, UTC),
        duration_s=max(0.0, (row.ended or now) - row.created),
        path=() if above is None else above.path,
        agent=head.agent.rpartition("/")[2],
    )
    if row.status not in OVER:
        how = waits.get(row.status)
        return info if how is None else replace(info, description=f"{info.description} ({how})")
    return replace(info, ended=datetime.fromtimestamp(row.ended or now, UTC))


def make_end_signal(
    row: Row, head: Head, above: Above, *, agent: Agent[Any, Any, Any], result: Result[Any], now: float
) -> Signal:
    """Return what a run that ends tells the run that has sent it out."""
    # Its row does not say that it has ended yet: this is written together with that.
    info = info_of_sent(replace(row, status="done", ended=now), head, now=now)
    text = notice(ended_task(info, agent, result))
    return Signal(0, above.run, "task_ended", row.id, {"text": text}, now, row.agent)


def budget_of(above: Above, parent: Budget | None) -> Budget:
    """Return what a run draws on beside its own limits: what the runs above had left when they sent it out."""
    left = above.allowance
    return Budget(tokens=left.tokens, cost=left.cost, calls=left.calls, scope="background", parent=parent)


class SignalPost(Post):
    """The texts that other runs have sent to one. It reads them before its next model call, and never takes them for
    the user's."""

    def __init__(self) -> None:
        self._waiting: list[Signal] = []
        self._taken: list[int] = []

    def put(self, signal: Signal, *, is_new: bool) -> None:
        """Let a signal wait that is new and has a text."""
        if is_new and signal.body.get("text"):
            self._waiting.append(signal)

    def taken(self) -> list[int]:
        """Return the numbers of the signals that were said since this was last asked."""
        taken, self._taken = self._taken, []
        return taken

    @property
    def has_mail(self) -> bool:
        return bool(self._waiting)

    def take(self) -> tuple[str, ...]:
        waiting, self._waiting = self._waiting, []
        self._taken += [each.n for each in waiting]
        return tuple([str(each.body.get("text", "")) for each in waiting])
