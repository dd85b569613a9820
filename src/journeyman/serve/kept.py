"""The runs and turns that can be found here, by name, and how long they are kept: those that go on, and those that have
ended a moment ago, or only wait. Limits say how many there may be, and the oldest are forgotten first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

from journeyman.durable import Memory
from journeyman.serve.live import Live, Past, ServeLimits
from journeyman.session import TURN


class KeptRuns:
    """All that is followed, or could be. It is used from one event loop."""

    def __init__(self, limits: ServeLimits) -> None:
        self._limits: Final = limits
        self._lives: dict[str, Live] = {}
        """Runs by their names, chats by the ids of their sessions after `TURN`."""
        self._past: dict[str, Past] = {}
        """Runs that have ended, by their names."""
        self._going: dict[Live, str] = {}
        """Those that requests drive, each with its name in `_lives`: only these are looked at each second."""
        self._idle: dict[Live | Past, tuple[str, float]] = {}
        """Those that have ended, only wait in the store, or are driven elsewhere, each with its name and since when
        nothing has happened to it; the oldest first."""
        self._chat_used_s: dict[str, float] = {}
        """When chats that are kept in memory were last used; the oldest first."""
        self.keys: Final[dict[str, tuple[str, str]]] = {}
        """Of chats, the key of the newest turn, and what it was asked."""

    def clear(self) -> None:
        """Forget everything, as before it was opened."""
        for kept in (self._lives, self._past, self._going, self._idle, self._chat_used_s, self.keys):
            kept.clear()

    def __iter__(self) -> Iterator[Live]:
        return iter(self._lives.values())

    def get(self, name: str) -> Live | None:
        """Return the run or turn of a name, unless only its end is kept."""
        return self._lives.get(name)

    def find_past(self, name: str) -> Past | None:
        """Return the run of this name, if it has ended."""
        return self._past.get(name)

    def find_followed(self, name: str) -> Live | None:
        """Return the run or turn that is followed under a name, unless it was left: somebody may go on with that."""
        live = self._lives.get(name)
        return None if live is None or (live.ended is not None and live.ended.code is None) else live

    def add(self, name: str, live: Live) -> Live:
        """Let something be found under a name, instead of what was before it."""
        for before in self._find(name):
            self.drop(name, before)
        self._lives[name] = live
        self._going[live] = name
        return live

    def settle(self, name: str, live: Live) -> None:
        """Keep only bytes of a run that has ended. Whoever follows it reads on in what there was."""
        if live.ended is not None and self._lives.get(name) is live:
            self.drop(name, live)
            past = self._past[name] = Past(live, live.ended)
            self._idle[past] = name, past.moved_s

    def _find(self, name: str) -> list[Live | Past]:
        return [each for each in (self._lives.get(name), self._past.get(name)) if each is not None]

    def drop(self, name: str, kept: Live | Past) -> bool:
        """Let something be found no more under its name. False: another one is found there."""
        if isinstance(kept, Live):
            self._going.pop(kept, None)
        self._idle.pop(kept, None)
        known: dict[str, Any] = self._past if isinstance(kept, Past) else self._lives
        if known.get(name) is not kept:
            return False
        del known[name]
        return True

    def forget(self, name: str) -> None:
        """Forget what has ended here under the name of a run, or of a chat after `TURN`."""
        for each in self._find(name):
            self.drop(name, each)
        self.keys.pop(name, None)
        self._chat_used_s.pop(name.removeprefix(TURN), None)

    def use_chat(self, id: str) -> None:
        """Note that a chat was used now."""
        self._chat_used_s.pop(id, None)
        self._chat_used_s[id] = asyncio.get_running_loop().time()

    def look(self, look_at: Callable[[Live, float], None]) -> None:
        """Look at each that requests drive, with the time; then forget what was not used for long, and the oldest of
        what is too much."""
        now_s = asyncio.get_running_loop().time()
        for live, name in list(self._going.items()):
            if live.is_driven:
                look_at(live, now_s)
            else:
                del self._going[live]
                self._idle[live] = name, live.moved_s
        self._forget_idle(now_s)

    def _forget_idle(self, now_s: float) -> None:
        kept_s, most = self._limits.kept_s, self._limits.kept_runs
        for live in list(self._idle):
            name, since_s = self._idle[live]
            if now_s - since_s <= kept_s and len(self._idle) <= most:
                break
            del self._idle[live]
            if isinstance(live, Live) and live.is_driven:
                self._going[live] = name
            elif live.n_followers or (live.moved_s > since_s and len(self._idle) < most):
                self._idle[live] = name, now_s if live.n_followers else live.moved_s
            else:
                if isinstance(live, Live) and live.task is not None and live.ended is None:
                    live.task.cancel()  # it waits for its end, which nobody wants to know any more
                if self.drop(name, live):
                    self.keys.pop(name, None)

    def forget_stored(self, memory: Memory, *, now: float) -> None:
        """Forget runs and chats that are stored in memory only. `now` is the time by the clock of the runs."""
        memory.forget_ended(before=now - self._limits.kept_s, most=self._limits.kept_runs)
        now_s = asyncio.get_running_loop().time()
        for id in list(self._chat_used_s):
            is_much = len(self._chat_used_s) > self._limits.kept_runs
            if now_s - self._chat_used_s[id] <= self._limits.kept_s and not is_much:
                return
            live = self._lives.get(TURN + id)
            if live is None or (is_much and live.ended is not None and not live.n_followers):
                del self._chat_used_s[id]
                memory.sessions.pop(id, None)
            else:
                self.use_chat(id)
