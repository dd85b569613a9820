"""One text for equal values: the key under which a tool's result is cached.

Everything in a value counts, also what its class leaves out or masks when it is shown. Imports nothing of this package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import cast

from pydantic import BaseModel, Secret, SecretBytes, SecretStr


def canonical(value: object) -> str:
    """Return a text that is the same for equal values and differs for others.

    JSON with sorted keys for what is JSON. Anything else is written as its class with the content in parentheses, so
    that it cannot be taken for JSON. An object without a text of its own is equal to itself only.
    """
    match value:
        case None | bool() | int() | float() | str() if not isinstance(value, Enum):
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            pairs = cast("Mapping[object, object]", value).items()
            return "{" + ",".join(sorted(f"{canonical(key)}:{canonical(item)}" for key, item in pairs)) + "}"
        case list() | tuple():
            return "[" + ",".join(map(canonical, cast("Iterable[object]", value))) + "]"
        case _:
            return f"{type(value).__qualname__}({_content(value)})"


def _content(value: object) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, set | frozenset):
        return ",".join(sorted(map(canonical, cast("Iterable[object]", value))))
    if isinstance(value, BaseModel):
        return canonical({**value.__dict__, **(value.__pydantic_extra__ or {})})
    if is_dataclass(value) and not isinstance(value, type):
        return canonical({each.name: getattr(value, each.name) for each in fields(value)})
    if isinstance(value, SecretStr | SecretBytes | Secret):
        return canonical(cast("SecretStr | SecretBytes | Secret[object]", value).get_secret_value())
    return json.dumps(str(value), ensure_ascii=False)
