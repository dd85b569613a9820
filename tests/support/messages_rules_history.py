"""Rules about `messages`: what a message may hold, and how calls, results and served answers belong together.

Each rule yields one text per fault and names its source: P is platform.claude.com/docs/en, # an issue or pull
request.
"""

import re
from collections.abc import Iterator
from itertools import pairwise, takewhile

import orjson

from tests.support.messages_json import Json, as_text
from tests.support.messages_memory import THINKING
from tests.support.messages_request import Request, Turn, is_server_result, is_server_side, nested
from tests.support.strict_request import Item, Rule, rules_of

_ID = re.compile(r"^[a-zA-Z0-9_-]+\Z")


def there_is_a_message(request: Request) -> Iterator[str]:
    """At least one message (langchain-ai/langchain#31657)."""
    if not request.messages:
        yield "messages: at least one message is required"


def content_is_not_empty(request: Request) -> Iterator[str]:
    """Only a final assistant message may be empty (anthropics/claude-code#6774)."""
    for message in request.messages:
        is_final_answer = message is request.messages[-1] and message.role == "assistant"
        if not message.blocks and not is_final_answer:
            yield f"{message.where}.content: messages must have non-empty content"


def text_is_not_empty(request: Request) -> Iterator[str]:
    """Text is non-empty, also in the system prompt and in tool results (anthropics/claude-code#59812)."""
    for block in request.cacheable:
        if block.type == "text" and not block.text("text"):
            yield f"{block.where}: text content blocks must be non-empty"


def user_text_is_not_blank(request: Request) -> Iterator[str]:
    """A user's text has something but white space (home-assistant/core#175637); the assistant's need not."""
    for turn in request.turns:
        for block in turn.of_type("text"):
            if turn.role == "user" and block.text("text") and not block.text("text").strip():
                yield f"{block.where}: text content blocks must contain non-whitespace text"


def the_final_answer_has_no_trailing_space(request: Request) -> Iterator[str]:
    """A prefill does not end in white space (langchain-ai/langchain#35073, crewAIInc/crewAI#4538)."""
    if not request.turns or request.turns[-1].role != "assistant" or request.continues_a_pause:
        return
    for block in request.turns[-1].blocks[-1:]:
        if block.text("text") != block.text("text").rstrip():
            yield f"{block.where}: final assistant content cannot end with trailing whitespace"


def block_types_fit_the_role(request: Request) -> Iterator[str]:
    """Calls and thinking come from the assistant, results from the user (P api/messages)."""
    for message in request.messages:
        for block in message.blocks:
            if block.type == "tool_result":
                owner = "user"
            elif block.type in (*THINKING, "tool_use") or is_server_side(block):
                owner = "assistant"
            else:
                owner = message.role
            if message.role != owner:
                yield f"{block.where}: `{block.type}` blocks can only be in {owner} messages"


def tool_results_come_first(request: Request) -> Iterator[str]:
    """Results stand before other content (P handle-tool-calls, anthropics/anthropic-sdk-typescript#653)."""
    for turn in request.turns:
        leading = sum(1 for _ in takewhile(lambda block: block.type == "tool_result", turn.blocks))
        for block in turn.blocks[leading:]:
            if turn.role == "user" and block.type == "tool_result":
                yield f"{block.where}: `tool_result` blocks must come before other content"


def tool_use_ids_fit_the_pattern(request: Request) -> Iterator[str]:
    """Ids match ^[a-zA-Z0-9_-]+$ (P api/messages)."""
    for turn in request.turns:
        for block in turn.of_type("tool_use", "tool_result"):
            tool_use_id = block.text("id" if block.type == "tool_use" else "tool_use_id")
            if not _ID.match(tool_use_id):
                yield f"{block.where}: id {tool_use_id!r} should match '^[a-zA-Z0-9_-]+$'"


def error_results_have_content(request: Request) -> Iterator[str]:
    """A result with `is_error` says what went wrong (an error text of the API)."""
    for turn in request.turns:
        for block in turn.of_type("tool_result"):
            content = block.data.get("content")
            empty = not content or all(item.type == "text" and not item.text("text") for item in nested(block))
            if block.data.get("is_error") is True and empty and not as_text(content):
                yield f"{block.where}: content cannot be empty if `is_error` is true"


