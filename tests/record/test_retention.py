"""What is recorded goes by its day, whoever records by which settings, and leaves no hole; what is erased is gone."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic_core import to_json

from journeyman import Agent, Runtime, run
from journeyman.endings import START
from journeyman.events import MessageCommitted, Target, ToolCalled
from journeyman.record import Recorder, Recordings
from journeyman.record.packing import Folder, Pieces
from journeyman.record.retention import Keeping, prune_old
from journeyman.record.rows import BEGIN, FoldedItem, RecordingRow, RowMaker, SentRequest
from journeyman.store.recordings import events_path
from journeyman.store.storage import FileStorage
from journeyman.testing.scripted import ScriptedModel, say
from journeyman.tools.redaction import Redactor
from journeyman.types import Message, ToolUse
from tests.properties.examples import N_EXAMPLES

DAY_S = 86_400.0
WORDS = [f"{n} " + "word " * 60 for n in range(4)]
TOPICS = [{"topic": each} for each in WORDS]
WORD, DAYS = st.sampled_from(WORDS), st.floats(0, 40)
STEP = st.tuples(st.integers(0, 1), DAYS, st.sampled_from([None, 0.5, 1, 3, 30]), st.lists(WORD, max_size=3), DAYS)


class Diary:
    """A store in which two record on days to come, each its own run, with texts that both have."""

    def __init__(self, path: Path) -> None:
        self.file, self.recordings = FileStorage(path, owner="r1"), Recordings(path)
        self.makers: dict[Keeping, RowMaker] = {}
        self.lines: dict[int, RecordingRow] = {}
        self.keepings: dict[int, Keeping] = {}
        self.sent: list[list[bytes]] = [[], []]
        self.uses = [ToolUse("c0", "look", to_json({"topic": WORDS[0]}).decode())] * 2
        self.told: list[tuple[int, int]] = []
        """Of each event and request whose it is, and the day on which it goes."""

    def record(self, who: int, now: float, keeping: Keeping, words: list[str]) -> None:
        """Make the call that was last asked for, on whatever day, tell some texts, and ask a model with all of them."""
        maker = self.makers.setdefault(keeping, RowMaker(Pieces(b"key"), has_content=True))
        lasts, folder = keeping.lasts(now), Folder(Redactor(()))
        if self.keepings.get(who) != keeping:  # another recorder takes it up
            self.keepings[who] = keeping
            self.lines[who] = line = RecordingRow(f"{who}" * 36, "run", f"a{who}", 0.0)
            row = (line.id, line.kind, line.agent, "r1", lasts.until, lasts.until, True, 0.0, 0.0)
            line.take_up(self.file.write((BEGIN, [row]))[0])
        line = self.lines[who]
        self.sent[who] += [b',"%b"' % each.encode() for each in words]
        fixed = b',"system":"%b","messages":[' % WORDS[0].encode()
        pieces = [b"{", fixed, *self.sent[who], b"]}"]
        asked = SentRequest(
            where=((line.agent,), START), provider="p", model="m", around={}, pieces=pieces, is_shared=True
        )
        path, use = (line.agent,), self.uses[who]
        called = ToolCalled(
            path=path, attempt=1, iteration=1, tool_use_id=use.id, tool_name="look", kind="tool", tool_input=use.input
        )
        messages: list[MessageCommitted] = []
        for n, each in enumerate(words):
            self.uses[who] = ToolUse(f"{now} {n}", "look", to_json({"topic": each}).decode())
            messages.append(MessageCommitted(path=path, message=Message("assistant", (self.uses[who],))))
        items = [called, *[Target(path=path, target=each) for each in words], asked, *messages]
        prepared = [(item, *maker.prepare(folder, line, item, lasts)) for item in items]
        folded = folder.fold()
        told = [FoldedItem(line, now, each, [folded[n] for n in where], spoken) for each, where, spoken in prepared]
        self.file.write(*maker.statements(told, lasts))
        self.told += [(who, lasts.until)] * len(items)

    def check(self, today: int) -> None:
        """Assert that all is there which must be, and whole."""
        for who, line in self.lines.items():
            found = self.recordings.find(line.id)
            events, requests = self.recordings.events(found), self.recordings.requests(found)
            assert [each for each in events if each.kind == "Target" and each.facts.get("target") not in WORDS] == []
            given = [each.facts["tool_input"] for each in events if each.kind == "ToolCalled"]
            assert [each for each in given if each not in TOPICS] == []
            assert [len(self.recordings.body(each) or b"") for each in requests] == [each.size for each in requests]
            assert len(events) + len(requests) == sum(until > today for whose, until in self.told if whose == who)


@settings(max_examples=N_EXAMPLES)
@given(st.lists(STEP, min_size=1, max_size=8))
@example([(0, 0.0, 3, [WORDS[1]], 0.0), (0, 1.0, 3, [], 2.0)])  # a call of the day after its message, which goes first
def test_on_any_day_what_is_left_has_no_hole(steps: list[tuple[int, float, float | None, list[str], float]]) -> None:
    with TemporaryDirectory() as folder:
        diary, day = Diary(Path(folder) / "runs.db"), 0.0
        for who, passed, days, words, until in steps:
            day += passed
            keeping = Keeping(seconds=None if days is None else days * DAY_S, bytes=None)
            diary.record(who, day * DAY_S, keeping, words)
            day += until
            prune_old(diary.file, keeping, day * DAY_S)
            diary.check(int(day))
        diary.recordings.close()
        diary.file.close()


async def test_nothing_of_an_erased_run_is_in_any_file(path: Path) -> None:
    with Recorder(path) as recorder:
        for name in ("ann", "ben"):
            agent = Agent(
                name="scout", model=ScriptedModel([say(f"Hello, {name}-of-the-hill. " * 40)]), system="Be kind. " * 40
            )
            (await run(agent, f"I am {name}-of-the-hill.", runtime=Runtime(recorder=recorder))).unwrap()
        await recorder.flush()
        with Recordings(path) as recordings:
            [_, ann] = recordings.runs()
            assert recordings.forget([ann]) is None
            kept = recordings.runs()[0]
            [sent] = recordings.requests(kept)
            assert b"Be kind." in (recordings.body(sent) or b"")
        for each in path.parent.iterdir():  # with the log, while others have it open
            assert b"ann-of" not in each.read_bytes()
    assert b"ben-of" in events_path(path).read_bytes()
