"""The commands that list, show, fork and prune stored runs. None of them drives a run.

Whatever is stored is cleaned before a terminal shows it.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter
from pydantic_core import to_json

from journeyman.cli import recorded
from journeyman.cli.app import Mistake, Refused, explain_errors
from journeyman.cli.durable import StorePlace, answers, find_store, in_store, name_of, question_line, tell, ways_out
from journeyman.cli.load_agent import AgentLoop, lasting
from journeyman.cli.options import NOT_NEGATIVE, POSITIVE, AnyAgent, Flag, GivenOptions, OwnAgent, RunName, explain
from journeyman.cli.run import Stdout, parse_input
from journeyman.cli.show.lines import clean, duration, fact_lines, one_line, table_lines
from journeyman.definition.data import field_names
from journeyman.durable.binding import Program
from journeyman.durable.durable import Durable
from journeyman.durable.records import BEGUN, Head, ListedRun, QueueState, Record, RunInfo, info_of, load_head
from journeyman.errors import InvalidArguments, RunBlocked, RunUnknown, count, quoted
from journeyman.events.run_status import RunStatus
from journeyman.record.reading import RecordedRun, Recordings
from journeyman.types import adapter_of

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SHORT_IDS: Final = (18, 23, 36)
"""How much of an id is shown: as much as tells it from the others. The first 18 characters tell the moment."""
_NAME_SHOWN: Final = 40
_BEGINNING_SHOWN: Final = 60
_COLUMNS: Final = ("run", "kind", "agent", "status", "work", "age", "tokens", "cost", "leases", "about")
_FACTS: Final = field_names(ListedRun)
_QUEUE_COLUMNS: Final = ("delayed", "running", "waiting", "held", "blocked")
_INPUT_SHOWN: Final = 500
_WAITS_SHOWN: Final = 200
_TAKEN_S: Final = 60.0
"""A run that is ready for longer waits for a worker that is not there."""


def runs(
    *,
    status: Annotated[RunStatus | None, explain("Only with this status.")] = None,
    agent: Annotated[str | None, explain("Only those of the agent with this name.")] = None,
    number: Annotated[int, POSITIVE, Parameter(name=("--number", "-n"), help="How many at most (50).")] = 50,
    since: Annotated[str | None, explain("Only those that are no older: 7d (s, m, h, d, w).")] = None,
    over_cost: Annotated[float | None, NOT_NEGATIVE, explain("Only those that cost more US dollars.")] = None,
    queues: Annotated[Flag, explain("Count the durable runs of each queue instead.")] = False,
    shared: GivenOptions,
) -> int:
    """List the runs of a store, newest first: those that are durable, and those that were recorded."""
    if queues:
        return _show_queues(find_store(shared.store), json=shared.json)
    stdout = Stdout()
    since_s = None if since is None else time.time() - _seconds(since)
    place, now = find_store(shared.store), time.time()
    with recorded.open_recordings(place) as store:
        found = store.runs(
            agent=agent, status=status, since=since_s, over_cost=over_cost, unrecorded=True, limit=number
        )
        infos = _infos(store, found)
    if shared.json:
        durable = [_run_document(infos[run.id]) if run.id in infos else {} for run in found]
        documents = [{**facts, **told} for facts, told in zip(durable, recorded.documents(found), strict=True)]
        stdout.write_json(to_json({"runs": documents}))
        return 0
    if not found:
        tell("There is no such run.")
        return 0
    length = next(each for each in _SHORT_IDS if len({run.id[:each] for run in found}) == len(found))
    rows = [_COLUMNS, *[_row(run, infos.get(run.id), run.id[:length], now) for run in found]]
    stdout.write_text("\n".join(table_lines(rows)))
    return 0


def _infos(store: Recordings, found: Sequence[RecordedRun]) -> dict[str, RunInfo]:
    """Return what is known of the durable runs among some, by id. How each is, and what it has used so far, is told by
    the list: the row of a run that is driven is of the time at which it was claimed."""
    runs = {run.id: run for run in found if run.kind == "durable"}
    infos = dict[str, RunInfo]()
    for facts in store.heads([*runs], _FACTS):
        info = info_of(ListedRun(**facts), store.file.is_held)
        run = runs[info.id]
        infos[info.id] = replace(info, status=run.status, tokens=run.usage.total_tokens, cost=run.usage.cost or 0.0)
    return infos


def _show_queues(place: StorePlace, *, json: bool) -> int:
    """Show how many durable runs are where, for each queue with a run that is not over."""
    stdout, states = Stdout(), in_store(place, Durable.queues)
    if json:
        stdout.write_json(to_json({"queues": adapter_of(list[QueueState]).dump_python(list(states), mode="json")}))
        return 0
    if not states:
        tell("No run of this store is open.")
        return 0
    table: list[tuple[str, ...]] = [("queue", "ready", "oldest", *_QUEUE_COLUMNS)]
    for state in states:
        oldest = f"{state.oldest_s:,.0f} s" if state.ready else "-"
        counts = [f"{getattr(state, name):,}" for name in _QUEUE_COLUMNS]
        table.append((one_line(state.queue, 40), f"{state.ready:,}", oldest, *counts))
    stdout.write_text("\n".join(table_lines(table)))
    return 0


def _row(run: RecordedRun, info: RunInfo | None, id: str, now: float) -> tuple[str, ...]:
    return (
        one_line(info.name, _NAME_SHOWN) if info is not None and info.name else id,
        run.kind,
        one_line(run.agent, _NAME_SHOWN),
        run.status if run.code is None else f"{run.status} {run.code}",
        f"{run.attempts}/{run.iterations}" if run.attempts else "-",
        _age(now - run.started),
        f"{run.usage.total_tokens:,}",
        f"${run.usage.cost:.4f}" if run.usage.cost else "-",
        "-" if info is None else f"{info.leases}",
        (info and one_line(_pending(info, now), _WAITS_SHOWN)) or one_line(run.input, _BEGINNING_SHOWN),
    )


def _pending(info: RunInfo, now: float) -> str:
    """Say what a durable run waits for, or why it does not go on."""
    waits = "; ".join(f"{each.kind} {each.question_id[:12]} {question_line(each)}" for each in info.pending)
    if info.status == "waiting" and not waits:
        waits = "its time"
    ready_since = info.created if info.leases == 0 and info.wake_at is None else info.wake_at
    if info.status == "ready" and ready_since is not None and now - ready_since > _TAKEN_S:
        place = one_line(info.target) or f"FILE:{one_line(info.agent, _NAME_SHOWN)}"
        waits = f"a worker with this agent; none has taken it for {_age(now - ready_since)}: journeyman worker {place}"
    return waits or ("" if info.is_over else info.reason or "")


def _age(seconds: float) -> str:
    """Say how long ago something was, in the largest unit: `40 s`, `3 h`."""
    seconds = max(seconds, 0.0)
    unit = next((name for name in ("d", "h", "m") if seconds >= _UNITS[name]), "s")
    return f"{seconds / _UNITS[unit]:.0f} {'min' if unit == 'm' else unit}"


def _run_document(info: RunInfo) -> dict[str, Any]:
    return {**adapter_of(RunInfo).dump_python(info, mode="json"), "is_over": info.is_over}


def show(  # noqa: PLR0913 - one for each option, all by name
    run: RunName,
    /,
    *,
    steps: Annotated[Flag, explain("Of a durable run, also its steps: key, effect, size, time.")] = False,
    path: Annotated[str | None, explain("Of a recording, only this run in it: lead/scout#2.")] = None,
    iteration: Annotated[int | None, explain("Of a recording, only iterations of this number.")] = None,
    wire: Annotated[Flag, explain("The requests of a recording, exactly as they were sent.")] = False,
    full: Annotated[Flag, explain("The texts of a recording in full.")] = False,
    follow: Annotated[Flag, explain("Follow a recording until it ends.")] = False,
    diff: Annotated[str | None, explain("Where another recording differs from this one.")] = None,
    shared: GivenOptions,
) -> int:
    """Show a durable run: what is known of it, what it waits for, and why it is blocked. Or show a recording."""
    choices = {"--steps": steps, "--path": path, "--iteration": iteration, "--wire": wire, "--full": full}
    alone = "--follow" if follow else "--diff" if diff is not None else None
    others = [name for name, value in choices.items() if value not in (None, False)]
    if alone is not None and ((follow and diff is not None) or others):
        raise Mistake(f"{alone} and {(others or ['--diff'])[0]} do not go together.", "Leave one out.")
    place, json = find_store(shared.store), shared.json
    if follow:
        return recorded.follow(place, run, json=json)
    if diff is not None:
        return recorded.compare(place, run, diff, json=json)
    is_recording = wire or full or path is not None or iteration is not None
    if is_recording or not _is_durable(place, run):
        return recorded.show(place, run, path=path, iteration=iteration, wire=wire, full=full, json=json)
    return _show_durable(place, run, steps=steps, json=json)


def _show_durable(place: StorePlace, run: str, *, steps: bool, json: bool) -> int:
    stdout = Stdout()

    async def read(durable: Durable) -> tuple[dict[str, Any], RunInfo, Sequence[Record]]:
        row = await durable.hub.row(run)
        with recorded.open_recordings(place) as store:
            info = _infos(store, store.chosen("id = ?", (row.id,), unrecorded=True))[row.id]
        facts: dict[str, Any] = {"used_s": row.used_s}
        try:
            head = load_head(row)
            facts |= {"input": head.input, "model": head.model, "version": head.version, "accepts": head.accepts}
        except RunBlocked as error:
            facts |= {"fault": error.why}
        records = await durable.hub.engine.records(row.id) if steps or row.status == "running" else ()
        if row.status == "running":
            attempt, iteration = max(((each.attempt, each.iteration) for each in records), default=(0, 0))
            info = replace(info, attempt=attempt, iteration=iteration)
        return facts, info, records if steps else ()

    facts, info, records = in_store(place, read)
    if json:
        document = {**_run_document(info), **facts}
        if steps:
            document["steps"] = _steps(records)
        stdout.write_json(to_json(document))
        return 0
    lines = [*_run_lines(info, facts)]
    for question in info.pending:
        digest = f"{question.kind} {question.question_id[:12]}"
        lines += ["", f"pending: {digest} · {one_line(question.tool)}", f"  {one_line(question.question, 1_000)}"]
        given = "too long to be kept here" if question.arguments is None else to_json(question.arguments, indent=2)
        shown = given if isinstance(given, str) else given.decode()
        lines += [f"  {line}" for line in clean(shown).splitlines()]
        lines += [f"  options: {', '.join(map(one_line, question.options))}"] if question.options else []
        lines += [f"  {each}" for each in answers(question, info, place)]
    if info.status == "blocked":
        blocked = RunBlocked(name_of(info), info.reason or "")
        lines += ["", f"blocked: {one_line(blocked.why)}", f"  {ways_out(blocked, place)}"]
    if steps:
        lines += ["", *_step_lines(_steps(records))]
    for line in lines:
        stdout.write_text(line)
    return 0


def _is_durable(place: StorePlace, run: str) -> bool:
    """Tell whether a store has a durable run of this name, or rather no recording of it."""
    with recorded.open_recordings(place) as recordings:
        if not recordings.has(run):
            return True

    async def is_known(durable: Durable) -> bool:
        try:
            await durable.hub.row(run)
        except RunUnknown:
            return False
        return True

    return in_store(place, is_known)


def _run_lines(info: RunInfo, facts: dict[str, Any]) -> Iterator[str]:
    def moment(seconds: float) -> str:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")

    cost = f", ${info.cost:.4f}" if info.cost else ""
    used = f"{count(info.tokens, 'token')}{cost}, {duration(facts['used_s'])} of work"
    told = {
        "run": info.name or info.id,
        "id": info.id,
        "agent": info.agent,
        "found in": info.target,
        "model": facts.get("model", ""),
        "forked from": info.parent or "",
        "status": info.status,
        "failed with": info.reason or "" if info.status == "failed" else "",
        "at": f"attempt {info.attempt}, iteration {info.iteration}" if info.attempt else "",
        "created": moment(info.created),
        "ended": "" if info.ended is None else moment(info.ended),
        "goes on": "" if info.wake_at is None else moment(info.wake_at),
        "leases": str(info.leases),
        "used": used,
        "input": one_line(facts.get("input", ""), _INPUT_SHOWN),
        "fault": facts.get("fault", ""),
    }
    return fact_lines(told)


def _steps(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the steps, each with how long it took: from its begun mark, or from the step before it."""
    found: list[dict[str, Any]] = []
    begun = {each.key: each.used_s for each in records if each.state == BEGUN}
    before = [0.0, *[each.used_s for each in records]]
    finished = {each.key for each in records if each.state != BEGUN}
    for (earlier, now), each in zip(pairwise(before), records, strict=True):
        if each.state == BEGUN and each.key in finished:
            continue
        took = max(now - begun.get(each.key, earlier), 0.0) if each.state != BEGUN else None
        found.append(
            {
                "key": each.key,
                "is_finished": each.state != BEGUN,
                "effect": each.effect,
                "bytes": len(each.body or b""),
                "duration_s": took,
                "life": each.epoch,
                "at": each.at,
            }
        )
    return found


