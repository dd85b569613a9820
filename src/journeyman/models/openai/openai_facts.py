"""What is known about OpenAI's models: how long they answer, how much they read, and how they are asked to reason.

As developers.openai.com documented them in November 2026; what Chat Completions refuse is from the API's own error
texts (GitHub: openai/openai-openapi#541, BerriAI/litellm#34569). Imports nothing of this package. Read
`openai_endpoint.py` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

ChatTools: TypeAlias = Literal["yes", "without reasoning", "no"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a model."""

    max_output_tokens: int
    context_window: int | None
    efforts: tuple[str, ...] = ()
    """What its effort for reasoning can be, the least first; empty when it takes none."""
    chat_tools: ChatTools = "yes"
    """Whether it has tools over Chat Completions. `without reasoning`: with the effort `none` only."""


_THREE: Final = ("low", "medium", "high")
_FOUR: Final = (*_THREE, "xhigh")
_FIVE: Final = (*_FOUR, "max")
_LARGE: Final = 1_050_000

# The longest prefix that fits, after the vendor's name and a slash, which gateways put before it.
_FACTS: Final[Mapping[str, Facts]] = {
    "gpt-6": Facts(128_000, _LARGE, _FIVE, "no"),
    "gpt-6-sol": Facts(128_000, _LARGE, ("none", *_FIVE), "without reasoning"),
    "gpt-6-luna": Facts(128_000, _LARGE, ("none", *_FIVE), "without reasoning"),
    "gpt-5.6": Facts(128_000, _LARGE, ("none", *_FIVE), "without reasoning"),
    "gpt-5.5": Facts(128_000, _LARGE, ("none", *_FOUR), "without reasoning"),
    "gpt-5.5-pro": Facts(128_000, _LARGE, ("medium", "high", "xhigh")),
    "gpt-5.4": Facts(128_000, _LARGE, ("none", *_FOUR), "without reasoning"),
    "gpt-5.4-mini": Facts(128_000, 400_000, ("none", *_FOUR), "without reasoning"),
    "gpt-5.4-nano": Facts(128_000, 400_000, ("none", *_FOUR), "without reasoning"),
    "gpt-5.4-pro": Facts(128_000, _LARGE, ("medium", "high", "xhigh")),
    "gpt-5.3-codex": Facts(128_000, 400_000, _FOUR),
    "gpt-5.3-codex-spark": Facts(32_000, 128_000, _FOUR),
    "gpt-5.3-chat": Facts(16_384, 128_000, ("medium",)),
    "gpt-5.2": Facts(128_000, 400_000, ("none", *_FOUR)),
    "gpt-5.2-codex": Facts(128_000, 400_000, _FOUR),
    "gpt-5.2-pro": Facts(128_000, 400_000, ("medium", "high", "xhigh")),
    "gpt-5.2-chat": Facts(16_384, 128_000, ("medium",)),
    "gpt-5.1": Facts(128_000, 400_000, ("none", *_THREE)),
    "gpt-5.1-codex": Facts(128_000, 400_000, _THREE),
    "gpt-5.1-codex-max": Facts(128_000, 400_000, _FOUR),
    "gpt-5.1-chat": Facts(16_384, 128_000, ("medium",)),
    "gpt-5": Facts(128_000, 400_000, ("minimal", *_THREE)),
    "gpt-5-codex": Facts(128_000, 400_000, _THREE),
    "gpt-5-pro": Facts(272_000, 400_000, ("high",)),
    "gpt-5-chat": Facts(16_384, 128_000),
    "gpt-oss-": Facts(131_072, 131_072, _THREE),
    "o1": Facts(100_000, 200_000, _THREE),
    "o3": Facts(100_000, 200_000, _THREE),
    "o4-mini": Facts(100_000, 200_000, _THREE),
    "gpt-4.1": Facts(32_768, 1_047_576),
    "gpt-4o": Facts(16_384, 128_000),
    "gpt-4o-2024-05-13": Facts(4_096, 128_000),
    "gpt-4-turbo": Facts(4_096, 128_000),
    "gpt-4": Facts(8_192, 8_192),
    "gpt-3.5-turbo": Facts(4_096, 16_385),
    "": Facts(8_192, None, _THREE),
}


@cache
def facts(name: str) -> Facts:
    """Return what is known about a model; of an unknown one only 8,192 tokens of output are taken for granted."""
    known = name.rpartition("/")[2].removeprefix("ft:")
    return _FACTS[max((prefix for prefix in _FACTS if known.startswith(prefix)), key=len)]
