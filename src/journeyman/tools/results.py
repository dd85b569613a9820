"""Makes the `ToolResult` that the model reads of a call, from what the tool returned or the error that it raised.

A result always has content, since providers refuse one without.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from journeyman.cancellation import NeverAwaited, flatten_error
from journeyman.definition.narrowing import is_dict, is_list_or_tuple, is_set
from journeyman.errors import Rejected
from journeyman.history import NO_OUTPUT
from journeyman.tools.issues import faults_of, issue_lines
from journeyman.tools.redaction import without_secrets
from journeyman.types import Audio, Document, Image, Text, ToolReference, ToolResult, Url

MAX_ERROR_CHARS: Final = 4_000
"""The longest text of an error, in characters."""
_READ_ERROR_CHARS: Final = 4 * MAX_ERROR_CHARS
"""How much of an error is searched for secrets; no more of it is shown."""

_GROUP_SHOWN: Final = 20

_Block: TypeAlias = Text | Image | Document | ToolReference


def to_result(value: object, *, max_chars: int | None = None, tool_use_id: str = "") -> ToolResult:
    """Turn what a tool returned into what the model reads, cut to `max_chars` characters and a note that says so.

    Text stays as it is, blocks stay blocks, everything else becomes JSON; nothing at all becomes `(no output)`.

    Raises:
        TypeError: the value has to be awaited or iterated first.
        ValueError: it cannot be written as JSON, for example because it contains itself.
    """
    kind = type(value)
    if kind is int:  # so common that it is not looked at any further
        return ToolResult(_cut(str(value), max_chars), False, tool_use_id)
    if isinstance(value, str):
        text = value if kind is str else str.__str__(value)  # of an enum's text, that text
        return ToolResult(_bound_content(text, max_chars), False, tool_use_id)
    if isinstance(value, ToolResult):
        content = _bound_content(value.content, max_chars)
        return ToolResult(content, value.is_error, tool_use_id, untrusted=value.untrusted or None)
    blocks = _blocks_in(value)
    if blocks is None:
        shown, files = arrange(value)
        said = _text_of_value(shown)
        blocks = (Text(said), *files) if files else said
    return ToolResult(_bound_content(blocks, max_chars), False, tool_use_id)


def error_result(error: BaseException) -> ToolResult:
    """Turn what a tool raised into what the model reads: the message without secrets, never a traceback."""
    if isinstance(error, Rejected):
        text = error.text if error.text.strip() else type(error).__name__
    else:
        said = _message_of_error(error)
        text = f"Error: {without_secrets(said[:_READ_ERROR_CHARS])}"
        n_chars = len(text) + max(0, len(said) - _READ_ERROR_CHARS)
        return ToolResult(_cut(encodable(text), MAX_ERROR_CHARS, n_chars), is_error=True)
    return ToolResult(_cut(encodable(text), MAX_ERROR_CHARS), is_error=True)


def encodable(text: str) -> str:
    """Return `text` with every lone surrogate, as file names may have them, replaced: JSON cannot carry one."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _bound_content(content: str | tuple[_Block, ...], max_chars: int | None) -> str | tuple[_Block, ...]:
    if isinstance(content, str):
        if not content or content.isspace():
            return NO_OUTPUT
        return _cut(encodable(content), max_chars)
    kept: list[_Block] = []
    left = max_chars
    for block in content:
        if not isinstance(block, Text):
            kept.append(block)
        elif block.text.strip():
            text = encodable(block.text)
            kept.append(replace(block, text=_cut(text, left)))
            left = None if left is None else max(0, left - len(text))
    return tuple(kept) or NO_OUTPUT


def _cut(text: str, max_chars: int | None, n_chars: int = 0) -> str:
    n_chars = n_chars or len(text)
    if max_chars is None or n_chars <= max_chars:
        return text
    return f"{text[:max_chars]}\n[Cut: the first {max_chars:,} of {n_chars:,} characters.]"


def _blocks_in(value: object) -> tuple[_Block, ...] | None:
    """Return the content blocks that `value` is or holds, texts among them included; None when it holds none."""
    if isinstance(value, _Block):
        return (value,)
    if not is_list_or_tuple(value):
        return None
    items = value
    blocks = [Text(item) if isinstance(item, str) else item for item in items if isinstance(item, _Block | str)]
    is_content = len(blocks) == len(items) and any(isinstance(item, _Block) for item in items)
    return tuple(blocks) if is_content else None


def _text_of_value(value: object) -> str:
    if value is None:
        return ""
    if issubclass(type(value), Iterator) or _has_no_value_yet(value):
        raise _no_value_error(value)
    return _json_text(value)


def _json_text(value: object) -> str:
    try:
        data = to_json(value, inf_nan_mode="strings", fallback=_foreign)
    except PydanticSerializationError:
        data = _json_of_odd_text(value)
    return from_json(data) if data.startswith(b'"') else data.decode()


def _json_of_odd_text(value: object) -> bytes:
    """Return JSON for a value with texts or bytes that are no UTF-8."""
    try:
        plain = partial(to_jsonable_python, inf_nan_mode="strings", bytes_mode="base64", fallback=_foreign)
        data = json.dumps(_with_text_keys(value), default=plain, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"The result cannot be written as JSON: {error}") from error
    return encodable(data).encode()


def _with_text_keys(value: object) -> object:
    """Return a value in which the keys that `json` refuses, such as tuples and dates, are texts."""
    if is_dict(value):
        return {_key(key): _with_text_keys(each) for key, each in value.items()}
    return [_with_text_keys(each) for each in value] if is_list_or_tuple(value) else value


def _key(key: object) -> str:
    try:
        return next(iter(from_json(to_json({key: None}, inf_nan_mode="strings", fallback=_foreign))))
    except (PydanticSerializationError, ValueError):
        return str(key)


def _foreign(value: object) -> str:
    if _has_no_value_yet(value):
        raise _no_value_error(value)
    return str(value)


def _has_no_value_yet(value: object) -> bool:
    kind = type(value)  # what a value says of its own class may be anything
    return issubclass(kind, Awaitable | AsyncIterator) and not issubclass(kind, NeverAwaited)


def _no_value_error(value: object) -> TypeError:
    if inspect.iscoroutine(value):
        value.close()
    return TypeError(
        f"The tool returned {type(value).__name__!r}, which has no value yet. Await it, or collect its items in a list."
    )


def _message_of_error(error: BaseException) -> str:
    match error:
        case BaseExceptionGroup():
            inner = [_message_of_error(leaf) for leaf in flatten_error(error)]
            more = len(inner) - _GROUP_SHOWN
            lines = [*inner[:_GROUP_SHOWN], *([f"and {more:,} more"] if more > 0 else [])]
            return "".join([error.message, *(f"\n- {line}" for line in lines)])
        case ValidationError():
            return "".join([f"{error.title} is invalid:", *(f"\n- {line}" for line in issue_lines(faults_of(error)))])
        case _:
            said = _error_text(error)
            has_words = not isinstance(error, KeyError) and any(each.isalpha() for each in said)
            return said if has_words or said == type(error).__name__ else f"{type(error).__name__}: {said}"


def _error_text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a stranger's `__str__`
        text = ""
    return text if text.strip() else type(error).__name__


# Sets get an order, and files that stand beside other data are set apart. A set of texts comes in another order in each
# process, and then neither a cassette nor a provider's cache knows the request. A file inside of JSON would be paid for
# as Base64, and no model would see it.

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
