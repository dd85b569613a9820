"""Answers that a server waits for during one call: taken back when the call ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Generic, TypeVar

AnswerT = TypeVar("AnswerT")


class CallAnswers(Generic[AnswerT]):
    """The answers of one call that are being found."""

    def __init__(self) -> None:
        self.open: set[asyncio.Task[AnswerT]] = set()

    def close(self) -> None:
        """Take back what is still asked: the call has ended."""
        for task in self.open:
            task.cancel()

    async def find(self, work: Coroutine[Any, Any, AnswerT], context: Context | None = None) -> AnswerT | None:
        """Return what `work` finds, done in this context; None where the call ended before that."""
        task = asyncio.create_task(work, context=context)
        self.open.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self.open.discard(task)
        return None if task.cancelled() else task.result()
