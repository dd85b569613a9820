"""Standard descriptors that are taken away, and lines that a thread reads, which can be left behind."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial

import pytest

from journeyman.machine.descriptors import LeavableThread, iterate_in_thread, lines_of, write_all
from tests.play import cancelled

TAKING = """
import os, sys
from journeyman.machine.descriptors import STDIN, take_stdin, take_stdout
kept = take_stdout(drop_others=len(sys.argv) > 1), take_stdin()
print("of others")
os.write(kept[0], b"mine: " + os.read(kept[1], 9) + os.read(STDIN, 9))
os.system("echo of a child")
"""
LEAVING = """
import asyncio, os
from journeyman.machine.descriptors import iterate_in_thread, lines_of
async def main():
    await anext(iterate_in_thread(lines_of(0), "left"))
    reading = asyncio.ensure_future(anext(iterate_in_thread(lines_of(0), "left")))
    await asyncio.sleep(0)
    reading.cancel()
asyncio.run(main())
"""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    with suppress(OSError):  # a test may have closed this end
        os.close(writing)


@pytest.mark.parametrize(
    ("words", "stdout", "stderr"),
    [
        ("", "mine: given", "of others\nof a child\n"),
        ("dropping", "mine: given", ""),
        ("2>&-", "mine: given", ""),
        (">&-", "", "of a child\n"),
        ("<&-", "mine: ", "of others\nof a child\n"),
    ],
)
def test_what_is_taken_is_its_takers_alone_and_what_is_closed_leads_nowhere(
    words: str, stdout: str, stderr: str
) -> None:
    shell = ["sh", "-c", f'exec "$0" -c "$1" {words}', sys.executable, TAKING]
    done = subprocess.run(shell, input=b"given", capture_output=True, check=True)
    assert (done.stdout.decode(), done.stderr.decode()) == (stdout, stderr)


def test_lines_come_with_their_ends_and_the_last_one_as_it_is(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"one\n\ntw")
    lines = lines_of(pipe[0])
    assert [next(lines), next(lines)] == [b"one\n", b"\n"]
    os.write(pipe[1], b"o\r\nlast")
    os.close(pipe[1])
    assert [*lines] == [b"two\r\n", b"last"]


async def test_a_pipe_that_does_not_wait_is_waited_for(pipe: tuple[int, int]) -> None:
    for end in pipe:
        os.set_blocking(end, False)
    lines, line = iterate_in_thread(lines_of(pipe[0]), "patient"), b"x" * 1_000_000 + b"\n"  # more than it takes
    first = asyncio.ensure_future(anext(lines))
    with closing(LeavableThread("writing")) as thread:
        await thread.do(partial(write_all, pipe[1], line))
    assert await first == line
    await lines.aclose()


async def test_what_waits_for_ever_is_left_and_what_a_job_raises_is_raised(pipe: tuple[int, int]) -> None:
    await cancelled(asyncio.ensure_future(anext(iterate_in_thread(lines_of(pipe[0]), "left"))))
    with closing(LeavableThread("jobs")) as thread:
        with pytest.raises(ZeroDivisionError):
            await thread.do(lambda: 1 // 0)
        assert await thread.do(partial(int, "7")) == 7
    os.close(pipe[1])  # lets the thread end


def test_a_thread_that_waits_does_not_keep_a_program_from_ending() -> None:
    with subprocess.Popen([sys.executable, "-c", LEAVING], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.wait(10) == 0
