"""Lets a person edit a line on a terminal."""

from __future__ import annotations

import os
from contextlib import ExitStack

from prompt_toolkit import PromptSession
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output.vt100 import Vt100_Output


async def edit(terminal: int, label: str, given: str) -> str | None:
    """Return the edited line; None after Ctrl-C or Ctrl-D."""
    with ExitStack() as stack:
        keys = stack.enter_context(os.fdopen(os.dup(terminal), encoding="utf-8", errors="replace"))
        screen = stack.enter_context(os.fdopen(os.dup(terminal), "w", encoding="utf-8", errors="replace"))
        output = Vt100_Output.from_pty(screen, term=os.environ.get("TERM"), enable_bell=False)
        session: PromptSession[str] = PromptSession(input=Vt100Input(keys), output=output)
        try:
            return await session.prompt_async(label, default=given, handle_sigint=False)
        except (EOFError, KeyboardInterrupt):
            return None
