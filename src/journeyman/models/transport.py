"""HTTP to model providers: one shared client per event loop, bytes in, server-sent events out, every failure mapped.

The only module that knows aiohttp. A provider's adapter sends its body with `open_stream`; what goes wrong before,
instead of and within the answer becomes a `ProviderError`, by exception class, status and the provider's own label,
never by the wording of a message. Imports `errors`, `types` and `sse`. Read `anthropic.py` next.

| status | kind |
|---|---|
| 400, 405, 422, other 4xx | `bad_request` |
| 401, 403 | `auth` |
| 402 | `quota` |
| 404, 410 | `not_found` |
| 408, 504 | `timeout` |
| 409, 425, 500, 502, 503, 529, other 5xx | `overloaded`: passing faults of the service, worth another request |
| 413 | `context_overflow`: what is too large for the service is the conversation |
| 429 | `rate_limited`; without `retry-after` it may be a spending limit, then `retry_after_s` is None |
| 3xx | `unknown`: redirects are not followed, so that no key travels |
"""

from __future__ import annotations

import asyncio
import io
import urllib.request
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.models.sse import Event, Parser, TooLarge
from journeyman.types import Usage
