"""`journeyman batch`: an agent on every line of a file, with a result for each in another file.

Stopped by anything, the same command goes on: what has its result is not done again. Lines that were under way, and
those that the budget of the batch has stopped, have none.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack, closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

from cyclopts import Parameter
from pydantic_core import to_jsonable_python
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from journeyman.agent import Runtime
from journeyman.batch.batch import Batch, BatchWork, Order, leaving
from journeyman.budget import Budget
from journeyman.cancellation import Abort, wait_until_ended
from journeyman.cli.app import Mistake, explain_errors
from journeyman.cli.batch.files import BatchLine, InputFields, InputOptions, Results, is_whole, open_inputs, read_lines
from journeyman.cli.durable import SUSPENDED, StorePlace, answer_here, tell, waiting
from journeyman.cli.ending import Interrupt
from journeyman.cli.load_agent import AgentLoop, load_model
from journeyman.cli.options import POSITIVE, AgentName, AnyAgent, GivenOptions, LentOptions, MaxConcurrency, explain
from journeyman.cli.permit.asked import TerminalAsker, asked_by, asking
from journeyman.cli.run import Stdout, not_started, output_json, parse_input, read_files, recording_in, telemetry_in
from journeyman.cli.show.lines import Line, one_line
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.screen import LiveScreen, open_screen
from journeyman.durable.durable import Durable
from journeyman.durable.records import RunInfo
from journeyman.endings import BudgetContext, CancelledContext, InternalContext
from journeyman.errors import InvalidArguments, JourneymanError, count, quoted
from journeyman.events import BatchPaused, Event
from journeyman.events.durable import RunSuspended
from journeyman.loop.run import run as run_agent
from journeyman.loop.state import Options
from journeyman.machine.descriptors import iterate_in_thread
from journeyman.result import Failure, Result, fail_before_start
from journeyman.types import NOTHING_USED, Usage

_SHOWN_CHARACTERS: Final = 300
_NAMED: Final = 8
_NOTE_ROWS: Final = 8
_LINGER_S: Final = 0.05
"""So long, in seconds, a durable run that only waits stays here, where nobody is to answer."""
_STEPS: Final = 10
"""In so many steps plain lines tell how far a batch is, where its size is known."""
_STEP_LINES: Final = 1_000
"""Where it is not, after so many lines each."""


def batch(  # noqa: PLR0913 - one for each option, all by name
    target: AgentName,
    inputs: Annotated[
        Path,
        Parameter(name="INPUTS", allow_leading_hyphen=True, help="JSON lines, a JSON array, CSV or TSV; - is stdin."),
    ],
    /,
    *,
    out: Annotated[Path, explain("The file for the results, one JSON line each.")],
    max_concurrency: MaxConcurrency = 16,
    budget: Annotated[int | None, POSITIVE, explain("The most tokens that all may use together.")] = None,
    cost: Annotated[float | None, POSITIVE, explain("The most US dollars that all may cost together.")] = None,
    order: Annotated[Order, explain("Write results in this order.")] = "done",
    reading: InputOptions | None = None,
    durable: Annotated[str | None, explain("Keep finished steps in this file or URL.")] = None,
    lent: LentOptions | None = None,
    shared: GivenOptions,
) -> int:
    """Run an agent on every line of a file, and write a result for each to another file.

    The same command again goes on where it stopped. A failure is a result, too. Exit code: 0 if every line succeeded.
    """
    said = (reading or InputOptions()).complete(inputs)
    Stdout(drop_others=shared.quiet)
    with AgentLoop(shared.timeout) as loop, recording_in(replace(shared, store=durable)) as tape, ExitStack() as stack:
        agent = loop.agent(target, lent, durable=durable is not None, mode=shared.mode, model=shared.model)
        telemetry = stack.enter_context(telemetry_in(shared))
        job = _Job(
            agent=agent,
            loop=loop,
            fields=InputFields.of(said, inputs, agent),
            budget=None if budget is cost is None else Budget(tokens=budget, cost=cost, scope="batch"),
            file=stack.enter_context(open_inputs(inputs, out)),
            results=stack.enter_context(closing(Results(out, agent.name, has_keys=said.key is not None))),
            runtime=Runtime(model=load_model(shared.model), recorder=tape, telemetry=telemetry),
            store=durable,
            max_concurrency=max_concurrency,
            order=order,
        )
        return _perform(job, quiet=shared.quiet, debug=shared.debug)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A batch as the command line asks for it: agent, inputs, results, and options."""

    agent: AnyAgent
    loop: AgentLoop
    results: Results
    file: BinaryIO
    fields: InputFields
    runtime: Runtime
    store: str | None
    """Where the runs are kept if they are durable."""
    max_concurrency: int
    order: Order
    budget: Budget | None


