"""The input of a run: from the command line, a file or stdin; as it is, or as JSON of the agent's input type.

Imports `agent`, `errors` and what belongs to them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from journeyman.agent import Agent
from journeyman.cli.mistake import Mistake
from journeyman.errors import InvalidArguments


def read_text(text: str | None, file: Path | None) -> str:
    """Return the input as it was given.

    Raises:
        Mistake: it was given twice or not at all, or the file cannot be read or is not UTF-8.
    """
    if text is not None and file is not None:
        raise Mistake("The input is given twice.", "Leave out INPUT or --input-file.")
    if text is not None:
        return text
    if file is None:
        raise Mistake("There is no input.", "Give it as text after the agent, or with --input-file FILE (- is stdin).")
    name = "stdin" if str(file) == "-" else str(file)
    return _decoded(name, _bytes(file, name))


def _bytes(file: Path, name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "stdin" else file.read_bytes()
    except FileNotFoundError as error:
        raise Mistake(f"There is no file {name}.", "Check the path; it is relative to the current folder.") from error
    except (OSError, AttributeError) as error:  # stdin is None where it is closed
        reason = getattr(error, "strerror", None) or "it is closed"
        raise Mistake(f"{name} cannot be read: {reason}.", "Give a file that you may read.") from error


def _decoded(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise Mistake(f"{name} is not UTF-8: {place}.", "Convert it, for example with iconv.") from error


def parse_input(agent: Agent[Any, Any], text: str) -> object:
    """Return `text` as the agent takes it: a text as it is, any other type from JSON.

    Raises:
        InvalidArguments: it is not JSON, or does not fit the type; it lists every issue.
    """
    if agent.input is str:
        return text
    schema = agent.plan.input
    if not schema.is_wrapped:
        return schema.parse(text)
    try:
        value: object = from_json(text)
    except ValueError as error:
        raise InvalidArguments("input", [f"it is not valid JSON: {error}"]) from error
    return schema.parse(to_json({"value": value}))
