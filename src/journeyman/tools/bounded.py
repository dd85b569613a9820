"""The check of a value by a Python type, at a cost that is known before: pydantic tries every member of a union, at
every level, and keeps an error for every place.

A value of moderate size is checked by pydantic as it is. Of a large one the verdict is the same, but it comes from a
validator that keeps no errors, and only the first faults are looked for afterwards. What a union of types that hold
themselves would cost is counted first, and what is too much is refused: in a thread where an event loop runs, sooner
than in others. To make the value alone may take pydantic longer than the loop can wait. So long texts are checked in a
thread (`do_aside`), and the validator leaves the interpreter to the loop again and again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from decimal import Decimal
from functools import cached_property, partial
from sys import hash_info
from typing import Any, Final, Generic, Literal, NoReturn, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, SchemaValidator, from_json

from journeyman.cancellation import is_failure
from journeyman.definition.json_numbers import holds_long_numbers
from journeyman.definition.narrowing import is_dict, is_list, is_list_or_tuple, is_str_dict
from journeyman.errors import InvalidArguments
from journeyman.texts import shorten_line
from journeyman.tools.collection import holds_loop
from journeyman.tools.collisions import CollisionBound, TooManyCollide, counts_numbers, each_schema, hashes_numbers
from journeyman.tools.issues import Fault, Rank, faults_of, issue_lines
from journeyman.tools.shape import HOLDERS, MAX_STEPS, Shape

T = TypeVar("T")
Origin = Literal["json", "python"]

_MAX_LOOKS_EXPLAINED: Final = 2_000
"""How many looks at values are cheap enough that an error may be kept for each."""
_MAX_CHARS_TOLD: Final = 3_000_000
"""How long the choices may be that all errors name together: each names all that an enum has."""
_MAX_CHARS_EXPLAINED: Final = 300_000
"""In how much of a text faults are looked for, where it has few objects and lists: to make objects of a long one takes
longer than to check it."""
_MAX_CHARS_COPIED: Final = 30_000_000
"""How much of a text the errors may hold together: each has a copy of the object or list that it is about."""
_MAX_LOOKS: Final = 120_000
"""How often values may be looked at where types multiply: some 20 ms. Of a long value, some for each."""
_MAX_LOOKS_AT_EACH: Final = 10
_MAX_LOOKS_AT_ALL: Final = 600_000
"""The most looks at values where types multiply, however many they are: some 50 ms."""
_PATIENCE: Final = 10
"""A check that holds no event loop may take so many times as long."""
_MAX_VISITS: Final = 1_000
"""How often each single value may be looked at, before it is counted how many there are."""
_MAX_LOOKS_UNCOUNTED: Final = 500_000
"""How often all values together may be looked at before that is counted: a union of twenty models looks at a value in
all of them."""
_MAX_COPIES: Final = 1_000_000
"""How often values of a text may be copied because a member of a union does not fit what they are in: some 40 ms. Of a
long text, some for each."""
_MAX_COPIES_OF_EACH: Final = 30

_MANY_HOLDERS: Final = 40_000
"""From how many objects and lists on a value is judged before it is made: each takes up to 800 bytes."""
_MANY_VISITS: Final = 20
"""From how many looks at each value on, a check is too slow to be done twice."""
_TOO_LONG: Final = "checking them by their types would take too long; send less at a time, and nest it less deeply"


class BoundedValidator(Generic[T]):
    """Checks values by a type, as pydantic does."""

    def __init__(self, adapter: TypeAdapter[T], *, hides: bool = False) -> None:
        """`hides`: no error may show the values that came."""
        self._adapter = adapter
        self._hides = hides
        self._verdicts: dict[tuple[Origin, bool], SchemaValidator] = {}
        self._explainers: dict[Origin, SchemaValidator] = {}
        self._bounds = _ExplanationBounds()
        self._bound = CollisionBound()
        self._digits = _Digits()
        self._exact: dict[bool, SchemaValidator] = {}
        """Those whose decimals keep their digits: the one that keeps every error, and the one that keeps none."""

    def check_json(self, input_json: str | bytes, subject: str) -> T:
        """Return the value that a JSON text holds.

        Raises:
            InvalidArguments: it does not fit, or holds NaN or Infinity, which are no JSON; it lists every issue, or
                the first ones of a large value.
        """
        try:
            with self._collisions():
                value = self._checked_json(input_json)
            is_in_text = isinstance(input_json, str) and ("NaN" in input_json or "Infinity" in input_json)
            if is_in_text or (isinstance(input_json, bytes) and (b"NaN" in input_json or b"Infinity" in input_json)):
                from_json(input_json, allow_inf_nan=False)
            return cast("T", value)
        except (_TooCostly, TooManyCollide):
            issues: Sequence[str] = [_TOO_LONG]
        except (ValidationError, _DoesNotFit) as error:
            issues = self._issues(error, input_json)
        except BaseException as error:  # a validator of the user's raised: for the model, as any refusal
            if not is_failure(error):
                raise
            raise InvalidArguments(subject, [unchecked(error)]) from error
        # Not above, where it would keep alive all that the frames hold in which the check ended.
        raise InvalidArguments(subject, issues)

    def _checked_json(self, input_json: str | bytes) -> object:
        n_values, n_holders = _n_marks(input_json)
        is_slow = self._shape.n_members or self._shape.n_visits >= _MANY_VISITS
        if is_slow and self._shape.may_be_objects and n_values > _MAX_LOOKS_EXPLAINED:
            # What does not fit a member of a union is copied out of a text at each level; of an object, it is kept.
            try:
                value: object = from_json(input_json)
            except (ValueError, TypeError):
                pass  # the check below says what is wrong
            else:
                if self._may_be_many(n_values * self._shape.n_visits):
                    self._count_looks(value, n_values)
                if self._is_judged_first(n_holders):
                    self._verdict("python", keeps=False).validate_python(value)
                return self._verdict("python").validate_python(value)
        is_cheap = self._is_cheap_json(input_json)
        if not is_cheap and self._is_judged_first(n_holders):
            self._verdict("json", keeps=False).validate_json(input_json)
        if "decimal" not in self._kinds or not may_be_rounded(input_json):
            return (self._validator if is_cheap else self._verdict("json")).validate_json(input_json)
        if is_cheap not in self._exact:
            schema = self._digits.read_by(self._core)
            self._exact[is_cheap] = _build_validator(schema) if is_cheap else _judging(schema, "json")
        with self._digits.of_text(input_json, in_texts="json" in self._kinds):
            return self._exact[is_cheap].validate_json(input_json)

    def check_python(self, value: object, subject: str) -> T:
        """Return a Python value, validated.

        Raises:
            InvalidArguments: it does not fit; it lists every issue, or the first ones of a large value.
        """
        try:
            with self._collisions():
                is_cheap = self._is_cheap(value)
                if not is_cheap and self._is_judged_first(_n_holders_of(value, _MANY_HOLDERS)):
                    self._verdict("python", keeps=False).validate_python(value)
                return cast("T", (self._validator if is_cheap else self._verdict("python")).validate_python(value))
        except (_TooCostly, TooManyCollide):
            issues: Sequence[str] = [_TOO_LONG]
        except (ValidationError, _DoesNotFit) as error:
            if isinstance(error, ValidationError) and not self._tells_too_much(error):
                issues = issue_lines(faults_of(error, hides=self._hides))
            else:
                issues = self._first_issues(value, "python")
        except BaseException as error:
            if not is_failure(error):
                raise
            raise InvalidArguments(subject, [unchecked(error)]) from error
        raise InvalidArguments(subject, issues)

    def _is_cheap_json(self, input_json: str | bytes) -> bool:
        """Tell whether every error of what a text holds may be kept.

        Raises:
            _TooCostly: it may not even be checked.
        """
        shape = self._shape
        n_values, n_holders = _n_marks(input_json)
        n_looks = n_values * shape.n_visits
        most = max(_MAX_COPIES, n_values * _MAX_COPIES_OF_EACH) // (shape.n_members or 1)
        may_be_deep = shape.n_members > 0 and n_values * n_holders > most
        may_be_many = self._may_be_many(n_looks)
        if may_be_deep or may_be_many:
            try:
                value = from_json(input_json)
            except (ValueError, TypeError):
                return True  # the check will say what is wrong
            if may_be_many:  # before the depth: it ends as soon as it is too much
                n_looks = n_holders = self._count_looks(value, n_values, len(input_json))
            if may_be_deep and self._n_levels_of_all(value, most) > most:
                raise _TooCostly
        n_chars_copied = n_holders * shape.n_fields * len(input_json) + n_looks * shape.n_chars_of_choices
        return n_looks <= _MAX_LOOKS_EXPLAINED and n_chars_copied <= _MAX_CHARS_COPIED

    def _is_cheap(self, value: object) -> bool:
        shape = self._shape
        most = _MAX_LOOKS_EXPLAINED if shape.n_visits == 1 else _MAX_LOOKS
        n_values, texts = _n_values_of(value, most), list[str | bytes]()
        if "json" in self._kinds and n_values <= most:
            inside = [each for holders in _levels_of(value) for each in holders]
            given = [each for holder in inside for each in (holder.values() if is_dict(holder) else holder)]
            texts = [each for each in given if isinstance(each, str | bytes)]
            n_values += sum([_n_marks(each)[0] for each in texts])
        n_looks = n_values * shape.n_visits
        if self._may_be_many(n_looks):
            n_looks = self._count_looks(value, n_values)
        is_cheap = n_looks <= _MAX_LOOKS_EXPLAINED and n_looks * shape.n_chars_of_choices <= _MAX_CHARS_COPIED
        return is_cheap and all(map(self._is_cheap_json, texts))

    def _may_be_many(self, n_looks: float) -> bool:
        n_visits = self._shape.n_visits
        return n_visits > _MAX_VISITS or (n_looks > _MAX_LOOKS_UNCOUNTED * _patience() and n_visits > 1)

    def _count_looks(self, value: object, n_values: int, n_chars: int = 0) -> float:
        patience = _patience()
        most = max(_MAX_LOOKS, n_values * _MAX_LOOKS_AT_EACH * patience)
        if self._shape.n_visits > _MAX_VISITS:
            most = min(most, _MAX_LOOKS_AT_ALL * patience)
        n_looks = float("inf")
        if n_values > _MAX_LOOKS_EXPLAINED:  # for fewer, the number itself matters
            n_looks = self._shape.n_looks_at_most([sum(map(len, each)) for each in self._levels_of(value)], most)
        if n_looks > most:
            n_looks = self._shape.n_looks(value, most, max_steps=MAX_STEPS * patience)
        if n_looks > most or n_looks / n_values * n_chars > _MAX_CHARS_COPIED:
            raise _TooCostly
        return n_looks

    def _levels_of(self, value: object) -> Generator[Sequence[Collection[object]]]:
        return _levels_of(value, opens_texts="json" in self._kinds)

    def _n_levels_of_all(self, value: object, most: int) -> int:
        """Count in how many lists and objects each value is, all together, no further than is needed to know that it
        is more than `most`."""
        n_levels = 0
        for depth, holders in enumerate(self._levels_of(value)):
            n_levels += depth * sum(map(len, holders))
            if n_levels > most:
                break
        return n_levels

    def _tells_too_much(self, error: ValidationError) -> bool:
        return error.error_count() * self._shape.n_chars_of_choices > _MAX_CHARS_TOLD

    def _issues(self, error: ValidationError | _DoesNotFit, input_json: str | bytes) -> Sequence[str]:
        if isinstance(error, ValidationError) and not self._tells_too_much(error):
            return issue_lines(faults_of(error, input_json, hides=self._hides))
        n_values, n_holders = _n_marks(input_json)
        most = _MAX_CHARS_EXPLAINED * n_values // (n_values + _COST_OF_HOLDER * n_holders)
        value, is_whole = from_json(input_json[:most], allow_partial=True), len(input_json) <= most
        return self._first_issues(value, "json", is_whole=is_whole)

    def _first_issues(self, value: object, origin: Origin, *, is_whole: bool = True) -> Sequence[str]:
        """Find the first faults of a large value that does not fit, in objects: a text would be copied for each. What
        is not whole was cut off: only faults of what stands before that are told."""
        first: Sequence[str] = ()
        if not (origin == "json" and self._shape.is_strict):  # a strict type takes other JSON than Python's objects
            self._bounds.n_names = self._bounds.n_looks = 0
            if origin not in self._explainers:
                rewriter = _Explaining(
                    origin, _Order(self._core, origin), self._bounds, drops_references=self._shape.branches
                )
                self._explainers[origin] = _build_validator(rewriter.rewrite(self._core))
            try:
                with self._collisions():
                    self._explainers[origin].validate_python(value)
            except TooManyCollide:
                return [_TOO_LONG]
            except _IsFarBehind:
                first = ()
            except ValidationError as error:
                faults = faults_of(error, hides=self._hides)
                first = issue_lines([each for each in faults if is_whole or _is_before_cut(each, value)])
            except Exception as error:  # noqa: BLE001 - as in `check_json`
                first = [unchecked(error)]
        if first:
            return [*first, "there may be more: of a long value, only the first faults are told"]
        return ["it does not fit, and is too long to say where: look for unknown names, or send less at a time"]

    @cached_property
    def _shape(self) -> Shape:
        return Shape(self._adapter.core_schema)

    def _collisions(self) -> AbstractContextManager[None]:
        return self._bound.bound() if self._hashes_numbers else nullcontext()

    @cached_property
    def _hashes_numbers(self) -> bool:
        return hashes_numbers(self._adapter.core_schema)

    @cached_property
    def _core(self) -> _Json:
        """The schema of the type, with a look at what is put into sets."""
        core = cast("_Json", self._adapter.core_schema)
        return self._bound.in_schema(core, _copy_schema) if self._hashes_numbers else core

    @cached_property
    def _validator(self) -> SchemaValidator:
        made = _build_validator(self._core) if self._hashes_numbers else self._adapter.validator
        return cast("SchemaValidator", made)

    @cached_property
    def _kinds(self) -> frozenset[str]:
        return kinds_in(self._adapter.core_schema)

    def _is_judged_first(self, n_holders: int) -> bool:
        """Tell whether what may not fit is refused before anything is made of it: many objects take much memory."""
        is_slow = _MANY_VISITS <= self._shape.n_visits < float("inf")
        return n_holders > _MANY_HOLDERS and self._shape.may_be_dropped and not is_slow

    def _verdict(self, origin: Origin, *, keeps: bool = True) -> SchemaValidator:
        """Return what makes a value, or refuses it; of one that `keeps` nothing, there is only the verdict."""
        if (origin, keeps) not in self._verdicts:
            self._verdicts[origin, keeps] = _judging(self._core, origin, keeps=keeps)
        return self._verdicts[origin, keeps]


class _TooCostly(Exception):
    """A check would take too long."""


class _DoesNotFit(Exception):
    """A large value does not fit. pydantic's own error would hold a copy of it for each place."""


