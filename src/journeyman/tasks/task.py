"""One task, from its registration to its notification: how it is begun, stopped, settled and told of.

The order is always: final status, event, notification, no longer active.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from contextvars import Context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from journeyman.cancellation import call_in, is_awaited, is_done_for, log_caught, own_task
from journeyman.errors import Rejected, count, is_ours, name_and_words
from journeyman.events import Delivery, TaskEnded, TaskInfo, TaskMessaged, TaskStarted, TaskStatus
from journeyman.gate import current_guard, enter_guard
from journeyman.history import NOTICE
from journeyman.inbox.inbox import Inbox
from journeyman.journal import RecordingSink
from journeyman.loop.state import enter, run_context
from journeyman.loop.watch import Watch
from journeyman.tools.background import Notify, OutputFactory, TaskContext, TaskOptions, TaskResult, Work
from journeyman.tools.results import to_result
from journeyman.types import TextOrigin


@dataclass(slots=True, kw_only=True)
class TaskHost:
    """The event loop and listeners that all tasks of one `Tasks` share."""

    loop: asyncio.AbstractEventLoop
    variables: Context
    """The context variables of whoever opened the tasks. Notifications are handed over among them."""
    watch: Watch
    notify: Notify | None
    open_output: OutputFactory | None
    grace_s: float
    active: dict[str, RunningTask]
    """The tasks that run, or whose notification was not handed over yet."""
    is_left: bool = False
    """True once the tasks are being left: none begins, and notifications have no more than `grace_s` either."""


@dataclass(slots=True, kw_only=True, eq=False)
class RunningTask:
    """One task with its work, and with all that it is connected to."""

    context: TaskContext
    work: Work
    host: TaskHost
    options: TaskOptions
    started_s: float
    chat: Inbox | None
    """The inbox of the chat that started it."""
    conversation: object
    """The conversation of that chat, as its inbox knows it."""
    tape: RecordingSink | None
    """Records the run that started it."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the notification was handed over."""
    _going_on: asyncio.Task[None] | None = None
    """Does the work, and then hands over the notification."""
    _timer: asyncio.TimerHandle | None = None

    @property
    def info(self) -> TaskInfo:
        """The task as it is now."""
        info = self.context.info
        if not info.is_running:
            return info
        return replace(info, duration_s=self.host.loop.time() - self.started_s, last_sign=self.context.last_sign)

    def tell(self, event: TaskStarted | TaskEnded) -> None:
        """Tell those who listen to all tasks, and what records the run that started this one."""
        self.host.watch.show(event)
        if self.tape is not None:
            self.tape.hear(event)

    def is_here(self) -> bool:
        """Tell whether this is called from the work, or from the notification, of the task itself."""
        return run_context.get().task is self.context or is_done_for(self._going_on)

    def message(self, text: str, origin: TextOrigin | None) -> Delivery:
        """Say something to the work."""
        delivery: Delivery = "queued" if self._accepts(text, origin) else "gone"
        path, id = self.context.info.path, self.context.id
        self.host.watch.show(TaskMessaged(path=path, id=id, text=text, delivery=delivery))
        return delivery

    def _accepts(self, text: str, origin: TextOrigin | None) -> bool:
        if not self.context.info.is_running or self.context.abort.aborted:
            return False
        if (receive := self.options.get("receive")) is not None:
            return receive(text)
        return self.context.inbox.offer(text, "steering", origin) is not None

    def stop(self, reason: str) -> bool:
        """Let the work end. False: it has ended already."""
        abort = self.context.abort
        if not self.context.info.is_running:
            return False
        if not abort.aborted:
            abort.abort(reason)
            # It is cancelled at once if it does not look. What has ended by then has its notification in peace.
            call_in(self.host.loop, lambda: self.context.info.is_running and self.press(wait=abort.is_heeded))
        return True

    def begin(self, variables: Context) -> None:
        """Begin the work among these context variables."""
        name = f"background task {self.context.id}"
        self._going_on = self.host.loop.create_task(self._carry(), name=name, context=variables)
        self._going_on.add_done_callback(self._hand_over, context=variables)

    def press(self, *, wait: bool = False) -> None:
        """Cancel what goes on, now or when its time is up, and again whenever that is ignored."""
        if self._going_on is None or self._going_on.done():
            return  # if it has not begun, it will see the signal when it does
        if not wait:
            self._going_on.cancel()
        # Else the one before would cancel it early.
        self._stop_pressing()
        self._timer = self.host.loop.call_later(self.host.grace_s, self.press)

    def _stop_pressing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _carry(self) -> None:
        self._going_on = own_task()  # an eager task takes this step before `begin` knows the task
        try:
            await self._do_work()
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            self._settle("killed")  # they end the program, and not the work
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the work raises; a cancellation is its end
            self._settle_error(error)

    async def _do_work(self) -> None:
        info, output = self.context.info, self.context.output
        if self.context.abort.aborted:
            self._settle("killed")
            return
        factory = self.options.get("output") or self.host.open_output
        await output.open(factory, info.id, info.agent or info.description)
        self.context.change(output_path=output.path)
        if output.errors:
            self._settle("failed")
            return
        value = await self.work(self.context)
        if isinstance(value, TaskResult):
            self._settle("completed", result=value.text, value=value.value)
        else:
            text = value if isinstance(value, str) else to_result(value).text
            self._settle("completed", result=text, value=value)

    def _settle_error(self, error: BaseException) -> None:
        is_leak = isinstance(error, asyncio.CancelledError)
        words = error.text if isinstance(error, Rejected) and error.text.strip() else name_and_words(error)
        if self.context.abort.aborted or own_task().cancelling() > 0:
            self._settle("killed", error=None if is_leak else words)
            return
        if not is_ours(error):  # ours tell of a command, a member or a run that failed
            log_caught(f"Background work of {self.context.info.id}", error, told=self.host.watch.told)
        leaked = "it cancelled something of its own, and let the error leak"
        self._settle("failed", error=leaked if is_leak else words)

    def _settle(
        self, status: TaskStatus, *, error: str | None = None, result: str | None = None, value: object = None
    ) -> None:
        """Give the task its final status. In the same step nobody can write to it any more."""
        info, output, inbox = self.context.info, self.context.output, self.context.inbox
        if not info.is_running:
            return
        self._stop_pressing()
        output.close()
        inbox.close()
        inbox.put_back()
        undelivered = inbox.clear("steering", "follow_ups")
        if output.errors:
            status, result, value = "killed" if status == "killed" else "failed", None, None
            error = "; ".join([*([error] if error else []), *output.errors])
        final = self.context.change(
            status=status,
            duration_s=self.info.duration_s,
            last_sign=self.context.last_sign,
            ended=datetime.now(UTC),
            result=result,
            value=value,
            error=error,
            liveness=None if info.identity is None else "gone",
            undelivered=undelivered,
        )
        self.tell(TaskEnded(path=info.path, info=final))

    def _hand_over(self, done: asyncio.Task[None]) -> None:
        """Tell whoever wants to know that the task has ended: once, and whatever comes of it."""
        self._settle("killed")  # it was cancelled before its first step
        if not done.cancelled():
            done.exception()  # an interrupt ends the program by itself, also below: asyncio need not complain of it
        # Not those of the work: its path, its gates and its signal are not the callback's.
        name, variables = f"notification of {self.context.id}", self.host.variables.copy()
        self._going_on = self.host.loop.create_task(self._tell(), name=name, context=variables)
        self._going_on.add_done_callback(self._end)
        if self.host.is_left:
            self.press(wait=True)

    def _end(self, told: asyncio.Task[None]) -> None:
        self._stop_pressing()
        if told.cancelled():
            self._regret(asyncio.CancelledError())
        else:
            told.exception()
        self.over.set()
        self.host.active.pop(self.context.id, None)

    async def _tell(self) -> None:
        self._going_on, info = own_task(), self.context.info
        text, notify = notice(info), self.options.get("notify") or self.host.notify
        try:
            handed = self._tell_chat(text) if notify is None else notify(text, info)
            if is_awaited(handed):
                await handed
        except asyncio.CancelledError:
            # It ended the host's callback, and somebody has to hear of the task.
            self._tell_chat(text)
            raise
        except Exception as error:  # noqa: BLE001 - whatever the host's callback raises
            self._regret(error)
            self._tell_chat(text)

    def _tell_chat(self, text: str) -> None:
        # The chat was reset: its new conversation knows nothing of this work.
        if self.chat is None or self.chat.conversation is not self.conversation:
            return
        try:
            self.chat.put(text, "follow_ups")
        except Exception as error:  # noqa: BLE001 - it was left, or whatever keeps its texts raises
            self._regret(error)

    def _regret(self, error: BaseException) -> None:
        self.host.watch.regret("callback", "notify", error)


