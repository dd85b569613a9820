"""What every test gets: asyncio as the only loop, how Hypothesis searches, whom TLS trusts, a warm command line."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from journeyman.durable import schema_sql
from tests.cli.program import Warm
from tests.support.eager import make_eager_loop
from tests.support.journaled import is_needless, is_second_turn
from tests.support.seconds import counted
from tests.support.shares import IS_WHOLE, beyond_share
from tests.support.skips import fault_of
from tests.support.turns import has_turn, lost_turns

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

# Without a deadline: on a busy machine a slow example is no failure. JOURNEYMAN_FUZZ makes the search longer.
settings.register_profile(
    "journeyman", deadline=None, max_examples=int(os.environ.get("JOURNEYMAN_FUZZ", "50")), print_blob=True
)
settings.load_profile("journeyman")

_GARBAGE: Final = 10_000
"""After how many new objects garbage is looked for."""

os.environ["JOURNEYMAN_RECORD"] = "0"  # commands record where a test says so
os.environ["JOURNEYMAN_MODEL_CALLS"] = "1"  # the servers that models are asked at stand on this machine

# What is imported to collect tests stays: to go through it again and again takes a quarter of the time of collecting.
gc.disable()

# No test leaves this machine. An authority that signed nothing is read in a millisecond, those of a system take forty:
# in each HTTP client that a provider's package makes, and in each process.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "contracts" / "certificates" / "idle_authority.pem")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before anybody shuffles, and before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Leave out what the share of this run has not, and turns that show nothing new; but where all are asked for.

    Raises:
        UsageError: a turn of the list is none of its test any more.
    """
    are_named = any("::" in each for each in config.args)
    left_out = set[pytest.Item]()
    if config.getoption("journal") == "memory":
        left_out |= _turns_left_out(items, are_named=are_named)
    beyond = beyond_share(items)
    if not IS_WHOLE and not are_named:
        left_out |= beyond
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
    return (yield)


def _turns_left_out(items: Sequence[pytest.Item], *, are_named: bool) -> set[pytest.Item]:
    seldom = [item for item in items if is_second_turn(item)]
    for item in seldom:
        item.add_marker(pytest.mark.fuzz)
    lost = lost_turns([item.nodeid for item in items])
    if lost and not are_named:
        raise pytest.UsageError(f"tests/support/turns.txt has turns that are no more: {', '.join(lost)}")
    return {item for item in items if is_needless(item)} | {item for item in seldom if not has_turn(item)}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """See that nobody works for long without a reason."""
    with counted(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test fail that is skipped for no good reason."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        fault = fault_of(report.longrepr[2].removeprefix("Skipped: "), os.environ)
        if fault is not None:
            report.outcome, report.longrepr = "failed", fault
    return report


def pytest_collection_finish() -> None:
    """Let the garbage collector look at what tests make only: to go through all tests each time takes half a second.

    It looks seldom: with Python's own threshold that takes a tenth of what all tests take.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--journal",
        choices=("memory", "sqlite"),
        default="memory",
        help="where the journals are of the tests that have a second turn with one",
    )


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": make_eager_loop} if os.environ.get("JOURNEYMAN_EAGER") else {}


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Runs `journeyman`, sooner than from nothing."""
    made = Warm(tmp_path_factory.mktemp("warm"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of these tests."""
    from tests.support.postgres import NoPostgres, PostgresServer  # noqa: PLC0415 - slow to load

    try:
        server = PostgresServer()
    except NoPostgres as error:
        pytest.skip(f"no Postgres can be had: {error}")
    yield server
    server.stop()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The address of a database, in which the tables are."""
    name = postgres.database(schema_sql())
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def emptied(postgres: PostgresServer) -> str:
    """The address of a database with empty tables, in which nobody else is: the same for all tests."""
    return postgres.url(postgres.emptied(schema_sql()))
