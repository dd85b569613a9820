"""The result of a run as JSON, and back.

What was raised is not stored: of an exception the class and the words remain, in a `StoredError`. An output is plain
JSON when it comes back, unless the agent is there to say what type it has. A state comes back as what `project` says
that it returns; else as the dataclass or the model that it was, if the program has it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, Final, cast, get_args

from pydantic import BaseModel, PydanticSchemaGenerationError, TypeAdapter
from pydantic_core import from_json, to_json

from journeyman.agent import Agent
from journeyman.definition.data import field_names, fields_of
from journeyman.definition.json_numbers import write_json
from journeyman.endings import Context, ErrorInfo, Place
from journeyman.errors import StoredError, name_and_words
from journeyman.history import turn_text
from journeyman.loop.replay import declared_type
from journeyman.result import (
    AttemptRecord,
    CallbackError,
    ChildRecord,
    Failure,
    LayerOutcome,
    Metadata,
    Result,
    Success,
    ToolStats,
    ValidationReport,
    plain_output,
)
from journeyman.tools.collection import do_aside
from journeyman.tools.exact import is_loaded_as
from journeyman.types import Block, Message, Text, ToolResult, ToolUse, Usage, adapter_of

_log = logging.getLogger("journeyman")

Plain = dict[str, Any]


_CONTEXTS: Final[Mapping[str, type[Context]]] = {each.__name__: each for each in get_args(Context)}


async def dump_result(
    result: Result[Any], agent: Agent[Any, Any, Any], *, written: str | None = None, keeps_history: bool = True
) -> bytes:
    """Return a result as JSON, in which nothing stands that its history says: only where it says that.

    `written` is what the model wrote as its output, which is stored where the output itself would be read as another
    value. Unless it `keeps_history`, the history is stored elsewhere.
    """
    output = result.output if isinstance(result, Success) else None
    return await do_aside(output, lambda _: _dump(result, agent, written=written, keeps_history=keeps_history))


def _dump(result: Result[Any], agent: Agent[Any, Any, Any], *, written: str | None, keeps_history: bool) -> bytes:
    document: Plain = {"metadata": _metadata(result.metadata), "n_messages": len(result.history)}
    if keeps_history:
        messages = adapter_of(tuple[Message, ...])
        document["history"] = messages.dump_python(result.history, mode="json", exclude_none=True)
    if isinstance(result, Success):
        schema = agent.plan.output
        output = result.output if schema is None else from_json(schema.dump(result.output))
        state = plain_output(result.state, None)
        kind = type(result.state)
        document |= {"output": output, "state": state, "has_state": result.has_state}
        document |= {"state_class": f"{kind.__module__}:{kind.__qualname__}"} if _may_be_read(kind) else {}
        if schema is not None and written is not None and not is_loaded_as(schema, _as_stored(output), result.output):
            document["written"] = written
        document |= {"terminal_result": result.terminal_result}
    else:
        context = result.error.context
        facts = adapter_of(type(context)).dump_python(context, mode="json")
        error = {"type": type(context).__name__, "facts": facts, "place": list(result.error.place)}
        if result.error.cause is not None:
            error["cause"] = name_and_words(result.error.cause)
        document |= {"error": error, "candidate": result.candidate, "answer": result.answer}
        document |= {"report": _plain_report(result.report)}
    document["said"] = _take_said(document, result.history, written)
    # JSON has no NaN: Postgres and browsers refuse a document that holds one.
    return to_json(document, fallback=repr, inf_nan_mode="null")


def load_result(data: bytes, agent: Agent[Any, Any, Any] | None, *, history: Sequence[Message] = ()) -> Result[Any]:
    """Return the result that `dump_result` has written. Without the agent, its output is plain JSON. `history` is that
    of a result that does not hold its own.

    Raises:
        ValueError: it is no result.
        InvalidArguments: the output does not fit the agent's type any more.
    """
    document: Plain = from_json(data)
    try:
        metadata = _loaded_metadata(document["metadata"])
        if "history" in document:
            history = adapter_of(tuple[Message, ...]).validate_python(document["history"])
        history = tuple(history)
        if len(history) != document["n_messages"]:
            missing = f"of its {document['n_messages']} messages, {len(history)} are there"
            raise ValueError(missing)
        document |= {name: _read_place(history, place) for name, place in document["said"].items()}
        if "error" not in document:
            return _success(document, metadata, history, agent)
        failed: Plain = document["error"]
        facts = adapter_of(_CONTEXTS[failed["type"]]).validate_python(failed["facts"])
        cause = None if "cause" not in failed else StoredError(failed["cause"])
        return Failure(
            error=ErrorInfo(facts, Place(*failed["place"]), cause),
            metadata=metadata,
            history=history,
            candidate=document["candidate"],
            answer=document["answer"],
            report=_loaded_report(document["report"]),
        )
    except (LookupError, TypeError, AttributeError) as error:
        # What is read was stored by another version, or is damaged: a field may be missing, or of another kind.
        raise ValueError(f"the stored result is none: {name_and_words(error)}") from error


_SAID: Final = ("output", "written", "terminal_result", "candidate", "answer")
"""The fields of a result that its history mostly says."""


def _take_said(document: Plain, history: Sequence[Message], written: str | None) -> dict[str, Plain]:
    """Take out of a document what the history says, and return where it does, by the names of the fields."""
    said: dict[str, Plain] = {}
    for name in _SAID:
        value = document.get(name)
        is_text = isinstance(value, str)
        words = value if is_text else written if _is_json_of(value, written) else None
        place = None if value is None or words is None else _find_place(history, words)
        if place is not None:
            said[name] = {"place": place, "is_text": is_text}
            del document[name]
    return said


def _is_json_of(value: object, written: str | None) -> bool:
    """Tell whether a value is what a text says, read as JSON."""
    if value is None or written is None:
        return False
    try:
        read = write_json(from_json(written, allow_inf_nan=False), is_sorted=True)
        return read == write_json(from_json(_as_stored(value)), is_sorted=True)
    except (ValueError, TypeError):
        return False


def _find_place(history: Sequence[Message], words: str) -> list[int] | None:
    """Return where a conversation says these words: the number of a message, and of its block; or the message alone,
    with which the text of a turn ends. None: nowhere."""
    for at in range(len(history) - 1, -1, -1):
        for n, block in enumerate(history[at].content):
            if _read_block(block) == words:
                return [at, n]
    last = max((at for at, message in enumerate(history) if message.role == "assistant"), default=-1)
    return [last] if turn_text(history[: last + 1]) == words else None


def _read_block(block: Block) -> str | None:
    """Return what a block says in words, or as the arguments of a call."""
    match block:
        case ToolUse(input_json=words, malformed=None) | ToolUse(malformed=str(words)):
            return words
        case Text() | ToolResult():
            return block.text
        case _:
            return None


def _read_place(history: Sequence[Message], said: Plain) -> object:
    """Return what a conversation says in a place."""
    place: list[int] = said["place"]
    at, *block = place
    words = _read_block(history[at].content[block[0]]) if block else turn_text(history[: at + 1])
    if words is None:
        raise ValueError(f"message {at} does not say it")
    return words if said["is_text"] else from_json(words)


def _success(
    document: Plain, metadata: Metadata, history: tuple[Message, ...], agent: Agent[Any, Any, Any] | None
) -> Success[Any]:
    output, schema = document["output"], None if agent is None else agent.plan.output
    if schema is not None:
        written = document.get("written")
        output = schema.load(_as_stored(output)) if written is None else schema.parse(written)
    return Success(
        output=output,
        metadata=metadata,
        history=history,
        state=_load_state(document, agent),
        has_state=document["has_state"],
        terminal_result=document["terminal_result"],
        output_type=None if agent is None else agent.plan.outputs.kind,
    )


def _load_state(document: Plain, agent: Agent[Any, Any, Any] | None) -> object:
    """Return a state as the type that it had; as plain JSON where nothing tells that type, or it has changed since."""
    plain, named = document["state"], document.get("state_class")
    project = None if agent is None else agent.final_state
    kind = None if project is None else declared_type(cast("Callable[..., object]", project))
    if kind is None and isinstance(named, str):
        kind = _class_named(named)
    if kind is None:
        return plain
    try:
        return TypeAdapter[object](kind).validate_python(plain)
    except (ValueError, PydanticSchemaGenerationError) as error:
        _log.warning("A stored state is no %s any more, and is read as plain JSON: %s", kind, name_and_words(error))
        return plain


def _class_named(name: str) -> type | None:
    """Return a class of the program by its module and its name; nothing is imported for it."""
    module, _, path = name.partition(":")
    # Not imported: the name comes from a store, to which others may write, and an import runs code.
    found: object = sys.modules.get(module)
    for each in path.split("."):
        found = getattr(found, each, None)
    return found if isinstance(found, type) and _may_be_read(found) else None


def _may_be_read(kind: type) -> bool:
    return is_dataclass(kind) or issubclass(kind, BaseModel)


def _as_stored(output: object) -> bytes:
    return to_json(output, inf_nan_mode="null")


def _metadata(metadata: Metadata) -> Plain:
    return fields_of(metadata) | {
        "usage": _plain_usage(metadata.usage),
        "background_usage": _plain_usage(metadata.background_usage),
        "attempts": [
            {
                "number": each.number,
                "iterations": each.iterations,
                "usage": _plain_usage(each.usage),
                "report": _plain_report(each.report),
            }
            for each in metadata.attempts
        ],
        "tools": adapter_of(dict[str, ToolStats]).dump_python(dict(metadata.tools), mode="json"),
        "children": adapter_of(tuple[ChildRecord, ...]).dump_python(metadata.children, mode="json"),
        "callback_errors": [[each.callback, name_and_words(each.error)] for each in metadata.callback_errors],
    }


def _plain_usage(usage: Usage | None) -> Plain | None:
    return None if usage is None else fields_of(usage)


def _loaded_metadata(plain: Plain) -> Metadata:
    loaded: Mapping[str, Callable[[Any], object]] = {
        "usage": adapter_of(Usage | None).validate_python,
        "background_usage": adapter_of(Usage | None).validate_python,
        "attempts": lambda each: tuple(
            [
                AttemptRecord(
                    number=attempt["number"],
                    iterations=attempt["iterations"],
                    usage=adapter_of(Usage).validate_python(attempt["usage"]),
                    report=_loaded_report(attempt["report"]),
                )
                for attempt in each
            ]
        ),
        "tools": adapter_of(dict[str, ToolStats]).validate_python,
        "children": adapter_of(tuple[ChildRecord, ...]).validate_python,
        "callback_errors": lambda each: tuple(
            [CallbackError(callback=name, error=StoredError(words)) for name, words in each]
        ),
    }
    # A later version may have stored fields that this one does not know.
    known = {*field_names(Metadata)}
    given = {name: loaded[name](value) if name in loaded else value for name, value in plain.items() if name in known}
    return Metadata(**cast("Plain", given))


def _plain_report(report: ValidationReport | None) -> list[Plain] | None:
    if report is None:
        return None
    return [
        {name: getattr(layer, name) for name in ("name", "kind", "description", "passed", "feedback")}
        | ({} if layer.error is None else {"error": name_and_words(layer.error)})
        for layer in report.layers
    ]


def _loaded_report(plain: list[Plain] | None) -> ValidationReport | None:
    if plain is None:
        return None
    layers = [
        replace(
            LayerOutcome(**{name: value for name, value in each.items() if name != "error"}),
            error=StoredError(str(each["error"])) if "error" in each else None,
        )
        for each in plain
    ]
    return ValidationReport(layers=tuple(layers))
