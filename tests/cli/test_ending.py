"""The end of a command comes in time: one time for all that waits then."""

import subprocess
import sys
import time

from hypothesis import given
from hypothesis import strategies as st

from journeyman.closing import LEAST_S, TimeToEnd, time_of_work

SECONDS = st.floats(0, 1e6)
PROGRAM = """
import threading
from journeyman.cli.ending import ending_in_time

with ending_in_time(0.0) as end:
    threading.Thread(target=threading.Event().wait, name="of a driver").start()
    end.hear()
"""


@given(SECONDS)
def test_what_goes_on_has_most_of_the_time_and_never_all_of_it(grace_s: float) -> None:
    work_s = time_of_work(grace_s)
    assert 0 <= work_s <= grace_s
    assert max(grace_s, LEAST_S) - work_s >= LEAST_S / 4
    assert grace_s - work_s <= 5.0


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1))
def test_no_number_of_those_that_wait_and_no_second_signal_makes_an_end_later(times: list[tuple[float, float]]) -> None:
    now_s = 0.0
    closing = TimeToEnd(times[0][0], clock=lambda: now_s)
    ends_s = max(times[0][0], LEAST_S)
    for most_s, again_s in times:
        closing.begin(again_s)
        now_s += closing.part_s(most_s)
    assert now_s <= ends_s
    assert closing.left_s() <= ends_s - now_s + 1e-6


def test_an_end_that_has_not_begun_has_all_the_time() -> None:
    assert (TimeToEnd().has_begun, TimeToEnd().part_s(5.0)) == (False, 5.0)


def test_a_process_ends_in_time_though_a_thread_waits_for_good_and_says_so() -> None:
    began_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=30)
    assert time.monotonic() - began_s >= LEAST_S
    assert (done.returncode, "is left: of a driver." in done.stderr) == (1, True), done.stderr
