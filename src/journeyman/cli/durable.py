"""Durable runs on the command line: where they are kept, `run --durable`, `journeyman resume`, and `journeyman tell`,
which speaks to a run that goes on, durable or recorded, in whichever process.

One rule says which store is meant: `--store`, else JOURNEYMAN_STORE, else the project's `.journeyman/runs.db`. A run is
shown as `journeyman run` shows it. Where it cannot end, what is printed says why, and the command that goes on.
"""

from __future__ import annotations

import asyncio
import os
import re
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from cyclopts import Parameter
from pydantic_core import from_json

from journeyman.agent import Runtime
from journeyman.cancellation import Scope
from journeyman.cli.app import Mistake, Refused, explain_errors
from journeyman.cli.load_agent import AgentLoop, lasting, load_model
from journeyman.cli.options import Flag, GivenOptions, OwnAgent, RunName, SharedOptions, TreeFlag, explain
from journeyman.cli.permit.asked import TerminalAsker, asking
from journeyman.cli.permit.policy import Nobody
from journeyman.cli.run import Job, Kept, Stage, Stdout, input_of_job, not_started, present, recording_in, stage_of
from journeyman.cli.show.lines import arguments, clean, one_line
from journeyman.cli.show.screen import stderr_console
from journeyman.definition.narrowing import is_json_object
from journeyman.durable.dispatch import Dispatcher
from journeyman.durable.durable import Durable
from journeyman.durable.records import RunInfo, load_head
from journeyman.endings import ErrorCode
from journeyman.errors import (
    InvalidArguments,
    RunBlocked,
    RunDiffers,
    RunInUse,
    RunOver,
    RunUnknown,
    StoreError,
    count,
    quoted,
)
from journeyman.events import Listener
from journeyman.gate import Allow, Decision, Deny, Rewrite
from journeyman.inbox.signals import SAID, PendingQuestion, SignalHandle
from journeyman.journal import OpenRecords
from journeyman.machine.files import make_private_folder
from journeyman.permission.permission import PermissionMode
from journeyman.record.operator import RecordedSignals
from journeyman.record.reading import Recordings
from journeyman.result import Failure, Result
from journeyman.store.address import read_address
from journeyman.store.database import without_password
from journeyman.store.repair import StoreRepaired
from journeyman.types import adapter_of

T = TypeVar("T")

_StoredMode: TypeAlias = PermissionMode | Literal[""]
FindRun: TypeAlias = Callable[[Durable], Awaitable[RunInfo]]
DriveOutcome: TypeAlias = Result[Any] | RunInfo | None
"""The outcome of driving a run: its result, or its info where it did not end; None: it was left."""

