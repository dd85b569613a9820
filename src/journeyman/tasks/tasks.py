"""Background work. A tool or a program starts it, and can watch it, write to it, stop it and await it; its end is
notified.

A task is *running* until it has its final status, and *active* until its notification was handed over as well: to
`notify`, or else to the follow-ups of the chat that started it. `Tasks` owns what it starts: leaving it stops and
awaits everything.

A model may look at background work, read what it wrote, write to it and stop it: `Tasks.tools` are its tools.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Final, Unpack

from pydantic import Field

from journeyman.cancellation import call_in, running_loop, wait_until_ended
from journeyman.definition.problems import explain_arguments, is_zero_or_amount, raise_problems, value_problems
from journeyman.errors import Problem, Rejected
from journeyman.events import PREFIXES, Delivery, Listener, TaskInfo, TaskMessaged, TaskStarted
from journeyman.history import NO_OUTPUT
from journeyman.inbox.inbox import current_conversation
from journeyman.journal import SentRuns
from journeyman.loop.state import run_context, sent_runs
from journeyman.loop.watch import Watch
from journeyman.result import CallbackError
from journeyman.tasks.task import RunningTask, TaskHost, outlive, unknown_task
from journeyman.tools.background import Notify, OutputFactory, TaskContext, TaskOptions, Work, output_factory
from journeyman.tools.check import function_problem, listener_problems
from journeyman.tools.context import BackgroundTasks, ToolContext
from journeyman.tools.tools import AnyTool, tool
from journeyman.types import TextOrigin


@explain_arguments
class Tasks:
    """The background work of a program: `async with Tasks() as tasks:`, and within it `Runtime(tasks=tasks)` for runs.

    Leaving the block stops all of it, and waits for its end.
    """

    def __init__(
        self,
        *,
        notify: Notify | None = None,
        output: str | PathLike[str] | OutputFactory | None = None,
        on_event: Listener | None = None,
        grace_s: float = 10.0,
    ) -> None:
        """`notify` gets the notification of each task that ends. Without it, or if it fails, the chat that started the
        task gets it. `output` is a folder for the output of the tasks, or what opens it. `grace_s` is how many seconds
        a stopped task has to end by itself before it is cancelled. `on_event` is called with the events of all tasks.

        Raises:
            DefinitionError: what is given cannot be used; it lists every problem.
        """
        problems = [*_problems_of_tasks(notify, output, grace_s)]
        if on_event is not None:
            problems += listener_problems(on_event)
        raise_problems("Tasks", problems)
        self._watch = Watch(path=(), listeners=() if on_event is None else (on_event,))
        self._numbers = itertools.count(1)
        self._all: dict[str, RunningTask] = {}
        self._active: dict[str, RunningTask] = {}
        self._make_host = partial(
            TaskHost,
            watch=self._watch,
            notify=notify,
            open_output=output_factory(output),
            grace_s=grace_s,
            active=self._active,
        )
        self._host: TaskHost | None = None
        # Any thread may start work while the tasks are being left.
        self._lock = Lock()

    async def __aenter__(self) -> Tasks:
        if self._host is not None:
            raise RuntimeError("The tasks were entered before. Make another Tasks().")
        self._host = self._make_host(loop=running_loop(), variables=copy_context())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._host is not None:
            with self._lock:  # whatever another thread starts is refused, or stopped with the others
                self._host.is_left = True
        self.stop_all("the tasks were left")
        for each in tuple(self._active.values()):
            if not each.info.is_running:  # a notification that is being handed over has no more than the usual time
                each.press(wait=True)

        def press_all() -> None:
            for each in tuple(self._active.values()):
                each.press()

        # Whoever cancels the wait gives no more time; but whatever happens, all of them are awaited.
        await wait_until_ended(asyncio.ensure_future(self._none_active()), on_cancel=press_all)

    def start(self, work: Work, *, description: str, **options: Unpack[TaskOptions]) -> str:
        """Start `work(task)` and return the id of its task, which can be seen from then on. Any thread may.

        The work keeps the context variables of its caller, and with them its path and its gates, but no deadline, abort
        or progress, because it outlives the call and the run that started it.

        Raises:
            RuntimeError: the tasks are not open, or are being left.
        """
        host = self._host
        with self._lock:
            if host is None or host.is_left:
                raise RuntimeError("The tasks are not open. Start work inside 'async with Tasks() as tasks:'.")
            made = self._register(host, work, description, options)
        # Told before it begins, since it may end in its first step.
        made.tell(TaskStarted(path=made.context.info.path, info=made.info))
        # A copy: what the work detaches itself from still holds for the caller.
        variables = copy_context()
        variables.run(outlive, made.context)
        if made.tape is not None:
            variables.run(made.tape.apart)
        call_in(host.loop, lambda: made.begin(variables))
        return made.context.id

    def _register(self, host: TaskHost, work: Work, description: str, options: TaskOptions) -> RunningTask:
        kind, identity, now = options.get("kind", "tool"), options.get("identity"), datetime.now(UTC)
        info = TaskInfo(
            id=f"{PREFIXES[kind]}-{next(self._numbers)}",
            kind=kind,
            description=description,
            started=now,
            path=run_context.get().path,
            agent=options.get("agent", ""),
            command=options.get("command", ""),
            identity=identity,
            liveness=None if identity is None else "working",
            last_sign=None if identity is None else now,
        )
        inbox, run = current_conversation.get().inbox, run_context.get().run
        made = RunningTask(
            context=TaskContext(info),
            work=work,
            host=host,
            options=options,
            started_s=host.loop.time(),
            chat=inbox,
            conversation=None if inbox is None else inbox.conversation,
            tape=None if run is None else run.tape,
        )
        if kind == "shell":
            # A command reads no messages, and whoever sends one is told so.
            made.context.inbox.close()
        self._all[info.id] = self._active[info.id] = made
        return made

    def get(self, id: str) -> TaskInfo:
        """Return a task as it is now.

        Raises:
            KeyError: there is none with that id; names those there are.
        """
        return self._find_task(id).info

    def list(self) -> tuple[TaskInfo, ...]:
        """Return all tasks as they are now, including those that have ended, in the order in which they were
        started."""
        # A copy: another thread may start work while this goes through them.
        return tuple([each.info for each in tuple(self._all.values())])

    def output(self, id: str) -> str:
        """Return the last of what a task has written.

        Raises:
            KeyError: there is none with that id; names those there are.
        """
        return self._find_task(id).context.output.tail()

    @property
    def active(self) -> tuple[str, ...]:
        """The ids of the tasks that run, or whose notification was not handed over yet."""
        return tuple(self._active)

    @property
    def errors(self) -> tuple[CallbackError, ...]:
        """The errors that `on_event` and `notify` have raised, in order. No task fails because of one."""
        return tuple(self._watch.errors)

    def _find_task(self, id: str) -> RunningTask:
        found = self._all.get(id)
        if found is None:
            raise unknown_task(id, self._all)
        return found

    def message(self, id: str, text: str, *, origin: TextOrigin | None = None) -> Delivery:
        """Say `text` to a task before its next model call. Any thread may.

        `origin` is `mail` if an agent says it: gates then do not count it as the user's words.

        Raises:
            ValueError: the text is blank.
        """
        if not text.strip():
            raise ValueError("The text is blank: there is nothing to say.")
        found = self._all.get(id)
        if found is not None:
            return found.message(text, origin)
        self._watch.show(TaskMessaged(path=run_context.get().path, id=id, text=text, delivery="unknown"))
        return "unknown"

    def stop(self, id: str, reason: str = "stopped") -> bool:
        """Stop a task. False: there is none with that id, or it has ended already. Any thread may.

        The task ends as `killed`; if its work comes to a normal end anyway, as `completed`.
        """
        found = self._all.get(id)
        return found is not None and found.stop(reason)

    def stop_all(self, reason: str = "stopped") -> int:
        """Stop every task that runs, and return how many there were. Any thread may call this."""
        return sum([each.stop(reason) for each in tuple(self._active.values())])

    async def wait(self, *ids: str) -> None:
        """Wait until none of these tasks is active. Without ids, wait until no task at all is active, including those
        that start meanwhile.

        Raises:
            KeyError: there is no task with one of the ids.
            RuntimeError: a task would wait for itself.
        """
        named = [self._find_task(id) for id in ids]
        for each in named or tuple(self._active.values()):
            if each.is_here():
                raise RuntimeError(f"Task {each.context.id} cannot wait for its own end: that would never come.")
        if not ids:
            await self._none_active()
        for each in named:
            await each.over.wait()

    async def _none_active(self) -> None:
        while self._active:
            await next(iter(self._active.values())).over.wait()

    def tools(self) -> Sequence[AnyTool]:
        """Return the tools for a model: `task_list`, `task_output`, `task_message` and `task_stop`."""

        @tool(effect="pure", parallel=True)
        async def task_list() -> str:
            """List all background tasks, also those that have ended: id, kind, status, time, description."""
            sent = sent_runs()
            infos = [*(() if sent is None else await sent.all()), *self.list()]
            lines = [_line_of_task(info) for info in infos] or ["There are no background tasks."]
            if sent is not None and sent.is_resumed:
                lines.append(_KILLED_BEFORE)
            return "\n".join(lines)

        # What a task hands in may be the words of strangers.
        @tool(effect="pure", parallel=True, untrusted=True)
        async def task_output(id: Id, wait_s: Wait = 0) -> str:
            """Read what a background task has written, also while it runs, and what came out when it ended."""
            info, sent = await _find_task(self, id)
            if wait_s and info.is_running:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await (self if sent is None else sent).wait(id)
            # Once more, since it may have ended.
            info, _ = await _find_task(self, id)
            return f"[{_line_of_task(info)}]\n{_body(info, self.output(id) if sent is None else '')}"

        @tool(effect="once")
        async def task_message(id: Id, text: str, context: ToolContext) -> str:
            """Say something to a background agent while it works. It reads that before its next step.

            Args:
                text: What to say to it.
            """
            return await _say_to_task(self, id, text, dedup=context.idempotency_key)

        @tool(effect="idempotent")
        async def task_stop(id: Id) -> str:
            """Stop a background task. What it did by then stays done."""
            _, sent = await _find_task(self, id)
            reason = "stopped by the model"
            if self.stop(id, reason) if sent is None else await sent.stop(id, reason):
                return f"Task {id} is being stopped."
            return f"Task {id} has ended already: {(await _find_task(self, id))[0].status}."

        return (task_list, task_output, task_message, task_stop)


# Whoever waits for the model waits as long; it can ask once more.
_LONGEST_S = 600

Id = Annotated[str, Field(description="The id of the task, for example bg-1.")]
Wait = Annotated[
    float, Field(ge=0, le=_LONGEST_S, description="Wait so many seconds for the end of the task, if it still runs.")
]

_KILLED_BEFORE: Final = "[Work that another process has begun, and that is not listed here, was killed with it.]"


async def _say_to_task(tasks: Tasks, id: str, text: str, *, dedup: str) -> str:
    """Say something to a task, in a durable run once for each call, and return what the model reads of it."""
    info, sent = await _find_task(tasks, id)
    if not text.strip():
        raise Rejected("The text is blank: there is nothing to say.")
    if sent is None:
        delivery = tasks.message(id, text, origin="mail")
    else:
        delivery = await sent.message(id, text, dedup=dedup)
    if delivery == "queued":
        return f"Task {id} reads it before its next step."
    # As it is now: it may have ended between the two looks.
    now, _ = await _find_task(tasks, id)
    raise Rejected(_refusal(now, was_running=info.is_running))


async def _find_task(tasks: Tasks, id: str) -> tuple[TaskInfo, SentRuns | None]:
    """Return a task, and where it is if it is a run of its own."""
    sent = sent_runs()
    try:
        return tasks.get(id), None
    except KeyError as unknown:
        words = str(unknown.args[0])
    if sent is not None:
        try:
            return await sent.get(id), sent
        except KeyError as unknown:
            words = f"{unknown.args[0]}{f' {_KILLED_BEFORE[1:-1]}' if sent.is_resumed else ''}"
    raise Rejected(words)


def _line_of_task(info: TaskInfo) -> str:
    who = info.identity.id if info.identity is not None else info.agent
    what = f"{info.liveness}, " if info.is_running and info.liveness is not None else ""
    subject = f"{who}: {info.description}" if who else info.description
    return f"{info.id} {info.kind} {info.status} ({what}{info.duration_s:.0f} s) {' '.join(subject.split())}"


def _body(info: TaskInfo, written: str) -> str:
    parts = [written] if info.result is None else [info.result]
    if info.error is not None:
        parts.append(f"[{info.status}: {info.error}]")
    if info.output_path is not None:
        parts.append(f"[All of its output is in {info.output_path}.]")
    return "\n".join(part for part in parts if part) or NO_OUTPUT


def _refusal(info: TaskInfo, *, was_running: bool) -> str:
    if was_running and info.kind == "shell":
        return f"Task {info.id} is a command, and reads no messages. Use task_stop to end it."
    if info.is_running:
        return f"Task {info.id} is about to end, and reads no more. You will be told when it has."
    return f"Task {info.id} has ended ({info.status}), so nobody reads it. Start another one if there is more to do."


if TYPE_CHECKING:
    _: type[BackgroundTasks] = Tasks


def _problems_of_tasks(notify: object, output: object, grace_s: object) -> Iterator[Problem]:
    if notify is not None:
        yield from function_problem("notify", notify, "a text and a TaskInfo", n=2)
    if output is not None and not isinstance(output, str | PathLike):
        yield from function_problem("output", output, "an id and a subject", n=2)
    hint = "Pass a finite number of seconds, at least 0."
    yield from value_problems("INVALID_ARGUMENT", "grace_s", grace_s, (is_zero_or_amount, hint))
