"""Secrets that are known by their text: wherever they turn up, whatever they look like, also over two pieces."""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import process_time
from typing import Any
from urllib.parse import quote

import pytest

from journeyman import DefinitionError
from journeyman.events import Event, IterationStarted, OutputDelta, TextDelta, ToolFinished, ToolInputDelta
from journeyman.models.cassette import Cassette
from journeyman.otel import OpenTelemetry
from journeyman.record import Recorder
from journeyman.store import Store
from journeyman.tools.clear_events import ClearEvents
from journeyman.tools.known_secrets import KnownSecrets, TextStream, hide_values
from journeyman.tools.redaction import MARK, Redactor, without_secrets

VALUES = (
    "korrekt/pferd+batterie&heft",
    "plain words of mine",
    'with "quotes" and \\',
    "hunter2hunter2",
    "größer als du",
)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> KnownSecrets:
    monkeypatch.setenv("SERVICE_TOKEN", VALUES[0])
    known = KnownSecrets()
    known.hide(VALUES[1:])
    return known


@pytest.mark.parametrize("value", VALUES)
def test_a_known_secret_is_found_however_it_is_written(known: KnownSecrets, value: str) -> None:
    data = value.encode()
    written = [value, json.dumps(value), json.dumps(value, ensure_ascii=False), quote(value), quote(value, safe="")]
    written += [html.escape(value), data.hex(), data.hex().upper(), f"https://a.example/?x={quote(value)}&y=1"]
    written += [json.dumps({"a": [value]}), f"<{value}>", f"a\n{value}\n"]
    for before in ("", "u", "us", "use", "user:"):
        written += [f(f"{before}{value} and more".encode()).decode() for f in (b64encode, urlsafe_b64encode)]
    plain = [word for word in [value, *value.split()] if len(word) > 5]
    for text in written:
        clean = known.mark(text)
        assert MARK in clean, text
        assert not [word for word in plain if word in clean]
        assert known.mark(clean) == clean


@pytest.mark.parametrize("value", VALUES)
def test_a_stream_shows_no_part_of_a_known_secret_wherever_it_is_cut(known: KnownSecrets, value: str) -> None:
    text = f"It says {value} and {value}, no more."
    chosen = Random(value)
    for _ in range(60):
        stream, shown, at = TextStream(known), list[str](), 0
        while at < len(text):
            size = chosen.choice([1, 1, 2, 5, 9, 40])
            shown.append(stream.feed(text[at : at + size]))
            at += size
        assert "".join([*shown, stream.flush()]) == f"It says {MARK} and {MARK}, no more."


@pytest.mark.parametrize("n", range(8, len(VALUES[0]) + 1))
def test_a_stream_that_ends_within_a_known_secret_shows_a_mark(known: KnownSecrets, n: int) -> None:
    stream = TextStream(known)
    assert stream.feed(f"It is {VALUES[0][:n]}") + stream.flush() == f"It is {MARK}"


def test_what_only_begins_like_a_secret_is_told_with_the_next_piece(known: KnownSecrets) -> None:
    stream = TextStream(known)
    assert [stream.feed("korrekt"), stream.feed("ly said."), stream.flush()] == ["", "korrektly said.", ""]
    assert [stream.feed("a k"), stream.flush()] == ["a ", "k"]


def test_events_leave_without_known_secrets_and_nothing_of_their_texts_is_lost(known: KnownSecrets) -> None:
    path, secret = ("a",), VALUES[0]
    rest: dict[str, Any] = {"attempt": 1, "iteration": 1, "kind": "tool", "is_error": False, "cached": False}
    rest["duration_s"] = 0.1
    told = [
        TextDelta(path=path, text="Look: korrekt/pf"),
        TextDelta(path=path, text="erd+batterie&heft!"),
        ToolInputDelta(path=path, tool_use_id="1", tool_name="t", json='{"x": "korrekt/pferd'),
        TextDelta(path=("a", "b"), text="korrekt"),
        OutputDelta(path=path, tool_use_id="2", json=f'{{"a": "{secret}", "b": "korr'),
        ToolFinished(path=path, tool_use_id="1", tool_name="t", tool_result=f"got {secret}", **rest),
        IterationStarted(path=("a", "b"), attempt=1, iteration=2),
    ]
    clear = ClearEvents(known)
    out: list[Event] = [each for event in told for each in clear.clear(event)]
    assert out == [
        TextDelta(path=path, text="Look: "),
        TextDelta(path=path, text=f"{MARK}!"),
        ToolInputDelta(path=path, tool_use_id="1", tool_name="t", json='{"x": "'),
        OutputDelta(path=path, tool_use_id="2", json=f'{{"a": "{MARK}", "b": "'),
        ToolInputDelta(path=path, tool_use_id="1", tool_name="t", json=MARK),
        ToolFinished(path=path, tool_use_id="1", tool_name="t", tool_result=f"got {MARK}", **rest),
        TextDelta(path=("a", "b"), text="korrekt"),
        told[-1],
    ]