FOLDER: Final = ".journeyman"
"""The folder in which a project has its store."""
SUSPENDED: Final = 3
"""The exit code of a run that waits for a person."""
BLOCKED: Final = 4
"""The exit code of a run that cannot go on by itself."""
_DIGEST_SHOWN: Final = 12
_LINGER_S: Final = 0.05
"""So long a run that only waits stays here: nobody answers in this process."""
_PLACE: Final = re.compile(r"attempt/(\d+)/iteration/(\d+)")


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The store of the durable runs, as a path or a URL, and how the command line named it."""

    path: Path | str
    """A file, or the URL of a database."""
    named: str | None
    """What --store says."""

    def command(self, name: str, run: str, *words: str) -> str:
        """Return the command that does something with a run here."""
        store = [] if self.named is None else ["--store", quote(without_password(self.named))]
        return " ".join(["journeyman", name, quote(run), *words, *store])

    @property
    def shown(self) -> str:
        """The place as messages show it: without a password."""
        return without_password(str(self.path))


def find_store(given: str | None, *, makes: bool = False) -> StorePlace:
    """Return the store that is meant; a `Mistake` if there is none. `makes`: it need not be there."""
    named = given if given is not None else os.environ.get("JOURNEYMAN_STORE") or None
    if named is not None:
        with explain_errors("Look at --store or JOURNEYMAN_STORE."):
            path = read_address(named)
        if isinstance(path, str):
            return StorePlace(path, given)
        if not makes and not path.exists():
            raise Mistake(f"There is no store {path}.", "Check --store or JOURNEYMAN_STORE; a path is relative.")
        return StorePlace(path, given)
    here = Path.cwd()
    found = find_project_store(here)
    if found is not None:
        return StorePlace(found, None)
    if not makes:
        raise Mistake(
            f"There is no store of durable runs: --store is not given, JOURNEYMAN_STORE is not set, and neither {here}"
            f" nor a folder above it in the same project has {FOLDER}/runs.db.",
            "Name one with --store FILE, or begin a run: journeyman run FILE:AGENT INPUT --durable",
        )
    made = here / FOLDER
    with explain_errors("Name a file with --store.", about=f"The folder {made} cannot be made"):
        make_private_folder(made)
    if not is_own(made):
        raise Mistake(f"The folder {made} belongs to another user.", "Name a file of your own with --store.")
    return StorePlace(made / "runs.db", None)


def project_folders(here: Path) -> Iterator[Path]:
    """Yield the folder in which one works and those above it in the same project, the nearest first.

    A project goes up to the root of its git checkout, or else to the home directory, and it never goes into a folder of
    another user.
    """
    home: Path | None = None
    with suppress(RuntimeError):  # a user may have no home directory
        home = Path.home().resolve()
    for folder in (here, *here.parents):
        if folder != here and not is_own(folder):
            return
        yield folder
        if folder == home or os.path.lexists(folder / ".git"):  # a file, in a worktree or a submodule
            return


def find_project_store(here: Path) -> Path | None:
    """Return the nearest store of the project that `here` is a part of; None if it has none."""
    for folder in project_folders(here):
        store = folder / FOLDER / "runs.db"
        if is_own(store.parent) and os.path.lexists(store):
            return store
    return None


def is_own(path: Path) -> bool:
    """Say whether the path is there and belongs to whoever runs this program; a link counts as itself."""
    try:
        owner = path.lstat().st_uid
    except OSError:
        return False
    return not hasattr(os, "geteuid") or owner == os.geteuid()


def _no_run(place: StorePlace, error: RunUnknown) -> Mistake:
    """Return the mistake for a name that no durable run has; another one, if it is that of a recording."""
    try:
        with Recordings(place.path) as recordings:
            if recordings.runs(limit=1):
                recordings.find(error.run)
    except StoreError as missing:
        if missing.message.startswith("Several") or not error.nearest:
            return Mistake(missing.message, missing.hint)
    return Mistake(str(error), "See them all: journeyman runs")


@asynccontextmanager
async def open_durable(
    place: StorePlace, *, dispatcher: Dispatcher | None = None, on_event: Listener | None = None
) -> AsyncGenerator[Durable]:
    """Open the store, and say of what it refuses in the block what the command line says: a `Mistake` where it cannot
    be opened, or such a run is not there, or is another one; `Refused` what cannot be done as things stand."""
    async with AsyncExitStack() as stack:
        with explain_errors("Look at --store or JOURNEYMAN_STORE."), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StoreRepaired)
            durable = await stack.enter_async_context(
                Durable(place.path, dispatcher=dispatcher, suspend_after_s=_LINGER_S, on_event=on_event)
            )
        tell(*[str(each.message) for each in caught])
        try:
            yield durable
        except RunUnknown as error:
            raise _no_run(place, error) from error
        except RunDiffers as error:
            hint = "Give a new run another --id; an old one goes on with its own agent, which --agent names."
            raise Mistake(f"The run {quoted(error.run)} is another one: {error.difference}.", hint) from error
        except RunOver as error:
            raise Refused(str(error), f"See it: {place.command('show', error.run)}") from error
        except RunInUse as error:
            hint = f"Wait for its end; if that process is stopped: {place.command('resume', error.run, '--steal')}"
            raise Refused(f"The run {quoted(error.run)} is driven by {error.owner}.", hint) from error
        except RunBlocked as error:
            raise Refused(str(error), ways_out(error, place), code=BLOCKED) from error
        except StoreError as error:
            raise Refused(error.message, error.hint) from error


def in_store(place: StorePlace, work: Callable[[Durable], Coroutine[Any, Any, T]], loop: AgentLoop | None = None) -> T:
    """Do some work with the store, as `open_durable` says; in `loop` where an agent is open in it."""

    async def do_work() -> T:
        async with open_durable(place) as durable:
            return await work(durable)

    if loop is not None:
        return loop.run(do_work())
    with asyncio.Runner() as runner:
        return runner.run(do_work())


def say_to_recording(place: StorePlace, run: str, say: Callable[[SignalHandle], Awaitable[T]]) -> T | None:
    """Say something to a recording that is no durable run. None: there is none of that id."""
    with _explain_unheard(place, run), Recordings(place.path) as recordings:
        if not recordings.has(run) or (found := recordings.find(run)).kind == "durable":
            return None

        async def say_it() -> T:
            return await say(SignalHandle(found.id, RecordedSignals(recordings, found)))

        return asyncio.run(say_it())


@contextmanager
def _explain_unheard(place: StorePlace, run: str) -> Generator[None]:
    """Say in one line why a run does not take what is said to it in the block."""
    try:
        yield
    except RunOver as error:
        raise Refused(str(error), f"See it: {place.command('show', error.run)}") from error
    except LookupError as error:
        raise Refused(str(error.args[0]), f"See what it waits for: {place.command('show', run)}") from error
    except ValueError as error:
        raise Mistake(str(error), "") from error


def _record_on(place: StorePlace, info: RunInfo, options: SharedOptions) -> AbstractContextManager[OpenRecords | None]:
    """Go on with the recording of a durable run, if there is one: else it would end where the run was left."""
    is_recorded = False
    if isinstance(place.path, Path):
        with Recordings(place.path) as recordings:
            is_recorded = recordings.has(info.id)
    return recording_in(replace(options, store=place.named, record=is_recorded))


def tell(*lines: str) -> None:
    """Print lines on stderr, each whole, however narrow the terminal is."""
    console = stderr_console()
    for line in lines:
        console.print(clean(line))


def name_of(info: RunInfo) -> str:
    """Return what a run is called: its name, or its id."""
    return info.name or info.id


def question_line(question: PendingQuestion) -> str:
    """Return a line for a question: the call to approve, or the words of the model."""
    given = "" if question.arguments is None else arguments(question.arguments)
    what = question.tool if question.kind == "approve" else "the model asks"
    asked = one_line(question.question, 300)
    return " ".join(each for each in (what, given if question.kind == "approve" else "", f"· {asked}") if each)


def answers(question: PendingQuestion, info: RunInfo, place: StorePlace) -> list[str]:
    """Return the commands that answer a question."""
    digest = question.question_id[:_DIGEST_SHOWN]
    if question.kind == "answer":
        return [place.command("tell", name_of(info), "answer", digest, "TEXT")]
    approve = place.command("tell", name_of(info), "approve", digest)
    return [approve, f"{approve} --deny WHY"]


def ways_out(blocked: RunBlocked, place: StorePlace) -> str:
    """Say how a run that is blocked may go on."""
    found = _PLACE.search(blocked.why)
    at = f"{found[1]}/{found[2]}" if found else "ATTEMPT/ITERATION"
    return (
        f"Put the old code back, and: {place.command('resume', blocked.run)}; or let a new run go on from there with"
        f" the new code: {place.command('fork', blocked.run, '--at', at, '--agent FILE:AGENT')}; or take the stored"
        f" answers as they are: {place.command('resume', blocked.run, '--accept')}"
    )


def waiting(info: RunInfo, place: StorePlace) -> Iterator[str]:
    """Say what a run waits for, with the commands that answer."""
    yield f"The run {name_of(info)} waits for a person:"
    for question in info.pending:
        yield f"  ? {question_line(question)}"
        yield from (f"    {each}" for each in answers(question, info, place))


def _explain_unended(info: RunInfo, place: StorePlace) -> int:
    """Say why a run has not ended, and return the exit code."""
    name, again = name_of(info), place.command("resume", name_of(info))
    match info.status:
        case "waiting" if info.pending:
            tell(*waiting(info, place), f"Then it goes on with: {again}")
        case "held":
            tell(f"The run {name} is held. Let it go on: {place.command('tell', name, 'release')}")
        case "running":
            raise Refused(f"The run {name} was taken by another process.", f"See: {place.command('show', name)}")
        case _:
            tell(f"The run {name} waits for its time. Go on later: {again}")
    return SUSPENDED


def begin(job: Job, target: str, kept: Kept) -> int:
    """Begin the durable run that a command line asks for, or go on with it. Return the exit code."""
    place = find_store(job.options.store, makes=True)
    try:
        value = input_of_job(job)
    except InvalidArguments as error:
        with stage_of(job) as stage:
            return present(stage, not_started(error))
    load_model(job.options.model)

    async def start_run(durable: Durable) -> RunInfo:
        with explain_errors("Give it another --id."):
            handle = await durable.start(
                job.agent,
                value,
                id=kept.id,
                runtime=Runtime(telemetry=job.telemetry),
                target=lasting(target),
                model=job.options.model or "",
                mode=job.options.mode or "",
            )
        return await handle.info()

    if not kept.detach:
        return drive(job, place, start_run)
    info = in_store(place, start_run)
    if job.options.json:
        job.stdout.write_json(adapter_of(RunInfo).dump_json(info))
    else:
        job.stdout.write_text(name_of(info))
    if not job.options.quiet:
        state = "has ended" if info.is_over else "is stored"
        tell(f"The run {name_of(info)} {state}. Go on with it: {place.command('resume', name_of(info))}")
    return 0


def drive(job: Job, place: StorePlace, begin: FindRun, *, steal: bool = False, accept: bool = False) -> int:
    """Drive a run here, show it, print its result, and return the exit code."""
    runtime = Runtime(model=load_model(job.options.model), recorder=job.record, telemetry=job.telemetry)

    async def drive_run(stage: Stage, person: TerminalAsker | Nobody | None) -> tuple[RunInfo, DriveOutcome]:
        surroundings = replace(runtime, approver=None if person is None else person.approve)
        async with open_durable(place) as durable:
            info = await begin(durable)

            async def go_on() -> Result[Any] | RunInfo:
                name, force = name_of(info), steal
                while True:
                    outcome = await durable.resume(
                        name, job.agent, on_event=stage.on_event, runtime=surroundings, steal=force, accept=accept
                    )
                    if not isinstance(outcome, RunInfo) or not outcome.pending:
                        return outcome
                    force = False
                    if not (isinstance(person, TerminalAsker) and await answer_here(durable, outcome, person)):
                        return outcome

            return info, await Scope(stage.abort).carry(go_on())  # left, and not ended: another process may go on

    with stage_of(job) as stage:
        with asking(job.agent, stage.screen.paused, stage.screen.say, may_wait=True) as person:
            info, outcome = job.loop.run(drive_run(stage, person))
        exit_code = _present(stage, place, info, outcome)
    return exit_code if outcome is not None else stage.interrupt.exit_code or exit_code


async def answer_here(durable: Durable, info: RunInfo, person: TerminalAsker) -> bool:
    """Let the person at the terminal answer what the model of a run wants to know. False: something is left open."""
    handle, is_all = await durable.get(info.id), True
    for each in info.pending:
        text = await person.ask(each.path, each.question, each.options) if each.kind == "answer" else None
        if text is None:
            is_all = False
        else:
            with suppress(LookupError):  # somebody else was faster
                await handle.answer(each.question_id, text)
    return is_all


def _present(stage: Stage, place: StorePlace, info: RunInfo, outcome: DriveOutcome) -> int:
    """Print how far a run came, and return the exit code."""
    job = stage.job
    if outcome is not None and not isinstance(outcome, RunInfo):
        return present(stage, outcome)
    stage.screen.close()
    if job.options.json:
        job.stdout.write_json(adapter_of(RunInfo).dump_json(outcome or info))
    if outcome is not None:
        return _explain_unended(outcome, place)
    again = place.command("resume", name_of(info))
    tell(f"The run {name_of(info)} was left. Nothing that it finished is lost. Go on: {again}")
    return 0


async def _load_known(durable: Durable, run: str) -> tuple[RunInfo, str | None, PermissionMode | None]:
    """Return what is stored of a run, and by which model and in which mode it is driven."""
    row = await durable.hub.row(run)
    [info] = await durable.hub.engine.infos([row])
    head = load_head(row)
    mode = adapter_of(_StoredMode).validate_python(head.mode) or None
    return info, head.model or None, mode


def resume(
    run: RunName,
    /,
    *,
    agent: OwnAgent = None,
    steal: Annotated[Flag, explain("Take it from a process that is alive, but stopped.")] = False,
    accept: Annotated[Flag, explain("Take stored answers to what it asks otherwise now, at your risk.")] = False,
    tree: TreeFlag = False,
    shared: GivenOptions,
) -> int:
    """Go on with a durable run, and print what it hands in.

    Of one that has ended, the stored result is printed. Exit code 3: it waits for a person; 4: it is blocked.
    """
    stdout = Stdout(drop_others=shared.quiet)
    place = find_store(shared.store)
    info, model, mode = in_store(place, lambda durable: _load_known(durable, run))
    target = agent or info.target
    if not target:
        hint = f"Say so: {place.command('resume', run, '--agent FILE:AGENT')}"
        raise Mistake(f"The run {quoted(run)} does not say where its agent is.", hint)

    async def find_run(durable: Durable) -> RunInfo:
        return await (await durable.get(name_of(info))).info()

    with _record_on(place, info, shared) as records, AgentLoop(shared.timeout) as loop:
        job = Job(
            text="",
            record=records,
            agent=loop.agent(target, mode=shared.mode or mode),
            loop=loop,
            stdout=stdout,
            check=f"journeyman check {target}",
            options=replace(shared, model=model),
            tree=tree,
        )
        return drive(job, place, find_run, steal=steal, accept=accept)


def stop_run(run: str, reason: str, shared: SharedOptions) -> int:
    """End a run as cancelled, wherever it goes on. A durable one that nobody drives is driven here until its end."""
    Stdout()
    place = find_store(shared.store)

    async def stop_recorded(handle: SignalHandle) -> bool:
        await handle.stop(reason)
        return True

    if say_to_recording(place, run, stop_recorded):
        tell("The process that records it was told to end it.")
        return 0

    async def stop_durable(durable: Durable) -> tuple[RunInfo, str | None, PermissionMode | None]:
        await durable.stop(run, reason)
        return await _load_known(durable, run)

    info, model, mode = in_store(place, stop_durable)
    name = name_of(info)
    if info.status == "running":
        tell(f"The process that drives the run {name} was told to end it.")
        return 0
    if not info.target:
        tell(f"The run {name} ends when its program goes on with it: where its agent is, is not stored.")
        return 0
    with _record_on(place, info, shared) as records, AgentLoop() as loop:
        runtime = Runtime(model=load_model(model), recorder=records)
        agent = loop.agent(info.target, mode=mode)
        outcome = in_store(place, lambda durable: durable.resume(name, agent, runtime=runtime), loop)
    if isinstance(outcome, RunInfo):
        return _explain_unended(outcome, place)
    is_cancelled = isinstance(outcome, Failure) and outcome.code is ErrorCode.EXECUTION_CANCELLED
    tell(f"The run {name} has ended{' as cancelled' if is_cancelled else ', before it was cancelled'}.")
    return 0


Said: TypeAlias = Literal["approve", "answer", "steer", "hold", "release"]
Verb: TypeAlias = Literal["approve", "answer", "steer", "hold", "release", "stop"]
_TAKES: Final[dict[str, tuple[str, int, int]]] = {
    "approve": ("QUESTION", 1, 1),
    "answer": ("QUESTION TEXT", 2, 2),
    "steer": ("TEXT", 1, 1),
    "hold": ("", 0, 0),
    "release": ("", 0, 0),
    "stop": ("[REASON]", 0, 1),
}
"""For each verb the words behind it, how many there are at least, and at most."""


def tell_run(
    run: RunName,
    verb: Annotated[
        Verb,
        Parameter(
            name="VERB",
            help="approve QUESTION makes the call that waits; answer QUESTION TEXT; steer TEXT is said before the next"
            " model call; hold lets no step begin; release; stop [REASON] ends it as cancelled.",
            show_choices=False,
        ),
    ],
    /,
    *words: Annotated[
        str, explain("What belongs to the verb. QUESTION: six characters of it do; show RUN has them.", name="WORD")
    ],
    arguments: Annotated[str | None, explain("approve: make the call with this JSON object instead.")] = None,
    deny: Annotated[str | None, explain("approve: deny the call; the model reads this reason.")] = None,
    at_end: Annotated[Flag, explain("steer: when nothing else is left to do; not to a durable run.")] = False,
    shared: GivenOptions,
) -> int:
    """Speak to a run that goes on. The first answer to a question counts."""
    _check_words(verb, words, {"--arguments": arguments, "--deny": deny, "--at-end": at_end or None})
    if verb == "stop":
        return stop_run(run, *(words or ("cancelled",)), shared=shared)
    decision = _decide(arguments, deny)
    Stdout()
    place = find_store(shared.store)

    def say(handle: SignalHandle) -> Awaitable[str]:
        return _speak(handle, verb, words, decision, at_end=at_end)

    if (heard := say_to_recording(place, run, say)) is not None:
        tell(heard)
        return 0

    async def say_durably(durable: Durable) -> tuple[str, RunInfo]:
        handle = await durable.get(run)
        with _explain_unheard(place, run):
            return await say(handle), await handle.info()

    told, info = in_store(place, say_durably)
    tell(told)
    if info.status == "ready":
        tell(f"Unless a worker does, go on with it: {place.command('resume', name_of(info))}")
    return 0


def _check_words(verb: Verb, words: Sequence[str], options: Mapping[str, object]) -> None:
    """Check that no word is missing or too many behind the verb, and that no option is another verb's."""
    takes, at_least, at_most = _TAKES[verb]
    if not at_least <= len(words) <= at_most:
        has = f"has {count(len(words), 'word')} behind it" if words else "has no word behind it"
        raise Mistake(f"{verb} {has}.", f"Write: journeyman tell RUN {verb} {takes}".rstrip())
    for option, value in options.items():
        of = "steer" if option == "--at-end" else "approve"
        if value is not None and verb != of:
            raise Mistake(f"{option} is for {of}, not for {verb}.", "Leave it out.")


