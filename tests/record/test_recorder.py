"""What a recording holds: what happened, each request byte for byte, and no secrets; whatever becomes of the disk."""

import asyncio
import logging
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Never

import pytest

from journeyman import Agent, Limits, Output, Runtime, run, tool
from journeyman.errors import StoreError
from journeyman.events import RecordingEnded, Target
from journeyman.model import Response
from journeyman.record import RecordedEvent, RecordedRun, Recorder, Recordings
from journeyman.record.packing import Folder
from journeyman.store.codec import unpack
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.tools.redaction import Redactor
from tests.cli.program import Warm
from tests.contracts.carriers import CARRIERS, Carrier
from tests.play import Recorder as Heard
from tests.play import succeeded
from tests.properties.examples import N_EXAMPLES
from tests.store.test_killed import started
from tests.support import tamper
from tests.tools.secret_texts import SECRETS

_NAMES = ("anthropic-events", "openai-chat-events", "openai-responses-document", "google-events")
WIRES = [carrier for carrier in CARRIERS if carrier.name in _NAMES]


@tool
async def look(topic: str = "") -> str:
    """Look something up."""
    return f"about {topic}: " + "x" * 300


def looking(*answers: Response, **options: object) -> Agent:
    return Agent(name="scout", model=ScriptedModel(answers), tools=[look], **options)  # pyright: ignore[reportArgumentType]


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store, of each kind that there is."""
    return request.getfixturevalue("emptied") if request.param == "postgres" else str(tmp_path / "runs.db")


@pytest.fixture(params=["file", "postgres"])
def lone_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that no other test uses afterwards, of each kind that there is."""
    return request.getfixturevalue("database") if request.param == "postgres" else str(tmp_path / "runs.db")


def recorded(path: Path | str) -> tuple[RecordedRun, list[RecordedEvent]]:
    with Recordings(path) as recordings:
        found = recordings.find("last")
        return found, list(recordings.all_events(found))


@dataclass
class Held:
    """An output that holds what cannot be copied."""

    words: list[str]

    def __deepcopy__(self, memo: object) -> Never:
        raise TypeError("a connection")


async def test_an_output_is_recorded_as_it_was_when_its_run_ended(path: Path) -> None:
    agent = Agent(name="scout", model=ScriptedModel([call("output", words=["one"])]), output=Output(Held))
    with Recorder(path) as recorder:
        (await run(agent, "?", runtime=Runtime(recorder=recorder))).unwrap().words.append("two")
    assert recorded(path)[1][-1].facts["output"] == {"words": ["one"]}


async def test_what_a_model_writes_as_arguments_stands_once_and_goes_with_its_message(place: str) -> None:
    topic, words = 'topic "zürich"\n' * 30, [f"{n} so it is, zanzibar\n" * 30 for n in (1, 2)]
    held = Agent(
        name="scout",
        model=ScriptedModel([call("look", topic=topic, page="zanzibar"), call("output", words=words)]),
        tools=[look],
        output=Output(Held),
    )
    with Recorder(place, redact=["zanzibar"]) as recorder:
        (await run(held, "?", runtime=Runtime(recorder=recorder))).unwrap()
    with Recordings(place) as recordings:
        pieces = [unpack(bytes(row[0])).decode() for row in recordings.file.rows(tamper.STORED_PIECES)]
        assert [sum(each.count(text) for each in pieces) for text in ("so it is", "topic \\")] == [60, 30]
        assert "[redacted]" in str(recordings.search(r"zürich\"\ntopic", tool="look"))
    _, events = recorded(place)
    given = [each.facts["tool_input"] for each in events if each.kind == "ToolCalled"]
    clean = [each.replace("zanzibar", "[redacted]") for each in words]
    assert given == [{"topic": topic, "page": "[redacted]"}, {"words": clean}]
    assert events[-1].facts["output"] == {"words": clean}
    tamper.alter(place, tamper.WITHOUT_MESSAGES)
    assert [
        ("lost" in each.facts, "tool_input" in each.facts) for each in recorded(place)[1] if each.kind == "ToolCalled"
    ] == [(True, False)] * 2


def _conversation(chance: random.Random) -> list[Response]:
    words = ["tide", 'a "quoted" \\ word', "ünï\u2028code", "x" * 700, "line\nline", "{}[]", "\u0001"]
    answers: list[Response] = []
    for turn in range(chance.randint(0, 8)):
        calls = [call("look", {"topic": chance.choice(words)}, id=f"c{turn}_{n}") for n in range(chance.randint(1, 3))]
        answers.append(say(*([chance.choice(words)] if chance.random() < 0.3 else []), *calls))
    return [*answers, say("The end.")]