def outlive(context: TaskContext) -> None:
    """Let what goes on in these context variables outlive its caller: its path and its gates stay, its end does not."""
    enter(run=None, call=None, task=context)
    if (guard := current_guard()) is not None:
        enter_guard(replace(guard, stop=context.abort.abort))


def unknown_task(id: str, ids: Iterable[str]) -> KeyError:
    """Return the error that there is no task of this id; it names those there are."""
    there_are = ", ".join(ids)
    where = f"The tasks are: {there_are}." if there_are else "There are no background tasks."
    return KeyError(f"There is no task {id!r}. {where}")


LONGEST: Final = 10_000
"""How many characters of a field a notification has. The whole result is in `TaskInfo.result`. A notification is
sent with every later request."""

_WORDS: Final = {"completed": "completed", "failed": "failed: {error}", "killed": "was stopped"}
# Controls other than tab and line end, and halves of surrogate pairs, which UTF-8 cannot write.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def notice(info: TaskInfo) -> str:
    """Return what a model reads of a task that has ended: one block, every field escaped, for none is trusted."""
    fields = "\n".join(f"<{name}>{value}</{name}>" for name, value in _notice_fields(info))
    return f"{NOTICE}\n{fields}\n{NOTICE.replace('<', '</')}"


def _notice_fields(info: TaskInfo) -> Iterator[tuple[str, str]]:
    yield "task-id", _escape(info.id)
    yield "type", info.kind
    yield "status", info.status
    kind = "Agent" if info.kind in ("agent", "member") else "Task"
    subject = info.description or info.agent or info.command or info.id
    ended_how = _WORDS[info.status].format(error=info.error or "unknown error")
    yield "summary", _escape(f'{kind} "{_cut(subject, 200)}" {ended_how}')
    for name, value in (
        ("agent", info.agent),
        ("member", info.identity.id if info.identity else ""),
        ("command", info.command),
        ("exit-code", info.exit_code),
        ("error", info.error),
        # What a command wrote is read through a tool, whose results gates can tell from what the user says.
        ("result", None if info.kind == "shell" else info.result),
    ):
        if value is not None and value != "":
            yield name, _escape(str(value))
    for text in info.undelivered:
        yield "unread-message", _escape(text)
    if info.kind == "agent":
        tokens, milliseconds = info.usage.total_tokens, round(info.duration_s * 1000)
        counts = {"total-tokens": tokens, "tool-uses": info.n_calls, "duration-ms": milliseconds}
        yield "usage", "".join([f"<{unit}>{number}</{unit}>" for unit, number in counts.items()])
    if info.output_path is not None:
        yield "output-file", _escape(info.output_path)


def _escape(text: str) -> str:
    """Return a text that can neither end its element nor begin another, cut if it is very long."""
    # Pairs first: a carriage return alone is replaced.
    text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", _cut(text.replace("\r\n", "\n"), LONGEST))
    # `&` first, since the others are written with it.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({count(len(text) - longest, 'more character')})"
