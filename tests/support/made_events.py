"""Which events are made: not which are heard, so that those count, too, which are made for nobody."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import get_args

from journeyman.events import Event


@contextmanager
def made_events() -> Generator[list[str]]:
    """Give the names of the events that this thread makes in the block, in order."""
    made: list[str] = []

    def note(frame: FrameType, what: str, _: object) -> None:
        if what == "call" and frame.f_code.co_name == "__init__":
            kind = type(frame.f_locals["self"]).__name__
            made.extend([kind] if kind in kinds else [])

    kinds, before = {each.__name__ for each in get_args(Event)}, sys.getprofile()
    sys.setprofile(note)
    try:
        yield made
    finally:
        sys.setprofile(before)
