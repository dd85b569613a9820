"""The common part of the requests of all adapters: the key, the limits, the user's own fields and the body.

The rule: what the service would refuse is not sent, but fails here, as a `bad_request` that says what to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic_core import from_json

from journeyman.errors import ModelUnavailable, ProviderError
from journeyman.hosted.tools import Location
from journeyman.machine.env_file import hint_of_env_file
from journeyman.machine.files import read_text
from journeyman.model import Facts, ModelSettings, Request
from journeyman.types import NOTHING_USED, JsonObject

UNKNOWN_MAX_TOKENS: Final = 8_192
"""How long an answer may be, in tokens, of a model whose longest answer is not known."""
ROOM_FOR_ANSWER: Final = 256
"""How many tokens a budget for reasoning leaves to the answer when the limit of a call is lowered."""

_QUOTES: Final = "\"'`"
_PLACEHOLDER: Final = re.compile(r"\$\{|\$\(|\{\{|^\$[A-Za-z_]\w*$|^<.*>$|<[a-zA-Z][\w -]*>")
_VERSION: Final = re.compile(r"v\d\w*")

_Known = TypeVar("_Known")


def environment(variable: str | None) -> str | None:
    """Return what the environment variable holds; None if there is nothing but white space in it."""
    return os.environ.get(variable, "").strip() or None if variable else None


def check_key(key: str | None, *, model: str) -> None:
    """Raise `ModelUnavailable` for a key that no service can have given out."""
    if key is None:
        return
    what, hint = "", "Copy the key again, without spaces and line breaks."
    if not (key.isascii() and key.isprintable() and " " not in key and key):
        what = "is empty or has a character that no key has"
    elif key[0] in _QUOTES or key[-1] in _QUOTES:
        what, hint = "has a quotation mark at its end", "Write it without quotes: an env-file keeps them as they are."
    elif _PLACEHOLDER.search(key):
        what, hint = "is a placeholder that nobody has filled in", "Put the key itself in its place."
    if what:
        raise ModelUnavailable(f"The key for {model!r} {what}.", model=model, hint=hint)


def join_address(base_url: str, path: str, query: Mapping[str, str] | None = None, *, model: str) -> str:
    """Return the address of `path` below `base_url`, whose own query comes after the path, and whose fragment is left
    out. Where the base ends in the path already, or in its beginning up to a version, that is not added again.

    Raises:
        ModelUnavailable: the base is no address of http or https, or has a blank, quotes or a placeholder in it.
    """
    base_url = base_url.strip()
    hint = "Write it as https://HOST/PATH, without quotes, blanks and placeholders."
    refused = ModelUnavailable(f"base_url is {base_url!r}, which is no address.", model=model, hint=hint)
    try:
        parts = urlsplit(base_url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is none, or the brackets of an address are not closed
        raise refused from None
    if not is_whole or any(map(str.isspace, base_url)) or _PLACEHOLDER.search(base_url):
        raise refused
    asked = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **(query or {})}
    end = f"?{urlencode(asked)}" if asked else ""
    return f"{parts.scheme}://{parts.netloc}{_join_path(parts.path.rstrip('/'), path)}{end}"


def _join_path(above: str, path: str) -> str:
    steps = path.strip("/").split("/")
    for n_steps in range(len(steps), 0, -1):
        head = "/" + "/".join(steps[:n_steps])
        if above.endswith(head) and (n_steps == len(steps) or _VERSION.fullmatch(steps[n_steps - 1])):
            return above.removesuffix(head) + path
    return above + path


def check_options(model: str, given: Mapping[str, object], known: type, *, hint: str = "") -> dict[str, Any]:
    """Return the options that say something: in place of None, a model has its own default.

    Raises:
        TypeError: the model has no such options; it names those that `known` declares.
    """
    if unknown := given.keys() - known.__annotations__.keys():
        raise TypeError(f"{model} has no options {sorted(unknown)}. It has: {sorted(known.__annotations__)}.{hint}")
    return {name: each for name, each in given.items() if each is not None}


def missing(
    what: str, *, model: str, shown: str = "", hint: str, variables: Sequence[str | None] = ()
) -> ModelUnavailable:
    """Return the error of a model for which there is no key or no address; `shown` is its name, if not all of it.

    `variables`: those that would give it. One that only stands in `.env` is what the hint is about.
    """
    text = f"There is no {what} for the model {shown or model!r}."
    return ModelUnavailable(text, model=model, hint=hint_of_env_file(variables) or hint)


@cache
def known_models(package: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the facts of a provider's models as its package has them, by the beginnings of their names."""
    return from_json(read_text(package, "models.json"))


def by_longest_prefix(table: Mapping[str, _Known], name: str) -> _Known:
    """Return the entry whose key is the longest beginning of `name`; the table has one for the empty name."""
    return table[max((prefix for prefix in table if name.startswith(prefix)), key=len)]


def make_unsent_error(text: str) -> ProviderError:
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
        raise make_unsent_error(f"{model} cannot be asked: {lack[0]}. {lack[1]}")


def with_hosted(head: JsonObject, hosted: Sequence[JsonObject]) -> JsonObject:
    """Put hosted tools, in the provider's form, before those of the user's own fields."""
    given = head.get("tools")
    return {**head, "tools": [*hosted, *(given if isinstance(given, list) else [])]} if hosted else head


def encode_location(location: Location | None) -> JsonObject:
    """Return where the user is, as Anthropic and OpenAI are told it; nothing for nowhere."""
    if location is None:
        return {}
    known = {each.name: getattr(location, each.name) for each in fields(location)}
    return {"user_location": {"type": "approximate", **{name: text for name, text in known.items() if text}}}


def sampling_fields(settings: ModelSettings, names: Mapping[str, str], *, model: str, api: str) -> JsonObject:
    """Return the settings of how a model chooses its words, by their `names` in an API.

    Raises:
        ProviderError: a setting has no name in it (`bad_request`): nothing that a user asks for is left out in silence.
    """
    every = {"temperature": settings.temperature, "top_p": settings.top_p, "seed": settings.seed}
    asked: JsonObject = {name: value for name, value in every.items() if value is not None}
    if settings.stop:
        asked["stop"] = list(settings.stop)
    if lacking := " and no ".join([name for name in asked if name not in names]):
        raise make_unsent_error(f"{model} takes no {lacking} over {api}. Leave it out of ModelSettings.")
    return {names[name]: value for name, value in asked.items()}


def with_extra(head: JsonObject, extra: JsonObject, *, reserved: frozenset[str]) -> JsonObject:
    """Add the user's own fields; of one that is an object on both sides, the members are put together.

    Raises:
        ProviderError: a field of `reserved` is among them (`bad_request`).
    """
    if taken := reserved & extra.keys():
        raise make_unsent_error(
            f"ModelSettings.extra has {sorted(taken)}. These come from the agent's prompts and history."
        )
    for key, value in extra.items():
        before = head.get(key)
        head[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return head


def write_body(head: JsonObject, encode: Callable[[JsonObject, Sequence[object]], bytes]) -> bytes:
    """Return the body that `encode` makes of `head` and of the tools that the user's own fields have.

    Raises:
        ProviderError: something in it is no JSON (`bad_request`).
    """
    tools = head.pop("tools", None)
    try:
        return encode(head, tools if isinstance(tools, list) else [])
    except (TypeError, ValueError) as error:
        text = f"The request cannot be written as JSON: {error}. Look at schemas and ModelSettings.extra."
    raise make_unsent_error(text)
