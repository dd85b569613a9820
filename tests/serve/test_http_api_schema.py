"""The OpenAPI document is true: schemathesis asks what it allows, and what it forbids, and finds nothing."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.http_served import clerk, planner, serving

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


async def found(folder: Path, config: pytest.Config, *words: str) -> str:
    """Return what schemathesis finds in what is served; empty: nothing. It prints its seed."""
    async with serving([clerk(), planner()]) as served:
        seed = str(config.getoption("--hypothesis-seed") or 7)
        drawn = ("--generation-database", "none", "--seed", seed)
        command = (str(SCHEMATHESIS), "run", f"{served.url}/openapi.json", *drawn, *words)
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said, _ = await process.communicate()
        return "" if process.returncode == 0 else said.decode()


@pytest.mark.timeout(60)
async def test_schemathesis_finds_nothing_in_a_few_requests(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    assert await found(tmp_path, pytestconfig, "--phases", "fuzzing", "--max-examples", "3") == ""


@pytest.mark.fuzz
@pytest.mark.skipif("JOURNEYMAN_FUZZ" not in os.environ, reason="many requests: make fuzz")
async def test_schemathesis_finds_nothing_in_what_is_served(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    examples = str(int(os.environ["JOURNEYMAN_FUZZ"]) // 50)
    assert await found(tmp_path, pytestconfig, "--phases", "coverage,fuzzing", "--max-examples", examples) == ""
