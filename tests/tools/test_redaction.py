"""What is taken out of texts, what stays readable, and that neither takes long."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journeyman import Agent, Event, Limits, Runtime, run_sync, tool
from journeyman.machine.secret_keys import key_pattern, long_words, may_hold_key
from journeyman.model import Request
from journeyman.models.cassette.cassette import Cassette
from journeyman.models.exchange import Exchange
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.tools.redaction import MARK, scrub_secrets, without_secrets
from journeyman.tools.secret_places import shadow_of, words_in
from tests.play import failed
from tests.tools.secret_notations import innocents_of, secrets_of
from tests.tools.secret_texts import INNOCENTS, SECRETS


@tool
def note(text: str, more: dict[str, str]) -> str:
    """Note a text."""
    return f"{text}\n{more}"


def parts(marked: str) -> tuple[str, str]:
    """Return a text of the corpus as it is, and its secret."""
    found = re.search("«(.*)»", marked, re.DOTALL)
    assert found is not None, marked
    return marked.replace("«", "").replace("»", ""), found[1]


def test_the_corpus_is_large_enough() -> None:
    assert min(len({*SECRETS}), len({*INNOCENTS})) >= 200


def test_no_secret_is_left_in_a_text() -> None:
    left = [text for text, secret in map(parts, SECRETS) if secret in without_secrets(text)]
    assert left == []


def test_no_secret_is_left_in_a_text_that_stands_in_json_and_the_json_stays_sound() -> None:
    for marked in SECRETS:
        text, secret = parts(marked)
        for _ in range(2):  # JSON, and JSON in a string of JSON
            text, secret = json.dumps({"said": text, "more": [1]}), json.dumps(secret)[1:-1]
            clean = without_secrets(text)
            assert len(secret) < 7 or secret not in clean, marked
            if not marked.startswith("-----BEGIN EC"):  # a key without an end goes on to the end
                json.loads(clean)


def test_what_is_no_secret_stays_readable() -> None:
    changed = [(text, without_secrets(text)) for text in INNOCENTS if without_secrets(text) != text]
    assert changed == []


SLOW = (
    *("a.", "a-", 'password="', 'password=\\"', '"password":', "\\", '"', "<a ", "-----BEGIN RSA PRIVATE KEY-----"),
    *("curl -u a:", "a://", "a://b:", "a.b.c://", "cookie: a=", "bearer a1", "sk-1", "eyJaaaaaaaaa."),
    *("--password ", "name: a value:", "a", "=", "sk-sk-sk-", "'\"", "%41", "a/", "QUJD", "ab", "code=?", "env a "),
    *("\\u0041", "&amp;", "a,password\n", "pw=;pwd=", "x:y|chpasswd", 'a("b",', "password for a is "),
    *("identified by '", 'variable "a" {', "/p:", "1:AA", "token: ", "password=a(", "password=a,", "a:", "a="),
    *("password: a.b", 'password="a '),
)


@pytest.mark.parametrize("piece", SLOW)
def test_no_text_takes_more_than_linear_time(piece: str) -> None:
    text = piece * (40_000 // len(piece))
    started = time.process_time()
    without_secrets(text)
    assert time.process_time() - started < 0.8


@pytest.mark.fuzz
def test_taking_secrets_out_of_any_mixture_twice_changes_nothing_more() -> None:
    chosen = Random(7)
    pieces = [*(parts(each)[0] for each in SECRETS), *INNOCENTS, *"\"'\\=\n {}", ": ", "password", "token="]
    for _ in range(10 * settings().max_examples):
        cuts = (chosen.choice(pieces)[chosen.randint(0, 3) : chosen.choice([None, 8, 15, -1, -3])] for _ in range(3))
        once = without_secrets(chosen.choice([*" \n&\"'"]).join(cuts))
        assert without_secrets(once) == once


ODD_KEYS = ["A" * 20 + "%2F" * 20, f"access_token$production${'a1' * 8}${'0' * 32}", f"whsec_{'=' * 16}"]
EXAMPLES = [*ODD_KEYS, *(parts(each)[0] for each in SECRETS), *dict(secrets_of(1)), *INNOCENTS, *innocents_of(1)]
AROUND = st.sampled_from(["\\n", '\\"', "\\\\t", "\n", "=", "%3D", ".", "~", "\u212a", "\u0130", "\ud800"])


@given(st.lists(st.sampled_from(EXAMPLES) | AROUND | st.text(max_size=3), max_size=5).map("".join), st.integers(0, 2))
def test_what_is_looked_for_first_is_there_wherever_a_pattern_finds_it(text: str, n_times: int) -> None:
    for _ in range(n_times):
        text = json.dumps(text, ensure_ascii=False)
    assert may_hold_key(text) or key_pattern().search(text) is None
    assert words_in(text.lower()) == {*re.findall("[a-z]+", text.lower())}
    meant = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'"}
    assert shadow_of(text) == re.sub(r"\\{1,16}[nrt\"']", lambda it: meant[it[0][-1]].rjust(len(it[0])), text)
    runs = re.compile(r"(?<![\w+/%-])[\w+/-]{20,}+={0,2}(?![\w+/-])", re.ASCII)
    assert runs.findall("\n".join(long_words(text, 20))) == runs.findall(text)


def test_a_key_may_begin_wherever_its_pattern_matches() -> None:
    found = [key_pattern().search(text) for text in EXAMPLES]
    assert sum(each is not None for each in found) > 140
    assert all(may_hold_key(f"{before}{each[0]}") for each in found if each for before in ("", "a.", "x=", '"', "\n"))


def test_no_secret_of_the_corpus_is_in_the_file_of_a_cassette(tmp_path: Path) -> None:
    texts = [parts(each) for each in SECRETS]
    calls = [call("note", id=f"{n}", text=text, more={"said": text}) for n, (text, _) in enumerate(texts)]
    script = ScriptedModel([calls, "\n\n".join(text for text, _ in texts)])
    with Cassette(tmp_path / "a.jsonl", "all") as cassette:
        runtime = Runtime(model=cassette.model(script), journal=cassette.journal)
        assert run_sync(Agent(name="a", model=script, tools=[note]), "Note them.", runtime=runtime).unwrap()
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    written = [text for line in lines for text in texts_in(json.loads(line))]
    secrets = {secret for _, secret in texts if len(secret) > 6}
    assert [text for text in written if any(secret in text for secret in secrets)] == []


def texts_in(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            yield from (text for each in cast("dict[str, object]", value).items() for text in texts_in([*each]))
        case list():
            yield from (text for each in cast("list[object]", value) for text in texts_in(each))
        case _:
            pass


@pytest.mark.parametrize("seed", range(3))
def test_no_secret_is_left_in_the_notations_of_vendors_programs_and_files(seed: int) -> None:
    texts = secrets_of(seed)
    assert len(texts) >= 250
    assert [text for text, secret in texts if secret in without_secrets(text)] == []
    inside = [(json.dumps({"said": text}), json.dumps(secret)[1:-1]) for text, secret in texts]
    cleaned = [(without_secrets(text), secret) for text, secret in inside]
    assert sum(secret in text for text, secret in cleaned) == 0
    assert all(json.loads(text) for text, _ in cleaned)


@pytest.mark.parametrize("seed", range(3))
def test_what_looks_like_a_notation_of_a_secret_stays_readable(seed: int) -> None:
    texts = innocents_of(seed)
    assert len(texts) >= 240
    assert [text for text in texts if without_secrets(text) != text] == []
    assert [text for text in map(json.dumps, texts) if without_secrets(text) != text] == []


def test_taking_secrets_out_twice_changes_nothing_more() -> None:
    once = [without_secrets(text) for text in [*(parts(each)[0] for each in SECRETS), *dict(secrets_of(1))]]
    assert [without_secrets(each) for each in once] == once
    assert all(MARK in each for each in once)


@tool
def spill(n: int) -> str:
    """Fail with a text of the corpus."""
    raise ValueError(parts(SECRETS[n])[0])


def test_no_secret_that_a_tool_raises_is_in_the_events_or_the_history() -> None:
    events: list[Event] = []
    script = ScriptedModel([[call("spill", id=f"{n}", n=n) for n in range(len(SECRETS))], "Done."])
    result = run_sync(Agent(name="a", model=script, tools=[spill]), "Go.", on_event=events.append)
    shown = [*map(repr, events), repr(result.history)]
    assert sum("ToolFinished" in each for each in shown) == len(SECRETS)
    secrets = {secret for _, secret in map(parts, SECRETS) if len(secret) > 6}
    assert {
        secret for secret in secrets if any(secret in each or repr(secret)[1:-1] in each for each in shown)
    } == set()


def test_no_secret_that_a_model_raises_is_in_the_events_or_the_error() -> None:
    left: list[str] = []
    for text, secret in [each for each in map(parts, SECRETS) if len(each[1]) > 6]:
        events: list[Event] = []

        def fail(_: Request, text: str = text) -> str:
            raise ValueError(text)

        agent = Agent(name="a", model=ScriptedModel([fail]), limits=Limits(request_retries=0))
        result = failed(run_sync(agent, "Go.", on_event=events.append))
        left += [
            text for each in (*map(repr, events), str(result.error)) if secret in each or repr(secret)[1:-1] in each
        ]
    assert left == []


def test_no_error_of_a_provider_or_an_mcp_server_quotes_a_secret() -> None:
    exchange = Exchange(url="https://api.example.org/v1", headers={})
    texts = [parts(each) for each in SECRETS]
    assert [text for text, secret in texts if secret in str(exchange.failure("refused", "auth", text))] == []
    assert scrub_secrets("connect postgres://ada:hunter2@db failed", []) == f"connect postgres://ada:{MARK}@db failed"
