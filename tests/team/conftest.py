"""What the tests of chats get."""

from tests.support.stage import stage as stage
