"""What the tests of chats get."""

from tests.support.journaled import journaled as journaled
from tests.support.journaled import pytest_generate_tests as pytest_generate_tests
from tests.support.kept import kept as kept
from tests.support.players import door as door
from tests.support.players import recorder as recorder
from tests.support.stage import stage as stage
