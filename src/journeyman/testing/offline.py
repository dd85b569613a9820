"""Times in which no provider is asked."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from journeyman.models.transport import Silence, offline


@contextmanager
def no_model_calls(reason: str = "this program may not, by no_model_calls()") -> Generator[Silence]:
    """Refuse every request to a provider, in any event loop and thread of this process, until the block ends.

    A run that would ask one ends as `API_ERROR` with the reason; `refused` of what the block gives has the hosts. A
    server of models on this machine is a provider, too. Scripts, functions and cassettes that replay ask nobody.
    """
    with offline(reason) as silence:
        yield silence
