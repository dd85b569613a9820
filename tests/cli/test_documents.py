"""The document of `--json`: one, whatever happens, and as its schema says."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from pydantic import ConfigDict, TypeAdapter

from journeyman import Failure, Message, Usage, endings, load_messages
from journeyman.result import Metadata, dump_document, result_document
from tests.cli.program import AGENTS, Warm

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "result-document.schema.json"
SCHEMA = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)


def parsed(document: str | bytes) -> dict[str, Any]:
    """Return the one document, which fits the schema in the docs."""
    value = json.loads(document)
    assert [error.message for error in VALIDATOR.iter_errors(value)] == []
    return value


def test_the_schema_of_the_document_lets_no_field_be_left_out_or_added() -> None:
    shapes = [
        SCHEMA,
        *(each for name, each in SCHEMA["$defs"].items() if name.endswith("Document") and name != "Document"),
    ]
    assert len(shapes) == 7
    for shape in shapes:
        assert (shape["additionalProperties"], sorted(shape["required"])) == (False, sorted(shape["properties"]))


@dataclass
class Shared:
    """What the document shares with the library."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    code: endings.ErrorCode
    history: tuple[Message, ...]


def test_the_schema_in_the_docs_knows_every_code_and_every_kind_of_block() -> None:
    kinds = TypeAdapter(Shared).json_schema(mode="serialization")["$defs"]
    assert {name: SCHEMA["$defs"].get(name) for name in kinds} == kinds


def test_a_success_has_its_output_attempts_tools_usage_and_history(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:planner", '{"city": "Oslo", "days": 3}', "--json")
    document = parsed(done.stdout)
    assert done.code == 0
    assert (document["code"], document["error"], document["output"]) == ("SUCCESS", None, {"city": "Oslo", "days": 2})
    assert [attempt["number"] for attempt in document["attempts"]] == [1]
    assert [layer["passed"] for layer in document["attempts"][0]["layers"]] == [True, True]
    assert document["tools"]["output"]["calls"] == 2
    assert document["usage"]["total_tokens"] == 45
    assert document["usage"]["cost"] == pytest.approx((30 * 3 + 15 * 15) / 1_000_000)
    history = load_messages(json.dumps(document["history"]))
    assert [message.role for message in history] == ["user", "assistant"] * 3 + ["user"]
    assert done.stdout.count("\n") == 1


def test_a_failure_has_its_code_facts_candidate_and_layers(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:hopeless", "Hello", "--json", "--quiet")
    document = parsed(done.stdout)
    assert done.code == 1
    assert document["code"] == document["error"]["code"] == "MAX_ATTEMPTS_EXCEEDED"
    assert document["error"]["phase"] == "validation"
    counts = {"attempt": 2, "iteration": 1, "attempts": 2, "max_attempts": 2}
    assert document["error"]["context"] == {**counts, "last_error": "1 day is too short"}
    assert document["candidate"] == {"city": "Oslo", "days": 1}
    assert document["attempts"][1]["layers"][-1]["feedback"] == "1 day is too short"
    assert done.error.startswith("error: MAX_ATTEMPTS_EXCEEDED")


def test_a_run_that_could_not_begin_has_a_document_too(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:square", "seven", "--json", "--quiet")
    document = parsed(done.stdout)
    assert (done.code, document["code"], document["attempts"]) == (1, "INVALID_INPUT", [])
    assert document["usage"]["requests"] == 0


def test_a_document_is_alone_on_stdout_whoever_prints(warm: Warm) -> None:
    assert parsed(warm("run", f"{AGENTS}:talker", "Hello", "--json").stdout)["output"] == "done"


CONTEXTS: tuple[endings.Context, ...] = (
    endings.PromptContext(prompt="user", reason="it is blank"),
    endings.ApiErrorContext(kind="auth", message="no", status=401, type=None, request_id="r", retry_after_s=None),
    endings.TruncatedContext(stop_reason="max_tokens", max_tokens=10),
    endings.RefusedContext(refusal="bio", text="\ud800 no"),
    endings.UnusableAnswerContext(reason="it has more than 1,048,576 characters", limit=1_048_576),
    endings.InvalidResponseContext(stop_reason="end_turn", stop_detail=None, expected_tool="output", has_draft=False),
    endings.AttemptsContext(attempts=3, max_attempts=3, last_error="no"),
    endings.BudgetContext(policy="tokens", limit=float("inf"), used=1, scope="run"),
    endings.ValidationContext(layer="check", reason="returned 3"),
)


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: str(context.code))
def test_every_ending_fits_the_schema(context: endings.Context) -> None:
    failure = Failure(error=endings.ErrorInfo(context), metadata=Metadata(usage=Usage(), latency_s=0.5), history=())
    document = result_document(failure, agent="a", output=None)
    assert parsed(dump_document(document))["error"]["code"] == context.code


def test_sub_agents_are_nested_with_what_each_used_and_did(warm: Warm) -> None:
    document = parsed(warm("run", f"{AGENTS}:chief", "Where does it rain?", "--json", "--quiet").stdout)
    first, second, _, last = document["children"]
    assert [child["path"][-1] for child in document["children"]] == ["scout#1", "ill#2", "scout#3", "guide#4"]
    shown = {name: first[name] for name in ("code", "attempts", "iterations", "calls", "children")}
    assert shown == {"code": None, "attempts": 1, "iterations": 2, "calls": 1, "children": []}
    assert (second["code"], second["usage"]["exact"]) == ("API_ERROR", False)
    [below] = last["children"]
    assert below["path"] == ["chief", "guide#4", "scout#1"]
    assert (below["usage"]["total_tokens"], last["usage"]["total_tokens"]) == (30, 60)
    own_requests = sum(attempt["iterations"] for attempt in document["attempts"])
    below_requests = sum(child["usage"]["requests"] for child in document["children"])
    assert document["usage"]["requests"] == own_requests + below_requests


HOSTILE = ("\x9b31m", "\x85", "\u202e", "\u2066", "\u200f", "\u200b", "\x1b]0;title\x07", "\x7f")


@pytest.fixture(scope="module")
def written() -> list[str]:
    """What a terminal gets of a document with each of the texts."""
    program = """
from pydantic_core import to_json
from journeyman.cli.run import Stdout
stdout = Stdout()
for text in [%s]:
    stdout.write_json(to_json(["\u4e16 " + text], indent=2))
    stdout.write_text("---")
"""
    ours, theirs = pty.openpty()
    texts = ", ".join(map(ascii, HOSTILE))
    subprocess.run([sys.executable, "-c", program % texts], stdout=theirs, check=True)
    documents = os.read(ours, 10_000).decode().replace("\r\n", "\n").split("---\n")
    for descriptor in (ours, theirs):
        os.close(descriptor)
    return documents


@pytest.mark.parametrize("text", HOSTILE)
def test_a_document_on_a_terminal_is_written_out_where_a_screen_would_not_show_it(
    text: str, written: list[str]
) -> None:
    document = written[HOSTILE.index(text)]
    assert json.loads(document) == [f"\u4e16 {text}"]
    assert "\u4e16" in document
    assert all(each == "\n" or each.isprintable() for each in document)
