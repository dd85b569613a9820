"""What the tests of the loop get."""

from collections.abc import Iterator

import pytest

from tests.play import Recorder, check_balance
from tests.play import stage as stage
from tests.support.journaled import journaled as journaled
from tests.support.journaled import pytest_generate_tests as pytest_generate_tests


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Give a listener that keeps every event; when the test is over, the order of what it heard is checked."""
    recorder = Recorder()
    yield recorder
    check_balance(recorder.events)
