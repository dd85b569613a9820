"""What the tests of telemetry share."""

from collections.abc import Iterator

import pytest

from tests.otel.sending import Sending
from tests.support.otlp import collecting


@pytest.fixture
def sending() -> Iterator[Sending]:
    with collecting() as collector:
        made = Sending(collector)
        yield made
        made.tracers.shutdown()
        made.meters.shutdown()
