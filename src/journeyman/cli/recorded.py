"""Recorded runs on the command line: what `runs`, `show` and `prune` say of them, and `export`.

A recording is found in the same store as durable runs. Whatever is stored is cleaned before a terminal shows it.
"""

from __future__ import annotations

import stat
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic_core import to_json

from journeyman.cli.app import Mistake, Refused, explain_errors
from journeyman.cli.durable import FOLDER, StorePlace, find_store, tell
from journeyman.cli.options import ForceFlag, GivenOptions, RunName, explain
from journeyman.cli.run import Stdout
from journeyman.cli.show.lines import clean, duration, fact_lines, one_line, refusal_words
from journeyman.cli.show.played import cassette_lines, text_of_value
from journeyman.definition.json_numbers import write_json
from journeyman.errors import StoreError, count, quoted
from journeyman.events.run_status import GOES_ON
from journeyman.journal import OpenRecords
from journeyman.machine.files import make_private_folder, replace_file
from journeyman.record.page import page
from journeyman.record.reading import RecordedEvent, RecordedRun, Recordings, StoredRequest
from journeyman.record.recorder import Recorder
from journeyman.store.repair import StoreRepaired
from journeyman.types import RunPath, adapter_of

Form = Literal["jsonl", "markdown", "html", "cassette"]
Ended = Literal["done", "failed"]

_TEXT_SHOWN: Final = 300
_WIDEST: Final = 60
_LOOK_S: Final = 0.2


@contextmanager
def open_recordings(place: StorePlace) -> Generator[Recordings]:
    """Open the recordings of a store; a `StoreError` if it cannot be opened, or there is no such recording."""
    recordings, told = None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreRepaired)  # it is told below
        try:
            with Recordings(place.path) as recordings:
                tell(*filter(None, (told := recordings.notice,)))
                yield recordings
        finally:
            if recordings is not None and recordings.notice not in (None, told):
                tell(recordings.notice)


