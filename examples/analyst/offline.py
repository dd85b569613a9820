"""The offline stand-in: a function that plays the language model where there is no key.

Like a language model it is given the whole conversation and nothing else, and answers with text and tool calls. It
really reads: which columns there are, what its queries gave, what the preview of its draft shows, why it was
rejected. Unlike one it only knows this one trade. It keeps no state: the same conversation gets the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from journeyman import Message, Text, ToolResult, Usage
from journeyman.model import Request, Response
from journeyman.testing import FunctionModel, call, say
from journeyman.types import Block, JsonObject, ToolUse

from .plan import Plan, choose
from .tables import Description, Rows

DESCRIBE, QUERY, REPORT, SUBMIT = "describe_table", "query", "report", "submit"

Parsed = TypeVar("Parsed")


def offline_model() -> FunctionModel:
    """Return the stand-in as a model."""
    return FunctionModel(answer, name="stand-in", provider="offline")


def answer(request: Request) -> Response:
    """Answer like a model: some text, some calls, and an estimate of the tokens it would have used."""
    seen = Conversation.read(request.messages)
    blocks = [Text(block) if isinstance(block, str) else block for block in decide(seen)]
    said = [_words_of(block) for message in request.messages for block in message.content]
    told = [text.text for text in request.prefix.system] + [str(tool.input_schema) for tool in request.prefix.tools]
    usage = Usage(requests=1, input_tokens=_tokens(said + told), output_tokens=_tokens(map(_words_of, blocks)))
    return say(*blocks, usage=usage)


def decide(seen: Conversation) -> list[str | ToolUse]:
    """Decide what to say and which tools to call next."""
    table = seen.description()
    if table is not None:
        return _analyse(seen, choose(table, seen.question))
    failures = seen.calls_of(DESCRIBE)
    if len(failures) > 1:
        return [f"I cannot read the table, so I have nothing to report. It said: {failures[-1].result.text}"]
    return ["First I look at what the table holds.", call(DESCRIBE)]


def _analyse(seen: Conversation, plan: Plan) -> list[str | ToolUse]:
    known = seen.answers()
    if missing := seen.not_asked(plan.overview()):
        return [_intention(plan), *(call(QUERY, sql=sql) for sql in missing)]
    if not plan.can_report(known):
        return [f"I cannot divide the rows by {plan.category.name}, so I have nothing to report."]
    if seen.rejections and (missing := seen.not_asked(plan.proofs(known))):
        return [_setback(seen), *(call(QUERY, sql=sql) for sql in missing)]
    draft = plan.report(known, complete=seen.is_warned(), proven=bool(seen.rejections)).model_dump()
    if draft != seen.draft():
        return [_why_this_draft(seen), call(REPORT, draft)]
    return ["The draft reads well. I hand it in.", call(SUBMIT)]


def _intention(plan: Plan) -> str:
    measures = (
        " and ".join(measure.name for measure in plan.measures) or "nothing: no other column holds numbers to average"
    )
    return (
        f"Rows: {plan.table.rows:,}. I divide them by {plan.category.name} "
        f"({plan.category.distinct} values) and measure {measures}."
    )


def _setback(seen: Conversation) -> str:
    """Quote the first complaint; the line above it says which check it was."""
    lines = seen.rejections[-1].result.text.strip().splitlines()
    return f"Rejected: {lines[min(1, len(lines) - 1)]} I run the query of every number."


def _why_this_draft(seen: Conversation) -> str:
    if seen.rejections:
        return "Now every number comes from its own query."
    if seen.is_warned():
        return "The preview warns me: my breakdown leaves rows out. I count them as other."
    return "I have enough for a first draft."


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call and what came of it."""

    call: ToolUse
    result: ToolResult


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the messages say."""

    question: str
    exchanges: list[Exchange]

    @classmethod
    def read(cls, messages: Sequence[Message]) -> Conversation:
        """Pair every call with its result."""
        blocks = [block for message in messages for block in message.content]
        results = {block.tool_use_id: block for block in blocks if isinstance(block, ToolResult)}
        calls = [block for block in blocks if isinstance(block, ToolUse) and block.id in results]
        return cls(messages[0].text, [Exchange(use, results[use.id]) for use in calls])

    @property
    def rejections(self) -> list[Exchange]:
        """The hand-ins that a validator refused."""
        return [exchange for exchange in self.calls_of(SUBMIT) if exchange.result.is_error]

    def calls_of(self, name: str) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.call.name == name]

    def description(self) -> Description | None:
        """Return the description of the table, once there is one."""
        found = (_parsed(TypeAdapter(Description), exchange.result) for exchange in self.calls_of(DESCRIBE))
        return next(filter(None, found), None)

    def answers(self) -> dict[str, Rows]:
        """Return what each query gave; a query that failed is left out."""
        found = ((exchange.call, _parsed(TypeAdapter(Rows), exchange.result)) for exchange in self.calls_of(QUERY))
        return {str(use.input["sql"]): rows for use, rows in found if rows is not None}

    def not_asked(self, queries: list[str]) -> list[str]:
        """Return the queries that were not asked yet; one that failed is not worth asking again."""
        asked = [exchange.call.input.get("sql") for exchange in self.calls_of(QUERY)]
        return [sql for sql in queries if sql not in asked]

    def is_warned(self) -> bool:
        """Say whether a preview showed that the breakdown leaves rows out."""
        return any("WARNING" in exchange.result.text for exchange in self.calls_of(REPORT))

    def draft(self) -> JsonObject | None:
        """Return the draft that could be handed in: the last one since the last rejection."""
        last = self.exchanges[-1] if self.exchanges else None
        return last.call.input if last and last.call.name == REPORT else None


def _parsed(form: TypeAdapter[Parsed], result: ToolResult) -> Parsed | None:
    try:
        return None if result.is_error else form.validate_json(result.text)
    except ValidationError:
        return None


def _words_of(block: Block) -> str:
    match block:
        case Text(text):
            return text
        case ToolUse():
            return block.input_json
        case ToolResult():
            return block.text
        case _:
            return ""


def _tokens(texts: Iterable[str]) -> int:
    """Estimate tokens: four characters each."""
    return sum(map(len, texts)) // 4