@pytest.mark.fuzz
@pytest.mark.parametrize("carrier", WIRES, ids=lambda carrier: carrier.name)
async def test_every_request_is_given_back_byte_for_byte(carrier: Carrier, place: str) -> None:
    chance = random.Random(f"{carrier.name} {random.random()}")  # from the seed of the whole test run
    sent: list[bytes] = []
    with Recorder(place) as recorder:
        for _ in range(350 if N_EXAMPLES > 75 else 3):
            async with carrier.play(_conversation(chance)) as played:
                agent = Agent(name="scout", model=played.model, tools=[look], limits=Limits(iterations=20))
                (await run(agent, chance.choice(["Hello.", "y" * 900]), runtime=Runtime(recorder=recorder))).unwrap()
                sent += [request.raw for request in played.requests]
    with Recordings(place) as recordings:
        found = [request for each in reversed(recordings.runs(limit=1_000)) for request in recordings.requests(each)]
        assert [recordings.body(request) for request in found] == sent
        assert {request.form for request in found} == {"http"}
        assert all(request.answer is not None and request.answer["usage"] for request in found)


async def test_a_request_grows_by_what_is_new(place: str) -> None:
    page = "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz ", k=2_000))

    @tool
    async def read(n: int) -> str:
        """Read a page."""
        return f"{n} {page}"

    answers = [*[say(call("read", {"n": n}, id=f"c{n}")) for n in range(140)], say("Read.")]
    agent = Agent(name="reader", model=ScriptedModel(answers), tools=[read], limits=Limits(iterations=200))
    (await run(agent, "Read.", runtime=Runtime(recorder=place))).unwrap()
    with Recordings(place) as recordings:
        found = recordings.find("last")
        requests = recordings.requests(found)
        whole = recordings.body(requests[-1]) or b""
        assert len(requests) == 141  # more than go on from one another
        assert [len(recordings.body(each) or b"") for each in requests] == [each.size for each in requests]
        assert found.bytes < 1.3 * len(whole)
        [(longest,)] = recordings.file.rows(tamper.LONGEST_REQUEST)
        assert longest < 3_000  # of 64 iterations: none says all that was sent before


async def test_the_first_events_of_a_run_are_written_before_its_last_are_looked_through(path: Path) -> None:
    doors = {word: (threading.Event(), threading.Event()) for word in ("first words", "last words")}

    def wait_at(text: str) -> str:
        for reached, opened in [door for word, door in doors.items() if word in text]:
            reached.set()
            assert opened.wait(60)
        return text

    async def talk(*answers: Response, until: str) -> None:
        await run(looking(*answers), "Go.", runtime=Runtime(recorder=recorder))
        if until == "last words":
            doors["first words"][1].set()
        assert await asyncio.to_thread(doors[until][0].wait, 60)

    with Recorder(path, redact=[wait_at]) as recorder:
        await talk(say("My first words."), until="first words")
        await talk(*[say(call("look", id=f"c{n}")) for n in range(7)], say("My last words."), until="last words")
        told = [each.kind for each in recorded(path)[1]]
        doors["last words"][1].set()
    assert told[:1] == ["RunStarted"]


async def test_two_who_record_one_run_take_nothing_from_each_other(place: str) -> None:
    """A process that has lost a durable run may tell of it while the next one does."""
    with Recorder(place) as first, Recorder(place) as second:
        early = first.begin("durable", "scout")
        early.hear(Target(path=("scout",), target="early 0"))
        await first.flush()
        late = second.begin("durable", "scout", id=early.id)
        for n in (1, 2, 3):
            for recorder, tape, name in ((second, late, "late"), (first, early, "early")):
                tape.hear(Target(path=("scout",), target=f"{name} {n}"))
                await recorder.flush()
        await late.end("success")
    _, events = recorded(place)
    told = [str(event.facts["target"]) for event in events]
    assert [each for each in told if each < "f"] == [f"early {n}" for n in range(4)]
    assert [each for each in told if each > "f"] == [f"late {n}" for n in (1, 2, 3)]
    assert all(event.n < 2**53 for event in events)  # what JavaScript holds exactly


async def test_those_who_record_at_once_share_texts_and_forget_their_own(place: str) -> None:
    shared = "y" * 900

    async def one(number: int) -> None:
        with Recorder(place, keep_s=None, keep_bytes=None) as recorder:
            for _ in range(3):
                agent = Agent(name=f"a{number}", system=shared, model=ScriptedModel([say("So.")]))
                await run(agent, "?", runtime=Runtime(recorder=recorder))
                await recorder.flush()
            with Recordings(place) as recordings:
                await asyncio.to_thread(recordings.forget, recordings.runs(agent=f"a{number}")[1:])

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(one(number))
    with Recordings(place) as recordings:
        left = recordings.runs()
        bodies = [recordings.body(request) for each in left for request in recordings.requests(each)]
    assert sorted(each.agent for each in left) == ["a0", "a1", "a2", "a3"]
    assert [shared.encode() in (body or b"") for body in bodies] == [True] * 4


