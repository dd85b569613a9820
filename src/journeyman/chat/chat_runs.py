"""The runs of a chat, one after the other: what they share, and what is kept of each.

`chat.py` says when one begins. Imports `execution`, `keeping`, `loop`, `questions`, `turn` and the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from journeyman.agent import NOTHING_AROUND, Agent, Host
from journeyman.chat.keeping import Keeping, noted_on
from journeyman.chat.questions import Questions, current_questions
from journeyman.chat.turn import Turn, closing_of, used
from journeyman.events.run import Callbacks, Listener, Path
from journeyman.history import History
from journeyman.inbox import Inbox, current_inbox
from journeyman.journal import Section
from journeyman.loop.attempts import carry_out
from journeyman.loop.execution import Execution, Options, begin, current_path, current_run
from journeyman.model import Model
from journeyman.result import Result
from journeyman.session import Session
from journeyman.types import NOTHING_USED, Message, Usage


class Runs:
    """What the runs of one chat share."""

    def __init__(
        self,
        agent: Agent[Any, Any],
        host: Host | None,
        callbacks: Callbacks | None,
        listeners: list[Listener],
    ) -> None:
        self.agent = agent
        self.host = host or NOTHING_AROUND
        self.listeners = listeners
        self.input: Any = ""
        """Of the last run."""
        self._callbacks = callbacks
        self._closing = closing_of(agent)
        self._numbers = count(1)
        self._above: Path = ()
        self._run_above = current_run.get()

    def go_on_from(self, history: Sequence[Message], session: Session | None, inbox: Inbox) -> None:
        """Begin with a conversation: the one that is kept, or else the one that is given."""
        self.inbox = inbox
        self.keeping = Keeping(session, inbox)
        self.history = self.keeping.history(history, self._closing)
        self.usage, self.n_runs = self.keeping.used

    def enter(self, model: Model | None, questions: Questions) -> Path:
        """Take the place where the runs are to be, and return it."""
        self._questions = questions
        self._above, self._run_above = current_path.get(), current_run.get()
        self.host = replace(self.host, approve=self.host.approve or questions.approve, model=model)
        return (*self._above, self.agent.name)

    async def run(self, turn: Turn[Any], input: Any, *, goes_on: bool) -> Result[Any]:  # noqa: ANN401 - any agent's
        """Do one run of a turn. What it leaves is kept, however it ends."""
        self.n_runs += 1
        self.input = input
        execution = turn.execution = self._execution(turn, input, goes_on=goes_on)
        try:
            result = await carry_out(execution)
        except BaseException as error:
            self.history.close(self._closing)
            with noted_on(error):
                self._end(turn, execution)
            raise
        self._end(turn, execution)
        return result

    def _execution(self, turn: Turn[Any], input: Any, *, goes_on: bool) -> Execution:  # noqa: ANN401 - any agent's
        current_path.set(self._above)
        current_run.set(self._run_above)
        current_questions.set(self._questions)
        current_inbox.set(self.inbox)
        journal = self.host.journal and Section(self.host.journal, self._place())
        options = Options(
            callbacks=self._callbacks,
            listeners=self.listeners,
            abort=turn.signal,
            history=self.history,
            host=replace(self.host, journal=journal) if journal else self.host,
            inbox=self.inbox,
            keep=None if self.keeping.session is None else lambda: self.keep(turn.used()),
            going_on=self.inbox.hand_over if goes_on else None,
            abort_note=lambda: turn.note,
            numbers=self._numbers,
        )
        return begin(self.agent, input, options)

    def _place(self) -> str:
        """Return where in the journal the run's steps are: the same again only for the same run of the same chat."""
        return f"run/{self.n_runs}/message/{len(self.history.messages)}"

    def _end(self, turn: Turn[Any], execution: Execution) -> None:
        turn.execution = None
        self.usage += used(execution)
        self.keep()

    def keep(self, more: Usage = NOTHING_USED) -> None:
        """Keep what is new. `more` is what the run that goes on has used."""
        self.keeping.keep(self.history, self.usage + more, self.n_runs)

    def replace(self, messages: Sequence[Message]) -> None:
        """Go on from another conversation."""
        self.history = History(messages, closing=self._closing)
        self.keep()

    def reset(self) -> None:
        """Forget the conversation, the queues and the usage."""
        self.history, self.input, self.usage = History(), "", NOTHING_USED
        self.keeping.clear()
        self.keep()
