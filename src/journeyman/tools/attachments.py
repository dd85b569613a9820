"""A tool's result before it becomes JSON: sets get an order, and files that stand beside other data are set apart.

A set of texts comes in another order in each process, and then neither a cassette nor a provider's cache knows the
request. A file inside of JSON would be paid for as Base64, and no model would see it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, cast

from pydantic import BaseModel

from journeyman.narrowing import is_dict, is_list_or_tuple, is_set
from journeyman.types import Audio, Document, Image, Url

_ATOMS: Final = frozenset({str, int, float, bool, type(None), bytes})


class _OrderedSet(set[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(in_order(list(super().__iter__())))


class _OrderedFrozenSet(frozenset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(in_order(list(super().__iter__())))


def in_order(items: list[Any]) -> list[Any]:
    """Return the items of a set in an order that is the same in each process."""
    try:
        if not any(isinstance(each, frozenset | tuple) for each in items):
            return sorted(items)
    except TypeError:
        pass
    ordered = sorted(items, key=_order)
    return [_OrderedFrozenSet(cast("Any", each)) if isinstance(each, frozenset) else each for each in ordered]


def _order(item: object) -> str:
    if is_set(item) or is_list_or_tuple(item):
        inner = [_order(each) for each in item]
        return repr(sorted(inner) if isinstance(item, frozenset) else inner)
    return repr(item)


def arrange(value: object) -> tuple[object, list[Image | Document]]:
    """Return a value with its sets in order and a note in place of each file, and the files."""
    if not _needs_care(value):
        return value, []
    files: list[Image | Document] = []
    try:
        return _Arranger(files).arrange(value), files
    except RecursionError:
        return value, []  # it holds itself, which its JSON will say


def _needs_care(value: object) -> bool:
    waiting, seen = [value], set[int]()
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind in _ATOMS or id(each) in seen:
            continue
        if isinstance(each, set | frozenset | Image | Document | Audio):
            return True
        seen.add(id(each))
        if is_dict(each):
            waiting += each.values()
        elif is_list_or_tuple(each):
            waiting += each
        else:
            waiting += _attributes(each).values()
    return False


def _attributes(value: object) -> dict[str, Any]:
    """Return what JSON shows of an object: the fields of a model or a dataclass."""
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value) if hasattr(value, each.name)}
    return {}


class _Arranger:
    def __init__(self, files: list[Image | Document]) -> None:
        self._files = files

    def arrange(self, value: object) -> object:
        """Return the value as its JSON is to show it; only what holds something to arrange is made again."""
        if type(value) in _ATOMS:
            return value
        if isinstance(value, Image | Document | Audio):
            return self._note(value)
        if is_set(value):
            return _OrderedSet(value) if isinstance(value, set) else _OrderedFrozenSet(value)
        if is_dict(value):
            return {key: self.arrange(each) for key, each in value.items()}
        if is_list_or_tuple(value):
            items = [self.arrange(each) for each in value]
            return items if isinstance(value, list) else tuple(items)
        return self._with_attributes(value)

    def _with_attributes(self, value: object) -> object:
        changed = dict[str, Any]()
        for name, each in _attributes(value).items():
            if isinstance(each, Image | Document | Audio):  # of the same class, as the field says
                note = self._note(each)
                changed[name] = replace(each, source=Url(note))
            elif (made := self.arrange(each)) is not each:
                changed[name] = made
        if not changed:
            return value
        if isinstance(value, BaseModel):
            return value.model_copy(update=changed)
        made = copy.copy(value)
        for name, each in changed.items():
            object.__setattr__(made, name, each)
        return made

    def _note(self, file: Image | Document | Audio) -> str:
        if isinstance(file, Audio):
            return "[A sound, which no result can hold, is left out.]"
        self._files.append(file)
        return f"[{file.type} {len(self._files)}, which follows]"
