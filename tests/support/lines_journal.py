"""A journal as a stranger writes it from the page alone: see `docs/journal.md`."""

import json
from collections.abc import Iterable
from pathlib import Path

from journeyman.journal import StoringJournal


class LinesJournal(StoringJournal):
    """A journal in a text file, with one line for each step that was begun or done."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        path.touch()

    def put(self, key: str, value: bytes | None) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps([key, None if value is None else value.decode()]) + "\n")

    def stored(self, prefix: str = "") -> Iterable[tuple[str, bytes | None]]:
        known: dict[str, bytes | None] = {}
        for line in self.path.read_text().splitlines():
            key, value = json.loads(line)
            known[key] = known.get(key) if value is None else value.encode()
        return [(key, value) for key, value in known.items() if key.startswith(prefix)]