def _refuse() -> NoReturn:
    raise _DoesNotFit


def _patience() -> int:
    return 1 if holds_loop() else _PATIENCE


def unchecked(error: BaseException) -> str:
    """Return the issue for an input whose check itself failed."""
    return f"it could not be checked: {type(error).__name__}: {shorten_line(str(error))}"


def _is_before_cut(fault: Fault, value: object) -> bool:
    """Tell whether a fault is one of what is complete in a value that was cut off at its end."""
    if fault.rank is Rank.UNKNOWN:
        return True
    for step in fault.path:
        if is_dict(value) and step in value:
            last, inside = next(reversed(value)), value[step]
        elif is_list(value) and isinstance(step, int) and step < len(value):
            last, inside = len(value) - 1, value[step]
        else:
            return False
        if step != last:
            return True
        value = inside
    return False


def _levels_of(value: object, *, opens_texts: bool = False) -> Generator[Sequence[Collection[object]]]:
    """Give the lists and dicts in which the value is, which are in it, which are in those, and so on. `opens_texts`:
    also what texts hold that are JSON."""
    holders: list[Any] = [[value]]
    while holders:
        yield holders
        values: Iterator[Any] = (each.values() if is_dict(each) else each for each in holders)
        if opens_texts:
            values = ([_open_text(inner) for inner in inside] for inside in values)
        holders = [inner for inside in values for inner in inside if isinstance(inner, HOLDERS)]