async def test_headers_are_kept_without_the_key(path: Path) -> None:
    messages = WIRES[0]
    async with messages.play([say("So.")]) as played:
        agent = Agent(name="scout", model=played.model, limits=Limits(request_retries=0))
        await run(agent, "?", runtime=Runtime(recorder=path))
        keys = [value for name, value in played.requests[0].headers.items() if name in ("x-api-key", "authorization")]
    with Recordings(path) as recordings:
        [request] = recordings.requests(recordings.find("last"))
    assert keys != []
    assert [key for key in keys if key in str(request)] == []
    assert set(request.around) == {"url", "headers"}
    assert request.answer is not None
    assert (request.answer["status"], request.answer["stop_reason"]) == (200, "end_turn")


@pytest.mark.fuzz
async def test_no_secret_of_the_corpus_is_in_the_store(path: Path) -> None:
    chance = random.Random(5)
    texts = SECRETS if N_EXAMPLES > 75 else chance.sample(SECRETS, 60)
    plain = [text.replace("«", "").replace("»", "") for text in texts]
    secrets = [part.partition("»")[0] for text in texts for part in text.split("«")[1:]]

    @tool
    async def leak(n: int) -> str:
        """Leak."""
        return plain[n]

    answers = [*[say(call("leak", {"n": n}, id=f"c{n}")) for n in range(len(plain))], say("So.")]
    agent = Agent(name="leaky", model=ScriptedModel(answers), tools=[leak], limits=Limits(iterations=len(answers)))
    await run(agent, "?", runtime=Runtime(recorder=path))
    with Recordings(path) as recordings:
        found = recordings.find("last")
        pieces = {
            piece.number: piece.body or b"" for each in recordings.requests(found) for piece in recordings.pieces(each)
        }
        kept = " ".join([*map(str, recordings.all_events(found)), *[body.decode() for body in pieces.values()]])
    raw = b"".join(each.read_bytes() for each in path.parent.iterdir() if each.is_file())
    longer = [secret for secret in secrets if len(secret) > 7]
    assert [secret for secret in longer if secret in kept or secret.encode() in raw] == []


def test_a_long_text_is_a_secret_where_its_name_says_so() -> None:
    text, folder = random.Random(3).randbytes(150).hex(), Folder(Redactor(()))
    assert [folder.add(f'{{"{name}":"{text}"}}') for name in ("token", "page")] == [0, 1]
    assert [text.encode() in b"".join(each.segments()) for each in folder.fold()] == [False, True]


def test_what_a_provider_has_signed_is_no_secret_and_stays_as_it_is() -> None:
    key = f"sk-ant-api03-{'Ab3' * 31}"
    texts = (
        f'{{"type":"thinking","signature":"{key}"}}',
        f'{{"thoughtSignature":"{key * 4}"}}',
        f'{{"encrypted_content":"{key}"}}',
        f'{{"signature":"{key}"}}',  # of no thought
    )
    folder = Folder(Redactor(()))
    assert [folder.add(each) for each in texts] == [0, 1, 2, 3]
    whole = [b"".join(each.segments()).decode() for each in folder.fold()]
    assert whole[:3] == [*texts[:3]]
    assert key not in whole[3]


async def test_without_content_only_shapes_are_kept(path: Path) -> None:
    with Recorder(path, content=False) as recorder:
        agent = looking(say(call("look", {"topic": "zanzibar"}, id="c1")), say("It is zanzibar."))
        await run(agent, "Where is zanzibar?", runtime=Runtime(recorder=recorder))
    with Recordings(path) as recordings:
        found = recordings.find("last")
        [first, _] = recordings.requests(found)
        assert (found.has_content, found.input, recordings.body(first)) == (False, "", None)
        assert first.size > 100
        assert "zanzibar" not in str(list(recordings.all_events(found)))
    assert b"zanzibar" not in path.read_bytes()


async def test_texts_are_found_in_events_and_in_long_results(place: str) -> None:
    with Recorder(place) as recorder:
        for topic in ("amber", "opal"):
            await run(looking(say(call("look", {"topic": topic})), say("So.")), "?", runtime=Runtime(recorder=recorder))
    with Recordings(place) as recordings:
        [second, first] = recordings.runs()
        assert {found.run for found in recordings.search("about opal")} == {second.id}
        assert {found.run for found in recordings.search("amber", tool="look")} == {first.id}
        assert recordings.search("granite") == []
        assert recordings.runs(limit=1, before=second) == [first]


