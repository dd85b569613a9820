"""What adapters share when they make a request: its key, its limits, the user's own fields and its body.

The rule: what the service would refuse is not sent, but fails here, as a `bad_request` that says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Final, TypeVar

from journeyman.errors import ModelUnavailable, ProviderError
from journeyman.hosted.tools import Location
from journeyman.model import Facts, Request, Settings
from journeyman.types import NOTHING_USED, JsonObject

UNKNOWN_MAX_TOKENS: Final = 8_192
"""How long an answer may be, in tokens, of a model whose longest answer is not known."""
ROOM_FOR_ANSWER: Final = 256
"""How many tokens a budget for reasoning leaves to the answer when the limit of a call is lowered."""

_Known = TypeVar("_Known")


def environment(variable: str | None) -> str | None:
    """Return what the environment variable holds; None if there is nothing but white space in it."""
    return os.environ.get(variable, "").strip() or None if variable else None


def check_key(key: str | None, *, model: str) -> None:
    """Raise `ModelUnavailable` for a key that no service can have given out."""
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key and key):
        raise ModelUnavailable(
            f"The key for {model!r} is empty or has a character that no key has.",
            model=model,
            hint="Copy the key again, without spaces and line breaks.",
        )


def missing(what: str, *, model: str, shown: str = "", hint: str) -> ModelUnavailable:
    """Return the error of a model for which there is no key or no address; `shown` is its name, if not all of it."""
    return ModelUnavailable(f"There is no {what} for the model {shown or model!r}.", model=model, hint=hint)


def by_longest_prefix(table: Mapping[str, _Known], name: str) -> _Known:
    """Return the entry whose key is the longest beginning of `name`; the table has one for the empty name."""
    return table[max((prefix for prefix in table if name.startswith(prefix)), key=len)]


def refused_here(text: str) -> ProviderError:
    """Return the error of a request that is not sent because it would be refused."""
    return ProviderError(text, kind="bad_request", usage=NOTHING_USED, hint="Nothing was sent.")


def limits(request: Request, facts: Facts) -> tuple[int, int]:
    """Return the longest answer that the settings allow, and that which this call allows, which may be less."""
    ceiling = request.settings.max_tokens
    if ceiling is None:
        ceiling = facts.max_output_tokens or UNKNOWN_MAX_TOKENS
    return ceiling, ceiling if request.max_tokens is None else min(ceiling, request.max_tokens)


def check_hosted(request: Request, facts: Facts, *, model: str) -> None:
    """Go on only if the model has the hosted tools that the settings ask for.

    Raises:
        ProviderError: it lacks one (`bad_request`).
    """
    hosted = request.settings.hosted
    if (
        hosted
        and facts.hosted is not None
        and (lack := facts.hosted.lack(hosted, has_tools=bool(request.prefix.tools)))
    ):
        raise refused_here(f"{model} cannot be asked: {lack[0]}. {lack[1]}")


def with_hosted(head: JsonObject, hosted: Sequence[JsonObject]) -> JsonObject:
    """Put hosted tools, in the provider's form, before those of the user's own fields."""
    given = head.get("tools")
    return {**head, "tools": [*hosted, *(given if isinstance(given, list) else [])]} if hosted else head


def placed(location: Location | None) -> JsonObject:
    """Return where the user is, as Anthropic and OpenAI are told it; nothing for nowhere."""
    if location is None:
        return {}
    known = {each.name: getattr(location, each.name) for each in fields(location)}
    return {"user_location": {"type": "approximate", **{name: text for name, text in known.items() if text}}}


def sampling_fields(settings: Settings, names: Mapping[str, str], *, model: str, api: str) -> JsonObject:
    """Return the settings of how a model chooses its words, by their `names` in an API.

    Raises:
        ProviderError: a setting has no name in it (`bad_request`): nothing that a user asks for is left out in silence.
    """
    every = {"temperature": settings.temperature, "top_p": settings.top_p, "seed": settings.seed}
    asked: JsonObject = {name: value for name, value in every.items() if value is not None}
    if settings.stop:
        asked["stop"] = list(settings.stop)
    if lacking := " and no ".join([name for name in asked if name not in names]):
        raise refused_here(f"{model} takes no {lacking} over {api}. Leave it out of Settings.")
    return {names[name]: value for name, value in asked.items()}


def with_extra(head: JsonObject, extra: JsonObject, *, reserved: frozenset[str]) -> JsonObject:
    """Add the user's own fields; of one that is an object on both sides, the members are put together.

    Raises:
        ProviderError: a field of `reserved` is among them (`bad_request`).
    """
    if taken := reserved & extra.keys():
        raise refused_here(f"Settings.extra has {sorted(taken)}. These come from the agent's prompts and history.")
    for key, value in extra.items():
        before = head.get(key)
        head[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return head


def written(head: JsonObject, encode: Callable[[JsonObject, Sequence[object]], bytes]) -> bytes:
    """Return the body that `encode` makes of `head` and of the tools that the user's own fields have.

    Raises:
        ProviderError: something in it is no JSON (`bad_request`).
    """
    tools = head.pop("tools", None)
    try:
        return encode(head, tools if isinstance(tools, list) else [])
    except (TypeError, ValueError) as error:
        text = f"The request cannot be written as JSON: {error}. Look at schemas and Settings.extra."
    raise refused_here(text)
