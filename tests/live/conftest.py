"""Runs with a real language model in a real server: `make live` alone collects them.

Whatever such a model answers is right here: tests assert how runs end and what is counted, never an answer.
"""

import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from typing import Final, TypeVar

import pytest

from journeyman import Agent, ErrorCode, Failure, ModelSettings, Result, run
from journeyman.connect import Connected, connect
from journeyman.models.local.model import LocalModel
from tests.live.tap import Tap, tapped

collect_ignore_glob = [] if os.environ.get("JOURNEYMAN_LIVE") else ["test_*.py"]

PATIENCE_S: Final = 10.0
"""In this time 20 tokens have to come: a machine that is slower would take an hour for all of these runs."""
WIRES: Final = ("llama-cpp", "openai-chat", "openai", "anthropic")
T = TypeVar("T")

_endings: Final[Counter[str]] = Counter()
_tokens: Final[Counter[str]] = Counter()


def note(result: Result[T], *, kind: str) -> Result[T]:
    """Check what holds for every run, and count how it ended."""
    code = result.code if isinstance(result, Failure) else "SUCCESS"
    assert code not in (ErrorCode.INTERNAL_ERROR, ErrorCode.INVALID_INPUT), result
    usage = result.metadata.usage
    assert usage is not None
    _endings[f"{kind:<10} {code}"] += 1
    _tokens.update({"in": usage.input_tokens, "out": usage.output_tokens})
    return result


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
async def local() -> AsyncGenerator[LocalModel]:
    """The model, with its server started; ends all where it is too slow here."""
    model = connect("local:smollm2")
    assert isinstance(model, LocalModel)
    agent = Agent(name="clock", model=model, settings=ModelSettings(max_tokens=20, extra={"ignore_eos": True}))
    await run(agent, "Hi.")  # loads it
    began_s = time.monotonic()
    await run(agent, "Count from one to a hundred.")
    if (took_s := time.monotonic() - began_s) > PATIENCE_S:
        pytest.exit(f"skipped: 20 tokens took {took_s:.0f} s here, more than {PATIENCE_S:.0f} s.", returncode=0)
    yield model
    model.server.end()


@pytest.fixture
async def tap(local: LocalModel) -> AsyncGenerator[Tap]:
    address = await local.server.address()
    async with tapped(address.url) as between:
        yield between


@pytest.fixture(scope="session", autouse=True)
def table() -> Generator[None]:
    """Print how all runs ended."""
    yield
    print(f"\n{sum(_endings.values())} runs, {_tokens['in']:,} tokens in, {_tokens['out']:,} out")  # noqa: T201
    for ending, n_runs in sorted(_endings.items()):
        print(f"  {ending:<44} {n_runs}")  # noqa: T201


async def model_over(wire: str, local: LocalModel, url: str, **options: object) -> Connected:
    """Return the model of the server over one of its APIs, by way of `url`."""
    key = (await local.server.address()).key
    path = "" if wire == "anthropic" else "/v1"
    return connect(f"{wire}:smollm2", base_url=f"{url}{path}", api_key=key, **options)
