"""What the tests of background work get."""

from tests.support.stage import stage as stage