def _open_text(value: object) -> object:
    """Return what a text holds, if it is JSON; anything else as it is."""
    while isinstance(value, str) and value[:1] in ("{", "[", '"'):
        try:
            value = from_json(value)
        except ValueError:
            break
    return value


def _n_values_of(value: object, most: int) -> int:
    """Count the values in lists and dicts, no further than is needed to know that they are more than `most`."""
    n_values = 0
    for holders in _levels_of(value):
        n_values += sum(map(len, holders))
        if n_values > most:
            return most + 1
    return n_values


def _n_holders_of(value: object, most: int) -> int:
    """Count the lists and dicts, no further than is needed to know that they are more than `most`."""
    n_holders = 0
    for holders in _levels_of(value):
        n_holders += len(holders)
        if n_holders > most:
            break
    return n_holders


def _n_marks(input_json: str | bytes) -> tuple[int, int]:
    """Return at least how many values a text holds, and how many objects and lists."""
    if isinstance(input_json, str):
        n_holders = 1 + input_json.count("{") + input_json.count("[")
        return n_holders + input_json.count(","), n_holders
    n_holders = 1 + input_json.count(b"{") + input_json.count(b"[")
    return n_holders + input_json.count(b","), n_holders


#
# In pydantic-core every error has a copy of what it is about, and what was JSON is copied once for each: forty missing
# fields beside a list of one megabyte take forty megabytes.