async def test_a_wrong_id_names_the_nearest(place: str) -> None:
    with Recorder(place) as recorder:
        for _ in range(2):
            await run(looking(say("So.")), "?", runtime=Runtime(recorder=recorder))
    with Recordings(place) as recordings:
        first = recordings.runs()[-1]
        assert recordings.find(first.id[:-1]).id == first.id
        with pytest.raises(StoreError, match="begin with") as fits_two:
            recordings.find(first.id[:3])
        assert "Give more of the id" in fits_two.value.hint
        with pytest.raises(StoreError) as wrong:
            recordings.find("x" + first.id[1:])
        assert first.id[:8] in wrong.value.hint or "nearest" in wrong.value.hint


async def test_a_store_that_fails_ends_recording_and_not_the_run(
    lone_place: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()

    @tool
    async def smash() -> str:
        """Take the table away."""
        await recorder.flush()
        tamper.alter(lone_place, tamper.WITHOUT_EVENTS)
        return "smashed"

    @tool
    async def wait() -> str:
        """Wait until all is tried."""
        await recorder.flush()
        return "waited"

    answers = [say(call("smash")), say(call("wait")), say("Still here.")]
    agent = Agent(name="rough", model=ScriptedModel(answers), tools=[smash, wait])
    with caplog.at_level(logging.WARNING), Recorder(lone_place) as recorder:
        succeeded(await run(agent, "?", on_event=heard, runtime=Runtime(recorder=recorder)))
    assert len(heard.of(RecordingEnded)) == 1
    assert [record for record in caplog.records if "nothing more is recorded" in record.message] != []


def test_a_newer_store_is_neither_read_nor_written(lone_place: str) -> None:
    Recorder(lone_place).close()
    tamper.alter(lone_place, tamper.NEWER_RECORDINGS)
    for kind in (Recorder, Recordings):
        with pytest.raises(StoreError, match="format 99"):
            kind(lone_place)


async def test_without_limits_a_file_keeps_30_days_and_a_gigabyte_and_a_database_everything(place: str) -> None:
    for _ in range(3):
        await run(looking(say("So.")), "?", runtime=Runtime(recorder=place))
    tamper.alter(place, tamper.OLD_RUN)
    tamper.alter(place, tamper.LARGE_RUN)
    usual = await _after_one_more(Recorder(place))
    assert len(usual) == (4 if "://" in place else 2)
    limited = await _after_one_more(Recorder(place, keep_s=30 * 86_400, keep_bytes=1_000_000_000))
    assert len(limited) == 3


async def _after_one_more(recorder: Recorder) -> Sequence[RecordedRun]:
    """Record one more run, and return all recordings that there are then."""
    with recorder:
        await run(looking(say("So.")), "?", runtime=Runtime(recorder=recorder))
        await recorder.flush()
    with Recordings(recorder.path) as recordings:
        return recordings.runs()


@pytest.mark.parametrize("n", [1, 2, 17, 60])
def test_what_was_written_before_a_process_is_killed_is_all_there(path: Path, warm: Warm, n: int) -> None:
    with started(warm, "recording", path) as program:
        while program.line() != str(n):
            pass
    with Recordings(path) as recordings:
        found = recordings.find("last")
        events, requests = list(recordings.all_events(found)), recordings.requests(found)
        assert found.status == "died"
        assert [each.facts["tool_input"] for each in events if each.kind == "ToolCalled"][:n] == [
            {"n": number} for number in range(1, n + 1)
        ]
        assert [request.iteration for request in requests[:n]] == list(range(1, n + 1))
        assert [len(recordings.body(each) or b"") for each in requests] == [each.size for each in requests]
        assert (n < 3) or f'"{n - 1} word ' in (recordings.body(requests[n - 1]) or b"").decode()


def test_texts_that_were_clean_are_looked_at_again_when_the_environment_says_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    redactor = Redactor(["zanzibar"])
    texts = ["plain words", "to zanzibar", "password=hunter2x", "plain words"]
    assert redactor.redacted_texts(texts) == [redactor.redacted_text(text) for text in texts]
    monkeypatch.setenv("MY_API_KEY", "plain words")
    assert redactor.redacted_texts(texts)[0] == "[redacted]"


def test_a_function_of_the_program_is_asked_of_each_text() -> None:
    asked: list[str] = []
    redactor = Redactor([lambda text: asked.append(text) or text])
    redactor.redacted_texts(["a", "a"])
    assert asked == ["a", "a"]
