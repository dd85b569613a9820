"""Shows the library's log while a command runs: one line for each record, where the tree goes; tracebacks on demand."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from journeyman.cli.show.lines import Line, one_line
from journeyman.errors import HOW_TO_SEE_MORE

_ROWS: Final = 4
_PROGRESS: Final = "journeyman.progress"
"""The logger of what takes long, such as loading a model: it is shown, and no warning."""
_HINT: Final = "See it all with --debug."


@contextmanager
def log_shown(say: Callable[[Sequence[Line]], None], *, debug: bool) -> Generator[None]:
    """Show while the block runs what is logged; with `debug` also what may hold content: words and tracebacks."""
    logger, progress = logging.getLogger("journeyman"), logging.getLogger(_PROGRESS)
    handler, levels = _LogHandler(say, debug=debug), (logger.level, progress.level)
    logger.addHandler(handler)
    progress.setLevel(logging.INFO)
    if debug:
        logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        for each, level in zip((logger, progress), levels, strict=True):
            each.setLevel(level)
        logger.removeHandler(handler)


class _LogHandler(logging.Handler):
    def __init__(self, say: Callable[[Sequence[Line]], None], *, debug: bool) -> None:
        super().__init__(logging.DEBUG if debug else logging.INFO)
        self._least = logging.DEBUG if debug else logging.WARNING
        self._say = say
        self._folder = ""
        with suppress(OSError):  # it may have been removed
            self._folder = f"{Path.cwd()}{os.sep}"

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < self._least and record.name != _PROGRESS:
            return
        hint = "" if self.level == logging.DEBUG else _HINT
        said = record.getMessage().replace(HOW_TO_SEE_MORE, hint)
        text = one_line(said.replace(f" {self._folder}", " ")).strip()
        mark = "failed" if record.levelno >= logging.ERROR else "warning"
        is_progress = record.name == _PROGRESS and record.levelno == logging.INFO
        lines = [Line(text=text, style="dim", rows=_ROWS) if is_progress else Line(mark=mark, text=text, rows=_ROWS)]
        raised = record.exc_text or ""  # it is there where a secret was taken out
        if record.exc_info and record.exc_info[1] is not None:
            raised = "".join(traceback.format_exception(record.exc_info[1]))
        if raised:
            lines = [Line(mark="bar", text=row, rows=_ROWS) for row in raised.splitlines()]
        self._say(lines)
