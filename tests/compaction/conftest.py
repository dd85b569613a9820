"""What the tests of compaction get."""

from tests.support.stage import stage as stage
