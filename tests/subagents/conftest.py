"""What the tests of sub-agents get."""

from tests.play import door as door
from tests.play import recorder as recorder
from tests.play import stage as stage
from tests.support.journaled import journaled as journaled
from tests.support.journaled import pytest_generate_tests as pytest_generate_tests
from tests.tasks.works import told as told
