"""How many examples the generated tests try, and how long they may take."""

import os

import pytest
from hypothesis import HealthCheck, settings

_FUZZ = os.environ.get("JOURNEYMAN_FUZZ")

N_EXAMPLES = int(_FUZZ or 40)
"""Of the tests with the mark `fuzz`."""

patient = pytest.mark.timeout(3_600 if _FUZZ else 300)
"""A failure is made smaller before it is shown, which takes time."""


def examples(one_in: int = 1) -> settings:
    """Return the settings of a generated test that tries a part of the examples."""
    return settings(
        max_examples=max(20, N_EXAMPLES // one_in),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