def _step_lines(steps: Sequence[dict[str, Any]]) -> list[str]:
    width = max([len(each["key"]) for each in steps], default=0)
    return [
        f"{one_line(each['key']):<{width}}  {each['effect']:<10}  {each['bytes']:>9,} bytes  "
        + (duration(each["duration_s"]) if each["is_finished"] else "begun, not finished")
        for each in steps
    ]


def fork(
    run: RunName,
    /,
    *,
    at: Annotated[str, explain("The attempt and iteration from which it goes its own way: 2/3.")],
    input: Annotated[str | None, explain("Another input: a text, or JSON for other types.")] = None,
    agent: OwnAgent = None,
    id: Annotated[str | None, explain("A name for the new run.")] = None,
    yes: Annotated[Flag, explain("Do not ask, though calls with effect once may be made again.")] = False,
    shared: GivenOptions,
) -> int:
    """Begin a run with all that another one had done before an attempt and iteration, and print its id.

    It may have another agent, for example with a changed prompt. What the first run did from there on may happen again.
    """
    stdout = Stdout()
    place = find_store(shared.store)
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", at.strip())
    if found is None or not (int(found[1]) and int(found[2])):
        raise Mistake(f"--at {quoted(at)} is no place.", "Give the attempt and the iteration, from 1: --at 2/3.")
    where = int(found[1]), int(found[2])

    async def look_up(durable: Durable) -> tuple[RunInfo, Head, Sequence[str]]:
        row = await durable.hub.row(run)
        [info] = await durable.hub.engine.infos([row])
        return info, load_head(row), await (await durable.get(row.id)).effects(where)

    info, head, effects = in_store(place, look_up)
    with AgentLoop(shared.timeout) as loop:
        chosen = None if agent is None else loop.agent(agent)
        value = _input_of(input, chosen, info, loop)
        lacking = None if chosen is None else Program(agent=chosen).lacks(head)
        if lacking is not None:
            hint = "Give an --agent that has it."
            raise Mistake(f"The run {quoted(run)} goes on with no fewer gates: {lacking}.", hint)
        if effects:
            _ask(info, effects, at, yes=yes)

        async def fork_run(durable: Durable) -> RunInfo:
            with explain_errors(""):
                target = None if agent is None else lasting(agent)
                handle = await durable.fork(name_of(info), where, id=id, agent=chosen, input=value, target=target)
            return await handle.info()

        made = in_store(place, fork_run, loop)
    stdout.write_text(name_of(made))
    tell(f"Go on with it: {place.command('resume', name_of(made))}")
    return 0