def _perform(job: _Job, *, quiet: bool, debug: bool) -> int:
    n_open = None
    if is_whole(job.file):
        n_open = job.results.check(read_lines(job.file, job.fields))
        job.file.seek(0)
    n_before = len(job.results.done)
    abort = Abort()
    shown = _ProgressDisplay(n_open, quiet=quiet)
    with closing(shown.screen) as screen, log_shown(screen.say, debug=debug):
        if job.results.was_torn:
            shown.note(f"The last line of {job.results.path} was torn, and is cut. Its input is done again.")
        if n_before:
            shown.note(f"{count(n_before, 'line')} had a result before.")
        if bad := job.results.unreadable:
            n_bad = count(len(bad), "line")
            first = one_line(bad[0].fault, _SHOWN_CHARACTERS)
            shown.note(f"{n_bad} cannot be read, and no request is sent for them; line {bad[0].number}: {first}.")
        if unknown := job.results.unknown:
            names = [f"{quoted(name)} ({count(n_lines, 'line')})" for name, n_lines in unknown.most_common(_NAMED)]
            shown.note(one_line(f"The agent takes no {', '.join(names)}: left out.", _SHOWN_CHARACTERS))
        interrupt = Interrupt(abort, lambda: shown.note("Stopping; interrupt again to quit at once."))
        may_wait = job.store is not None
        here = asking(job.agent, screen.paused, screen.say, may_wait=may_wait)
        with interrupt.listening(), closing(job.loop), here as person:
            runtime = replace(job.runtime, approver=None if person is None else person.approve)
            worker = _Worker(replace(job, runtime=runtime), shown, abort, person)
            job.loop.run(asked_by(person, worker.work()))
            interrupt.has_ended = True  # leaving the block may wait for a thread of the user's
    if not quiet:
        _sum_up(job, worker, n_before)
    if interrupt.exit_code is not None:
        return interrupt.exit_code
    if worker.waiting:
        return SUSPENDED
    return 1 if job.results.n_failed or worker.n_undone or worker.first_not_taken is not None else 0


def _sum_up(job: _Job, worker: _Worker, n_before: int) -> None:
    """Print a summary of the batch: results, failures, and what is left."""
    results = job.results
    done = count(len(results.done), "result")
    told = [f"{done} in {results.path}: {len(results.done) - results.n_failed} succeeded, {results.n_failed} failed"]
    if n_before:
        told.append(f"{n_before} were there before")
    tell(f"{'; '.join([*told, str(worker.used)])}.")
    if worker.first_not_taken is not None:
        tell(f"The budget is spent. The first line that was not taken is line {worker.first_not_taken}.")
    for info in worker.waiting:
        tell(*waiting(info, StorePlace(job.store or "", job.store)))
    if worker.waiting:
        tell(f"{count(len(worker.waiting), 'line')} without a result: they wait. The same command then goes on.")
    if n_stopped := worker.n_undone - len(worker.waiting):
        tell(f"{count(n_stopped, 'line')} without a result: stopped. The same command goes on.")


class _Waits(JourneymanError):
    """A durable run waits for a person."""


