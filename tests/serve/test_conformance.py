"""Served agents pass the scenarios of the official conformance suite that fit them. It needs npm.

What does not fit: an agent hands in text or data, so no pictures, sounds and resources; a server of agents has no
resources, prompts and completions, and asks the client for decisions only, not for the answers of a model.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from journeyman import Abort
from journeyman.serve import agent_server, serve_http
from tests.mcp.test_servers_of_others import from_npm, in_suite
from tests.serve.conforming import AGENTS

pytestmark = [pytest.mark.timeout(90), from_npm]

FITTING = {
    "server-initialize": 1,
    "ping": 1,
    "tools-list": 1,
    "tools-call-simple-text": 1,
    "tools-call-error": 1,
    "tools-call-with-progress": 1,
    "tools-call-elicitation": 1,
    "json-schema-2020-12": 4,
    "server-sse-multiple-streams": 2,
    "dns-rebinding-protection": 2,
}
"""The scenarios, and how many checks each has."""


@pytest.mark.parametrize("scenario", FITTING)
async def test_served_agents_pass_a_scenario_of_the_conformance_suite(scenario: str, tmp_path: Path) -> None:
    abort, address = Abort(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(agent_server(*AGENTS), port=0, abort=abort, on_ready=address.set_result))
    said = await in_suite("server", "--url", await address, "--scenario", scenario, "-o", str(tmp_path))
    abort.abort("it has been tried")
    await serving
    (file,) = tmp_path.glob("*/checks.json")
    checks = [each for each in json.loads(file.read_text()) if each["status"] != "INFO"]
    assert [each["status"] for each in checks] == ["SUCCESS"] * FITTING[scenario], said
