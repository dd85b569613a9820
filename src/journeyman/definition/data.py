"""Dataclasses that cost little to declare: their methods are made when they are first needed.

`dataclasses.dataclass` compiles up to six methods for each class, and a program that imports this package declares some
250 classes before its first line runs, of which it makes a few. So data is declared in two ways: by `lazy_dataclass`
whatever is public, or loaded by `import journeyman`; by an ordinary `dataclass` everything else. See the benchmark
`start-up`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from dataclasses import Field as DataclassField
from functools import cache
from reprlib import recursive_repr
from types import FunctionType, new_class
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, dataclass_transform

from journeyman.definition.problems import DefinitionError, argument_problems, portable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


@dataclass_transform(field_specifiers=(field,))
def lazy_dataclass(
    *, frozen: bool = False, kw_only: bool = False, eq: bool = True, repr: bool = True, slots: bool = True
) -> Callable[[type[T]], type[T]]:
    """Do what `dataclasses.dataclass` does, at a fifth of its cost; slots are the default.

    The constructor is compiled when it is first called or looked at. The other methods are shared by all classes.
    Arguments that do not fit raise a `DefinitionError` that says what to write.
    """

    def declare(kind: type[T]) -> type[T]:
        own = vars(kind)
        made: Any = dataclass(slots=slots, kw_only=kw_only, init=False, eq=False, repr=False)(kind)
        if "__init__" not in own:
            made.__init__ = _Constructor(made, frozen=frozen)
        if eq:
            made.__eq__, made.__hash__ = _comparing(made, frozen=frozen)
        if repr and "__repr__" not in own:
            made.__repr__ = _showing(made)
        if frozen:
            made.__setattr__ = made.__delattr__ = _refuse_change
            if slots:
                made.__getstate__, made.__setstate__ = _state_of_object, _set_state
        return made

    return declare


@cache
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass; `fields` looks at each of them each time."""
    return tuple([each.name for each in fields(kind)])


def fields_of(value: object) -> dict[str, Any]:
    """Return the fields of a dataclass, by their names."""
    return _teller_of(type(value))(value)


@cache
def _teller_of(kind: type[Any]) -> Callable[[object], dict[str, Any]]:
    """Return a function that tells the fields, compiled for the class as its constructor is: it tells each event."""
    told = ", ".join([f"{name!r}: value.{name}" for name in field_names(kind)])
    scope: dict[str, Any] = {}
    exec(compile(f"def tell(value):\n return {{{told}}}", f"<fields of {kind.__qualname__}>", "exec"), scope)
    return scope["tell"]


def copy_with(value: T, **changes: object) -> T:
    """Do what `dataclasses.replace` does, at a third of its cost, with an object that has no `__post_init__`: it is
    copied, and its constructor is not called. For what every run does."""
    return _copier_of(type(value), *changes)(value, changes)


@cache
def _copier_of(kind: type[Any], *changed: str) -> Callable[[Any, Mapping[str, object]], Any]:
    """Return a function that copies an object with these fields changed, compiled for the class and the fields."""
    is_frozen = kind.__setattr__ is not object.__setattr__
    scope: dict[str, Any] = {
        "__kind": kind,
        "__begun": _open_twin(kind) if is_frozen else kind,
        "__new": object.__new__,
    }
    kept = [name for name in field_names(kind) if name not in changed]
    lines = ["copied = __new(__begun)", *[f"copied.{name} = value.{name}" for name in kept]]
    lines += [f"copied.{name} = changes[{name!r}]" for name in changed]
    lines += ["copied.__class__ = __kind"] if is_frozen else []
    code = "def copy(value, changes):\n " + "\n ".join([*lines, "return copied"])
    exec(compile(code, f"<copy of {kind.__qualname__}>", "exec"), scope)
    return scope["copy"]


