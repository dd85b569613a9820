"""Whatever the server says and however it fails: the same as in process, and no request breaks a rule of the API."""

from collections.abc import Iterator

import pytest
from hypothesis import given

from journeyman import Success
from tests.properties.examples import N_EXAMPLES, examples, patient
from tests.properties.stopped_everywhere import EVERYTHING
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
    heard = run_over_http(servers, world)
    check_invariants(heard.record)
    assert heard.violations == []


@pytest.mark.fuzz
@pytest.mark.parametrize("how", ["abort", "cancel"])
def test_a_run_over_http_may_be_stopped_at_any_step(servers: ServerThread, how: str) -> None:  # A22, D21
    """Nothing is left alive, no request breaks a rule, and what was heard is counted. The steps are those of sockets,
    so they are not the same each time."""
    n_steps = run_over_http(servers, EVERYTHING).n_steps
    n_stopped = 0
    for step in range(1, n_steps, max(1, 20 * n_steps // N_EXAMPLES)):
        heard = run_over_http(servers, EVERYTHING, how=how, before_step=step)
        check_invariants(heard.record)
        assert heard.violations == []
        n_stopped += not isinstance(heard.record.result, Success)
    assert n_stopped > 0
