"""Finds the file in which `journeyman chat` keeps its conversations, and opens the one that goes on."""

from __future__ import annotations

import asyncio
import hashlib
import os
import warnings
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from journeyman.agent import Runtime
from journeyman.cancellation import call_in
from journeyman.chat.chat import Chat
from journeyman.cli.app import Mistake, explain_errors
from journeyman.cli.options import AnyAgent
from journeyman.cli.permit.policy import data_folder
from journeyman.errors import StoreError
from journeyman.events import Listener
from journeyman.machine.files import make_private_folder
from journeyman.store.address import find_store
from journeyman.store.database import without_password
from journeyman.store.postgres import PostgresSessions
from journeyman.store.repair import StoreRepaired
from journeyman.store.store import SessionInfo, Store
from journeyman.tasks.tasks import Tasks

_PLACE: Final = "Set XDG_DATA_HOME to a folder that you may write to, or give --session-file FILE."
LATEST: Final = "latest"
"""The id that stands for the agent's conversation that was written to last."""


@dataclass(slots=True, kw_only=True)
class SessionFile:
    """The file of the conversations, and the one that goes on."""

    given: str | None = None
    """The file that the user named, or the URL of a database."""
    resume: str | None = None
    """The id of the conversation to go on with; None begins a new one."""
    of_folder: bool = False
    """True: without a file that is named, the conversations of the current folder, and no others."""
    id: str = field(default="", init=False)
    """The id of the conversation, once it is open."""
    notice: str = field(default="", init=False)
    """What its reader should know, for example that it was damaged and repaired. Empty: nothing."""
    tasks: Tasks = field(default_factory=Tasks, init=False)
    """The background work of the conversation, once it is open."""

    @property
    def path(self) -> str:
        """The place of the conversations: a path, or a URL; a `Mistake` if there is none for them."""
        if self.given is not None:
            return self.given
        folder = data_folder()
        if folder is None:
            raise Mistake("Conversations have no place here: you have no home directory, and HOME is not set.", _PLACE)
        if not self.of_folder:
            return str(folder / "sessions.sqlite")
        digest = hashlib.sha256(os.fsencode(Path.cwd())).hexdigest()[:12]
        return str(folder / "folders" / f"{Path.cwd().name[:40]}-{digest}.sqlite")

    @property
    def shown(self) -> str:
        """The place as messages show it: without a password."""
        return without_password(self.path)

    @asynccontextmanager
    async def open_chat(self, agent: AnyAgent, runtime: Runtime, on_event: Listener) -> AsyncGenerator[Chat[Any, Any]]:
        """Open the chat. What goes on in its background ends with it; it is told of what ends before."""
        async with AsyncExitStack() as stack:
            loop = asyncio.get_running_loop()  # in which its listener is told, whichever thread a task ends in
            self.tasks = Tasks(
                on_event=lambda event: call_in(loop, partial(on_event, event)),
                notify=lambda text, task: _tell(chat, text),
            )
            runtime = replace(runtime, tasks=await stack.enter_async_context(self.tasks))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", StoreRepaired)  # the notice says it
                    id = self._find_conversation(agent)
                    opened = Chat.open(agent, self.path, id=id, runtime=runtime, on_event=on_event)
                    chat = await stack.enter_async_context(opened)
            except StoreError as error:
                hint = error.hint.removesuffix("To begin one of this id, give create=True.").rstrip()
                raise Mistake(error.message, hint) from error
            if chat.session is not None:
                self.id, self.notice = chat.session.id, chat.session.notice or ""
            yield chat

    def _find_conversation(self, agent: AnyAgent) -> str | None:
        if self.given is None:
            folder = Path(self.path).parent
            with explain_errors(_PLACE, about=f"The folder {folder} cannot be made"):
                make_private_folder(folder)
        if self.resume != LATEST:
            return self.resume
        found = next((each.id for each in self.all() if each.agent == agent.name), None)
        if found is None:
            raise Mistake(f"{self.shown} has no conversation with {agent.name}.", "Leave --resume out to begin one.")
        return found

    def all(self) -> Sequence[SessionInfo]:
        """Return the conversations that are kept, the one that was last written to first; a `StoreError` if they cannot
        be read."""
        found = find_store(self.path)
        if isinstance(found, str):
            return PostgresSessions(found).sessions()
        with Store(found) as store:
            return store.sessions()


async def _tell(chat: Chat[Any, Any], text: str) -> None:
    """Say that background work has ended: after the turn that goes on, so that its answer is not lost, in another."""
    while chat.state.is_running:
        await chat.wait_idle()
    chat.inject(text)
