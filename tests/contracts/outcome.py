"""What a run told, in words that are the same whatever carried it.

Left out on purpose, because they belong to one provider: ids (numbered as they appear), signatures and owners of
reasoning, what a provider keeps encrypted, provider fields beside a text, the model's name, how the text of arguments
is spaced, and where deltas are cut. Everything else must agree.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

import orjson

from journeyman import Result, Success, types
from journeyman import events as told

Line = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run."""

    history: list[Line]
    events: list[Line]
    usage: list[types.Usage | None]
    """Of every response, and of the run."""
    result: Line


def outcome(result: Result[object], events: Sequence[told.Event]) -> Outcome:
    """Return what there is to compare of a run."""
    ids = _Ids(result.history)
    usages = [event.usage for event in events if isinstance(event, told.ModelResponded)]
    return Outcome(
        history=[(message.role, *ids.blocks(message)) for message in result.history],
        events=_merged(ids.event(event) for event in events),
        usage=[*usages, result.metadata.usage],
        result=("Success", repr(result.output))
        if isinstance(result, Success)
        else ("Failure", result.error.code, str(result.phase)),
    )


class _Ids:
    """Tells blocks and events with ids in order of appearance: a, b, c …"""

    def __init__(self, messages: Iterable[types.Message]) -> None:
        calls = [call.id for message in messages for call in message.tool_uses]
        self._names = {id: f"call {number}" for number, id in enumerate(calls, 1)}

    def name(self, id: str) -> str:
        return self._names.get(id, id)

    def blocks(self, message: types.Message) -> Iterator[str]:
        """Yield the blocks of a message but for what only a provider reads."""
        return (self.block(block) for block in message.content if not _is_sealed(block))

    def block(self, block: types.Block | types.ToolReference) -> str:
        match block:
            case types.Text(text):
                return text
            case types.Thinking(text):
                return f"thinks: {text}"
            case types.ToolUse():
                wrote = "" if block.malformed is None else f", wrote {block.malformed}"
                return f"{self.name(block.id)}: {block.name}({_canonical(block.input_json)}){wrote}"
            case types.ToolResult():
                mark = "!" if block.is_error else ":"
                parts = (types.Text(block.content),) if isinstance(block.content, str) else block.content
                return f"{self.name(block.tool_use_id)}{mark} {' + '.join(self.block(part) for part in parts)}"
            case types.Image() | types.Document() | types.Audio() | types.ToolReference():
                return repr(block)
            case types.RedactedThinking() | types.Opaque():
                return type(block).__name__
            case _:
                assert_never(block)

    def event(self, event: told.Event) -> Line:  # noqa: PLR0911 - a table
        kind = type(event).__name__
        match event:
            case told.TextDelta(text=text) | told.ThinkingDelta(text=text):
                return (kind, "", text)
            case told.ToolInputDelta() | told.OutputDelta():
                return (kind, self.name(event.tool_use_id), event.json)
            case told.ToolCalled():
                return (kind, self.name(event.tool_use_id), event.tool_name, event.kind, str(event.tool_input))
            case told.ToolFinished():
                mark = "error" if event.is_error else ""
                return (kind, self.name(event.tool_use_id), event.tool_name, event.tool_result, mark)
            case told.ModelResponded():
                return (kind, str(event.iteration), event.stop_reason, event.text)
            case told.LayerCompleted():
                return (kind, event.outcome.name, str(event.outcome.passed), event.outcome.feedback)
            case told.AttemptCompleted():
                return (kind, str(event.attempt), str(event.succeeded))
            case _:
                return (kind,)


def _is_sealed(block: types.Block) -> bool:
    """Tell whether a block is nothing but what a provider wants back."""
    return isinstance(block, types.RedactedThinking) or (isinstance(block, types.Thinking) and not block.text)


def _merged(lines: Iterable[Line]) -> list[Line]:
    """Join neighbouring deltas of one kind and call, which may be cut anywhere; leave out those of no arguments."""
    merged: list[Line] = []
    for line in lines:
        goes_on = line[0].endswith("Delta") and bool(merged) and merged[-1][:2] == line[:2]
        before = merged.pop()[2] if goes_on else ""
        # An `OutputDelta` holds all that came before it.
        merged.append((*line[:2], before + line[2]) if goes_on and line[0] != "OutputDelta" else line)
    spaced = ("ToolInputDelta", "OutputDelta")
    merged = [(*line[:2], _canonical(line[2])) if line[0] in spaced else line for line in merged]
    return [line for line in merged if line[0] not in spaced or line[2] != "{}"]


def _canonical(json: str) -> str:
    try:
        return orjson.dumps(orjson.loads(json), option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONDecodeError:
        return json