_Json = dict[str, Any]
_FAIL_FAST: Final = frozenset(
    {"counter", "deque", "dict", "frozendict", "frozenset", "list", "ordered-dict", "set", "tuple"}
)
_FIELDS: Final = frozenset({"model-fields", "typed-dict"})
_OBJECTS: Final = frozenset({"dataclass", "model", "named-tuple", "typed-dict"})
_DEAR: Final = frozenset({*_FAIL_FAST, *_OBJECTS, "decimal", "union"})
"""Schemas of which a check of one value takes so long that a call of a function beside it hardly counts."""
_LETS_OTHERS_RUN: Final[_Json] = {"type": "no-info", "function": lambda value: value}  # pyright: ignore[reportUnknownLambdaType] - any value
"""pydantic-core keeps the interpreter to itself for as long as it calls nothing of Python's."""
_DROPS: Final[_Json] = {"type": "no-info", "function": lambda value: None}  # pyright: ignore[reportUnknownLambdaType] - any value
_SCALARS: Final = frozenset({"bool", "float", "int", "none", "str"})
"""Schemas that take no object and no list."""
_CONVERTERS: Final = frozenset({"chain", "function-before", "function-plain", "function-wrap"})
_ATTEMPTS: Final = frozenset({"default", "function-plain", "function-wrap", "lax-or-strict", "union"})
"""Schemas that may take a value although one that they hold does not."""
_HELD: Final = (
    *("schema", "items_schema", "keys_schema", "values_schema", "extras_schema", "extras_keys_schema"),
    *("lax_schema", "strict_schema", "json_schema", "python_schema", "var_args_schema", "var_kwargs_schema"),
    *("arguments_schema", "choices", "definitions", "fields", "steps"),
)
"""Where a core schema holds others: one, a list, or a dict of them."""
_MAX_NAMES_TOLD: Final = 20
_MAX_LOOKS_TOLD: Final = 60_000
"""The most values that are looked through for the first fault: some 8 ms."""
_COST_OF_HOLDER: Final = 4
"""The cost of a value that may hold others, or be one of several types, in values that do not."""


