"""Prompts: a text, content blocks, or a function that makes them. A template of any engine is such a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from typing_extensions import TypeVar

from journeyman.cancellation import is_awaited
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_sequence
from journeyman.result import ValidationReport
from journeyman.types import Content, Text, UserContent

__all__ = ["ErrorPrompt", "ErrorPromptContext", "Prompt", "SystemPrompt"]

Needs = TypeVar("Needs", default=object, contravariant=True)

Prompt: TypeAlias = str | Content
"""What the user's side says: a text, a block, or texts and blocks: pictures, documents, sounds."""

SystemPrompt: TypeAlias = str | Sequence[Text]
"""What the model is told before everything else: a text, or several texts, each with its own cache mark if it needs
one."""


@lazy_dataclass(frozen=True, kw_only=True)
class ErrorPromptContext:
    """An output that did not pass, as the error prompt gets it."""

    feedback: str
    """What the layer that did not pass says."""
    layer: str
    """The name of that layer."""
    description: str
    """The first line of the layer's docstring."""
    report: ValidationReport
    """What the checks found."""
    attempt: int
    max_attempts: int


ErrorPrompt: TypeAlias = (
    Callable[[ErrorPromptContext], str | Awaitable[str]] | Callable[[ErrorPromptContext, Needs], str | Awaitable[str]]
)
"""Makes what the model reads after a rejection; the run's deps come second, if it needs them. Where it gives nothing,
or only blanks, the model reads what `default_error_prompt` makes, and the log has a warning."""


def default_error_prompt(rejection: ErrorPromptContext) -> str:
    """Say which check failed and why, and ask for a corrected output; or why a function made no output."""
    about = f" ({rejection.description})" if rejection.description else ""
    if rejection.report.layers and rejection.report.layers[-1].kind == "function":
        # It may have had an effect: the model must not be asked to hand in again, come what may.
        said = f"{rejection.layer} failed{about}\n{rejection.feedback}"
        return f"{said}\n\nThe output was not made. Find out why before you hand in again."
    return (
        f"Validation failed: {rejection.layer}{about}\n{rejection.feedback}\n\nCorrect the output and hand it in again."
    )


class PromptFailed(Exception):
    """A prompt gave nothing that can be sent. `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PromptBlank(PromptFailed):
    """A prompt gave no words and no files."""


async def make_content(prompt: object) -> tuple[UserContent, ...]:
    """Return the content of a prompt that a function returned, or of a ready one.

    Raises:
        PromptBlank: it is blank.
        PromptFailed: it is neither text nor blocks.
    """
    value = await prompt if is_awaited(prompt) else prompt
    given: object = Text(value) if isinstance(value, str) else value
    blocks = given if is_sequence(given) else [given]
    blocks = [Text(block) if isinstance(block, str) else block for block in blocks]
    content = [block for block in blocks if isinstance(block, UserContent)]
    if len(content) < len(blocks):
        raise PromptFailed(f"it gave {type(value).__name__}, not text or content blocks")
    kept = tuple(block for block in content if not (isinstance(block, Text) and not block.text.strip()))
    if not kept:
        raise PromptBlank("it is blank")
    return kept
