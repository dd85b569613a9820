"""`journeyman tell`, which speaks to a run that goes on, durable or recorded, in whichever process. The viewer says the
same in the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter
from pydantic_core import from_json

from journeyman.cli.app import Mistake, Refused
from journeyman.cli.durable import (
    AnyHandle,
    find_store,
    in_store,
    name_of,
    question_line,
    say_to_recording,
    stop_run,
    tell,
)
from journeyman.cli.options import Flag, GivenOptions, RunName
from journeyman.cli.run import Stdout
from journeyman.cli.show.lines import one_line
from journeyman.durable.durable import Durable
from journeyman.durable.handle import RunHandle
from journeyman.durable.records import RunInfo
from journeyman.errors import count
from journeyman.gate import Allow, Decision, Deny, Rewrite
from journeyman.narrowing import is_json_object

Say: TypeAlias = Callable[[AnyHandle], Awaitable[str]]
"""Says something to a run, and gives what came of it."""


def _say_to_run(run: str, store: str | None, say: Say) -> int:
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
        str,
        Parameter(name="WORD", help="What belongs to the verb. QUESTION: six characters of it do; show RUN has them."),
    ],
    arguments: Annotated[str | None, Parameter(help="approve: make the call with this JSON object instead.")] = None,
    deny: Annotated[str | None, Parameter(help="approve: deny the call; the model reads this reason.")] = None,
    at_end: Annotated[Flag, Parameter(help="steer: when nothing else is left to do; not to a durable run.")] = False,
    shared: GivenOptions,
) -> int:
    """Speak to a run that goes on. The first answer to a question counts."""
    _check_words(verb, words, {"--arguments": arguments, "--deny": deny, "--at-end": at_end or None})
    if verb == "stop":
        return stop_run(run, *(words or ("cancelled",)), shared=shared)
    decision = _decide(arguments, deny)
    return _say_to_run(run, shared.store, lambda handle: _speak(handle, verb, words, decision, at_end=at_end))


def _check_words(verb: Verb, words: Sequence[str], options: Mapping[str, object]) -> None:
    """Check that what is given belongs to the verb.

    Raises:
        Mistake: a word is missing or too many, or an option is another verb's.
    """
    takes, at_least, at_most = _TAKES[verb]
    if not at_least <= len(words) <= at_most:
        has = f"has {count(len(words), 'word')} behind it" if words else "has no word behind it"
        raise Mistake(f"{verb} {has}.", f"Write: journeyman tell RUN {verb} {takes}".rstrip())
    for option, value in options.items():
        of = "steer" if option == "--at-end" else "approve"
        if value is not None and verb != of:
            raise Mistake(f"{option} is for {of}, not for {verb}.", "Leave it out.")


async def _speak(handle: AnyHandle, verb: Said, words: Sequence[str], decision: Decision, *, at_end: bool) -> str:
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
        case "steer" if at_end:
            if isinstance(handle, RunHandle):
                raise ValueError("A durable run takes nothing that is said at its end. Leave --at-end out.")
            await handle.follow_up(words[0])
            return "It is said when nothing else is left to do."
        case "steer":
            await handle.steer(words[0])
            return "It is said before the next model call."
        case "hold":
            await handle.hold()
            return "It is held: no further step of it begins."
        case "release":
            await handle.release()
            return "It is released."


def _decide(arguments: str | None, deny: str | None) -> Decision:
    """Return the decision about a call that waits: to make it, also with other arguments, or to deny it.

    Raises:
        Mistake: it is both, or the arguments are none.
    """
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