class _Worker:
    """Does the lines that have no result yet."""

    def __init__(self, job: _Job, shown: _ProgressDisplay, abort: Abort, person: object) -> None:
        """`person` is whoever is asked here."""
        self._job, self._shown, self._abort, self._person = job, shown, abort, person
        self._durable: Durable | None = None
        self._troubled: set[int] = set()
        """Lines whose durable runs could not go on: they have no result."""
        self.waiting: list[RunInfo] = []
        """The durable runs that wait for a person, so that their lines have no result."""
        self._suspended: asyncio.Future[None]
        """Done when the next durable run has left this process, since it waits."""
        self.n_undone = 0
        """Lines that were taken, and have no result."""
        self.first_not_taken: int | None = None
        """The line at which the budget was spent."""
        self.used = NOTHING_USED

    async def work(self) -> None:
        """Do them all, or until the signal is fired."""
        job, line = self._job, None
        self._suspended = asyncio.get_running_loop().create_future()

        def note(event: Event) -> None:
            if isinstance(event, RunSuspended):
                suspended, self._suspended = self._suspended, asyncio.get_running_loop().create_future()
                suspended.set_result(None)

        def hear(event: Event) -> None:
            if isinstance(event, BatchPaused):  # until then nothing moves
                self._shown.note(f"{event.provider} limits the rate: no run asks it for {event.seconds:.3g} s.")

        async with AsyncExitStack() as stack:
            if job.store is not None:
                with explain_errors("Give another --durable."):
                    opening = Durable(job.store, suspend_after_s=_LINGER_S, on_event=note)
                    self._durable = await stack.enter_async_context(opening)
            at_hand = (each for each in read_lines(job.file, job.fields) if not job.results.has(each))
            given = iterate_in_thread(read_lines(job.file, job.fields), "journeyman-inputs")
            coming = (each async for each in given if not job.results.has(each))
            work = BatchWork[BatchLine, Any](
                at_hand if is_whole(job.file) else coming,
                self._do,
                Options(abort=self._abort, runtime=job.runtime, listeners=(hear,)),
                name=job.agent.name,
                max_concurrency=job.max_concurrency,
                order=job.order,
                budget=job.budget,
            )
            async with Batch(work) as batch:
                async for line, result in batch:
                    self._keep(line, result)
            if batch.first_not_taken is not None and line is not None:
                self.first_not_taken = line.number
                self.n_undone -= 1

    async def _do(self, number: int, line: BatchLine, budget: Budget | None) -> Result[Any]:
        """Carry out the run of one line."""
        agent, runtime = self._job.agent, replace(self._job.runtime, budget=budget)
        try:
            value = _input_of(agent, line)
        except InvalidArguments as error:
            return not_started(error)
        if self._durable is None:
            return await run_agent(agent, value, abort=self._abort, runtime=runtime)
        place = sha256(str(self._job.results.path.resolve()).encode()).hexdigest()[:8]
        known_by = line.number if line.key is None else sha256(line.key.encode()).hexdigest()[:16]
        id = f"{agent.name}/{place}/{known_by}-{line.digest}"
        try:
            return await leaving(self._abort, self._drive(self._durable, agent, value, id, runtime))
        except JourneymanError as error:
            self._troubled.add(line.number)
            context = InternalContext(where="going on with the durable run", error=str(error))
            return fail_before_start(context)

    async def _drive(  # noqa: PLR0917 - as they are passed on
        self, durable: Durable, agent: AnyAgent, value: object, id: str, runtime: Runtime
    ) -> Result[Any]:
        """Carry out a durable run to its end, or until it waits for a person, where none is waited for."""
        asked = set[str]()
        driving = asyncio.create_task(durable.run(agent, value, id=id, runtime=runtime))
        try:
            while True:
                await asyncio.wait({driving, self._suspended}, return_when=asyncio.FIRST_COMPLETED)
                if driving.done():
                    return driving.result()
                await asyncio.sleep(0)  # whoever else waits for a run sees it, too
                info = await (await durable.get(id)).info()
                if info.status != "waiting" or not {each.key for each in info.pending} - asked:
                    continue
                asked |= {each.key for each in info.pending}
                if not (isinstance(self._person, TerminalAsker) and await answer_here(durable, info, self._person)):
                    self.waiting.append(info)
                    raise _Waits(f"The durable run {id!r} waits for a person.")
        finally:
            driving.cancel()
            await wait_until_ended(driving)

    def _keep(self, line: BatchLine, result: Result[Any]) -> None:
        """Write a result, unless the line was stopped from outside: then it is done again."""
        metadata = result.metadata
        self.used = Usage.total([self.used, metadata.usage or NOTHING_USED])
        if isinstance(result, Failure):
            context = result.error.context
            is_spent = isinstance(context, BudgetContext) and context.scope == "batch"
            is_stopped = isinstance(context, CancelledContext) and self._abort.aborted
            if line.number in self._troubled:
                why = one_line(result.error.message, _SHOWN_CHARACTERS)
                self._shown.note(f"line {line.number} has no result: {why}")
            if is_spent or is_stopped or line.number in self._troubled:
                self.n_undone += 1
                return
            said = one_line(f"{result.code}: {result.error.message}", _SHOWN_CHARACTERS)
            self._shown.note(f"line {line.number} failed: {said}")
        is_failed = isinstance(result, Failure)
        facts = {
            "code": str(result.code),
            "output": None if is_failed else output_json(self._job.agent, result.output),
            "error": {"message": result.error.message, "hint": result.error.hint} if is_failed else None,
            "answer": result.answer if isinstance(result, Failure) else None,
            "usage": to_jsonable_python(metadata.usage),
            "cost": metadata.cost,
            "latency_s": round(metadata.latency_s, 3),
        }
        self._job.results.write(line, self._job.agent.name, facts)
        self._shown.advance(is_failed=is_failed)


