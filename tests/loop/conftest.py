"""What the tests of the loop get."""

from tests.support.stage import stage as stage