def _build_validator(schema: _Json) -> SchemaValidator:
    # The validators that pydantic keeps with each model are not rewritten.
    return SchemaValidator(cast("CoreSchema", schema), _use_prebuilt=False)


def _judging(schema: _Json, origin: Origin, *, keeps: bool = True) -> SchemaValidator:
    return _build_validator(_refusing(_Judging(_Order(schema, origin), keeps=keeps).rewrite(schema, is_final=True)))


def _copy_schema(schema: _Json, rewrite: Callable[[_Json], _Json]) -> _Json:
    """Return a copy of a core schema, with all that it holds rewritten."""

    def rewrite_inside(value: object) -> object:
        match value:
            case {"type": str()} if is_str_dict(value):
                return rewrite(value)
            case _ if is_dict(value):
                return {key: rewrite_inside(each) for key, each in value.items()}
            case _ if is_list(value):
                return [rewrite_inside(each) for each in value]
            case _ if is_list_or_tuple(value) and len(value) == 2:  # a member of a union, with its name
                return (rewrite_inside(value[0]), value[1])
            case _:
                return value

    return {**schema, **{key: rewrite_inside(schema[key]) for key in _HELD if key in schema}}


def _with_held(schema: _Json, rewrite: Callable[[_Json], _Json]) -> _Json:
    """Return a copy of a core schema, with all that it holds rewritten, which gives up early, and tells less."""
    new = _copy_schema(schema, rewrite)
    new.pop("ref", None)  # of those that are referred to, whoever rewrites them names them
    if schema["type"] in _FAIL_FAST:
        new["fail_fast"] = True
    if schema["type"] == "union" and "custom_error_type" not in new:
        message = "should be one of the types that it may be"
        new |= {"custom_error_type": "no_member_fits", "custom_error_message": message}
    return new


