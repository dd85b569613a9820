"""For griffe: the constructors of the classes that `journeyman.definition.data` makes dataclasses of, and what is said
of members that have no docstring: that of the port which they keep, or the sentence that `fields.toml` has for them."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import griffe

SENTENCES: Final = tomllib.loads(Path(__file__).with_name("fields.toml").read_text(encoding="utf-8"))
"""By class, and there by field; `everywhere` has those of all classes, `aliases` those of `journeyman.types`, `ports`
the ports that a class keeps, `hidden` what is not for programs."""


class ValueClasses(griffe.Extension):
    """Gives each of them the `__init__` that its fields make, and each member its sentence."""

    def __init__(self) -> None:
        self.given: set[str] = set()
        """The sentences that it gave, and what it hid: of which class, and of which member."""

    def on_class(self, *, cls: griffe.Class, **_: object) -> None:
        for decorator in cls.decorators:
            if decorator.callable_path.endswith(".lazy_dataclass") and "__init__" not in cls.members:
                by_name = "kw_only=True" in str(decorator.value)
                itself = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
                parameters = griffe.Parameters(itself, *fields_of(cls, by_name=by_name))
                cls.set_member("__init__", griffe.Function("__init__", parameters=parameters))

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        for alias, sentence in SENTENCES["aliases"].items():
            pkg["types"][alias].docstring = griffe.Docstring(sentence)
        for cls in classes_of(pkg):
            for name in SENTENCES["hidden"].get(cls.name, ()):
                if cls.members.pop(name, None) is not None or name == "__init__":
                    self.given.add(f"hidden {cls.name}.{name}")
        silent = [
            (cls, name, member, sentence)
            for cls in classes_of(pkg)
            for name, member in cls.members.items()
            if not name.startswith("_") and not member.has_docstring and not member.is_alias
            if (sentence := sentence_of(pkg, cls, name))
        ]
        for cls, name, member, sentence in silent:  # when all are known: a port that has one by now says nothing itself
            member.docstring = griffe.Docstring(sentence, parent=cls)
            places = (cls.name, "everywhere")
            self.given |= {f"{each}.{name}" for each in places if SENTENCES.get(each, {}).get(name) == sentence}


def classes_of(scope: griffe.Module | griffe.Class) -> Iterator[griffe.Class]:
    """Yield every class that is defined in a package, those within others included."""
    for member in scope.members.values():
        if isinstance(member, griffe.Class):
            yield member
        if isinstance(member, griffe.Module | griffe.Class):
            yield from classes_of(member)


def sentence_of(package: griffe.Module, cls: griffe.Class, name: str) -> str | None:
    """Return what is said of a member that says nothing itself: by its port, its class, or its name."""
    said = port_says(package, cls, name) or SENTENCES.get(cls.name, {}).get(name)
    if said is None and isinstance(cls.members[name], griffe.Attribute):
        said = SENTENCES["everywhere"].get(name)
    return said


def port_says(package: griffe.Object, cls: griffe.Class, name: str) -> str | None:
    """Return the docstring that a port has for a member of a class that keeps it."""
    for port in SENTENCES["ports"].get(cls.name, ()):
        kept = package[port].all_members.get(name)
        if kept is not None and kept.docstring is not None:
            return kept.docstring.value
    return None


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
