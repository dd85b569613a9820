"""Whatever the server says and however it fails: the same as in process, and no request breaks a rule of the API."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.properties.wire_worlds import ServerThread, run_over_http
from tests.properties.world import World
from tests.properties.worlds import worlds
from tests.support.invariants import check_invariants

N_EXAMPLES = max(30, int(os.environ.get("JOURNEYMAN_FUZZ", "150")) // 5)

pytestmark = pytest.mark.timeout(3_600)  # a failure is made smaller, which takes time


@pytest.fixture(scope="module")
def servers() -> Iterator[ServerThread]:
    thread = ServerThread()
    yield thread
    thread.close()


@pytest.mark.fuzz
@settings(max_examples=N_EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(world=worlds())
def test_every_run_over_http_holds_what_every_run_must_hold(servers: ServerThread, world: World) -> None:
    record, violations = run_over_http(servers, world)
    check_invariants(record)
    assert violations == []