class _Order:
    """The order in which the members of a union are tried: with a scalar, those first that take one, since most of the
    others look at nothing else, and make an error of it each."""

    def __init__(self, schema: _Json, origin: Origin) -> None:
        # Of Python's objects, one may be a model and a number at once.
        self._only_json = origin == "json" and kinds_in(cast("CoreSchema", schema)).isdisjoint(_CONVERTERS)
        self._definitions: dict[str, _Json] = {each["ref"]: each for each in schema.get("definitions", ())}

    def of_choices(self, union: _Json, new: _Json) -> _Json:
        """Return the changes to what was made `new` of a union, if each of its members takes only scalars, or none."""
        given = cast("list[_Json | tuple[_Json, str]]", union["choices"])
        members = [each[0] if isinstance(each, tuple) else each for each in given]
        members = [self._definitions.get(each.get("schema_ref", ""), each) for each in members]
        scalars = [each for each, old in zip(new["choices"], members, strict=True) if old["type"] in _SCALARS]
        others = [each for each, old in zip(new["choices"], members, strict=True) if _takes_no_scalar(old)]
        if union.get("mode", "smart") != "smart" or not scalars or len(scalars) + len(others) < len(members):
            return {}
        if not (self._only_json and others):
            return {"choices": [*scalars, *others]}
        return {"choices": [{**new, "choices": each} for each in (scalars, others)], "mode": "left_to_right"}


def _takes_no_scalar(schema: _Json) -> bool:
    """Tell whether a schema refuses every scalar. Functions inside of a model may take one."""
    kind, inner = schema["type"], schema.get("schema")
    if kind == "model":
        is_plain = not (schema.get("custom_init") or schema.get("config", {}).get("from_attributes"))
        return is_plain and is_str_dict(inner) and inner["type"] == "model-fields"
    if kind == "dataclass":
        return is_str_dict(inner) and inner["type"] == "dataclass-args"
    return kind in ("dict", "list", "tuple", "typed-dict")


class _Judging:
    """Makes core schemas that take the same values as others, and give up at the first fault: in a list at once, in
    the member of a union as soon as its error is made, elsewhere by an exception."""

    def __init__(self, order: _Order, *, keeps: bool) -> None:
        """Unless it `keeps` what was made, each part is dropped as soon as it is known to fit."""
        self._order, self._after = order, _LETS_OTHERS_RUN if keeps else _DROPS

    def rewrite(self, schema: _Json, *, is_final: bool) -> _Json:
        """`is_final`: a value that does not fit here is refused, whatever else it might fit."""
        new = self._rewrite(schema, is_final=is_final)
        if schema["type"] not in _DEAR:
            return new
        return {"type": "function-after", "function": self._after, "schema": new}

    def _rewrite(self, schema: _Json, *, is_final: bool) -> _Json:
        kind = schema["type"]
        if kind == "definitions":
            return {
                "type": "definitions",
                "schema": self.rewrite(schema["schema"], is_final=is_final),
                "definitions": [
                    {**self.rewrite(each, is_final=final), "ref": _reference(each["ref"], is_final=final)}
                    for each in schema["definitions"]
                    for final in (True, False)
                ],
            }
        if kind == "definition-ref":
            return {**schema, "schema_ref": _reference(schema["schema_ref"], is_final=is_final)}
        if kind.endswith("-field"):
            return self._field(schema, is_final=is_final)
        is_final_inside = is_final and kind not in _ATTEMPTS
        new = _with_held(schema, lambda held: self.rewrite(held, is_final=is_final_inside))
        if counts_numbers(schema):
            small = {**schema["schema"], "lt": hash_info.modulus, "gt": -hash_info.modulus}
            return {**_with_one_error(small), "choices": [small, new]}  # of small ones, no two have one hash
        if kind == "union":
            new |= self._order.of_choices(schema, new)
        if kind not in _OBJECTS:
            return new
        return _refusing(new) if is_final else _with_one_error(new)

    def _field(self, field: _Json, *, is_final: bool) -> _Json:
        """Rewrite a field. One that is required refuses when it is missing; with another, nothing is final: what could
        refuse would stand for its default."""
        is_required = field.get("required", field["type"] != "typed-dict-field") and field.get("init", True)
        schema = field["schema"]
        if not (is_final and is_required) or _may_have_default(schema):
            return {**field, "schema": self.rewrite(schema, is_final=False)}
        required = {"required": False} if "required" in field else {}
        return {**field, **required, "schema": _refusing(self.rewrite(schema, is_final=True))}