def _input_of(agent: AnyAgent, line: BatchLine) -> object:
    """Return what an agent is given for a line: a text agent the JSON text there, or else the line as it is written;
    raise `InvalidArguments` if it cannot be read, or does not fit."""
    if line.fault:
        raise InvalidArguments("input", [f"the line cannot be read: {line.fault}"])
    if agent.input is str:
        text = line.text if line.plain is None else line.plain
        try:
            return [text, *read_files(line.files)] if line.files else text
        except Mistake as mistake:
            raise InvalidArguments("input", [str(mistake)]) from mistake
    if line.files:
        raise InvalidArguments("input", [f"{agent.name} takes no text, so no files can be sent with it"])
    takes_cell = line.is_row and line.plain is not None and agent.plan.input.is_wrapped
    return parse_input(agent, line.plain if takes_cell and line.plain is not None else line.text)


class _ProgressDisplay:
    """Shows on stderr how far a batch is: by a bar in a terminal, by plain lines elsewhere."""

    def __init__(self, n_open: int | None, *, quiet: bool) -> None:
        """`n_open`: how many lines are to be done; None: nobody knows."""
        self._n_open, self._n_done, self._n_failed = n_open, 0, 0
        self._is_quiet = quiet
        self._step = _STEP_LINES if n_open is None else max(1, -(-n_open // _STEPS))
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._task = self._bar.add_task("", total=n_open)
        self.screen: Final = open_screen(quiet=quiet, status=self._bar.get_renderable)

    def advance(self, *, is_failed: bool) -> None:
        """Take in that a line has its result."""
        self._n_done += 1
        self._n_failed += is_failed
        if isinstance(self.screen, LiveScreen):
            told = f"{self._n_failed} failed" if self._n_failed else ""
            self._bar.update(self._task, completed=self._n_done, description=told)
        elif self._n_done % self._step == 0:
            of = "" if self._n_open is None else f" of {self._n_open:,}"
            self.note(f"{self._n_done:,}{of} done, {self._n_failed:,} failed")

    def note(self, text: str) -> None:
        """Print a line: above the bar, or as it is."""
        if isinstance(self.screen, LiveScreen):
            self.screen.say([Line(text=text, rows=_NOTE_ROWS)])
        elif not self._is_quiet:
            tell(text)
