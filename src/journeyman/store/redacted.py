"""Sessions that are stored without the secrets in them.

The conversation goes on word for word in memory; only what is written changes. Ids, names of tools, media, and what a
provider has signed or encrypted stay as they are, so that a provider takes the conversation once it is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from journeyman.definition import explain_arguments
from journeyman.inbox import Queue
from journeyman.session import PatientSession, Session, Sessions, Snapshot, Step
from journeyman.tools.redaction import MARK, Redactor, Secret, is_secret_value
from journeyman.types import (
    Block,
    Document,
    JsonObject,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolReference,
    ToolResult,
    ToolUse,
    UserContent,
)

_KEPT: Final = ("id", "signature", "encrypted_content", "encrypted_index", "data", "type", "name", "status")
"""How the names of fields end that only a provider reads."""


@explain_arguments
class Redacted:
    """Sessions of a store, written without secrets: `Chat.open(agent, Redacted(Store("chats.db")))`."""

    def __init__(self, sessions: Sessions, *, redact: Sequence[Secret] = ()) -> None:
        """`redact` says what to take out in addition to everything that looks like a secret, as for a cassette."""
        self._sessions = sessions
        self._redact = tuple(redact)

    def session(
        self, id: str | None = None, *, agent: str, any_agent: bool = False, create: bool = False
    ) -> RedactedSession:
        """Open a session, as `Store.session` does."""
        session = self._sessions.session(id, agent=agent, any_agent=any_agent, create=create)
        return RedactedSession(session, Redactor(self._redact))


class RedactedSession:
    """One session that is written without secrets."""

    def __init__(self, session: Session, redactor: Redactor) -> None:
        self._session = session
        self._redactor = redactor

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def notice(self) -> str | None:
        return self._session.notice

    @property
    def snapshot(self) -> Snapshot:
        return self._session.snapshot

    def add(self, text: str, queue: Queue) -> int:
        return self._session.add(self._text(text), queue)

    def write(self, step: Step) -> None:
        self._session.write(self._without_secrets(step))

    def write_at_once(self, step: Step) -> None:
        session = self._session
        write = session.write_at_once if isinstance(session, PatientSession) else session.write
        write(self._without_secrets(step))

    def _without_secrets(self, step: Step) -> Step:
        messages = None if step.messages is None else [self._message(message) for message in step.messages]
        staged, view = tuple([self._staged(block) for block in step.staged]), step.view
        if view is not None:
            sent = tuple([self._message(message) for message in view.messages])
            view = replace(view, last=self._message(view.last), messages=sent)
        return replace(step, messages=messages, staged=staged, view=view)

    def close(self) -> None:
        self._session.close()

    def __repr__(self) -> str:
        return f"<RedactedSession {self._session!r}>"

    def _message(self, message: Message) -> Message:
        return Message(message.role, tuple([self._block(block) for block in message.content]), message.continues)

    def _block(self, block: Block) -> Block:
        match block:
            case Thinking():
                text = self._text(block.text)
                return block if text == block.text else replace(block, text=text, signature=None)  # it signed the text
            case ToolUse():
                malformed = None if block.malformed is None else self._text(block.malformed)
                return replace(
                    block,
                    input_json=self._redactor.redacted_json_text(block.input_json),
                    malformed=malformed,
                    extra=self._extra(block.extra),
                )
            case Opaque():
                whole: JsonObject = from_json(block.json)
                changed = self._extra(whole)
                # The very bytes where nothing was taken out: providers compare what they have signed.
                return block if changed == whole else replace(block, json=to_json(changed).decode())
            case ToolResult() | Text() | Document():
                return self._staged(block)
            case _:
                return block

    def _staged(self, block: UserContent | ToolResult) -> UserContent | ToolResult:
        match block:
            case ToolResult(str() as text):
                return replace(block, content=self._text(text))
            case ToolResult(tuple() as blocks):
                content = [each if isinstance(each, ToolReference) else self._staged(each) for each in blocks]
                return replace(block, content=tuple(content))
            case Text():
                return replace(block, text=self._text(block.text), extra=self._extra(block.extra))
            case Document(title=str() as title):
                return replace(block, title=self._text(title))
            case _:
                return block

    def _text(self, text: str) -> str:
        return self._redactor.redacted_json_text(text)

    def _extra(self, extra: JsonObject | None) -> JsonObject | None:
        return None if extra is None else {name: self._beside(value, name) for name, value in extra.items()}

    def _beside(self, value: JsonValue, name: str) -> JsonValue:
        """Return what a provider has sent beside the words, without secrets."""
        match value:
            case _ if name.lower().endswith(_KEPT):
                return value
            case str():
                return MARK if is_secret_value(name, value) else self._text(value)
            case dict():
                return self._extra(value)
            case list():
                return [self._beside(item, name) for item in value]
            case _:
                return value


if TYPE_CHECKING:
    _session: type[Session] = RedactedSession
    _sessions: type[Sessions] = Redacted
