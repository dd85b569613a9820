"""What the tests of MCP get: small servers, each with a log of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.small import Small


@pytest.fixture
def small(tmp_path: Path) -> Small:
    log = tmp_path / "server.log"
    log.touch()
    return Small(log)
