"""Whatever the server says and however it fails: the same as in process, and no request breaks a rule of the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given

from tests.properties.examples import examples, patient
from tests.properties.wire_worlds import ServerThread, run_over_http
from tests.properties.world import World
from tests.properties.worlds import worlds
from tests.support.invariants import check_invariants

pytestmark = patient


@pytest.fixture(scope="module")
def servers() -> Iterator[ServerThread]:
    thread = ServerThread()
    yield thread
    thread.close()


@pytest.mark.fuzz
@examples(one_in=5)
@given(world=worlds())
def test_every_run_over_http_holds_what_every_run_must_hold(servers: ServerThread, world: World) -> None:
    record, violations = run_over_http(servers, world)
    check_invariants(record)
    assert violations == []
