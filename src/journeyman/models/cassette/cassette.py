"""A conversation on file: recorded once, replayed forever, offline.

A `Cassette` gives a Model around a Model for the requests, and a `Journal` for the tool calls. A journal, and not a
middleware, because only it stands around a call as a whole: it knows the tool's effect, so that a replay can refuse to
run what has one; it keeps whatever came of the call, refusals of gates and timeouts included, with the states that the
call left; and it is the runtime's, so that runs inside a run have it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Literal, Self, TypeAlias

from journeyman.connect import connect
from journeyman.definition.problems import explain_arguments
from journeyman.errors import CassetteError, NotRecorded
from journeyman.model import Model
from journeyman.models.cassette.format import (
    FORMAT,
    VERSION,
    CassetteFile,
    Header,
    ModelLine,
    RecordedCall,
    RecordedRequest,
    read_cassette,
    write,
)
from journeyman.models.cassette.player import CassetteJournal, CassetteModel, CassetteState, Playback
from journeyman.models.cassette.record import Recording, model_line
from journeyman.tools.redaction import Redactor, Secret

CassetteMode: TypeAlias = Literal["none", "once", "new", "all"]
"""What is recorded. `none`: nothing. `once`: everything if there is no file yet, otherwise nothing. `new`: what the
file does not hold. `all`: everything, and the file is replaced. What is not recorded is replayed."""


@explain_arguments
class Cassette:
    """A file to which model traffic and tool results are recorded, or from which they are replayed.

    The end of a block (`with Cassette(…) as cassette:`) writes the whole file; so does `close`. While a cassette
    replays, a request or call that the file does not hold fails with `NotRecorded`, and no tool that has an effect
    runs; with `tools="run"`, all tools run.
    """

    def __init__(
        self,
        path: str | Path,
        mode: CassetteMode = "once",
        *,
        redact: Sequence[Secret] = (),
        redact_known: bool = True,
        tools: Literal["replay", "run"] = "replay",
    ) -> None:
        """`redact` names more secrets to take out. `redact_known=False` leaves texts that look like a key in the file.

        Raises:
            CassetteError: the file cannot be read, or is not a cassette.
        """
        self.path = Path(path)
        self.mode: CassetteMode = mode
        is_there = self.path.exists()
        self.is_anew = mode == "all" or (mode == "once" and not is_there)
        """Whether everything is recorded and nothing is replayed."""
        self._file = read_cassette(self.path) if is_there and not self.is_anew else CassetteFile(self.path)
        self._redactor = Redactor(redact, known=redact_known)
        self._state = CassetteState(
            recording=Recording(self._redactor, self._file),
            playback=Playback(self._file),
            records="all" if self.is_anew else "new" if mode == "new" else "nothing",
            runs_tools=tools == "run",
        )
        self._n_written = 0
        header = self._file.header
        self._agent, self._input = (None, None) if header is None else (header.agent, header.input)

    @property
    def is_replaying(self) -> bool:
        """Whether nothing is recorded, so that no model is asked."""
        return self._state.records == "nothing"

    @property
    def header(self) -> Header | None:
        """The first line of the file; None where nothing was recorded before."""
        return self._file.header

    @property
    def requests(self) -> Sequence[RecordedRequest]:
        """The recorded requests, with their answers, in order."""
        return tuple(self._file.requests.values())

    @property
    def calls(self) -> Sequence[RecordedCall]:
        """The recorded tool calls, in order."""
        return tuple(self._file.calls)

    @property
    def unused(self) -> tuple[str, ...]:
        """The recorded requests and calls that nobody asked for, each with its line."""
        return tuple(self._state.playback.list_unused())

    @property
    def misses(self) -> tuple[NotRecorded, ...]:
        """The requests and calls that somebody asked for, and that are not recorded."""
        return tuple(self._state.misses)

    def model(self, model: Model | str | None = None) -> Model:
        """Return a model that is recorded or replayed; `model` itself is asked only for what is recorded.

        None stands for the first model of the file.

        Raises:
            ModelUnavailable: the model would have to be asked, and cannot be used.
            CassetteError: there is no model in the file.
        """
        if model is None:
            first = next(iter(self._file.models.values()), None)
            if first is None:
                raise CassetteError(f"{self.path} holds no model.", hint="Say which one: cassette.model(agent.model).")
            model = first.called or first.model
        if not isinstance(model, str):
            return CassetteModel(self._state, model_line(model, None), lambda: model)
        known = self._file.models.get(model)
        connected = cache(partial(connect, model))  # when the model is first asked
        if known is None:
            known = ModelLine(model=model) if self.is_replaying else model_line(connected(), model)
        return CassetteModel(self._state, known, connected)

    @property
    def journal(self) -> CassetteJournal:
        """The journal for `Runtime(journal=…)`, which records and replays the results of tool calls."""
        return CassetteJournal(self._state)

    def describe(self, *, agent: str, input: str) -> None:
        """Say in the file which agent is recorded, with which input."""
        self._agent, self._input = agent, self._redactor.redacted_text(input)

    def close(self) -> None:
        """Write what was recorded since it was written last, if anything.

        Raises:
            CassetteError: the file cannot be written.
        """
        lines = self._state.recording.lines
        if len(lines) == self._n_written:
            return
        now = datetime.now(UTC).isoformat(timespec="seconds")
        header = Header(format=FORMAT, version=VERSION, recorded=now, agent=self._agent, input=self._input)
        superseded = self._state.playback.superseded
        kept = [line for number, line in enumerate(self._file.lines, 2) if number not in superseded]
        write(self.path, header, [*kept, *lines])
        self._n_written = len(lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
