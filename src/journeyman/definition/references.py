"""Agents and tools in other processes: one that is the value of a name in a module is sent as that name.

It holds functions, models and locks that no process can send; the other process imports the module and has its own.
"""

from __future__ import annotations

import pickle
import sys
from pkgutil import resolve_name
from typing import Self


class SentByName:
    """A value that never changes, and is pickled as the module and the name where it stands."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Return how another process finds it.

        Raises:
            pickle.PicklingError: no module has a name for it.
        """
        for module in list(sys.modules.values()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if value is self:
                    return resolve_name, (f"{module.__name__}:{name}",)
        own = getattr(self, "name", "it")
        raise pickle.PicklingError(
            f"{type(self).__name__} {own!r} cannot be sent to another process: it is sent as the name that it has in a"
            f" module, and has none. Make it at the top of a module: {own} = …"
        )
