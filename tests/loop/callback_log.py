"""Callbacks that keep what they are given."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields

from journeyman import events as kinds


@dataclass(slots=True, eq=False)
class CallbackLog:
    """Callbacks that keep their arguments: `run(..., callbacks=log.callbacks())`."""

    entries: list[tuple[str, kinds.CallbackContext, tuple[object, ...]]] = field(
        default_factory=list[tuple[str, kinds.CallbackContext, tuple[object, ...]]]
    )
    """Name, context and the other arguments, in order."""

    def callbacks(self) -> kinds.Callbacks:
        """Return all callbacks there are."""

        def named(name: str) -> Callable[..., None]:
            def keep(context: kinds.CallbackContext, *arguments: object) -> None:
                self.entries.append((name, context, arguments))

            return keep

        return kinds.Callbacks(**{each.name: named(each.name) for each in fields(kinds.Callbacks)})

    @property
    def names(self) -> list[str]:
        """The names of the callbacks, without `on_`, in order."""
        return [name.removeprefix("on_") for name, _, _ in self.entries]

    def of(self, name: str) -> list[tuple[kinds.CallbackContext, tuple[object, ...]]]:
        """Return context and arguments of each call of one callback, named without `on_`."""
        return [(context, arguments) for each, context, arguments in self.entries if each == f"on_{name}"]