def documents(infos: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Return recordings as JSON values."""
    dumped = adapter_of(list[RecordedRun]).dump_python([*infos], mode="json")
    return [{**told, "duration_s": info.duration_s} for told, info in zip(dumped, infos, strict=True)]


def show(
    place: StorePlace, id: str, *, path: str | None, iteration: int | None, wire: bool, full: bool, json: bool
) -> int:
    """Show a recording: the tree of what happened, or the exact requests."""
    if iteration is not None and iteration < 1:
        raise Mistake(f"--iteration {iteration} is none.", "Give a number from 1 on.")
    stdout = Stdout()
    with open_recordings(place) as recordings:
        run = recordings.find(id)
        where = None if path is None else tuple(path.split("/"))
        events = [each for each in recordings.all_events(run, path=where) if iteration in (None, each.iteration)]
        if where is not None and not recordings.events(run, path=where, limit=1):
            known = sorted({"/".join(each.path) for each in recordings.all_events(run)})
            raise Mistake(f"The recording has no run {quoted(path or '')}.", f"It has: {', '.join(known[:20])}.")
        if wire:
            return _show_wire(recordings, run, stdout, where=where, iteration=iteration)
        if json:
            stdout.write_json(write_json({**documents([run])[0], "events": [each.document() for each in events]}))
            return 0
        lines = [line for each in events for line in lines_of_event(each, full=full)]
        stdout.write_text("\n".join([*_fact_lines(run), "", *lines]))
    return 0


def _show_wire(
    recordings: Recordings, run: RecordedRun, stdout: Stdout, *, where: RunPath | None, iteration: int | None
) -> int:
    requests = [each for each in recordings.all_requests(run, path=where) if iteration in (None, each.iteration)]
    if not requests:
        raise Refused("The recording has no such request.", "Leave out --path or --iteration to see them all.")
    for request in requests:
        body = recordings.body(request)
        if body is None:
            raise Refused("The recording was made without content.", "Record with content to see requests.")
        tell(f"{'/'.join(request.path)} {request.attempt}/{request.iteration} {request.model} {request.size:,} bytes")
        stdout.write_text(body.decode("utf-8", "replace"))
    return 0


def _fact_lines(run: RecordedRun) -> Iterator[str]:
    told = {
        "recording": run.id,
        "kind": run.kind,
        "agent": run.agent,
        "model": run.model,
        "status": run.status if run.code is None else f"{run.status} {run.code}",
        "used": f"{run.usage}, {duration(run.duration_s)}",
        "input": one_line(run.input, _TEXT_SHOWN),
        "incomplete": run.why or (f"{count(run.dropped, 'report')} of progress left out" if run.dropped else ""),
    }
    return fact_lines(told)


def lines_of_event(event: RecordedEvent, *, full: bool = False) -> Iterator[str]:
    """Give what is said of an event: nothing of those that others tell better."""
    words = _words_of(event)
    if words is None:
        return
    depth = "  " * max(0, len(event.path) - 1)
    mark = f"{depth}{'/'.join(event.path)} " if len(event.path) > 1 else ""
    indent = " " * (len(words) - len(words.lstrip(" ")))
    shown = clean(words.lstrip(" ")) if full else one_line(words, _TEXT_SHOWN)
    first, *more = shown.splitlines() or [""]
    yield f"{mark}{indent}{first}"
    yield from (f"{depth}    {line}" for line in more)


def _words_of(event: RecordedEvent) -> str | None:
    if event.kind in _SILENT:
        return None
    facts: dict[str, Any] = event.facts
    if event.kind in _WORDS:
        return _WORDS[event.kind](event, facts).rstrip()
    return f"  {event.kind} {to_json(facts).decode() if facts else ''}".rstrip()


_OF_ANSWERS: Final = ("stop_reason", "text")
_SILENT: Final = (
    *("IterationStarted", "MessageCommitted", "AttemptCompleted", "LayerStarted"),
    *("ModelAsked", "CallOutcome", "Target"),
)
_WORDS: Final[dict[str, Callable[[RecordedEvent, dict[str, Any]], str]]] = {
    "RunStarted": lambda _, facts: f"run {facts.get('agent', '')} on {facts.get('model', '')}",
    "Input": lambda _, facts: f"input: {text_of_value(facts.get('input'))}",
    "OutputModeChosen": lambda _, facts: f"output: mode={facts.get('mode')!r}, as the model can",
    "ToolsDiffer": lambda _, facts: f"  other tools than before: {', '.join(map(str, facts.get('differences') or ()))}",
    "AttemptStarted": lambda event, _: f"attempt {event.attempt}",
    "ModelResponded": lambda event, facts: (
        f"  iteration {event.iteration}: " + ": ".join(filter(None, map(text_of_value, map(facts.get, _OF_ANSWERS))))
    ),
    "ToolCalled": lambda event, facts: f"    {event.tool_name}({write_json(facts.get('tool_input', {})).decode()})",
    "ToolFinished": lambda event, facts: (
        f"    {event.tool_name}{' failed' if facts.get('is_error') else ''}: {text_of_value(facts.get('tool_result'))}"
    ),
    "SandboxRefused": lambda _, facts: (
        f"    {refusal_words(str(facts.get('cause')), facts.get('sandbox'))}: {text_of_value(facts.get('what'))}"
    ),
    "GateDecided": lambda _, facts: f"    gate: {facts.get('decision')} {text_of_value(facts.get('reason'))}",
    "ModelRetried": lambda _, facts: f"    again, since {text_of_value(facts.get('message'))}",
    "ValidationFailed": lambda _, facts: f"  rejected: {text_of_value(facts.get('feedback'))}",
    "RunSucceeded": lambda _, facts: f"success: {text_of_value(facts.get('output'))}",
    "RunFailed": lambda _, facts: "failure: {}: {} {}".format(
        *[text_of_value(facts.get("error", {}).get(name)) for name in ("code", "message", "hint")]
    ),
}


def follow(place: StorePlace, run: str, *, json: bool) -> int:
    """Follow a recording while it is made, also by another process, until it ends."""
    stdout = Stdout()
    with open_recordings(place) as recordings:
        for event in _follow(recordings, recordings.find(run)):
            if json:
                stdout.write_json(write_json(event.document()))
                continue
            for line in lines_of_event(event):
                stdout.write_text(line)
    return 0


def _follow(recordings: Recordings, run: RecordedRun) -> Iterator[RecordedEvent]:
    """Give what happens in a run, as it happens, until it has ended."""
    after = 0
    while True:
        run = recordings.find(run.id)  # first: what is written until it is seen to have ended is read below
        while page := recordings.events(run, after=after):
            after = page[-1].n
            yield from page
        if run.status not in GOES_ON:
            return
        time.sleep(_LOOK_S)


def compare(place: StorePlace, run: str, other: str, *, json: bool) -> int:
    """Show where two recordings first differ, and what each did from there on, side by side."""
    stdout = Stdout()
    with open_recordings(place) as recordings:
        one, two = recordings.find(run), recordings.find(other)
        happened = [recordings.all_events(each) for each in (one, two)]
        told = [[line for event in events for line in lines_of_event(event)] for events in happened]
        bodies = [[recordings.body(request) for request in recordings.all_requests(each)] for each in (one, two)]
    first = next((n for n, (a, b) in enumerate(zip_longest(*told)) if a != b), None)
    pairs = enumerate(zip_longest(*bodies), 1)
    request = next((n for n, (a, b) in pairs if a != b or a is None), None)
    if json:
        lines = [] if first is None else [each[first:] for each in told]
        document = {"runs": [one.id, two.id], "first_difference": first, "first_different_request": request}
        stdout.write_json(to_json({**document, "lines": lines}))
        return 0
    if first is None:
        stdout.write_text(f"Both did the same: {count(len(told[0]), 'line')}.")
        return 0
    stdout.write_text(f"{count(first, 'line')} the same; the requests are the same up to number {(request or 1) - 1}.")
    for left, right in zip_longest(told[0][first:], told[1][first:], fillvalue=""):
        mark = " " if left == right else "|"
        stdout.write_text(f"{left[:_WIDEST]:<{_WIDEST}} {mark} {right[:_WIDEST]}".rstrip())
    return 0


def export(
    run: RunName,
    /,
    *,
    as_: Annotated[Form, explain("How it is written.", name="--as")] = "jsonl",
    out: Annotated[Path | None, explain("The file to write; else stdout.")] = None,
    force: ForceFlag = False,
    shared: GivenOptions,
) -> int:
    """Write a recording as JSON lines, as Markdown, as one HTML file that opens offline, or as a cassette."""
    stdout = Stdout()
    refuse_existing(out, force=force)
    with open_recordings(find_store(shared.store)) as recordings:
        found = recordings.find(run)
        if found.status in GOES_ON:
            tell("The run still goes on: this is what there is so far.")
        text = "\n".join(FORMS[as_](recordings, found))
    if out is None:
        stdout.write_text(text)
        return 0
    write_new(out, f"{text}\n".encode("utf-8", "replace"), force=force)
    tell(f"Written: {out}")
    return 0


def refuse_existing(*places: Path | None, force: bool) -> None:
    """Raise a `Mistake` if one of these files is there, and shall not be replaced."""
    for place in places:
        if place is not None and not force and (place.exists() or place.is_symlink()):
            raise Mistake(f"{place} is there already.", "Name another file with --out, or replace it with --force.")


def write_new(place: Path, data: bytes, *, force: bool) -> None:
    """Write a file, in place of one that is there only with `force`: whoever looks finds the old one or the new one."""
    with explain_errors("Name another file with --out.", about=f"{place} cannot be written"):
        make_private_folder(place.parent)
        if force:
            replace_file(place, data, mode=stat.S_IMODE(place.stat().st_mode) if place.exists() else 0o600)
            return
        with place.open("xb") as file:
            file.write(data)


def _as_jsonl(recordings: Recordings, run: RecordedRun) -> Iterator[str]:
    yield to_json({"run": documents([run])[0]}).decode()
    for event in recordings.all_events(run):
        yield write_json({"event": event.document()}).decode()
    for request in recordings.all_requests(run):
        body = recordings.body(request)
        document = adapter_of(StoredRequest).dump_python(request, mode="json")
        text = None if body is None else body.decode("utf-8", "replace")
        yield to_json({"request": document, "body": text}).decode()


def _as_markdown(recordings: Recordings, run: RecordedRun) -> Iterator[str]:
    yield from (f"# {run.agent}", "", *[f"- {line}" for line in _fact_lines(run)], "")
    for event in recordings.all_events(run):
        facts: dict[str, Any] = event.facts
        where = "/".join(event.path)
        match event.kind:
            case "Input":
                yield from (f"## Input of {where}", "", text_of_value(facts.get("input")), "")
            case "ModelResponded" if facts.get("text"):
                yield from (f"## {where}, {event.attempt}/{event.iteration}", "", text_of_value(facts["text"]), "")
            case "ToolCalled":
                given = write_json(facts.get("tool_input", {}), is_indented=True).decode()
                yield from (f"### {event.tool_name}", "", *_fence(given), "")
            case "ToolFinished":
                yield from (*_fence(text_of_value(facts.get("tool_result"))), "")
            case "RunSucceeded" | "RunFailed":
                yield from (f"**{one_line(_words_of(event) or '', 2_000)}**", "")
            case _:
                pass


def _fence(text: str) -> tuple[str, str, str]:
    longest = max((len(part) for part in text.split("\n") if set(part) == {"`"}), default=2)
    fence = "`" * max(3, longest + 1)
    return fence, text, fence


FORMS: Final[dict[str, Callable[[Recordings, RecordedRun], Iterator[str]]]] = {
    "cassette": lambda recordings, run: (line.decode() for line in cassette_lines(recordings, run)),
    "jsonl": _as_jsonl,
    "markdown": _as_markdown,
    "html": page,
}
"""What writes each form."""


def choose_ended(
    recordings: Recordings, ids: Sequence[str], *, older_s: float, ended: Ended | None
) -> tuple[list[RecordedRun], dict[str, bool]]:
    """Return recordings that have `ended`, those with these ids, or those that ended so long ago; and the ids of
    durable runs: False where there is no recording, True where there is one, too. One that goes on is `Refused`."""
    found, durable = list[RecordedRun](), dict[str, bool]()
    if not ids:
        found += [run for run in recordings.older(time.time() - older_s) if run.status not in GOES_ON]
    for id in ids:
        try:
            found.append(recordings.find(id))
        except StoreError as error:
            if "begin with" in error.message:
                raise
            durable[id] = False
        else:
            durable |= {found[-1].id: True} if found[-1].kind == "durable" else {}
    if live := [run.id for run in found if run.status in GOES_ON]:
        raise Refused(f"The recording {live[0]} goes on.", "Forget it once its run has ended.")
    return [run for run in found if ended in (None, "done" if run.status == "done" else "failed")], durable


def recorder(store: str | None, *, target: str | None = None, quiet: bool = False) -> OpenRecords:
    """Return what records in the store that is meant, which is made if it is not there, and say where that is."""
    place = find_store(store, makes=True)
    with explain_errors("Name a file with --store.", about=f"{place.shown} cannot be written"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StoreRepaired)
            made = Recorder(place.path, target=target)
        tell(*[str(each.message) for each in caught])
        folder = place.path.parent if isinstance(place.path, Path) else None
        if folder is not None and folder.name == FOLDER and not (folder / ".gitignore").exists():
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    if not quiet:
        tell(f"Recorded in {place.shown}: {place.command('show', 'last')}")
    return made
