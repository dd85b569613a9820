"""What every test gets: asyncio as the only loop, how Hypothesis searches, whom TLS trusts, a warm command line."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pytest
from hypothesis import settings

from journeyman.durable.postgres.dispatchers import DispatcherName, ddl
from tests.cli.program import Warm
from tests.support.eager import make_eager_loop
from tests.support.journaled import is_needless
from tests.support.seconds import counted
from tests.support.shares import IS_WHOLE, beyond_share

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

# Without a deadline: on a busy machine a slow example is no failure. JOURNEYMAN_FUZZ makes the search longer.
settings.register_profile(
    "journeyman",
    deadline=None,
    max_examples=int(os.environ.get("JOURNEYMAN_FUZZ", settings().max_examples)),
    print_blob=True,
)
settings.load_profile("journeyman")

os.environ["JOURNEYMAN_RECORD"] = "0"  # commands record where a test says so

# No test leaves this machine. An authority that signed nothing is read in a millisecond, those of a system take forty:
# in each HTTP client that a provider's package makes, and in each process.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "contracts" / "certificates" / "idle_authority.pem")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before anybody shuffles, and before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Leave out turns that show nothing new, but where all are asked for; and cases that are not in the share."""
    beyond, are_named = beyond_share(items), any("::" in word for word in config.args)
    if not IS_WHOLE and not are_named:
        items[:] = [item for item in items if item not in beyond]
        config.hook.pytest_deselected(items=[*beyond])
    if config.getoption("journal") == "memory":
        needless = [item for item in items if is_needless(item)]
        items[:] = [item for item in items if not is_needless(item)]
        config.hook.pytest_deselected(items=needless)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """See that nobody works for long without a reason."""
    with counted(item.nodeid):
        return (yield)


def pytest_collection_finish() -> None:
    """Let the garbage collector look at what tests make only: to go through all tests each time takes half a second."""
    gc.collect()
    gc.freeze()


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


DISPATCHER: Final = cast("DispatcherName", os.environ.get("JOURNEYMAN_DISPATCHER", "procrastinate"))
"""Who brings the runs in tests that do not say: with another one, all tests on a database are tests of that."""


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
    name = postgres.database(ddl(DISPATCHER))
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def emptied(postgres: PostgresServer) -> str:
    """The address of a database with empty tables, in which nobody else is: the same for all tests."""
    return postgres.url(postgres.emptied(ddl(DISPATCHER)))