def _input_of(text: str | None, chosen: AnyAgent | None, info: RunInfo, loop: AgentLoop) -> object:
    """Return the input of a fork: for an agent that was named as it takes it, else as it is stored."""
    agent = loop.agent(info.target) if chosen is None and text is not None and info.target else chosen
    if text is None or agent is None:
        return text
    try:
        value = parse_input(agent, text)
    except InvalidArguments as error:
        raise Mistake(f"The input does not fit: {'; '.join(error.issues)}.", "Give another --input.") from error
    return text if chosen is None else value


def _ask(info: RunInfo, effects: Sequence[str], at: str, *, yes: bool) -> None:
    """Say what a fork may do again, and ask whether it shall; a `Mistake` if not, or if nobody is there to say."""
    what = count(len(effects), "call")
    tell(f"From {at} on, the run {name_of(info)} has begun {what} with effect `once`, which may be made again:")
    tell(*[f"  {each}" for each in effects])
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Mistake("Nobody is there to say whether they may.", "If they may be made again, add --yes.")
    tell("May they? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Mistake("Nothing was forked.", "Choose a later place with --at, or answer y.")


def prune(
    *runs: Annotated[str, explain("Their ids or names; or --older-than says which.", name="RUN")],
    older_than: Annotated[str | None, explain("Those that ended longer ago: 30d (s, m, h, d, w).")] = None,
    status: Annotated[recorded.Ended | None, explain("Only those that ended so; failed: also died, cancelled.")] = None,
    dry_run: Annotated[Flag, explain("Only say what would be forgotten.")] = False,
    shared: GivenOptions,
) -> int:
    """Forget runs that have ended, with all that is stored of them. One that has not ended is never forgotten."""
    stdout = Stdout()
    if bool(runs) == (older_than is not None):
        raise Mistake("Which runs?", "Name runs, or give --older-than 30d; not both.")
    older_s = 0.0 if older_than is None else _seconds(older_than)
    statuses: list[Literal["done", "failed"]] = [each for each in ("done", "failed") if status in (None, each)]

    place = find_store(shared.store)

    async def forget_runs(durable: Durable, others: Mapping[str, bool]) -> Sequence[RunInfo]:
        named = list[RunInfo]()
        for each, is_recorded in others.items():
            with suppress(RunUnknown) if is_recorded else nullcontext():  # its recording may be all that is left
                named.append(await (await durable.get(each)).info())
        how = {each.id: "done" if each.status == "done" else "failed" if each.is_over else "open" for each in named}
        ended = [id for id, ending in how.items() if ending in ("open", *statuses)]
        if runs and not ended:
            return ()
        try:
            return await durable.forget(*ended, older_s=older_s, statuses=statuses, dry=dry_run)
        except ValueError as error:  # it has not ended
            raise Refused(str(error), "Stop it first: journeyman tell RUN stop") from error

    with recorded.open_recordings(place) as recordings:  # nothing is forgotten before all that is named was found
        chosen, others = recorded.choose_ended(recordings, runs, older_s=older_s, ended=status)
        infos = in_store(place, lambda durable: forget_runs(durable, others)) if others or not runs else ()
        if chosen and not dry_run and (notice := recordings.forget(chosen)) is not None:
            tell(notice)
    for each in [*[run.id for run in chosen], *[one_line(name_of(info)) for info in infos]]:
        stdout.write_text(each)
    told = count(len(infos), "run") + (f" and {count(len(chosen), 'recording')}" if chosen else "")
    tell(f"{told} {'would be ' if dry_run else ''}forgotten.")
    return 0


def _seconds(text: str) -> float:
    """Return how many seconds `30d` are."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", text.strip())
    if found is None:
        raise Mistake(f"{quoted(text)} is no duration.", "Give a number and a unit, s, m, h, d or w: 30d.")
    return float(found[1]) * _UNITS[found[2]]
