"""Where sessions are kept in the tests that hold of every such place: in a file, and in a Postgres database."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from journeyman.store import PostgresSessions, Store


@dataclass(frozen=True, slots=True)
class Kept:
    """A place of sessions."""

    place: str
    """What `Chat.open` takes: a path, or a URL."""

    @contextmanager
    def stored(self, *, redact: Sequence[str] | None = None) -> Generator[Store | PostgresSessions]:
        """Give what reads and opens the sessions there."""
        if self.place.startswith("postgresql:"):
            yield PostgresSessions(self.place, redact=redact)
        else:
            with Store(self.place, redact=redact) as store:
                yield store


@pytest.fixture(params=["file", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    """An empty place, once for each kind."""
    if request.param == "postgres":
        return Kept(request.getfixturevalue("emptied"))
    return Kept(str(tmp_path / "chats.db"))