def references_name_deferred_tools(request: Request) -> Iterator[str]:
    """A reference names a tool that the request defers, and stands among its like (P tool-use/tool-search-tool)."""
    deferred = {tool.text("name") for tool in request.tools if tool.data.get("defer_loading") is True}
    for turn in request.turns:
        for result in turn.of_type("tool_result"):
            references = [block for block in nested(result) if block.type == "tool_reference"]
            if references and len(references) < len(nested(result)):
                yield f"{result.where}: `tool_reference` blocks cannot stand beside other content"
            for block in references:
                if block.text("tool_name") not in deferred:
                    yield f"{block.where}: tool reference {block.text('tool_name')!r} not found in available tools"


def server_results_have_their_call(request: Request) -> Iterator[str]:
    """The result of a server tool follows its call (anthropics/claude-code#64383)."""
    called: set[str] = set()
    for turn in request.turns:
        for block in turn.blocks:
            if block.type == "server_tool_use":
                called.add(block.text("id"))
            elif is_server_result(block) and block.text("tool_use_id") not in called:
                yield f"{block.where}: `{block.type}` has no `server_tool_use` before it"


def an_open_server_call_takes_only_results(request: Request) -> Iterator[str]:
    """While a server tool is still to run, the user only sends tool results (P tool-use/server-tools)."""
    for turn, following in pairwise(request.turns):
        closed = {block.text("tool_use_id") for block in turn.blocks if is_server_result(block)}
        is_open = any(block.text("id") not in closed for block in turn.of_type("server_tool_use"))
        if is_open and any(block.type != "tool_result" for block in following.blocks):
            yield f"{following.where}: a server tool call is unresolved, only `tool_result` blocks may follow"


def the_tool_turn_starts_with_thinking(request: Request) -> Iterator[str]:
    """With manual thinking a turn that calls tools begins with its thinking (anomalyco/opencode#3077)."""
    answers: list[Turn] = []  # the assistant's, since the user last spoke without sending results
    for turn in request.turns:
        if turn.role == "assistant":
            answers.append(turn)
        elif turn.role == "user" and not turn.of_type("tool_result"):
            answers.clear()
    if request.thinking != "enabled" or not any(turn.of_type("tool_use") for turn in answers):
        return
    was_served = any(
        turn is answers[0] and echo.start == 0 and not echo.served.is_bare for turn, echo in request.echoes
    )
    first = answers[0].blocks[0] if answers[0].blocks else Item(answers[0].where, {})
    if first.type not in THINKING and not was_served:
        yield f"{first.where}: expected `thinking` or `redacted_thinking`, but found `{first.type}`"


def thinking_is_signed(request: Request) -> Iterator[str]:
    """Thinking comes back with its signature (anthropics/claude-code#63203)."""
    for turn in request.turns:
        for block in turn.of_type("thinking"):
            if not block.text("signature"):
                yield f"{block.where}: invalid `signature` in `thinking` block"


def answers_come_back_unchanged(request: Request) -> Iterator[str]:
    """Thinking and all that stands beside it come back as served (anthropics/claude-code#19539, #63203).

    Thinking is left out where what was before it has changed (the SDK's thinking block binding), and only there. A call
    whose id was in the conversation before may have another: the signature binds the thinking only.
    """
    for turn, echo in request.echoes:
        if echo.served.is_bare and echo.served.prefix in ("", request.prefix(turn, echo.start)):
            yield f"{turn.where}: answer changed: its thinking is gone, and nothing before it has changed"
        if echo.changed is not None:
            blocks = turn.comparable()
            index = echo.start + echo.changed
            found = blocks[index] if 0 <= index < len(blocks) else None
            expected = echo.served.blocks[echo.changed]
            yield f"{turn.where}: answer changed: served {_short(expected)}, came back {_short(found)}"


def thinking_keeps_its_conversation(request: Request) -> Iterator[str]:
    """The newest models bind thinking to all that stood before it (the SDK's thinking block binding)."""
    for turn, echo in request.echoes:
        thinks = any(block.get("type") in THINKING for block in echo.served.blocks)
        if thinks and echo.changed is None and request.prefix(turn, echo.start) != echo.served.prefix:
            yield f"{turn.where}: the conversation before this thinking was changed since"


def _short(block: Json | None) -> str:
    return orjson.dumps(block).decode()[:200]


HISTORY_RULES: tuple[Rule[Request], ...] = rules_of(globals())
