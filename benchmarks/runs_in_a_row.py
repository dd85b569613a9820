"""What a run of one request costs over TLS on the loopback when its model is named by text: runs in a row.

They are measured against the same runs on a model that is held open by hand, and on one that is opened for each run.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

from benchmarks.measuring import Costs, Effort, Row, compared, taking_turns
from benchmarks.server import CERTIFICATES, always
from benchmarks.work import MODEL
from journeyman import Agent, Model, run
from journeyman.connect import connect

NAME = f"anthropic:{MODEL}"
ANSWER: Mapping[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": MODEL,
    "content": [{"type": "text", "text": "Tea."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 9, "output_tokens": 2},
}


def measure(effort: Effort) -> list[Row]:
    """Measure 100 runs in a row."""
    n_runs = effort.size(100)
    with always(ANSWER, tls=True) as url:
        authority = str(CERTIFICATES / "authority.pem")
        keys = {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": url, "SSL_CERT_FILE": authority}
        with patch.dict(os.environ, keys):
            held_open = asyncio.run(_beside_held_open(n_runs, effort.rounds(40)))
            opened_each = asyncio.run(_beside_opened_each(n_runs, effort.rounds(10)))
    against = [("one model held open", held_open, "≤ 1.1"), ("a model opened for each run", opened_each, "")]
    return [
        compared(
            f"{n_runs} runs in a row over TLS",
            costs,
            ours="by name",
            reference=reference,
            unit="us wall / run",
            scale=1e6,
            target=target,
        )
        for reference, costs, target in against
    ]


async def _beside_held_open(n_runs: int, rounds: int) -> Costs:
    async def held_open() -> None:
        for _ in range(n_runs):
            await _one(held)

    async with connect(NAME) as held:
        contenders = {"by name": partial(_by_name, n_runs), "one model held open": held_open}
        return await taking_turns(contenders, rounds=rounds, clock=time.perf_counter, per=n_runs)


async def _beside_opened_each(n_runs: int, rounds: int) -> Costs:
    # Apart from the other: what is left of closed connections costs whoever comes next.
    async def opened_each() -> None:
        for _ in range(n_runs):
            async with connect(NAME) as model:
                await _one(model)

    contenders = {"by name": partial(_by_name, n_runs), "a model opened for each run": opened_each}
    return await taking_turns(contenders, rounds=rounds, clock=time.perf_counter, per=n_runs)


async def _by_name(n_runs: int) -> None:
    for _ in range(n_runs):
        await _one(NAME)


async def _one(model: Model | str) -> None:
    (await run(Agent(name="greeter", model=model), "Tea or coffee?")).unwrap()