def test_values_of_variables_are_those_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    redactor = Redactor()
    assert redactor.redacted_texts(["blau und gelb"]) == ["blau und gelb"]
    monkeypatch.setenv("DEPLOY_PASSWORD", "blau und gelb")
    assert redactor.redacted_texts(["blau und gelb"]) == [MARK]
    assert without_secrets("es ist blau und gelb.") == f"es ist {MARK}."
    monkeypatch.delenv("DEPLOY_PASSWORD")
    assert redactor.redacted_texts(["blau und gelb"]) == ["blau und gelb"]


PUBLIC = {
    **{
        "GITHUB_SHA": "d947bc0f3a2b1c4d5e6f7a8b9c0d1e2f3a4b5c6d",
        "MACHTYPE": "x86_64-pc-linux-gnu",
        "EDITOR": "nano-7.2",
    },
    **{"PLACE": "/srv/data/2026/files", "PAGE": "https://example.org/a1b2c3d4", "GREETING": "hello to all 1000 of you"},
    **{
        "EDITOR": "nano-7.2",
        "NODE": "db12.example.org",
        "STAGE": "production",
        "SHORT_TOKEN": "abc1234",
        "JDK_VERSION": "jdk-17.0.8+7",
    },
}


def test_what_is_no_secret_of_the_environment_stays_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLUE_HANDSHAKE", "zz9-plural-4-alpha")
    for name, value in PUBLIC.items():
        monkeypatch.setenv(name, value)
    known = KnownSecrets()
    assert [value for value in PUBLIC.values() if known.mark(f"a {value} b") != f"a {value} b"] == []
    assert known.mark("zz9-plural-4-alpha") == MARK, "no list knows the name, so a box holds it back"


def test_what_hidden_files_hold_is_a_secret(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# the settings\nHI=bonjour tout le monde\nTOKEN: 'x y z 12'\nSTAGE=production\n")
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "id").write_text("-----BEGIN KEY-----\nQWxsIHdob29wcw0123\n-----END KEY-----\n")
    (keys / "binary").write_bytes(b"\xff\xfe\0")
    known = KnownSecrets()
    known.hide_files([str(tmp_path / ".env"), str(keys), str(tmp_path / "missing")])
    told = "bonjour tout le monde | x y z 12 | production | the settings | QWxsIHdob29wcw0123"
    assert known.mark(told) == f"{MARK} | {MARK} | production | the settings | {MARK}"


@pytest.mark.parametrize("text", ["", "a", "ab", " x ", "password", "The", "localhost"])
def test_a_text_that_would_destroy_others_is_refused_where_it_is_given(text: str, tmp_path: Path) -> None:
    gives: tuple[Callable[[str], object], ...] = (
        hide_values,
        lambda text: Redactor([text]),
        lambda text: Recorder(tmp_path / "a.db", redact=[text]),
        lambda text: Cassette(tmp_path / "a.jsonl", "all", redact=[text]),
        lambda text: OpenTelemetry(redact=[text]),
        lambda text: Store(tmp_path / "b.db", redact=[text]),
    )
    for give in gives:
        with pytest.raises(DefinitionError, match="cannot be taken out"):
            give(text)


def test_a_number_in_json_is_replaced_by_a_text(known: KnownSecrets) -> None:
    known.hide(["4711081512"])
    assert json.loads(known.mark('{"a": 4711081512, "b": [4711081512], "c": "x4711081512"}')) == {
        **{"a": MARK, "b": [MARK]},
        "c": f"x{MARK}",
    }


def test_many_known_secrets_cost_little() -> None:
    known, chosen = KnownSecrets(), Random(3)
    known.hide([f"{chosen.getrandbits(90):x}" for _ in range(500)])
    text = "hello world, this is a text with 1234 numbers and words. " * 2_000
    known.mark("")
    began_s = process_time()
    assert known.mark(text) == text
    assert process_time() - began_s < 0.8
