"""Good requests with one fault each: how a fault is planted, and what is found."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import cast

from tests.support.messages_json import Json, as_list


@dataclass(frozen=True, slots=True)
class Change:
    """A fault that can be planted in a request."""

    name: str
    apply: Callable[[Json], object]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A good request with one fault."""

    rule: str
    """The rule that must find it."""
    base: str
    """The name of the good request."""
    change: Change

    def __str__(self) -> str:
        return f"{self.rule}: {self.base}: {self.change.name}"

    def of(self, good: dict[str, Json]) -> Json:
        """Plant the fault in a copy of the good request."""
        request = deepcopy(good[self.base])
        self.change.apply(request)
        return request


def refusals(table: dict[str, dict[str, list[Change]]]) -> list[Mutant]:
    """Return a mutant for each change, listed by the rule that must find it and the good request that is changed."""
    rows = [
        (rule, base, change) for rule, bases in table.items() for base, changes in bases.items() for change in changes
    ]
    return [Mutant(*row) for row in rows]


def put(path: str, value: object) -> Change:
    """Return a change that sets what stands at a dotted path."""
    return Change(f"put {path}", lambda request: _parent(request, path).__setitem__(_key(path), value))


def drop(path: str) -> Change:
    """Return a change that deletes what stands at a dotted path."""
    return Change(f"drop {path}", lambda request: _parent(request, path).__delitem__(_key(path)))


def add(path: str, *values: object) -> Change:
    """Return a change that appends to the list at a dotted path."""
    return Change(f"add {path}", lambda request: as_list(_parent(request, path)[_key(path)]).extend(values))


def both(first: Change, second: Change) -> Change:
    """Return two changes as one."""
    return Change(f"{first.name}, {second.name}", lambda request: (first.apply(request), second.apply(request)))


def rules_broken(violations: list[str]) -> set[str]:
    """Name the rules that violations are about."""
    return {violation.partition(":")[0] for violation in violations}


def _parent(request: Json, path: str) -> dict[str | int, object]:
    place: object = request
    for step in path.split(".")[:-1]:
        place = cast("dict[str | int, object]", place)[int(step) if step.isdigit() else step]
    return cast("dict[str | int, object]", place)


def _key(path: str) -> str | int:
    last = path.rpartition(".")[2]
    return int(last) if last.isdigit() else last
