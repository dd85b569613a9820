"""Whatever model, tools, validators and callbacks do: every run ends, and holds what every run must hold."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings

from tests.properties.played_model import PlayedModel
from tests.properties.staging import Staging
from tests.properties.world import World
from tests.properties.worlds import worlds
from tests.support.counting_loop import on_counting_loop
from tests.support.invariants import check_invariants

N_EXAMPLES = int(os.environ.get("JOURNEYMAN_FUZZ", "150"))


async def _played(world: World) -> None:
    check_invariants(await Staging(world, PlayedModel(world.turns, world.price)).run())


@pytest.mark.fuzz
@settings(max_examples=N_EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds())
def test_every_run_holds_what_every_run_must_hold(world: World) -> None:  # design, section 4, items 3 to 8
    on_counting_loop(lambda: _played(world))
