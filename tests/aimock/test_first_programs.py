"""The programs that a new user writes first, each unchanged and as a process of its own, against aimock."""

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.aimock.server import Play, answer, call, refusal
from tests.cli.program import Done, Warm

EXAMPLES = Path(__file__).parents[2] / "examples"
EXTRACT = EXAMPLES / "extraction" / "extract.py"
ASSISTANT = EXAMPLES / "assistant" / "assistant.py"
CREW = EXAMPLES / "first_crew" / "crew.py"
SERVICE = EXAMPLES / "service" / "service.py"

# Whoever runs the tests may ignore Ctrl-C, and processes inherit that.
_START = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the examples, in a folder of its own, and what its model answers."""

    play: Play
    folder: Path
    warm: Warm

    @property
    def environment(self) -> dict[str, str]:
        model = f"anthropic:{self.play.model}"
        return environment(ANTHROPIC_BASE_URL=self.play.url, ANTHROPIC_API_KEY="sk-aimock-any-key", MODEL=model)

    def run(self, path: Path, *words: str, stdin: str = "") -> Done:
        """Run it to its end."""
        env = {name: value for name, value in self.environment.items() if name.startswith(("ANTHROPIC_", "MODEL"))}
        return self.warm(*words, cwd=self.folder, stdin=stdin.encode(), env=env, program=path)

    @contextmanager
    def running(self, path: Path, *words: str, **more: str) -> Generator[subprocess.Popen[str]]:
        """Start it, and let it go on beside the test."""
        started = subprocess.Popen(
            command(path, *words),
            cwd=self.folder,
            env=self.environment | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with started:
            try:
                yield started
            finally:
                started.kill()


def command(path: Path, *words: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", _START, str(path), *words]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    return {**kept, "PYTHONUTF8": "1", **more}


@pytest.fixture
def program(play: Play, tmp_path: Path, warm: Warm) -> Program:
    return Program(Play(play.name, play.url, model=f"of-{play.name}"), tmp_path, warm)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def invoices(n: int) -> dict[str, dict[str, Any]]:
    """Return what stands in each of `n` invoices, by the name of the file. They are the same each time."""
    dice = random.Random(13)
    names = ("Harbour Bakery", "Lindgren & Söner", "Okafor", "„Zum Löwen“")
    return {
        f"{number}.txt": {
            "number": f"A-{number}",
            "customer": dice.choice(names),
            "total": dice.randrange(100, 999_999) / 100,
        }
        for number in range(1001, 1001 + n)
    }


def write(folder: Path, records: Mapping[str, Mapping[str, Any]]) -> Path:
    documents = folder / "documents"
    documents.mkdir()
    for name, record in records.items():
        text = f"Invoice {record['number']}\nFor {record['customer']}\nTotal {record['total']:.2f}\n"
        (documents / name).write_text(text, encoding="utf-8")
    return documents


def test_two_hundred_documents_are_extracted_though_some_fail_and_ctrl_c_stops_it(program: Program) -> None:
    records = invoices(200)
    folder = write(program.folder, records)
    names = list(records)
    wrong_once, wrong_always, refused, no_text, held_up = (names[at] for at in (17, 42, 99, 110, 5))
    (folder / no_text).write_bytes(b"Invoice \xff")
    for name, record in records.items():
        asked, id = f"Invoice {record['number']}", f"call_{record['number']}"
        wrong, right = call("output", id, **record | {"total": 1.5}), call("output", id, **record)
        if name == wrong_once:
            program.play.answers(answer(asked, wrong), answer(f"#{id}", call("output", f"{id}_2", **record)))
        elif name == wrong_always:
            again = [call("output", f"{id}_{n}", **record | {"total": 1.5}) for n in (2, 3)]
            program.play.answers(answer(asked, wrong), answer(f"#{id}", again[0]), answer(f"#{id}_2", again[1]))
        elif name == refused:
            program.play.answers(refusal(asked, 400, "invalid_request_error"))
        elif name == held_up:
            program.play.answers(answer(asked, right, latency=5_000), answer(asked, right))
        else:
            program.play.answers(answer(asked, right))

    with program.running(EXTRACT, str(folder)) as stopped:
        assert stopped.stdout is not None
        first = [stopped.stdout.readline() for _ in range(30)]
        stopped.send_signal(signal.SIGINT)
        rest, said = stopped.communicate()
    assert (stopped.returncode, said) == (1, "Stopped. Start it again to go on.\n")
    assert re.search(r"^\d+ of 200 documents were asked about: [\d,]+ in, [\d,]+ out, cost unknown\n\Z", rest, re.M)
    written = lines_of(program.folder / "records.jsonl")
    assert 20 < len(written) < 200
    assert {f"{line['document']}: done\n" for line in written} >= {line for line in first if line.endswith("done\n")}

    done = program.run(EXTRACT, str(folder))
    assert (done.stderr, done.code) == ("", 0)
    found = lines_of(program.folder / "records.jsonl")
    assert found[: len(written)] == written
    failures = {line["document"]: (line["code"], line["why"]) for line in lines_of(program.folder / "failures.jsonl")}
    assert set(failures) == {wrong_always, refused, no_text}
    assert [failures[name][0] for name in (wrong_always, refused, no_text)] == [
        "MAX_ATTEMPTS_EXCEEDED",
        "API_ERROR",
        "UNREADABLE",
    ]
    assert "'1.50' does not stand in the document." in failures[wrong_always][1]
    assert len(found) == 197
    assert {line["document"]: line["record"] for line in found} == {
        name: record for name, record in records.items() if name not in failures
    }
    assert f"{no_text}: 'utf-8' codec can't decode" in done.stdout


def test_sixteen_documents_are_sent_at_a_time_and_none_that_the_budget_of_all_does_not_pay_for(
    program: Program,
) -> None:
    records = invoices(20)
    folder = write(program.folder, records)
    dear = {"input_tokens": 2_000_000, "output_tokens": 5}
    for record in records.values():
        fixture = answer(
            f"Invoice {record['number']}", call("output", f"call_{record['number']}", **record), latency=10
        )
        program.play.answers({**fixture, "response": fixture["response"] | {"usage": dear}})
    done = program.run(EXTRACT, str(folder))
    assert (done.stderr, done.code) == ("", 0)
    assert len(lines_of(program.folder / "records.jsonl")) == 16  # under way before the first was paid
    failed = lines_of(program.folder / "failures.jsonl")
    assert [line["code"] for line in failed] == ["BUDGET_EXCEEDED"] * 4
    assert done.stdout.endswith("20 of 20 documents were asked about: 32,000,000 in, 80 out, cost unknown\n")


def test_the_assistant_asks_before_it_changes_anything_and_is_denied_what_is_forbidden(program: Program) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(program.folder)], check=True)
    (program.folder / "mean.py").write_text("print(sum([2, 4]) / 3)\n", encoding="utf-8")
    program.play.answers(
        answer("Mend mean.py.", call("git_status", "call_1", repo_path="."), call("read", "call_2", path="mean.py")),
        answer("#call_2", call("edit", "call_3", path="mean.py", old_text="/ 3", new_text="/ 2")),
        answer("#call_3", call("bash", "call_4", command="git push origin main")),
        answer("#call_4", call("bash", "call_5", command="rm mean.py")),
        answer("#call_5", call("note", "call_6", text="mean.py: divide by the number of values.")),
        answer("#call_6", "It prints the mean now."),
    )
    done = program.run(ASSISTANT, "Mend mean.py.", stdin="y\nn\n")
    assert (done.stderr, done.code) == ("", 0)
    assert done.stdout == (
        "  git_status: Repository status:\n"
        "  read: 1\tprint(sum([2, 4]) / 3)\n"
        "  ? edit 'mean.py': the mode is balanced, and no rule allows it. [y/n] "
        "  edit: Edited mean.py: 1 place, at line 1.\n"
        "  bash: Error: denied: the rule Bash(git push *) forbids it.\n"
        "  ? bash 'rm mean.py': the mode is balanced, and no rule allows it. [y/n] "
        "  bash: Error: denied: The user said no.\n"
        "  note: Noted.\n"
        "It prints the mean now.\n"
    )
    assert (program.folder / "NOTES.md").read_text(encoding="utf-8") == "mean.py: divide by the number of values.\n"
    assert (program.folder / "mean.py").read_text(encoding="utf-8") == "print(sum([2, 4]) / 2)\n"


def test_the_crew_goes_on_without_a_scout_that_fails(program: Program) -> None:
    notes = {"apples.md": "Ripe apples are picked at noon.\n", "keys.md": "# Keys\n\nLost keys: ask the gardener.\n"}
    for name, text in notes.items():
        (program.folder / name).write_text(text, encoding="utf-8")
    tasks = [{"agent": "scout", "task": task} for task in ("When are apples picked?", "Who has lost keys?", "Why?")]
    written = {"agent": "writer", "task": "Write: at noon; the gardener."}
    program.play.answers(
        answer("Apples and keys?", call("subagent", "call_1", tasks=tasks)),
        answer(tasks[0]["task"], call("search", "call_2", words="APPLES picked")),
        answer("#call_2", call("output", "call_3", answer="At noon.", source="apples.md:1")),
        answer(tasks[1]["task"], call("search", "call_4", words="keys gardener")),
        answer("#call_4", call("output", "call_5", answer="The gardener.", source="keys.md:3")),
        refusal(tasks[2]["task"], 400, "invalid_request_error"),
        answer("#call_1", call("subagent", "call_6", **written)),
        answer(written["task"], "At noon, says the gardener."),
        answer("#call_6", "Apples: at noon. Keys: the gardener."),
    )
    done = program.run(CREW, "Apples and keys?")
    assert (done.stderr, done.code) == ("", 0)
    *shown, answered, used = done.stdout.splitlines()
    assert sorted(shown[:3]) == ["  scout#1 begins", "  scout#2 begins", "  scout#3 begins"]
    failed, *ended = sorted(shown[3:6], key=lambda line: "fails" not in line)
    assert failed.startswith("  scout#3 fails: API_ERROR: The model call failed (bad_request, status 400): ")
    assert sorted(ended) == [
        "  scout#1 ends: answer='At noon.' source='apples.md:1'",
        "  scout#2 ends: answer='The gardener.' source='keys.md:3'",
    ]
    assert shown[6:] == ["  writer#4 begins", "  writer#4 ends: At noon, says the gardener."]
    assert answered == "Apples: at noon. Keys: the gardener."
    assert used.startswith("1 attempt, 3 iterations, 2 calls, 80 in, 40 out, cost unknown, ")


def test_a_crew_whose_lead_cannot_be_asked_says_why(program: Program) -> None:
    program.play.answers(refusal("Anything?", 401, "authentication_error"))
    done = program.run(CREW, "Anything?")
    assert done.code == 1
    assert done.stderr.startswith("API_ERROR: The model call failed (auth, status 401): ")
    assert done.stderr.count("\n") == 1


def test_the_service_answers_and_stops_a_turn_whose_client_has_left(program: Program) -> None:
    long = answer("Tell me a story.", "Once upon a time. " * 50, latency=100)
    program.play.answers(answer("Who am I?", "You are Ada."), answer("I am Ada.", "Hello, Ada."), long)
    with program.running(SERVICE, PORT="0") as service:
        assert service.stderr is not None
        address = next(found[1] for line in service.stderr if (found := re.search(r"running on http://(\S+)", line)))
        assert said(address, "I am Ada.") == "Hello, Ada."
        with prompted(address, "Tell me a story.") as response:
            first = json.loads(response.readline()[6:])["text"]
        while not (answered := said(address, "Who am I?")):
            pass  # 409: the turn is being stopped
        assert answered == "You are Ada."
    sent: str = program.play.asked()[-1]["body"]["messages"][-1]["content"]
    assert sent.startswith("Tell me a story.[The user stopped the work here.]\n[Your answer broke off. ")
    assert f"of it:]\n{first}" in sent


@contextmanager
def prompted(address: str, text: str) -> Generator[http.client.HTTPResponse]:
    with closing(http.client.HTTPConnection(address)) as connection:
        connection.request("POST", "/chats/ada", json.dumps({"text": text}), {"Content-Type": "application/json"})
        yield connection.getresponse()


def said(address: str, text: str) -> str:
    """Return what the service answers; nothing, if it refuses the prompt for now."""
    with prompted(address, text) as response:
        assert response.status in (200, 409)
        events = [json.loads(line[6:]) for line in response if line.startswith(b"data: ")]
    return "".join(event.get("text", "") for event in events)


@pytest.mark.parametrize("program", [EXTRACT, ASSISTANT, CREW], ids=lambda path: path.stem)
def test_a_first_program_is_short(program: Path) -> None:
    assert len(program.read_text(encoding="utf-8").splitlines()) < 80