async def _speak(handle: SignalHandle, verb: Said, words: Sequence[str], decision: Decision, *, at_end: bool) -> str:
    """Say it to the run, and return what came of it."""
    match verb:
        case "approve":
            decided = await handle.approve(words[0], decision)
            done = "Denied" if isinstance(decision, Deny) else "Allowed"
            others = ", with other arguments" if isinstance(decision, Rewrite) else ""
            return f"{done}{others}: {question_line(decided)}"
        case "answer":
            answered = await handle.answer(words[0], words[1])
            return f"Answered: {one_line(answered.question, 300)}"
        case "steer":
            await (handle.follow_up if at_end else handle.steer)(words[0])
            return SAID["follow_up" if at_end else verb]
        case "hold" | "release":
            await (handle.hold if verb == "hold" else handle.release)()
            return SAID[verb]


def _decide(arguments: str | None, deny: str | None) -> Decision:
    """Return the decision about a call that waits: to make it, also with other arguments, or to deny it."""
    if arguments is None:
        return Allow() if deny is None else Deny(deny)
    if deny is not None:
        raise Mistake("A call is denied, or made with other arguments, not both.", "Leave out --arguments or --deny.")
    try:
        given = from_json(arguments)
    except ValueError as error:
        raise Mistake(f"--arguments is no JSON: {error}.", 'Give an object: \'{"path": "notes.md"}\'.') from error
    if not is_json_object(given):
        raise Mistake("--arguments is no JSON object.", 'Give an object: \'{"path": "notes.md"}\'.')
    return Rewrite(given)
