"""Locks that no fork happens under.

A forked child has the thread that forked, and no other. What another one held in that moment is held in the child for
good: a lock inside of SQLite, or a module that it was importing. So whatever a thread of ours works on it does under a
lock that is waited for before a fork, as `logging` does with its own.
"""

from __future__ import annotations

import os
import time
import weakref
from threading import Lock
from typing import Final, Protocol

_PATIENCE_S: Final = 5.0
"""How long a fork waits, in seconds: it happens even if a disk stands still."""


class _Lock(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...


_awaited: Final[set[weakref.ref[_Lock]]] = set()
_forking: Final = Lock()
_held: Final[list[_Lock]] = []
"""The locks that the thread holds which forks."""


def hold_at_forks(lock: _Lock) -> None:
    """Have every fork of this process wait until nobody else holds the lock, at most some seconds."""
    _awaited.add(weakref.ref(lock, _awaited.discard))


def _hold_all() -> None:
    """Hold all of them at once. Whoever holds one may want another, so none is waited for while others are held."""
    _forking.acquire()
    end_s = time.monotonic() + _PATIENCE_S
    while (busy := _first_busy()) is not None:
        _release_held()
        if not busy.acquire(timeout=max(end_s - time.monotonic(), 0)):
            return
        busy.release()


def _first_busy() -> _Lock | None:
    for lock in [each() for each in tuple(_awaited)]:  # it is copied at once: other threads add to it
        if lock is not None and not lock.acquire(blocking=False):
            return lock
        if lock is not None:
            _held.append(lock)
    return None


def _release_held() -> None:
    while _held:
        _held.pop().release()


def _release_all() -> None:
    _release_held()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
