"""What the tests of chats get."""

from tests.support.players import door as door
from tests.support.players import recorder as recorder
from tests.support.stage import stage as stage
