"""The commands that speak to a run that goes on, durable or recorded, in whichever process: `journeyman steer`,
`approve`, `deny`, `answer`, `hold` and `release`. The viewer says the same in the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic_core import from_json

from journeyman.cli.app import Mistake, Refused
from journeyman.cli.durable import AnyHandle, find_store, in_store, name_of, question_line, say_to_recording, tell
from journeyman.cli.run import Flag, Stdout
from journeyman.cli.show.lines import one_line
from journeyman.durable.durable import Durable
from journeyman.durable.handle import RunHandle
from journeyman.durable.records import RunInfo
from journeyman.gate import Allow, Decision, Deny, Rewrite
from journeyman.narrowing import is_json_object


def _say_to_run(run: str, store: str | None, say: Callable[[AnyHandle], Awaitable[str]]) -> int:
    """Say something to a run, and print what came of it."""
    Stdout()
    place = find_store(store)
    if (heard := say_to_recording(place, run, say)) is not None:
        tell(heard)
        return 0

    async def say_durably(durable: Durable) -> tuple[str, RunInfo]:
        handle = await durable.get(run)
        try:
            return await say(handle), await handle.info()
        except LookupError as error:
            raise Refused(str(error.args[0]), "") from error
        except ValueError as error:
            raise Mistake(str(error), "") from error

    words, info = in_store(place, say_durably)
    tell(words)
    if info.status == "ready":
        tell(f"Unless a worker does, go on with it: {place.command('resume', name_of(info))}")
    return 0


def steer(run: str, text: str, /, *, at_end: Flag = False, store: str | None = None) -> int:
    """Say something to a run before its next model call.

    Args:
        run: Its id, its name, or the beginning of either.
        text: What to say.
        at_end: Say it when nothing else is left to do; not to a durable run.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """

    async def say(handle: AnyHandle) -> str:
        if not at_end:
            await handle.steer(text)
            return "It is said before the next model call."
        if isinstance(handle, RunHandle):
            raise ValueError("A durable run takes nothing that is said at its end. Leave --at-end out.")
        await handle.follow_up(text)
        return "It is said when nothing else is left to do."

    return _say_to_run(run, store, say)


def approve(
    run: str, question: str, /, *, arguments: str | None = None, deny: str | None = None, store: str | None = None
) -> int:
    """Allow a call that waits for an answer, or with `--deny` deny it. The first answer counts.

    Args:
        run: Its id, its name, or the beginning of either.
        question: That of the call, or its first characters, six at least: `journeyman show RUN`.
        arguments: Make the call with these arguments instead: a JSON object.
        deny: Deny the call. The model reads this reason.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """
    if arguments is not None and deny is not None:
        raise Mistake("A call is denied, or made with other arguments, not both.", "Leave out --arguments or --deny.")
    return _decide(run, question, Allow() if deny is None else Deny(deny), arguments=arguments, store=store)


def deny(run: str, question: str, reason: str = "denied by the operator", /, *, store: str | None = None) -> int:
    """Deny a call that waits. The first answer counts.

    Args:
        run: Its id, its name, or the beginning of either.
        question: That of the call, or its first characters, six at least: `journeyman show RUN`.
        reason: Why. The model reads it.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """
    return _decide(run, question, Deny(reason), store=store)


def _decide(run: str, question: str, decision: Decision, *, store: str | None, arguments: str | None = None) -> int:
    if arguments is not None:
        try:
            given = from_json(arguments)
        except ValueError as error:
            raise Mistake(f"--arguments is no JSON: {error}.", 'Give an object: \'{"path": "notes.md"}\'.') from error
        if not is_json_object(given):
            raise Mistake("--arguments is no JSON object.", 'Give an object: \'{"path": "notes.md"}\'.')
        decision = Rewrite(given)

    async def say(handle: AnyHandle) -> str:
        decided = await handle.approve(question, decision)
        others = "" if arguments is None else ", with other arguments"
        return f"{'Denied' if isinstance(decision, Deny) else 'Allowed'}{others}: {question_line(decided)}"

    return _say_to_run(run, store, say)


def answer(run: str, question: str, text: str, /, *, store: str | None = None) -> int:
    """Answer a question that the model of a run has asked. The first answer counts.

    Args:
        run: Its id, its name, or the beginning of either.
        question: That of the question, or its first characters, six at least: `journeyman show RUN`.
        text: The answer.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """

    async def say(handle: AnyHandle) -> str:
        answered = await handle.answer(question, text)
        return f"Answered: {one_line(answered.question, 300)}"

    return _say_to_run(run, store, say)


def hold(run: str, /, *, store: str | None = None) -> int:
    """Let no further step of a run begin, until it is released. What is under way ends.

    Args:
        run: Its id, its name, or the beginning of either.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """

    async def say(handle: AnyHandle) -> str:
        await handle.hold()
        return "It is held: no further step of it begins."

    return _say_to_run(run, store, say)


def release(run: str, /, *, store: str | None = None) -> int:
    """Let a run go on that was held.

    Args:
        run: Its id, its name, or the beginning of either.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
    """

    async def say(handle: AnyHandle) -> str:
        await handle.release()
        return "It is released."

    return _say_to_run(run, store, say)
