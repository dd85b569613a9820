"""A table of the words with which services say why a model stopped: one for all, because gateways pass on the word of
another service.

What one decoder knows, all know. A word that is not known here is given back as it is, and never taken for an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from journeyman.errors import ProviderError
from journeyman.types import StopReason

_WORDS: Final[Mapping[StopReason, str]] = {
    "end_turn": "end_turn stop eos eos_token complete completed",
    "tool_use": "tool_use tool_calls tool_call function_call",
    "stop_sequence": "stop_sequence",
    "max_tokens": "max_tokens max_output_tokens length max_length",
    "pause_turn": "pause_turn",
    "refusal": "refusal content_filter content_filtered guardrail_intervened sensitive error_toxic"
    " safety model_armor recitation blocklist prohibited_content spii language escalation pup_limited_disabled"
    " image_safety image_prohibited_content image_recitation",
    "context_window": "model_context_window_exceeded model_length context_window context_length_exceeded error_limit",
}
_REASONS: Final[Mapping[str, StopReason]] = {word: reason for reason, words in _WORDS.items() for word in words.split()}
_FAULTS: Final = frozenset(
    ("error", "network_error", "insufficient_system_resource", "abort", "aborted", "server_error", "internal_error")
)
"""Of Chat Completions of Z.ai and DeepSeek, of Cohere, and of vLLM and SGLang when a worker gives up."""


def stop_of(word: str, *, has_calls: bool) -> tuple[StopReason, str | None]:
    """Return why the model stopped, and the word itself where that says more.

    Where the model stopped by itself, what it made says more than the word: some services say `stop` for a call.

    Raises:
        ProviderError: the word tells of a fault of the service that may pass (`overloaded`).
    """
    known = word.lower().replace("-", "_")
    if known in _FAULTS:
        raise ProviderError(
            f"The answer broke off: the service stopped it with {word!r}.", kind="overloaded", type=word
        )
    reason: StopReason = _REASONS.get(known, "other")
    if reason in ("end_turn", "tool_use"):
        return ("tool_use" if has_calls else "end_turn"), None
    return reason, word if reason == "other" or (reason == "refusal" and known != reason) else None
