"""Lets an MCP server ask the model of the run that has called it, where the program allows that.

A server is somebody else's program: what it writes is a stranger's, the run's gates decide about each question, and the
run's own budget pays. It gets words back and nothing else: no tools, and nothing of the run's conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from journeyman.cancellation import current_scope
from journeyman.errors import name_and_words
from journeyman.gate import Deny, GateRequest, Stop, current_guard
from journeyman.mcp.call_answers import CallAnswers
from journeyman.mcp.contents import to_message
from journeyman.mcp.servers import Sampler, plain_name
from journeyman.result import Failure
from journeyman.texts import shorten_line

if TYPE_CHECKING:
    from mcp.types import CreateMessageRequestParams, CreateMessageResult, ErrorData

MAX_SAMPLES: Final = 20
"""How often one call may ask the model: a server in a loop must not spend what the run has."""
TOOL: Final = "sampling"
"""Under which name of a tool rules and gates decide about a server's questions: `mcp__SERVER__sampling`."""
_SHOWN: Final = 500
_MODEL: Final = "the model of the run"
"""What a server reads as the model's name: which one a user runs is not its business."""


class CallSampling:
    """The questions of a server to the model during one call, in the run that made the call."""

    def __init__(
        self, server: str, sampler: Sampler | None, path: tuple[str, ...], shown: Callable[[str], str]
    ) -> None:
        """`sampler` asks the model; None: it is not asked. `shown` makes a text of an error fit for the server."""
        self.run: Final = current_scope.get()
        """What tells the run from others; None outside of one."""
        self._server: Final = server
        self._sampler: Final = sampler
        self._path: Final = path
        self._shown: Final = shown
        self._context: Final = copy_context()
        self._n_asked = 0
        self.answers: Final[CallAnswers[CreateMessageResult | ErrorData]] = CallAnswers()

    async def answer(self, wanted: CreateMessageRequestParams) -> CreateMessageResult | ErrorData:
        """Return what the model answers, or why it was not asked."""
        self._n_asked += 1
        if self._sampler is None:
            return _refuse("this program does not let servers ask it")
        if self.run is None:
            return _refuse("nobody has called it in a run, so there is no model to ask")
        if self._n_asked > MAX_SAMPLES:
            return _refuse(f"one call may ask the model {MAX_SAMPLES} times")
        if wanted.tools:
            return _refuse("the model gets no tools here")
        # In the context of the call: there it is known which run goes on, what guards it, and what it may spend.
        answer = await self.answers.find(self._ask(wanted, self._sampler), self._context.copy())
        return answer or _refuse("the call has ended")

    async def _ask(self, wanted: CreateMessageRequestParams, sampler: Sampler) -> CreateMessageResult | ErrorData:
        from mcp.types import AudioContent, CreateMessageResult, ImageContent, TextContent

        if denied := await self._consult_gates(wanted):
            return _refuse(denied)
        said = [(each.role == "user", block) for each in wanted.messages for block in each.content_as_list]
        shown = [
            (is_user, block) for is_user, block in said if isinstance(block, TextContent | ImageContent | AudioContent)
        ]
        if len(shown) < len(said):
            return _refuse("it shows calls of tools, of which the model has none here")
        messages = [
            to_message("user" if is_user else "assistant", [block for _, block in blocks])
            for is_user, blocks in groupby(shown, lambda each: each[0])
        ]
        try:
            result = await sampler(
                messages,
                instructions=wanted.system_prompt or "",
                max_tokens=wanted.max_tokens,
                name=f"{plain_name(self._server)}-{TOOL}",
            )
        except Exception as error:  # noqa: BLE001 - the program's own sampler, or a conversation that cannot be: told
            return _refuse(self._shown(shorten_line(name_and_words(error), _SHOWN)))
        if isinstance(result, Failure):
            return _refuse(self._shown(f"{result.code}: {shorten_line(result.error.message, _SHOWN)}"))
        content = TextContent(type="text", text=result.output)
        return CreateMessageResult(role="assistant", content=content, model=_MODEL, stop_reason="endTurn")

    async def _consult_gates(self, wanted: CreateMessageRequestParams) -> str:
        """Return why the gates do not let the model be asked; empty if they do."""
        guard = current_guard()
        if guard is None:
            return ""
        asked: dict[str, Any] = wanted.model_dump(mode="json", by_alias=True, exclude_none=True)
        server = f"mcp__{plain_name(self._server)}"
        verdict = await guard.consult(
            GateRequest(
                path=self._path,
                tool_use_id=f"{TOOL}-{id(self)}-{self._n_asked}",
                tool_name=f"{plain_name(self._server)}_{TOOL}",
                arguments={key: asked[key] for key in ("messages", "systemPrompt", "maxTokens") if key in asked},
                effect="once",
                untrusted=True,
                external=True,
                server_names=(f"{server}__{TOOL}", server),
            ),
            guard.approve,
        )
        return verdict.reason if isinstance(verdict, Deny | Stop) else ""


def _refuse(why: str) -> ErrorData:
    from mcp.types import INVALID_REQUEST, ErrorData

    return ErrorData(code=INVALID_REQUEST, message=f"The model was not asked: {why}.")
