"""How much work a test may be: more than two seconds of it need a reason in this list, which CI asks for.

Counted are seconds of a processor, of this process and of the children that it has waited for: a machine that does
something else makes nobody slower. What a test only waits for is its timeout's affair.
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.support.stopwatch import slowness

MOST_S: Final = 2.0
_BUSY: Final = 3.0
"""By how much a second of a processor that is shared may be longer than one of the same that is quiet."""
_RESTARTS: Final = "it waits for the end of the database, and so is told all that this has done by then"
_LIVES: Final = "each case is several lives of a run, each in a process of its own"
REASONS: Final[dict[str, str]] = {
    "chat/test_state_machine.py::TestChatMachine": "its examples are whole conversations, made by Hypothesis",
    "chat/test_state_machine.py::TestKeptChatMachine": "its examples are whole conversations, made by Hypothesis",
    "durable/test_crash.py::test_a_run_that_is_killed_anywhere_ends_as_if_nobody_had_killed_it": _LIVES,
    "durable/test_crash.py::test_no_call_takes_effect_before_it_is_on_the_disk_that_it_was_begun": (
        "strace looks at each call of the system that a whole run makes"
    ),
    "durable/test_fleet.py::test_every_job_ends_once_whatever_becomes_of_its_workers_and_the_database": (
        "two dozen jobs, whose workers are killed again and again"
    ),
    "durable/test_postgres.py::test_a_run_goes_on_when_the_database_was_stopped_in_the_middle": _RESTARTS,
    "durable/test_postgres.py::test_a_server_that_was_started_again_knows_only_what_does_not_hold": _RESTARTS,
    "store/test_postgres_sessions.py::test_a_chat_goes_on_when_the_database_was_stopped_in_the_middle": _RESTARTS,
    "serve/test_http_api_schema.py::test_schemathesis_finds_nothing_in_a_few_requests": (
        "schemathesis makes its requests by Hypothesis, and each is answered"
    ),
    "serve/test_agui.py::test_the_official_client_drives_tools_an_approval_a_reconnect_and_an_output": (
        "the official client is a program for node"
    ),
    "serve/test_processes.py::test_a_signal_ends_the_calls_first_and_then_the_server": (
        "each case starts the command from nothing, as a user does"
    ),
    "cli/test_recorded_commands.py::test_recordings_are_compared_followed_exported_and_forgotten": (
        "twenty commands, each a process of its own"
    ),
    "mcp/test_servers_of_others.py::test_git_and_time_and_with_npm_five_servers_at_once": (
        "five programs of others are started twice"
    ),
    "test_docs.py::test_the_blocks_of_a_page_run_and_print_what_it_shows": "some pages start servers, or pytest",
    "support_tests/test_asserts.py::test_every_test_asserts_something_that_is_reached": "it reads all tests",
    "durable/test_scheduler.py::TestScheduler": "its examples are whole histories of a store, made by Hypothesis",
    "durable/test_scheduler.py::TestSchedulerOnBoth": "its examples are whole histories of a store, made by Hypothesis",
}
"""Tests that may take longer, and why."""
_MANY_MODULES: Final = 50
"""Who loads so many for all that come later is not judged: in random order that is now this test, now another one."""
_IS_ASKED: Final = bool(os.environ.get("CI")) and "JOURNEYMAN_FUZZ" not in os.environ


@contextmanager
def counted(test: str, *, most_s: float = _BUSY * MOST_S, is_asked: bool = _IS_ASKED) -> Generator[None]:
    """Fail a test that is more work than tests may be, unless there is a reason."""
    before_s, n_loaded = _spent_s(), len(sys.modules)
    yield
    if len(sys.modules) - n_loaded > _MANY_MODULES:
        return
    spent_s, name = _spent_s() - before_s, test.removeprefix("tests/").partition("[")[0].removesuffix("::runTest")
    if is_asked and spent_s > most_s and name not in REASONS and spent_s > most_s * slowness():
        pytest.fail(
            f"It took {spent_s:.1f} s of a processor; a test may take {most_s:g} s. Make it smaller, give it the mark"
            " `share`, or say in tests/support/seconds.py why it has to take so long."
        )


def _spent_s() -> float:
    return sum(os.times()[:4])
