"""What is said of durable runs and to them: `journeyman runs`, `show`, `steer`, `approve`, `answer`, `hold`, `release`,
`fork` and `prune`. Nothing is driven here; whatever is stored is cleaned before a terminal shows it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, Final

from cyclopts import Parameter
from pydantic_core import to_json
from rich.cells import cell_len

from journeyman.agent import Agent
from journeyman.cli.app import Mistake, Refused
from journeyman.cli.durable import abandoned, answers, find_store, in_store, name_of, question_line, tell, ways_out
from journeyman.cli.loading import lasting
from journeyman.cli.opening import OPENING_S, AgentLoop
from journeyman.cli.run import Flag, Stdout, parse_input
from journeyman.cli.show.lines import clean, duration, one_line
from journeyman.durable.drive import Program
from journeyman.durable.durable import Durable
from journeyman.durable.handle import Handle
from journeyman.durable.journal import place_of
from journeyman.durable.records import BEGUN, Head, Record, RunInfo, Status, info_of, load_head
from journeyman.errors import InvalidArguments, RunBlocked, count, quoted
from journeyman.gate import Allow, Deny
from journeyman.types import adapter_of

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SHORT_IDS: Final = (18, 23, 36)
"""How much of an id is shown: as much as tells it from the others. The first 18 characters tell the moment."""
_NAME_SHOWN: Final = 40
_COLUMNS: Final = ("run", "agent", "status", "at", "age", "tokens", "cost", "lives", "waits for")
_INPUT_SHOWN: Final = 500


# -- looking at runs ---------------------------------------------------------------------------------------------------


def runs(
    *,
    status: Status | None = None,
    agent: str | None = None,
    store: str | None = None,
    number: Annotated[int, Parameter(name=("--number", "-n"))] = 50,
    json: Flag = False,
) -> int:
    """List the durable runs of a store, newest first.

    Args:
        status: Only those with this status.
        agent: Only those of the agent with this name.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
        number: How many at most.
        json: Print one JSON document.
    """
    stdout = Stdout()
    if number < 1:
        raise Mistake(f"{number} runs are none.", "Give a number from 1 on.")

    async def listed(durable: Durable) -> tuple[Sequence[RunInfo], set[str], float]:
        infos = await durable.list(statuses=() if status is None else (status,), agent=agent, limit=number)
        return infos, await abandoned(durable, infos), durable.hub.now()

    infos, dead, now = in_store(find_store(store), listed)
    if json:
        documents = [{**_document(info), "process_died": info.id in dead} for info in infos]
        stdout.write_json(to_json({"runs": documents}))
        return 0
    if not infos:
        tell("There is no such run.")
        return 0
    length = next(each for each in _SHORT_IDS if len({info.id[:each] for info in infos}) == len(infos))
    names = [one_line(info.name, _NAME_SHOWN) if info.name else info.id[:length] for info in infos]
    rows = [_COLUMNS, *[_row(info, name, info.id in dead, now) for info, name in zip(infos, names, strict=True)]]
    widths = [max(cell_len(row[index]) for row in rows) for index in range(len(_COLUMNS))]
    for row in rows:
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        stdout.write_text("  ".join(cells).rstrip())
    return 0


def _row(info: RunInfo, name: str, is_dead: bool, now: float) -> tuple[str, ...]:
    waits = "; ".join(f"{each.kind} {each.digest[:12]} {question_line(each)}" for each in info.waits_for)
    if info.status == "waiting" and not waits:
        waits = "its time"
    return (
        name,
        one_line(info.agent, _NAME_SHOWN),
        "died" if is_dead else info.status,
        f"{info.attempt}/{info.iteration}" if info.attempt else "-",
        _age(now - info.created),
        f"{info.tokens:,}",
        f"${info.cost:.4f}" if info.cost else "-",
        f"{info.lives}",
        one_line(waits or info.why or "", 100),
    )


def _age(seconds: float) -> str:
    """Say how long ago something was, in the largest unit: `40 s`, `3 h`."""
    seconds = max(seconds, 0.0)
    unit = next((name for name in ("d", "h", "m") if seconds >= _UNITS[name]), "s")
    return f"{seconds / _UNITS[unit]:.0f} {'min' if unit == 'm' else unit}"


def _document(info: RunInfo) -> dict[str, Any]:
    return {**adapter_of(RunInfo).dump_python(info, mode="json"), "is_over": info.is_over}


def show(run: str, /, *, store: str | None = None, steps: Flag = False, json: Flag = False) -> int:
    """Show a durable run: what is known of it, what it waits for, and why it is blocked.

    Args:
        run: Its id, its name, or the beginning of either.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
        steps: Show its steps as well: key, effect, size, and how long each took.
        json: Print one JSON document.
    """
    stdout = Stdout()
    place = find_store(store)

    async def read(durable: Durable) -> tuple[dict[str, Any], RunInfo, Sequence[Record]]:
        row = await durable.hub.row(run)
        info = info_of(row)
        facts = {"used_s": row.used_s, "process_died": info.id in await abandoned(durable, [info])}
        try:
            head = load_head(row)
            facts |= {"input": head.input, "model": head.model, "version": head.version, "accepts": head.accepts}
        except RunBlocked as error:
            facts |= {"fault": error.why}
        records = await durable.hub.engine.records(row.id) if steps or info.status == "running" else ()
        if info.status == "running":  # its row tells where it was when somebody claimed it
            attempt, iteration = max((place_of(each.key) for each in records), default=(0, 0))
            info = replace(info, attempt=attempt, iteration=iteration)
        return facts, info, records if steps else ()

    facts, info, records = in_store(place, read)
    if json:
        document = {**_document(info), **facts}
        if steps:
            document["steps"] = _steps(records)
        stdout.write_json(to_json(document))
        return 0
    lines = _facts(info, facts)
    for question in info.waits_for:
        digest = f"{question.kind} {question.digest[:12]}"
        lines += ["", f"waits for: {digest} · {one_line(question.tool)}", f"  {one_line(question.question, 1_000)}"]
        given = "too long to be kept here" if question.arguments is None else to_json(question.arguments, indent=2)
        shown = given if isinstance(given, str) else given.decode()
        lines += [f"  {line}" for line in clean(shown).splitlines()]
        lines += [f"  options: {', '.join(map(one_line, question.options))}"] if question.options else []
        lines += [f"  {each}" for each in answers(question, info, place)]
    if info.status == "blocked":
        blocked = RunBlocked(name_of(info), info.why or "")
        lines += ["", f"blocked: {one_line(blocked.why)}", f"  {ways_out(blocked, place)}"]
    if steps:
        lines += ["", *_step_lines(_steps(records))]
    for line in lines:
        stdout.write_text(line)
    return 0


def _facts(info: RunInfo, facts: dict[str, Any]) -> list[str]:
    def moment(seconds: float) -> str:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")

    died = " (its process has died)" if facts["process_died"] else ""
    cost = f", ${info.cost:.4f}" if info.cost else ""
    used = f"{count(info.tokens, 'token')}{cost}, {duration(facts['used_s'])} of work"
    told = {
        "run": info.name or info.id,
        "id": info.id,
        "agent": info.agent,
        "found in": info.target,
        "model": facts.get("model", ""),
        "forked from": info.parent or "",
        "status": f"{info.status}{died}",
        "failed with": info.why or "" if info.status == "failed" else "",
        "at": f"attempt {info.attempt}, iteration {info.iteration}" if info.attempt else "",
        "created": moment(info.created),
        "ended": "" if info.ended is None else moment(info.ended),
        "goes on": "" if info.wake is None else moment(info.wake),
        "lives": str(info.lives),
        "used": used,
        "input": one_line(facts.get("input", ""), _INPUT_SHOWN),
        "fault": facts.get("fault", ""),
    }
    return [f"{name + ':':<13}{one_line(text)}" for name, text in told.items() if text]


def _steps(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the steps, each with how long it took: from its begun mark, or from the step before it."""
    found: list[dict[str, Any]] = []
    begun: dict[str, float] = {each.key: each.used_s for each in records if each.kind == BEGUN}
    before = [0.0, *[each.used_s for each in records]]
    finished = {each.key for each in records if each.kind != BEGUN}
    for (earlier, now), each in zip(pairwise(before), records, strict=True):
        if each.kind == BEGUN and each.key in finished:
            continue
        took = max(now - begun.get(each.key, earlier), 0.0) if each.kind != BEGUN else None
        found.append(
            {
                "key": each.key,
                "is_finished": each.kind != BEGUN,
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


# -- saying something to a run -----------------------------------------------------------------------------------------


def _say(run: str, store: str | None, say: Callable[[Handle[Any]], Awaitable[str]]) -> int:
    """Say something to a run, and print what came of it."""
    Stdout()
    place = find_store(store)

    async def said(durable: Durable) -> tuple[str, RunInfo]:
        handle = await durable.get(run)
        try:
            return await say(handle), await handle.info()
        except LookupError as error:
            raise Refused(str(error.args[0]), "") from error
        except ValueError as error:
            raise Mistake(str(error), "") from error

    words, info = in_store(place, said)
    tell(words)
    if info.status == "ready":
        tell(f"Unless a worker does, go on with it: {place.command('resume', name_of(info))}")
    return 0


def steer(run: str, text: str, /, *, store: str | None = None) -> int:
    """Say something to a durable run before its next model call.

    Args:
        run: Its id, its name, or the beginning of either.
        text: What to say.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """

    async def say(handle: Handle[Any]) -> str:
        await handle.steer(text)
        return "It is said before the next model call."

    return _say(run, store, say)


def approve(run: str, digest: str, /, *, deny: str | None = None, store: str | None = None) -> int:
    """Allow a call that waits, or deny it. The first answer counts.

    Args:
        run: Its id, its name, or the beginning of either.
        digest: That of the call, or its first characters, six at least: `journeyman show RUN`.
        deny: Deny the call. The model reads this reason.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """

    async def say(handle: Handle[Any]) -> str:
        question = await handle.approve(digest, Allow() if deny is None else Deny(deny))
        return f"{'Allowed' if deny is None else 'Denied'}: {question_line(question)}"

    return _say(run, store, say)


def answer(run: str, digest: str, text: str, /, *, store: str | None = None) -> int:
    """Answer a question that the model of a durable run has asked. The first answer counts.

    Args:
        run: Its id, its name, or the beginning of either.
        digest: That of the question, or its first characters, six at least: `journeyman show RUN`.
        text: The answer.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """

    async def say(handle: Handle[Any]) -> str:
        question = await handle.answer(digest, text)
        return f"Answered: {one_line(question.question, 300)}"

    return _say(run, store, say)


def hold(run: str, /, *, store: str | None = None) -> int:
    """Let no further step of a durable run begin, until it is released. What is under way ends.

    Args:
        run: Its id, its name, or the beginning of either.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """

    async def say(handle: Handle[Any]) -> str:
        await handle.hold()
        return "It is held: no further step of it begins."

    return _say(run, store, say)


def release(run: str, /, *, store: str | None = None) -> int:
    """Let a durable run go on that was held.

    Args:
        run: Its id, its name, or the beginning of either.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """

    async def say(handle: Handle[Any]) -> str:
        await handle.release()
        return "It is released."

    return _say(run, store, say)


# -- forks -------------------------------------------------------------------------------------------------------------


def fork(
    run: str,
    /,
    *,
    at: str,
    input: str | None = None,
    agent: str | None = None,
    id: str | None = None,
    store: str | None = None,
    yes: Flag = False,
    timeout: float = OPENING_S,
) -> int:
    """Begin a run with all that another one had done before an attempt and iteration, and print its id.

    It may have another agent, for example with a changed prompt. What the first run did from there on may happen again.

    Args:
        run: Its id, its name, or the beginning of either.
        at: The attempt and the iteration from which the new run goes its own way: 2/3.
        input: Another input: a text as it is; for any other input type JSON.
        agent: Another agent for it: agents.py:analyst.
        id: A name for the new run.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
        yes: Do not ask, though calls with effect `once` may be made again.
        timeout: How many seconds a function or context manager may take to give the agent.
    """
    stdout = Stdout()
    place = find_store(store)
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", at.strip())
    if found is None or not (int(found[1]) and int(found[2])):
        raise Mistake(f"--at {quoted(at)} is no place.", "Give the attempt and the iteration, from 1: --at 2/3.")
    where = int(found[1]), int(found[2])

    async def looked(durable: Durable) -> tuple[RunInfo, Head, Sequence[str]]:
        row = await durable.hub.row(run)
        return info_of(row), load_head(row), await (await durable.get(row.id)).effects(where)

    info, head, effects = in_store(place, looked)
    with AgentLoop(timeout) as loop:
        chosen = None if agent is None else loop.agent(agent)
        value = _input_of(input, chosen, info, loop)
        lacking = None if chosen is None else Program(agent=chosen).lacks(head)
        if lacking is not None:
            hint = "Give an --agent that has it."
            raise Mistake(f"The run {quoted(run)} goes on with no fewer gates: {lacking}.", hint)
        if effects:
            _ask(info, effects, at, yes=yes)

        async def forked(durable: Durable) -> RunInfo:
            try:
                target = None if agent is None else lasting(agent)
                handle = await durable.fork(name_of(info), where, id=id, agent=chosen, input=value, target=target)
            except ValueError as error:
                raise Mistake(str(error), "") from error
            return await handle.info()

        made = in_store(place, forked, loop)
    stdout.write_text(name_of(made))
    tell(f"Go on with it: {place.command('resume', name_of(made))}")
    return 0


def _input_of(text: str | None, chosen: Agent[Any, Any, Any] | None, info: RunInfo, loop: AgentLoop) -> object:
    """Return the input of a fork: for an agent that was named as it takes it, else as it is stored.

    Raises:
        Mistake: it does not fit the agent.
    """
    agent = loop.agent(info.target) if chosen is None and text is not None and info.target else chosen
    if text is None or agent is None:
        return text
    try:
        value = parse_input(agent, text)
    except InvalidArguments as error:
        raise Mistake(f"The input does not fit: {'; '.join(error.issues)}.", "Give another --input.") from error
    return text if chosen is None else value


def _ask(info: RunInfo, effects: Sequence[str], at: str, *, yes: bool) -> None:
    """Say what a fork may do again, and ask whether it shall.

    Raises:
        Mistake: it shall not, or nobody is there to say.
    """
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


# -- forgetting --------------------------------------------------------------------------------------------------------


def prune(
    *runs: Annotated[str, Parameter(name="RUN")],
    older_than: str | None = None,
    status: Annotated[str | None, Parameter()] = None,
    keep_failed: Flag = False,
    dry_run: Flag = False,
    store: str | None = None,
) -> int:
    """Forget durable runs that have ended, with all that is stored of them. One that has not ended is never forgotten.

    Args:
        runs: Their ids or names. Without any, --older-than says which.
        older_than: Those that ended longer ago than this: 30d. Units: s, m, h, d, w.
        status: Only those that ended so: done or failed.
        keep_failed: Keep those that failed.
        dry_run: Only say what would be forgotten.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """
    stdout = Stdout()
    if bool(runs) == (older_than is not None):
        raise Mistake("Which runs?", "Name runs, or give --older-than 30d; not both.")
    if status not in (None, "done", "failed"):
        raise Mistake(f"No run ends as {quoted(status)}.", "Give --status done or --status failed.")
    if keep_failed and status == "failed":
        raise Mistake("--keep-failed and --status failed leave nothing.", "Leave one of them out.")
    older_s = 0.0 if older_than is None else _seconds(older_than)
    statuses: list[Status] = [each for each in ("done", "failed") if status in (None, each)]
    if keep_failed:
        statuses = ["done"]

    async def forgotten(durable: Durable) -> Sequence[RunInfo]:
        named = [await (await durable.get(each)).info() for each in runs]
        ended = [info.id for info in named if info.status in statuses or not info.is_over]
        if named and not ended:
            return ()
        try:
            return await durable.forget(*ended, older_s=older_s, statuses=statuses, dry=dry_run)
        except ValueError as error:  # it has not ended
            raise Refused(str(error), "Cancel it first: journeyman cancel RUN") from error

    infos = in_store(find_store(store), forgotten)
    for info in infos:
        stdout.write_text(one_line(name_of(info)))
    tell(f"{count(len(infos), 'run')} {'would be ' if dry_run else ''}forgotten.")
    return 0


def _seconds(text: str) -> float:
    """Return how many seconds `30d` are.

    Raises:
        Mistake: it is no duration.
    """
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", text.strip())
    if found is None:
        raise Mistake(f"{quoted(text)} is no duration.", "Give a number and a unit, s, m, h, d or w: 30d.")
    return float(found[1]) * _UNITS[found[2]]
