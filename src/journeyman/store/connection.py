"""A connection to Postgres that waits for an answer no longer than it is told to."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from psycopg import Connection as PsycopgConnection

    class Connection(PsycopgConnection[tuple[Any, ...]]):
        """A connection that waits for an answer no longer than it is told to."""

        answer_s: float | None


T = TypeVar("T")

ANSWER_S: Final = 5.0
"""How many seconds to wait for an answer of the database. It is waited for where the event loop runs, so it bounds
how long a server of many clients stands still."""


@cache
def patient_connection() -> type[Connection]:
    """Return the class of connections that wait for an answer no longer than `answer_s`; None: forever."""
    from psycopg import Connection as Driver
    from psycopg.errors import ConnectionTimeout

    class PatientConnection(Driver[tuple[Any, ...]]):
        answer_s: float | None = ANSWER_S

        # The driver itself waits without end, and looks up each tenth of a second: then it is asked here.
        def wait(self, gen: Generator[Any, Any, T], *given: Any, **more: Any) -> T:
            return super().wait(self._until(gen), *given, **more)

        def _until(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
            until = time.monotonic() + (self.answer_s or math.inf)  # a server that is well gives up sooner
            try:
                waits = next(gen)
                while True:
                    is_ready = yield waits
                    if not is_ready and time.monotonic() > until:
                        # For good: the answer could still come, and be read as that of the next statement.
                        self.pgconn.finish()
                        raise ConnectionTimeout(f"no answer came within {self.answer_s:g} seconds")
                    waits = gen.send(is_ready)
            except StopIteration as end:
                return end.value

    return cast("type[Connection]", PatientConnection)
