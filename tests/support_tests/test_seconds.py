"""A test that is much work without a reason is found."""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support import seconds

TESTS = Path(__file__).parent.parent


def work(for_s: float) -> None:
    until_s = time.process_time() + for_s
    while time.process_time() < until_s:
        pass


def test_much_work_without_a_reason_fails_where_it_is_asked_for() -> None:
    for test in ("chat/test_planted.py::test_long[1]", "test_planted.py::test_of_no_room"):
        with pytest.raises(pytest.fail.Exception, match=r"of a processor; a test may take 0\.01 s"):  # noqa: SIM117 - it fails
            with seconds.counted(f"tests/{test}", most_s=0.01, is_asked=True):
                work(0.05)


def test_the_work_of_a_child_counts_and_waiting_does_not() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    with pytest.raises(pytest.fail.Exception, match="of a processor"):  # noqa: SIM117 - it fails
        with seconds.counted("tests/chat/test_planted.py::test_child", most_s=0.05, is_asked=True):
            subprocess.run([sys.executable, "-ISc", busy], check=True)
    with seconds.counted("tests/chat/test_planted.py::test_waits", most_s=0.05, is_asked=True):
        threading.Event().wait(0.1)


def test_who_loads_much_for_those_who_come_later_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    with seconds.counted("tests/chat/test_planted.py::test_first", most_s=0.0, is_asked=True):
        work(0.02)
        for number in range(51):
            monkeypatch.setitem(sys.modules, f"planted_{number}", seconds)


def test_what_is_listed_may_take_longer_as_may_everything_on_a_laptop() -> None:
    with seconds.counted(f"tests/{next(iter(seconds.REASONS))}[1]", most_s=0.0, is_asked=True):
        work(0.01)
    with seconds.counted("tests/chat/test_planted.py::test_long", most_s=0.0, is_asked=False):
        work(0.01)


@pytest.mark.parametrize("test", seconds.REASONS)
def test_each_test_of_the_list_is_there_and_has_a_reason(test: str) -> None:
    path, _, name = test.partition("::")
    assert re.search(rf"^(async def |def |){name}\b", (TESTS / path).read_text("utf-8"), re.MULTILINE)
    assert len(seconds.REASONS[test].split()) > 3
