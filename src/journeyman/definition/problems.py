"""A wrong definition, refused: the error that lists every problem of it, and what says for each the line to write.

An argument that does not fit is told in our words and never in Python's: its name may be a slip, or another library's
(`foreign.json` has those).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Final, TypeAlias, TypeVar

from journeyman.definition.foreign import OLD_ARGUMENTS, UNNAMED, foreign_names
from journeyman.definition.narrowing import is_dict, is_list_or_tuple

T = TypeVar("T")

_LONGEST_VALUE: Final = 60
_ENDS: Final = (".", "!", "?", ":", "…")
_NAMES_SHOWN: Final = 16
_NOTHING: Final = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)])


class JourneymanError(Exception):
    """The root of every exception of this package."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:  # `Exception` would call the class with the message alone
        return BaseException.__new__, (type(self), *self.args), self.__dict__


def words_of(error: BaseException) -> str:
    """Return the text of an error of any class; empty when it has none."""
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001 - a stranger's `__str__`
        return ""


def name_and_words(error: BaseException) -> str:
    """Return the class of an error, and its text if it has one."""
    words = words_of(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


class StoredError(Exception):
    """An exception of another process, or of a life of the run that is over: its class and its words."""


def portable(error: BaseException) -> BaseException:
    """Return an error that another process can read: itself, or a `StoredError` if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever a stranger's class raises when it is taken apart, or made again
        return StoredError(name_and_words(error))
    return error


def join_sentences(*sentences: str) -> str:
    """Return a message, and its hint, as sentences: each ends before the next begins."""
    every = [each for sentence in sentences if (each := sentence.strip())]
    ended = [each if each.endswith(_ENDS) else f"{each}." for each in every[:-1]]
    return " ".join([*ended, *every[-1:]])


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a definition."""

    code: str
    """A stable label, for example `DUPLICATE_TOOL_NAME`."""
    message: str
    """What is wrong, with the values."""
    hint: str
    """What to do about it."""

    def __str__(self) -> str:
        return join_sentences(self.message, self.hint)


class DefinitionError(JourneymanError):
    """An agent or a tool is defined wrongly. `problems` lists everything that is wrong, not just the first."""

    def __init__(self, subject: str, problems: Sequence[Problem]) -> None:
        self.subject = subject
        self.problems = tuple(problems)
        lines = "".join(f"\n  - [{problem.code}] {problem}" for problem in self.problems)
        n = len(self.problems)
        super().__init__(f"{subject} has {n:,} problem{'s' * (n != 1)}:{lines}")


def raise_problems(subject: str, problems: Iterable[Problem]) -> None:
    """Refuse a definition in which something is wrong.

    Raises:
        DefinitionError: there are problems; it lists all of them.
    """
    if found := [*problems]:
        raise DefinitionError(subject, found)


def is_count(value: object, least: int = 1) -> bool:
    """True for a whole number of at least `least`; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_amount(value: object) -> bool:
    """True for a finite number above 0; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def is_zero_or_amount(value: object) -> bool:
    """True for a finite number of at least 0; of the bools, for False."""
    return value == 0 or is_amount(value)


def none_or(is_right: Callable[[object], bool]) -> Callable[[object], bool]:
    """Return a function that is true for None, too."""
    return lambda value: value is None or is_right(value)


def is_a(*kinds: type) -> Callable[[object], bool]:
    """Return a function that is true for an object of one of these classes."""
    return lambda value: isinstance(value, kinds)


def is_one_of(*words: object) -> Callable[[object], bool]:
    """Return a function that is true for these words."""
    return lambda value: value in words


Kind: TypeAlias = tuple[Callable[[object], bool], str]
"""A kind of value: what tells whether a value is of it, and the hint where it is not."""
COUNT: Final[Kind] = (is_count, "Pass a whole number of at least 1.")
COUNT_OR_NONE: Final[Kind] = (none_or(is_count), "Pass a whole number of at least 1, or None.")


def value_problems(code: str, what: str, value: object, kind: Kind) -> Iterator[Problem]:
    """Give a problem if a value is not of its kind."""
    if not kind[0](value):
        yield Problem(code, f"{what} is {value!r}.", kind[1])


def field_problems(code: str, where: str, holder: object, kinds: Mapping[str, Kind]) -> Iterator[Problem]:
    """Give a problem for each field of an object that is not of its kind, in the order of `kinds`."""
    for name, kind in kinds.items():
        value: object = getattr(holder, name)
        if not kind[0](value):
            yield Problem(code, f"{where}{name} is {value!r}.", kind[1])


def missing_attribute(given: object, what: str, name: str, why: str = "") -> str:
    """Say that an object has no such attribute, or `why`, and where people look for one, what to write instead."""
    why = why or f"{type(given).__name__!r} object has no attribute {name!r}"
    return join_sentences(why, foreign_names("attributes", what).get(name, ""))


def meant(name: str, known: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """Return ` Did you mean 'name'?` for a name that is not known, or nothing if none is like it. `others` says what
    the names of other libraries are called here."""
    close = (others or {}).get(name) or next(iter(get_close_matches(name, list(known), n=1)), None)
    return f" Did you mean {close!r}?" if close else ""


def write_value(value: object) -> str:
    """Return a value as a program says it, or `…` for what has no short text that makes it again."""
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return str(getattr(value, "__name__", "…")).replace("<lambda>", "…")
    if is_list_or_tuple(value) or is_dict(value) or isinstance(value, str | int | float | bool | None):
        text = repr(value)
        return text if len(text) <= _LONGEST_VALUE and " at 0x" not in text and "<" not in text[:1] else "…"
    return "…"


def unknown_argument(what: str, name: str, value: object, known: Sequence[str]) -> Problem:
    """Return the problem of an argument that `what`, a class or a function, does not take."""
    line, elsewhere = [foreign_names(kind, what).get(name) for kind in ("arguments", "elsewhere")]
    now, close = OLD_ARGUMENTS.get(name), next(iter(get_close_matches(name, known, n=1)), None)
    if line is None and now in known:
        line = f"{now}={{}}"
    if line is not None:
        hint = f"Write {line.replace('{}', write_value(value))}."
    elif elsewhere is not None:
        hint = elsewhere.replace("{}", write_value(value))
    elif close is not None:
        hint = f"Did you mean {close!r}? Write {close}={write_value(value)}."
    else:
        listed = ", ".join(known[:_NAMES_SHOWN]) + (", …" if len(known) > _NAMES_SHOWN else "")
        hint = f"Leave it out: it takes {listed}." if known else "Leave it out: it takes no arguments."
    return Problem("UNKNOWN_NAME", f"{what} has no {name!r}.", hint)


def unnamed_argument(what: str, value: object, known: Sequence[str]) -> Problem:
    """Return the problem of an argument that is given without a name; `known` are the names of those that need one."""
    said = write_value(value)
    line = UNNAMED.get(what) or (f"{what}({known[0]}={{}})" if known else "")
    hint = f"Write {line.replace('{}', said)}." if line else "Leave it out."
    return Problem("UNNAMED_ARGUMENT", f"{what} cannot take {said} without a name.", hint)


def missing_argument(what: str, names: Sequence[str]) -> Problem:
    """Return the problem of arguments that are needed, and not there."""
    listed = " and ".join([", ".join(map(repr, names[:-1])), repr(names[-1])] if len(names) > 1 else [repr(names[0])])
    return Problem("MISSING_NAME", f"{what} needs {listed}.", f"Write {what}({', '.join(f'{n}=…' for n in names)}).")


def argument_problems(
    what: str,
    *,
    ordered: Sequence[str],
    known: Sequence[str],
    extra: Sequence[object],
    unknown: Mapping[str, object],
    missing: Sequence[str],
) -> Iterator[Problem]:
    """Give what is wrong with the arguments of a class or a function: `ordered` are the names of those that may be
    given without a name, and `known` all names."""
    free = [name for name in known if name not in ordered]
    yield from [unnamed_argument(what, value, free) for value in extra[:1]]
    yield from [unknown_argument(what, name, value, known) for name, value in unknown.items()]
    if missing and not extra:
        yield missing_argument(what, missing)


def explain_arguments(kind: type[T]) -> type[T]:
    """Let the constructor of a class say what to write for arguments that do not fit, as data does."""
    made: Any = kind
    init = made.__init__

    @wraps(init)
    def __init__(self: object, *ordered: object, **given: object) -> None:
        try:
            init(self, *ordered, **given)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise  # it comes from within
            takes = _NOTHING if init is object.__init__ else signature(init)
            problems = [*_unfit(kind.__name__, takes, ordered, given)]
            raise DefinitionError(kind.__name__, problems) if problems else error from None

    if init is object.__init__:
        vars(__init__)["__signature__"] = _NOTHING  # where `inspect` looks
    made.__init__ = __init__
    return kind


explain_arguments(Problem)


def _unfit(what: str, takes: Signature, ordered: Sequence[object], given: Mapping[str, object]) -> Iterator[Problem]:
    every = [*takes.parameters.values()][1:]  # after `self`
    in_order = [each.name for each in every if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    known = [each.name for each in every if each.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]
    there = {*in_order[: len(ordered)], *given}
    is_open = any(each.kind is Parameter.VAR_POSITIONAL for each in every)
    return argument_problems(
        what,
        ordered=in_order,
        known=[name for name in known if not name.startswith("_")],
        extra=() if is_open else ordered[len(in_order) :],
        unknown={name: value for name, value in given.items() if name not in known},
        missing=[name for name in known if takes.parameters[name].default is Parameter.empty and name not in there],
    )