def _reference(name: str, *, is_final: bool) -> str:
    return f"{name}!" if is_final else name


def _may_have_default(schema: _Json) -> bool:
    while schema["type"] != "default":
        if schema["type"] == "definition-ref" or not isinstance(schema.get("schema"), dict):
            return False
        schema = schema["schema"]
    return True


def _refusing(schema: _Json) -> _Json:
    """Refuse everything as soon as a value does not fit a schema, or is missing."""
    return {"type": "default", "schema": schema, "on_error": "default", "default_factory": _refuse}


def _with_one_error(schema: _Json) -> _Json:
    """Put one error in place of all that a schema finds. A union of one drops faults, and nothing else that may be
    raised; "custom-error" drops everything."""
    return {
        **{"type": "union", "choices": [schema], "mode": "left_to_right", "auto_collapse": False},
        **{"custom_error_type": "object_misfit", "custom_error_message": "does not fit its type"},
    }


class _IsFarBehind(Exception):
    """The first fault stands behind more than may be looked through for it."""


class _ExplanationBounds(threading.local):
    """Bounds what is told of a value, and how far it is looked through for that; of each thread, since several may
    check by one type."""

    def __init__(self) -> None:
        self.n_names = self.n_looks = 0

    def refuse_name(self, value: object) -> object:
        """Tell of the first unknown names, and let the others pass."""
        self.n_names += 1
        if self.n_names <= _MAX_NAMES_TOLD:
            raise PydanticCustomError("extra_forbidden", "Extra inputs are not permitted")
        return value

    def look(self, value: object, *, cost: int) -> object:
        self.n_looks += cost
        if self.n_looks > _MAX_LOOKS_TOLD:
            raise _IsFarBehind
        return value


class _Explaining:
    """Makes core schemas that tell the first faults of values that others refuse."""

    def __init__(self, origin: Origin, order: _Order, bounds: _ExplanationBounds, *, drops_references: bool) -> None:
        """`drops_references`: of a value that holds others of its type, only the first is explained."""
        self._origin = origin
        self._order = order
        self._bounds = bounds
        self._drops_references = drops_references

    def rewrite(self, schema: _Json, *, is_referred: bool = False, is_closed: bool = False) -> _Json:
        """`is_referred`: the schema has a name. `is_closed`: it is part of what takes no unknown names."""
        kind, config = schema["type"], schema.get("config", {})
        if kind == "json-or-python":
            return self.rewrite(schema[f"{self._origin}_schema"], is_referred=is_referred, is_closed=is_closed)
        if kind == "definitions":
            definitions = [
                {**self.rewrite(each, is_referred=True), "ref": each["ref"]} for each in schema["definitions"]
            ]
            return {**schema, "schema": self.rewrite(schema["schema"]), "definitions": definitions}
        if kind == "definition-ref":
            return self._bound_looks(_with_one_error({**schema}) if is_referred and self._drops_references else schema)
        is_closed = config.get("extra_fields_behavior") == "forbid" if kind in _OBJECTS else is_closed
        new = _with_held(schema, lambda held: self.rewrite(held, is_referred=is_referred, is_closed=is_closed))
        if kind == "union":
            new |= self._order.of_choices(schema, new)
        for key in ("items_schema", "values_schema"):
            if is_str_dict(items := new.get(key)):
                new[key] = self._bound_looks(items)
        if "extra_fields_behavior" in config:
            new["config"] = {**config, "extra_fields_behavior": "ignore"}
        if kind in _FIELDS and schema.get("extra_behavior", "forbid" if is_closed else "") == "forbid":
            unknown = {"type": "no-info", "function": self._bounds.refuse_name}
            new |= {"extra_behavior": "allow", "extras_schema": {"type": "function-plain", "function": unknown}}
        return new

    def _bound_looks(self, schema: _Json) -> _Json:
        """Count each value that a schema looks at."""
        holds = schema["type"] == "definition-ref" or any(key in schema for key in _HELD)
        look = partial(self._bounds.look, cost=_COST_OF_HOLDER if holds else 1)
        return {"type": "function-before", "function": {"type": "no-info", "function": look}, "schema": schema}


