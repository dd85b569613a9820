"""What the tests of crews get."""

from tests.support.stage import stage as stage
