"""A public name as Markdown, for who reads the reference without the site: signature, docstring, fields, methods.

The site's HTML is made by mkdocstrings; this writes the same from the same source, read by the same griffe.
"""

import functools
from collections.abc import Iterator

import griffe

from tests.support import pages
from tests.support.value_classes import ValueClasses

VALUE_CLASSES = ValueClasses()


@functools.cache
def package() -> griffe.Object:
    found = griffe.load(
        "journeyman", search_paths=[pages.ROOT / "src"], extensions=griffe.load_extensions(VALUE_CLASSES)
    )
    assert isinstance(found, griffe.Object)
    return found


def described(name: str) -> str:
    """Return what the reference says of a name, under a heading with the name in full."""
    found = package()[name.removeprefix("journeyman.")]
    return "\n\n".join([f"### `{name}`", *_parts(final(found))])


def final(found: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return what a name stands for, where it was only imported."""
    target = found.final_target if isinstance(found, griffe.Alias) else found
    assert isinstance(target, griffe.Object)
    return target


def _parts(target: griffe.Object) -> Iterator[str]:
    yield f"```python\n{_signature(target)}\n```"
    if target.docstring:
        yield target.docstring.value
    if isinstance(target, griffe.Class):
        yield "\n".join(_members(target))


def _members(target: griffe.Class) -> Iterator[str]:
    for member in target.all_members.values():
        inner = final(member)
        if not inner.name.startswith("_") and inner.name != "model_config":
            said = f": {' '.join(inner.docstring.value.split())}" if inner.docstring else ""
            yield f"- `{_signature(inner)}`{said}"


def _signature(target: griffe.Object) -> str:
    match target:
        case griffe.Function():
            prefix = "async def" if "async" in target.labels else "def"
            return f"{prefix} {target.signature()}"
        case griffe.Attribute():
            annotation = f": {target.annotation}" if target.annotation else ""
            return f"{target.name}{annotation}" + (f" = {target.value}" if target.value is not None else "")
        case griffe.Class() if "__init__" in target.all_members:
            return f"class {target.signature()}"
        case _:
            return f"class {target.name}" if target.is_class else target.name
