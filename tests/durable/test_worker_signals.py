"""SIGTERM and Ctrl-C in a program with a worker: what is driven ends in good order, as with `journeyman worker`."""

import asyncio
import signal
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals

import pytest

from journeyman import Agent, Success
from journeyman.durable import Durable, InMemoryEngine, Worker
from journeyman.testing.scripted import ScriptedModel
from tests.cli.program import Running, Warm, running
from tests.play import cancelled

PROGRAM = Path(__file__).with_name("serving_program.py")


def paying(warm: Warm, folder: Path, *, n_workers: int = 1, grace_s: float = 60.0) -> AbstractContextManager[Running]:
    """Start the program, whose payments go on until `go` is there."""
    words = (str(folder / "runs.db"), str(n_workers), str(grace_s))
    return running(*words, cwd=folder, start=partial(warm.start, program=PROGRAM))


def until_paying(program: Running, n_payments: int = 1) -> None:
    program.wait_for("\n".join(["paying"] * n_payments))


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_signal_lets_the_calls_under_way_end_and_all_workers_of_the_program_return(
    warm: Warm, tmp_path: Path, number: Signals, n_workers: int
) -> None:
    with paying(warm, tmp_path, n_workers=n_workers) as program:
        until_paying(program, n_workers)
        program.send(number)
        program.wait_for("Stopping within 60 s: what is driven has 55 s to end.")
        (tmp_path / "go").touch()
        done = program.done()
    assert (done.code, done.stdout) == (0, " ".join(["done"] * n_workers) + "\n"), done.stderr


def test_a_second_signal_gives_what_is_driven_back_at_once(warm: Warm, tmp_path: Path) -> None:
    with paying(warm, tmp_path) as program:
        until_paying(program)
        program.send(SIGTERM)
        program.wait_for("Stopping within ")
        program.send(SIGTERM)
        done = program.done()
    assert (done.code, done.stdout) == (0, "ready\n"), done.stderr


def test_what_has_not_ended_in_time_is_given_back(warm: Warm, tmp_path: Path) -> None:
    with paying(warm, tmp_path, grace_s=0.1) as program:
        until_paying(program)
        program.send(SIGTERM)
        done = program.done()
    assert (done.code, done.stdout) == (0, "ready\n"), done.stderr


async def test_a_signal_that_the_program_handles_stays_its_own_and_afterwards_all_are_as_before() -> None:
    heard, stop = list[int](), asyncio.Event()

    def mine(number: int, frame: object) -> None:
        heard.append(number)
        stop.set()

    of_interrupts = signal.default_int_handler  # a program in the background ignores them
    ignored, before = signal.signal(SIGINT, of_interrupts), signal.signal(SIGTERM, mine)
    try:
        async with Durable(InMemoryEngine()) as durable:
            agent = Agent(name="clerk", model=ScriptedModel(["Done."]))
            handle = await durable.start(agent, "Go.")
            serving = asyncio.create_task(Worker(durable, agents=[agent]).run())
            assert isinstance(await handle.result(), Success)
            assert signal.getsignal(SIGTERM) is mine
            assert signal.getsignal(SIGINT) is not of_interrupts
            signal.raise_signal(SIGTERM)
            await stop.wait()
            assert not serving.done()
            await cancelled(serving)
            assert serving.cancelled()
            assert signal.getsignal(SIGINT) is of_interrupts
    finally:
        signal.signal(SIGTERM, before)
        signal.signal(SIGINT, ignored)
    assert heard == [SIGTERM]


async def test_a_worker_that_is_told_by_its_program_when_to_stop_hears_no_signals() -> None:
    before, stop = [signal.getsignal(each) for each in (SIGINT, SIGTERM)], asyncio.Event()
    async with Durable(InMemoryEngine()) as durable:
        agent = Agent(name="clerk", model=ScriptedModel(["Done."]))
        serving = asyncio.create_task(Worker(durable, agents=[agent]).run(stop=stop))
        assert isinstance(await (await durable.start(agent, "Go.")).result(), Success)
        assert [signal.getsignal(each) for each in (SIGINT, SIGTERM)] == before
        stop.set()
        await serving
