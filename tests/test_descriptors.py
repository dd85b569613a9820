"""Standard descriptors that are taken away, and lines that a thread reads, which can be left behind."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from journeyman.descriptors import LeavableThread, iterate_in_thread, lines_of, write_all
from tests.play import cancelled

TAKING = """
import os, sys
from journeyman.descriptors import STDIN, STDOUT, take_stdin, take_stdout
kept = take_stdout(drop_others=len(sys.argv) > 1), take_stdin()
print("of others")
os.write(kept[0], b"mine: " + os.read(kept[1], 9) + os.read(STDIN, 9))
os.system("echo of a child")
"""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            assert descriptor == writing, "only that end is closed by a test"


@pytest.mark.parametrize(
    ("words", "closed", "stdout", "stderr"),
    [
        ("", "", "mine: given", "of others\nof a child\n"),
        ("dropping", "", "mine: given", ""),
        ("", "2>&-", "mine: given", ""),
        ("", ">&-", "", "of a child\n"),
        ("", "<&-", "mine: ", "of others\nof a child\n"),
    ],
)
def test_what_is_taken_is_its_takers_alone_and_what_is_closed_leads_nowhere(
    words: str, closed: str, stdout: str, stderr: str
) -> None:
    shell = ["sh", "-c", f'exec "$0" -c "$1" {words} {closed}', sys.executable, TAKING]
    done = subprocess.run(shell, input=b"given", capture_output=True, check=True)
    assert (done.stdout.decode(), done.stderr.decode()) == (stdout, stderr)


def test_lines_come_with_their_ends_and_the_last_one_as_it_is(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b"one\n\ntw")
    lines = lines_of(reading)
    assert [next(lines), next(lines)] == [b"one\n", b"\n"]
    os.write(writing, b"o\r\nlast")
    os.close(writing)
    assert [*lines] == [b"two\r\n", b"last"]


async def test_a_pipe_that_does_not_wait_is_waited_for(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    lines = iterate_in_thread(lines_of(reading), "patient")
    first = asyncio.ensure_future(anext(lines))
    line = b"x" * 1_000_000 + b"\n"  # more than a pipe takes at once
    with closing(LeavableThread("writing")) as thread:
        await thread.do(partial(write_all, writing, line))
    assert await first == line
    await lines.aclose()


async def test_an_iterator_that_waits_for_ever_is_left_and_the_loop_goes_on(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = iterate_in_thread(lines_of(reading), "left")
    os.write(writing, b"one\n")
    assert await anext(lines) == b"one\n"
    await cancelled(asyncio.ensure_future(anext(lines)))
    os.close(writing)  # lets the thread end


async def test_what_a_job_raises_is_raised_where_it_is_waited_for_and_the_next_job_is_done() -> None:
    with closing(LeavableThread("jobs")) as thread:
        with pytest.raises(ZeroDivisionError):
            await thread.do(lambda: 1 // 0)
        assert await thread.do(partial(int, "7")) == 7


def test_a_thread_that_waits_does_not_keep_a_program_from_ending() -> None:
    program = """
import asyncio, os
from journeyman.descriptors import iterate_in_thread, lines_of, write_all
async def main():
    await anext(iterate_in_thread(lines_of(0), "left"))
    reading = asyncio.ensure_future(anext(iterate_in_thread(lines_of(0), "left")))
    await asyncio.sleep(0)
    reading.cancel()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.wait(10) == 0
