"""Where the conversations of `journeyman chat` are kept, and which one goes on."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import get_ident
from typing import Any, Final

from journeyman.agent import Agent, Host
from journeyman.chat.chat import Chat
from journeyman.cli.app import Mistake
from journeyman.errors import StoreError
from journeyman.events import Event, Listener
from journeyman.files import make_private_folder
from journeyman.store.repair import StoreRepaired
from journeyman.store.store import SessionInfo, Store
from journeyman.tasks.tasks import Tasks

LATEST: Final = "latest"
"""The id that stands for the agent's conversation that was written to last."""


@dataclass(slots=True, kw_only=True)
class SessionFile:
    """The file of the conversations, and the one that goes on."""

    given: Path | None = None
    """The file that the user named."""
    resume: str | None = None
    """The id of the conversation to go on with; None begins a new one."""
    id: str = field(default="", init=False)
    """The id of the conversation, once it is open."""
    notice: str = field(default="", init=False)
    """What its reader should know, for example that it was damaged and repaired. Empty: nothing."""
    tasks: Tasks = field(default_factory=Tasks, init=False)
    """The background work of the conversation, once it is open."""

    @property
    def path(self) -> Path:
        return self.given or data_folder() / "sessions.sqlite"

    @asynccontextmanager
    async def opened(
        self, agent: Agent[Any, Any, Any], host: Host, on_event: Listener
    ) -> AsyncGenerator[Chat[Any, Any]]:
        """Open the chat. What goes on in its background ends with it; it is told of what ends before.

        Raises:
            Mistake: the file, or the conversation, cannot be used.
        """
        async with AsyncExitStack() as stack:
            self.tasks = Tasks(on_event=_here(on_event), notify=lambda text, task: _tell(chat, text))
            host = replace(host, tasks=await stack.enter_async_context(self.tasks))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", StoreRepaired)  # the notice says it
                    opened = Chat.open(agent, self.path, id=self._wanted(agent), host=host, on_event=on_event)
                    chat = await stack.enter_async_context(opened)
            except StoreError as error:
                raise Mistake(error.message, error.hint) from error
            if chat.session is not None:
                self.id, self.notice = chat.session.id, chat.session.notice or ""
            yield chat

    def _wanted(self, agent: Agent[Any, Any, Any]) -> str | None:
        if self.given is None:
            make_folder(self.path.parent)
        if self.resume != LATEST:
            return self.resume
        found = next((each.id for each in self.all() if each.agent == agent.name), None)
        if found is None:
            raise Mistake(f"{self.path} has no conversation with {agent.name}.", "Leave --resume out to begin one.")
        return found

    def all(self) -> Sequence[SessionInfo]:
        """Return the conversations that are kept, the one that was last written to first.

        Raises:
            StoreError: the file cannot be used.
        """
        with Store(self.path) as store:
            return store.sessions()


def _here(on_event: Listener) -> Listener:
    """Return the listener for whoever calls it in any thread: it is told in this one."""
    loop, thread = asyncio.get_running_loop(), get_ident()

    def tell(event: Event) -> None:
        if get_ident() == thread:
            on_event(event)
        else:
            loop.call_soon_threadsafe(on_event, event)

    return tell


async def _tell(chat: Chat[Any, Any], text: str) -> None:
    """Say that background work has ended: after the turn that goes on, so that its answer is not lost, in another."""
    while chat.state.is_running:
        await chat.wait_idle()
    chat.inject(text)


def data_folder() -> Path:
    """Return the folder in which this program keeps what outlives it."""
    given = os.environ.get("XDG_DATA_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".local" / "share") / "journeyman"


def make_folder(folder: Path) -> None:
    """Make a folder of this program's own, if it is not there.

    Raises:
        Mistake: it cannot be made.
    """
    try:
        make_private_folder(folder)
    except OSError as error:
        hint = "Set XDG_DATA_HOME to a folder that you may write to, or give --session-file FILE."
        raise Mistake(f"The folder {folder} cannot be made: {error.strerror}.", hint) from error