# pydantic makes a double of every number with a fraction first. Where a text holds numbers that a double may not hold,
# each is found by the double that it became. Two numbers with other digits that became the same double are told apart
# by nothing, so a decimal that is one of them is refused.

_Numbers = Mapping[float, Decimal | None]
"""The numbers of a text, by the double of each; None where several became one."""

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?', re.DOTALL)
_IS_FRACTION: Final = re.compile(r"[.eE]")


def kinds_in(schema: CoreSchema) -> frozenset[str]:
    """Return the kinds of schemas of which a core schema is made."""
    return frozenset([kind for each in each_schema(schema) if isinstance(kind := each.get("type"), str)])


class _Digits(threading.local):
    """Gives decimals the digits of the text that is checked; of each thread, since several may check by one type."""

    def __init__(self) -> None:
        self._numbers: _Numbers = {}

    def read_by(self, schema: _Json) -> _Json:
        """Return a core schema that takes the same values, and whose decimals have those digits."""
        if schema["type"] != "decimal":
            return _copy_schema(schema, self.read_by)
        reference = {"ref": schema["ref"]} if "ref" in schema else {}
        # Without "strict": of JSON, a strict decimal takes the same, but behind a function it gets Python's objects.
        inner = {key: each for key, each in schema.items() if key != "ref"} | {"strict": False}
        function = {"type": "no-info", "function": self._find}
        return {"type": "function-before", "function": function, "schema": inner, **reference}

    def _find(self, value: object) -> object:
        if not isinstance(value, float) or value not in self._numbers:
            return value
        found = self._numbers[value]
        if found is None:
            raise PydanticCustomError(
                "number_ambiguous",
                "should be a text that holds the number: another one here differs in its last digits",
            )
        return found

    @contextmanager
    def of_text(self, input_json: str | bytes, *, in_texts: bool) -> Generator[None]:
        """In the block, decimals have the digits of this text. `in_texts`: texts that hold JSON are read, too."""
        text = input_json if isinstance(input_json, str) else input_json.decode("utf-8", "replace")
        found: dict[float, Decimal | None] = {}
        _find_numbers(text, found, in_texts=in_texts)
        before, self._numbers = self._numbers, found
        try:
            yield
        finally:
            self._numbers = before


def may_be_rounded(input_json: str | bytes) -> bool:
    """Tell whether a double may not hold all numbers of a text."""
    return holds_long_numbers(
        input_json.encode("utf-8", "surrogatepass") if isinstance(input_json, str) else input_json
    )


def _find_numbers(text: str, found: dict[float, Decimal | None], *, in_texts: bool) -> None:
    waiting = [text]
    while waiting:
        for match in _TOKEN.finditer(waiting.pop()):
            written = match[0]
            if written[0] != '"':
                if _IS_FRACTION.search(written):
                    _take(written, found)
            elif in_texts:
                try:
                    waiting.append(from_json(written))
                except ValueError:
                    continue  # it is no JSON, and the check will say so


def _take(written: str, numbers: dict[float, Decimal | None]) -> None:
    try:
        exact = Decimal(written)
    except ArithmeticError:  # an exponent that no decimal has
        return
    number = float(written)
    numbers[number] = exact if numbers.setdefault(number, exact) == exact else None