def _open_twin(kind: type[Any]) -> type[Any]:
    """Return a class of the same form whose objects take what is set. An object of a frozen class is one of it until
    all its fields are set: to set each past the `__setattr__` that refuses takes three times as long."""
    own = {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    return new_class(kind.__name__, (kind,), exec_body=lambda body: body.update(own))


class _Mark:
    """A default that stands for something else: an argument that must be given, or a value that is made each time."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


_REQUIRED: Final = _Mark("<required>")
_FACTORY: Final = _Mark("<factory>")


class _Constructor:
    """Stands where `__init__` does until somebody asks for it, and then puts the compiled function there."""

    def __init__(self, made: type[DataclassInstance], *, frozen: bool) -> None:
        self._made: Any = made
        self._frozen = frozen

    def __get__(self, instance: object, owner: type[object] | None = None) -> object:
        init = _compile_constructor(self._made, frozen=self._frozen)
        self._made.__init__ = init
        return init if instance is None else init.__get__(instance, owner)


def _compile_constructor(made: type[DataclassInstance], *, frozen: bool) -> FunctionType:
    """Compile a constructor that takes anything, so that what does not fit is refused in our words, not in Python's."""
    every = [each for each in fields(made) if each.init]
    scope: dict[str, Any] = {
        "__made": made,
        "__set": object.__setattr__,
        "__refuse": _refuse_arguments,
        "__required": _REQUIRED,
        "__factory": _FACTORY,
        **{f"__value_{each.name}": each.default for each in fields(made) if each.default is not MISSING},
        **{f"__make_{each.name}": each.default_factory for each in fields(made)},
    }
    ordered = [_parameter(each) for each in every if not each.kw_only]
    named = [_parameter(each) for each in every if each.kw_only]
    takes = ", ".join(["self", *ordered, "*__extra", *named, "**__unknown"])
    lacks = "".join([f" or {each.name} is __required" for each in every if _is_required(each)])
    given = ", ".join([f"{each.name!r}: {each.name}" for each in every])
    lines = [f"if __extra or __unknown{lacks}:", f" __refuse(__made, {{{given}}}, __extra, __unknown)"]
    values = {each.name: value for each in fields(made) if (value := _value_expression(each)) is not None}
    lines_of_fields = [f"self.{name} = {value}" for name, value in values.items()]
    if frozen and values:
        scope |= {"__open": _open_twin(made), "__names": tuple(values)}
        lines += ["if self.__class__ is __made:", " __set(self, '__class__', __open)"]
        lines += [f" {line}" for line in [*lines_of_fields, "self.__class__ = __made"]]
        lines += ["else:", f" for __name, __value in zip(__names, ({', '.join(values.values())},)):"]
        lines += ["  __set(self, __name, __value)"]
    else:
        lines += lines_of_fields
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    code = f"def __init__({takes}):\n " + "\n ".join(lines)
    exec(compile(code, f"<constructor of {made.__qualname__}>", "exec"), scope)
    init: Any = scope["__init__"]
    init.__qualname__, init.__module__ = f"{made.__qualname__}.__init__", made.__module__
    init.__wrapped__ = _Signed(made)
    return init


def _parameter(each: DataclassField[Any]) -> str:
    if each.default_factory is not MISSING:
        return f"{each.name}=__factory"
    return f"{each.name}=__required" if each.default is MISSING else f"{each.name}=__value_{each.name}"


def _is_required(each: DataclassField[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _value_expression(each: DataclassField[Any]) -> str | None:
    """Return the expression of a field's value; None for one that `__post_init__` sets."""
    if each.default_factory is not MISSING:
        made = f"__make_{each.name}()"
        return f"{made} if {each.name} is __factory else {each.name}" if each.init else made
    if each.init:
        return each.name
    return None if each.default is MISSING else f"__value_{each.name}"


def _refuse_arguments(
    made: type[DataclassInstance], given: Mapping[str, object], extra: Sequence[object], unknown: Mapping[str, object]
) -> NoReturn:
    """Refuse what does not fit, together with whatever else is wrong with what is made of the rest."""
    every = [each for each in fields(made) if each.init]
    problems = [
        *argument_problems(
            made.__name__,
            ordered=[each.name for each in every if not each.kw_only],
            known=[each.name for each in every if not each.name.startswith("_")],
            extra=extra,
            unknown=unknown,
            missing=[name for name, value in given.items() if value is _REQUIRED],
        )
    ]
    right = {name: value for name, value in given.items() if value is not _FACTORY}
    if _REQUIRED not in right.values():
        try:
            make: Callable[..., object] = made
            make(**right)
        except DefinitionError as error:
            problems += error.problems
    name = given.get("name")
    raise DefinitionError(f"{made.__name__} {name!r}" if isinstance(name, str) else made.__name__, problems)


class _Written(str):
    """The annotation of a field, shown as it is written: without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


class _Signed:
    """A holder of a constructor's signature, which `inspect` finds by `__wrapped__`; it is made when somebody asks."""

    def __init__(self, made: type[DataclassInstance]) -> None:
        self._made = made

    @property
    def __signature__(self) -> inspect.Signature:
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        every = [each for each in fields(self._made) if each.init]
        ordered = [each for each in every if not each.kw_only]
        named = [each for each in every if each.kw_only]
        return inspect.Signature([itself, *_init_parameters(ordered), *_init_parameters(named)], return_annotation=None)


def _init_parameters(every: Sequence[DataclassField[Any]]) -> Iterator[inspect.Parameter]:
    for each in every:
        kind = inspect.Parameter.KEYWORD_ONLY if each.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        default = each.default if each.default is not MISSING else _FACTORY
        yield inspect.Parameter(
            each.name,
            kind,
            default=inspect.Parameter.empty if _is_required(each) else default,
            annotation=_Written(each.type) if isinstance(each.type, str) else each.type,
        )


def _comparing(made: type[DataclassInstance], *, frozen: bool) -> tuple[object, object]:
    compared = tuple([each.name for each in fields(made) if each.compare])
    hashed = tuple([each.name for each in fields(made) if (each.compare if each.hash is None else each.hash)])

    def facts(self: object) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in compared])

    def __eq__(self: object, other: object) -> bool:
        return facts(self) == facts(other) if other.__class__ is made else NotImplemented

    def __hash__(self: object) -> int:
        return hash(tuple([getattr(self, name) for name in hashed]))

    own: Mapping[str, Any] = made.__dict__
    digest = own.get("__hash__")  # None where a class compares in its own way, and says nothing of this
    return own.get("__eq__", __eq__), digest or (__hash__ if frozen else None)


def _showing(made: type[DataclassInstance]) -> object:
    shown = tuple([each.name for each in fields(made) if each.repr])

    @recursive_repr()
    def __repr__(self: object) -> str:
        return f"{made.__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in shown])})"

    return __repr__


def _refuse_change(self: object, name: str, fact: object = None) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _state_of_object(self: DataclassInstance) -> list[object]:
    values = [getattr(self, each.name) for each in fields(self)]
    return [portable(value) if isinstance(value, BaseException) else value for value in values]


def _set_state(self: DataclassInstance, state: Sequence[object]) -> None:
    for each, fact in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, fact)
