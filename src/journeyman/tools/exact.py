"""A checked value as it is stored for another process, which gets the same value back, and does not check it again.

JSON as the type writes it is the usual form. Where its reader would make another value of it (a validator that
converts, an alias for writing, a field that is left out), the fields are stored as they are, and only put back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from uuid import UUID

from pydantic import BaseModel

from journeyman.definition.json_numbers import LONG
from journeyman.definition.narrowing import is_dict, is_json_object, is_list, is_list_or_tuple, is_set
from journeyman.errors import InvalidArguments
from journeyman.tools.collection import do_aside
from journeyman.tools.collisions import each_schema
from journeyman.tools.schema import CheckedValue, OutputSchema
from journeyman.types import adapter_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class StoredValue(NamedTuple):
    """A value as it is stored."""

    text: str
    """JSON as its type writes it, which people read."""
    exact: str = ""
    """Its fields as they are, where `text` would be read as another value."""


_PLAIN: Final = (str, int, bool, type(None))
_SMALL: Final = 100
"""A dict with more names than these is written in pieces."""


class _Inexact(Exception):
    """A value has no exact form; the message is the name of its class."""


async def store_value(schema: OutputSchema[Any], value: object) -> StoredValue:
    """Return the form of a checked value that `load_value` reads as the same value.

    Raises:
        InvalidArguments: no form of it would be read as the same value.
    """
    return await do_aside(value, partial(_store, schema))


def _store(schema: OutputSchema[Any], value: object) -> StoredValue:
    text = schema.dump(value).decode()
    if _is_read_as(value, lambda: schema.load(text.encode())):
        return StoredValue(text)
    classes = _classes_of(schema)
    try:
        lines = list[str]()
        exact = "\n".join([_encode(value, classes, lines), *lines])
        is_same = _is_read_as(value, lambda: _read_exact(exact, classes))
        fault = "" if is_same else "its fields do not make the same value again"
    except (_Inexact, ValueError, RecursionError) as error:
        exact, fault = "", f"there is no form for {error}"
    if fault:
        wrong = f"it cannot be stored so that another process gets the same value: {fault}"
        raise InvalidArguments(f"value for {schema.name!r}", [f"{wrong}. Pass what it is made of, or use deps"])
    return StoredValue(text, exact)


async def load_value(schema: OutputSchema[Any], stored: StoredValue) -> CheckedValue:
    """Return a value that was stored; it is not checked again.

    Raises:
        InvalidArguments: it does not fit the type any more; it lists every issue.
    """
    if not stored.exact:
        return CheckedValue(schema, await do_aside(stored.text.encode(), schema.load))
    return CheckedValue(schema, await do_aside(stored.exact, partial(_load_exact, schema)))


def _load_exact(schema: OutputSchema[Any], exact: str) -> object:
    try:
        return _read_exact(exact, _classes_of(schema))
    except (_Inexact, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise InvalidArguments(f"stored {schema.name!r}", [f"its type has changed: {error}"]) from error


def is_loaded_as(schema: OutputSchema[Any], dumped: bytes, value: object) -> bool:
    """Tell whether what is stored of a value would be read as the same value."""
    return _is_read_as(value, lambda: schema.load(dumped))


def _is_read_as(value: object, read: Callable[[], object]) -> bool:
    try:
        return _is_same(read(), value)
    except Exception:  # noqa: BLE001 - validators and `__eq__` of a stranger's class; it then counts as another value
        return False


def _is_same(one: object, other: object) -> bool:
    """Tell whether two values are the same: in their classes, too, and 1 is not True."""
    kind, is_same = type(one), one is other
    if is_same or kind is not type(other):
        return is_same
    if kind in _PLAIN:
        is_same = one == other
    elif isinstance(one, BaseModel) and isinstance(other, BaseModel):
        is_same = all(_is_same(*each) for each in zip(_parts_of_model(one), _parts_of_model(other), strict=True))
    elif is_dict(one) and is_dict(other):
        pairs = ((one, other), (one.values(), other.values()))
        is_same = len(one) == len(other) and all(all(map(_is_same, *each)) for each in pairs)
    elif is_list_or_tuple(one) and is_list_or_tuple(other):
        is_same = len(one) == len(other) and all(map(_is_same, one, other))
    elif isinstance(one, float):
        is_same = repr(one) == repr(other)  # NaN is NaN
    elif is_dataclass(one) and is_dataclass(other) and not isinstance(one, type) and not isinstance(other, type):
        is_same = _is_same(_attributes_of(one), _attributes_of(other))
    elif kind.__eq__ is object.__eq__ and hasattr(one, "__dict__"):
        is_same = _is_same(vars(one), vars(other))
    else:
        is_same = bool(one == other)
    return is_same


def _parts_of_model(value: BaseModel) -> tuple[object, ...]:
    return value.__dict__, value.__pydantic_extra__, value.__pydantic_private__


def _attributes_of(value: DataclassInstance) -> dict[str, object]:
    """Return the attributes of a dataclass, with those that are no fields."""
    named = [each.name for each in fields(value) if hasattr(value, each.name)]
    return {**{name: getattr(value, name) for name in named}, **getattr(value, "__dict__", {})}


def _classes_of(schema: OutputSchema[Any]) -> Mapping[str, type]:
    """Return the classes that a type is made of, by name. No other class is ever made from what is stored."""
    found, twice = dict[str, type](), set[str]()
    for each in each_schema(schema.core_schema):
        cls = each.get("cls", each.get("function") if each.get("type") == "call" else None)
        if isinstance(cls, type) and found.setdefault(cls.__qualname__, cls) is not cls:
            twice.add(cls.__qualname__)
    return {name: cls for name, cls in found.items() if name not in twice}


class _ExactForm(NamedTuple):
    encode: Callable[[Any], object]
    decode: Callable[[Any], object]


_FORMS: Final[Mapping[type, _ExactForm]] = {
    bytes: _ExactForm(partial(str, encoding="latin-1"), partial(bytes, encoding="latin-1")),
    datetime: _ExactForm(datetime.isoformat, datetime.fromisoformat),
    date: _ExactForm(date.isoformat, date.fromisoformat),
    time: _ExactForm(time.isoformat, time.fromisoformat),
    timedelta: _ExactForm(
        partial(adapter_of(timedelta).dump_python, mode="json"), adapter_of(timedelta).validate_python
    ),
    Decimal: _ExactForm(str, Decimal),
    UUID: _ExactForm(str, UUID),
    type(Path()): _ExactForm(str, Path),
}
_COLLECTIONS: Final[Mapping[str, Callable[[list[object]], object]]] = {
    "list": list[object],
    "tuple": tuple[object, ...],
    "set": set[object],
    "frozenset": frozenset[object],
}


_SCALARS: Final = (bool, float, int, str, type(None))


def _encode(value: object, classes: Mapping[str, type], lines: list[str]) -> str:
    """Return a value as JSON: a scalar and a small dict by names as they are, any other as its kind and what it holds.
    Of what is long, parts are added to `lines`."""
    kind = type(value)
    if kind in _SCALARS:
        return json.dumps(value)
    if kind in _FORMS:
        return json.dumps([kind.__name__, _FORMS[kind].encode(value)])
    if is_dict(value) and kind is dict:
        pairs = ((_encode(key, classes, lines), _encode(each, classes, lines)) for key, each in value.items())
        if len(value) <= _SMALL and all(type(key) is str for key in value):
            return "{" + ",".join([f"{key}:{each}" for key, each in pairs]) + "}"
        return f'["dict",{_put_in_lines((f"[{key},{each}]" for key, each in pairs), lines)}]'
    if (is_list_or_tuple(value) or is_set(value)) and kind in (list, tuple, set, frozenset):
        return f'["{kind.__name__}",{_put_in_lines((_encode(each, classes, lines) for each in value), lines)}]'
    return _encode_object(value, classes, lines)


def _encode_object(value: object, classes: Mapping[str, type], lines: list[str]) -> str:
    kind = type(value)
    if classes.get(kind.__qualname__) is not kind:
        raise _Inexact(f"a {kind.__name__}")
    name = json.dumps(kind.__qualname__)
    if isinstance(value, BaseModel) and value.__pydantic_extra__ is None and value.__pydantic_private__ is None:
        named = json.dumps(sorted(value.model_fields_set))
        return f'["model",{name},{_encode(value.__dict__, classes, lines)},{named}]'
    return f'["class",{name},{_encode(_contents_of_object(value), classes, lines)}]'


def _put_in_lines(items: Iterable[str], lines: list[str]) -> str:
    """Return a list of these items; of many, the lines in which they are. Nobody else runs while one line is read."""
    parts, n_chars = [list[str]()], 0
    for each in items:
        if n_chars >= LONG:
            parts.append([])
            n_chars = 0
        parts[-1].append(each)
        n_chars += len(each)
    texts = [f"[{','.join(part)}]" for part in parts]
    if len(texts) == 1:
        return texts[0]
    lines += texts
    return f'{{"lines":[{len(lines) - len(texts)},{len(lines)}]}}'


def _contents_of_object(value: object) -> object:
    """Return the contents from which `_make` makes an object."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, BaseModel):
        return BaseModel.__getstate__(value)
    if is_list_or_tuple(value):
        return list(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _attributes_of(value)
    raise _Inexact(f"a {type(value).__name__}")


def _read_exact(exact: str, classes: Mapping[str, type]) -> object:
    first, *lines = exact.split("\n")
    return _decode(json.loads(first), classes, lines)


def _decode(stored: object, classes: Mapping[str, type], lines: Sequence[str]) -> object:
    if is_json_object(stored):
        return {key: _decode(each, classes, lines) for key, each in stored.items()}
    if not isinstance(stored, list):
        return stored
    kind, *given = cast("list[Any]", stored)
    if kind in ("model", "class"):
        name, inner, *named = given
        if name not in classes:
            raise _Inexact(f"it has no {name}")
        contents = _decode(inner, classes, lines)
        if named:  # of a model, its state as pydantic has it
            nothing = dict.fromkeys(("__pydantic_extra__", "__pydantic_private__"))
            contents = {**nothing, "__dict__": contents, "__pydantic_fields_set__": {*named[0]}}
        return _make(classes[name], contents)
    if kind in _DECODERS:
        return _DECODERS[kind](given[0])
    items: list[Any] = given[0]
    if not is_list(given[0]):
        first, end = given[0]["lines"]
        items = [each for line in lines[first:end] for each in json.loads(line)]
    if kind == "dict":
        return {_decode(key, classes, lines): _decode(each, classes, lines) for key, each in items}
    return _COLLECTIONS[kind]([_decode(each, classes, lines) for each in items])


_DECODERS: Final = {kind.__name__: form.decode for kind, form in _FORMS.items()}


def _make(cls: Any, inner: Any) -> object:  # noqa: ANN401 - any class of the type
    """Return an object with these contents. Nothing of its class is called that could change them."""
    if issubclass(cls, Enum):
        return cls[inner]
    if issubclass(cls, tuple):
        return cast("Any", tuple).__new__(cls, inner)
    made: Any = cls.__new__(cls)
    if issubclass(cls, BaseModel):
        BaseModel.__setstate__(made, inner)
        return made
    for name, each in inner.items():
        object.__setattr__(made, name, each)
    return made
