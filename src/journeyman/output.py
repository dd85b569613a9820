"""What an agent hands in: the output tool, and the reflection that shows a draft back to the model.

Submit lives only inside a reflection, so that neither can exist without the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final, Generic, Literal, TypeVar, cast

from typing_extensions import TypeForm

from journeyman.types import frozen

T = TypeVar("T")


@frozen
class Submit:
    """The tool with which the model hands in the draft it is satisfied with. It takes no arguments."""

    name: str = "submit"
    description: str = (
        "Submit the output you proposed last. Call this once you are satisfied with it; it is then validated."
    )


# No slots: Python 3.11 cannot make a frozen generic dataclass with slots as `Output[Report](…)`.
@dataclass(frozen=True)
class Reflection(Generic[T]):
    """Shows a proposed output back to the model, which may propose again before it submits."""

    handler: Callable[[T], str | Awaitable[str]]
    """Renders the draft as the model should see it. What it raises reaches the model as an error."""
    _: KW_ONLY
    submit: Submit = Submit()
    require_clean: bool = False
    """Refuse to submit a draft whose reflection failed. Otherwise validation decides."""
    submit_alone: bool = False
    """Refuse to submit in the response that proposes the draft: the model has not seen it yet."""
    early_submit: Literal["fail", "answer"] = "fail"
    """Submit before any draft: end the run with `SUBMIT_BEFORE_OUTPUT`, or answer with an error and go on."""


@dataclass(frozen=True)
class Output(Generic[T]):
    """The type of an agent's output, and the tool whose arguments are the output."""

    type: TypeForm[T]
    """A model, dataclass, TypedDict, `list[int]`, `Report | None` … A type that is no object is wrapped in one, with
    the single property `value`."""
    _: KW_ONLY
    name: str = "output"
    description: str = ""
    """What the model is told about the tool; a plain instruction when empty."""
    reflection: Callable[[T], str | Awaitable[str]] | Reflection[T] | None = None
    """A function that renders the draft, or a `Reflection` with options. None: the first output is final."""
    strict: bool = False
    """Ask the provider to guarantee the schema, where it can do so without loss."""

    def reflecting(self) -> Reflection[T] | None:
        """Return the reflection with its options, if there is one."""
        reflection = self.reflection
        if reflection is None:
            return None
        return cast("Reflection[T]", reflection) if isinstance(reflection, Reflection) else Reflection(reflection)


TEXT: Final = Output(str)
"""The output of an agent that answers with plain text: no output tool. Compared by identity."""
