"""The client passes the scenarios of the official conformance suite that need no login. It needs npm."""

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.program import Warm
from tests.mcp.test_servers_of_others import from_npm, in_suite

pytestmark = [pytest.mark.timeout(90), from_npm]

FITTING = {"initialize": 1, "tools_call": 1, "elicitation-sep1034-client-defaults": 5, "sse-retry": 3}
"""The scenarios, and how many checks each has."""


@pytest.mark.share(one_in=2)
@pytest.mark.parametrize("scenario", FITTING)
async def test_the_client_passes_a_scenario_of_the_conformance_suite(scenario: str, warm: Warm, tmp_path: Path) -> None:
    client = shlex.join(warm.command(program=Path(__file__).parent / "conforming.py"))
    said = await in_suite("client", "--command", client, "--scenario", scenario, "-o", str(tmp_path))
    (file,) = tmp_path.glob("*/checks.json")
    checks = [each for each in json.loads(file.read_text()) if each["status"] != "INFO"]
    assert [each["status"] for each in checks] == ["SUCCESS"] * FITTING[scenario], said
