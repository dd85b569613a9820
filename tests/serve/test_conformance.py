"""Served agents pass the scenarios of the official conformance suite that fit them. It needs npm.

What does not fit: an agent hands in text or data, so no pictures, sounds and resources; a server of agents has no
resources, prompts and completions, and asks the client for decisions only, not for the answers of a model.
"""

import asyncio
import json
import re
from pathlib import Path

import pytest

from journeyman import Abort
from journeyman.mcp_server import create_mcp_server, serve_mcp_http
from tests.mcp.test_servers_of_others import from_npm, in_suite
from tests.serve.conforming import AGENTS

pytestmark = [pytest.mark.timeout(90), from_npm]

FITTING = {
    "server-initialize": ["SUCCESS"],
    "ping": ["SUCCESS"],
    "tools-list": ["SUCCESS"],
    "tools-call-simple-text": ["SUCCESS"],
    "tools-call-error": ["SUCCESS"],
    "tools-call-with-progress": ["SUCCESS"],
    "tools-call-elicitation": ["SUCCESS"],
    "server-sse-multiple-streams": ["SUCCESS"] * 2,
    "dns-rebinding-protection": ["SUCCESS"] * 2,
}
"""The scenarios, and how their checks come out."""


async def statuses(folder: Path, *words: str) -> tuple[dict[str, list[str]], str]:
    """Return how each check of each scenario came out, and what the suite printed."""
    abort, address = Abort(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_mcp_http(create_mcp_server(*AGENTS), port=0, abort=abort, on_ready=address.set_result)
    )
    said = await in_suite("server", "--url", await address, "-o", str(folder), *words)
    abort.abort("it has been tried")
    await serving
    found: dict[str, list[str]] = {}
    for file in folder.glob("*/checks.json"):
        scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", file.parent.name)
        checks = [each["status"] for each in json.loads(file.read_text())]
        found[scenario] = [status for status in checks if status != "INFO"]
    return found, said


async def test_served_agents_pass_all_scenarios_of_the_conformance_suite_that_fit(tmp_path: Path) -> None:
    found, said = await statuses(tmp_path)
    assert {name: found.get(name) for name in FITTING} == FITTING, said
    others = [status for name, each in found.items() if name not in FITTING for status in each]
    assert "SUCCESS" not in others, said  # it belongs into the table above


async def test_served_agents_pass_the_scenario_of_json_schema_which_runs_by_its_name_only(tmp_path: Path) -> None:
    found, said = await statuses(tmp_path, "--scenario", "json-schema-2020-12")
    assert found == {"json-schema-2020-12": ["SUCCESS"] * 4}, said
