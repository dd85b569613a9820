"""For griffe: the constructors of the classes that `journeyman.types` makes dataclasses of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import griffe

KINDS: Final = {"frozen": True, "frozen_in_order": False, "value_class": False, "record_class": False}
"""The decorators, each with whether arguments go by name only unless it says otherwise."""


class ValueClasses(griffe.Extension):
    """Gives each of them the `__init__` that its fields make."""

    def on_class(self, *, cls: griffe.Class, **_: object) -> None:
        for decorator in cls.decorators:
            name = decorator.callable_path.rpartition(".")[2]
            if name in KINDS and "__init__" not in cls.members:
                by_name = KINDS[name] or "kw_only=True" in str(decorator.value)
                itself = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
                parameters = griffe.Parameters(itself, *fields_of(cls, by_name=by_name))
                cls.set_member("__init__", griffe.Function("__init__", parameters=parameters))


def fields_of(cls: griffe.Class, *, by_name: bool) -> Iterator[griffe.Parameter]:
    """Yield the parameter of each field, in order; what follows `_: KW_ONLY` goes by name."""
    for member in cls.members.values():
        if not isinstance(member, griffe.Attribute) or "property" in member.labels:
            continue
        if str(member.annotation) == "KW_ONLY":
            by_name = True
            continue
        default = default_of(member)
        if member.annotation is not None and "ClassVar" not in str(member.annotation) and default != "init=False":
            alone = by_name or "kw_only=True" in str(member.value)
            kind = griffe.ParameterKind.keyword_only if alone else griffe.ParameterKind.positional_or_keyword
            yield griffe.Parameter(member.name, annotation=member.annotation, kind=kind, default=default)


def default_of(field: griffe.Attribute) -> griffe.Expr | str | None:
    """Return the default of a field; None: it must be given, `init=False`: it cannot be."""
    match field.value:
        case griffe.ExprCall(function=griffe.ExprName(name="field"), arguments=arguments):
            given = {each.name: each.value for each in arguments if isinstance(each, griffe.ExprKeyword)}
            if str(given.get("init")) == "False":
                return "init=False"
            return given.get("default") or ("…" if "default_factory" in given else None)
        case value:
            return value
