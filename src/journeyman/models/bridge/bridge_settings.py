"""`Settings` as pydantic-ai's unified settings; what a provider cannot be asked for is refused.

Imports `errors`, `model`, `types` and `untrusted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from pydantic_ai.models import Model
from pydantic_ai.settings import CacheSetting, ModelSettings, ThinkingLevel

from journeyman.errors import ProviderError
from journeyman.model import Request, Settings
from journeyman.models.untrusted import as_object
from journeyman.types import NOTHING_USED, Block, Text, ToolResult

# Fields that every provider names alike but puts elsewhere: pydantic-ai knows where.
_UNIFIED: Final = frozenset(
    {"frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty", "seed", "service_tier"}
    | {"temperature", "top_k", "top_p"}
)

_SILENT: Final = ModelSettings(framing_announcement="never")
"""Let pydantic-ai say nothing to the model that the user did not say."""


def settings_for(model: Model, request: Request, defaults: ModelSettings) -> ModelSettings:
    """Return the settings of one request, over `defaults`.

    Raises:
        ProviderError: they ask for what the provider does not take (`bad_request`).
    """
    settings, made = request.settings, cast("ModelSettings", {**_SILENT, **defaults})
    if request.prefix.tools and not model.profile.get("supports_tools", True):
        raise _refused(
            f"{model.model_id} is not known to support tools, and the request has some. Choose a model that supports"
            " tools, or remove tools, typed output and sub-agents from the agent."
        )
    unsupported = _unsupported(model)
    limits = [limit for limit in (settings.max_tokens, request.max_tokens) if limit is not None]
    if limits:
        made["max_tokens"] = min(limits)
    if settings.tool_choice != "auto" and request.prefix.tools:
        made["tool_choice"] = "required" if settings.tool_choice == "any" else "none"
    if settings.stop_sequences:
        _take(["stop_sequences"], unsupported, model)
        made["stop_sequences"] = list(settings.stop_sequences)
    if (thinking := _thinking(settings, model)) is not None:
        made["thinking"] = thinking
    if "cache" not in made:
        made["cache"] = _cache(request)
    if "max_retries" not in unsupported:
        made["max_retries"] = 0  # a retry that nobody sees cannot be counted
    return _with_extra(made, settings, unsupported, model)


def _unsupported(model: Model) -> frozenset[str]:
    """Return the settings that the model ignores, by its class or by its name."""
    named = cast("Mapping[str, Iterable[str]]", model.profile).get("openai_unsupported_model_settings", ())
    return frozenset([*model.unsupported_settings, *named])


def _thinking(settings: Settings, model: Model) -> ThinkingLevel | None:
    asked, profile = settings.thinking, model.profile
    always = profile.get("thinking_always_enabled", False)
    if asked is None:
        return None
    if isinstance(asked, int):
        raise _refused(f"{model.model_id} takes no thinking budget here. Ask for a level, such as thinking='medium'.")
    if asked == "off":
        if always:
            raise _refused(f"{model.model_id} always reasons. Ask for thinking='minimal' instead of 'off'.")
        return False if profile.get("supports_thinking", False) else None
    if not (always or profile.get("supports_thinking", False)):
        raise _refused(f"{model.model_id} is not known to reason. Leave thinking={asked!r} out.")
    return asked


def _cache(request: Request) -> CacheSetting:
    """Return the cache policy; marks in the user's own texts go with the messages.

    A mark in the system prompt stands for the end of it, which is where pydantic-ai sets one.
    """
    policy = request.settings.cache
    if policy != "explicit":
        return policy == "auto"
    if any(_is_marked_inside(block) for message in request.messages for block in message.content):
        raise _refused(
            "A cache mark inside of a tool's result cannot be carried. Mark a text of the user, or use "
            "Settings(cache='auto')."
        )
    return {"messages": False} if any(text.cache_mark for text in request.prefix.system) else False


def _is_marked_inside(block: Block) -> bool:
    if not isinstance(block, ToolResult) or isinstance(block.content, str):
        return False
    return any(isinstance(part, Text) and part.cache_mark for part in block.content)


def _with_extra(made: ModelSettings, settings: Settings, unsupported: frozenset[str], model: Model) -> ModelSettings:
    """Add the user's own fields: the unified ones where pydantic-ai puts them, others to the request's body."""
    unified = settings.extra.keys() & _UNIFIED
    others = {name: value for name, value in settings.extra.items() if name not in unified}
    _take(unified, unsupported, model)
    if others:
        if "extra_body" in unsupported:
            raise _refused(
                f"Settings.extra has {sorted(others)}, and pydantic-ai adds no fields to a request of "
                f"{model.model_id}. Give its own settings to the model: connect(…, settings={{…}})."
            )
        before = as_object(cast("Mapping[str, object]", made).get("extra_body"))
        made["extra_body"] = {**before, **others}
    return cast("ModelSettings", {**made, **{name: settings.extra[name] for name in unified}})


def _take(names: Iterable[str], unsupported: frozenset[str], model: Model) -> None:
    if refused := sorted(set(names) & unsupported):
        raise _refused(f"{model.model_id} does not take {', '.join(refused)}. Leave it out.")


def _refused(text: str) -> ProviderError:
    return ProviderError(text, kind="bad_request", usage=NOTHING_USED)
