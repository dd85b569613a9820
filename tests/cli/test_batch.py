"""`journeyman batch`: a result for every line, kept over kills; what cannot be used is one clear line."""

import json
from pathlib import Path
from signal import SIGINT, SIGKILL, Signals
from typing import Any

import pytest

from journeyman.record import Recordings
from tests.cli.program import Done, Warm, assert_one_error_line, running
from tests.cli.terminal import terminal

AGENTS = Path(__file__).parent / "batch_agents.py"


class Office:
    """A folder with inputs and results, and the command in it."""

    def __init__(self, folder: Path, warm: Warm) -> None:
        self.folder, self._warm = folder, warm

    def __call__(self, agent: str, inputs: str, *words: str, stdin: bytes = b"") -> Done:
        return self._warm(
            "batch", f"{AGENTS}:{agent}", inputs, "--out", "out.jsonl", *words, cwd=self.folder, stdin=stdin
        )

    def write(self, text: str | bytes, name: str = "in.jsonl") -> str:
        (self.folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return name

    def lines(self, *texts: str) -> str:
        return self.write("".join([json.dumps(text) + "\n" for text in texts]))

    def results(self) -> dict[int, dict[str, Any]]:
        """Return the results by line; each line may have one only."""
        records = [json.loads(line) for line in (self.folder / "out.jsonl").read_text("utf-8").splitlines()]
        assert len({record["line"] for record in records}) == len(records), records
        return {record["line"]: record for record in records}

    def outputs(self) -> dict[int, object]:
        return {line: record["output"] for line, record in sorted(self.results().items())}

    def log(self) -> list[str]:
        log = self.folder / "done.log"
        return sorted(log.read_text("utf-8").splitlines()) if log.exists() else []

    def stopped(self, agent: str, inputs: str, *words: str, by: Signals) -> Done:
        """Begin a batch, send it a signal when its slow line is stuck and all others have their results."""
        (self.folder / "stuck").touch()
        command = ("batch", f"{AGENTS}:{agent}", inputs, "--out", "out.jsonl", *words)
        with running(*command, cwd=self.folder, start=self._warm.start) as program:
            program.wait_for("stuck")
            program.wait_for("2 of 3 done")
            program.send(by)
            done = program.done()
        (self.folder / "stuck").unlink()
        return done


@pytest.fixture
def office(tmp_path: Path, warm: Warm) -> Office:
    return Office(tmp_path, warm)


def test_every_line_has_its_result_and_the_exit_code_says_that_none_failed(office: Office) -> None:
    done = office("echo", office.lines("a", "b", "c"))
    assert (done.code, done.stdout) == (0, ""), done.stderr
    assert office.outputs() == {1: "a", 2: "b", 3: "c"}
    assert "3 results in out.jsonl: 3 succeeded, 0 failed; 30 in, 15 out" in done.stderr


def test_a_failure_is_kept_with_its_reason_and_the_exit_code_tells_also_the_second_time(office: Office) -> None:
    inputs = office.lines("a", "bad")
    done = office("echo", inputs)
    assert done.code == 1
    assert "line 2 failed: API_ERROR: The model call failed (bad_request)" in done.stderr
    assert office.results()[2]["code"] == "API_ERROR"
    assert "does not want it" in office.results()[2]["error"]["message"]
    again = office("echo", inputs)
    assert (again.code, office.log()) == (1, ["asked a", "asked bad"])
    assert "2 lines had a result before." in again.stderr


def test_the_words_of_an_answer_that_was_cut_are_kept(office: Office) -> None:
    assert office("echo", office.lines("a", "long")).code == 1
    assert [office.results()[line]["answer"] for line in (1, 2)] == [None, "The first half"]


def test_lines_that_cannot_be_read_are_told_by_number_and_the_others_go_on(office: Office) -> None:
    done = office("echo", office.write(b'"a"\n{torn\n\n"\xff"\n{"x": 1}\n"last"'))
    assert done.code == 1
    assert "line 2 failed: INVALID_INPUT: The input does not fit: the line cannot be read: it is no JSON" in done.stderr
    assert (
        "line 4 failed: INVALID_INPUT: The input does not fit: the line cannot be read: it is not UTF-8" in done.stderr
    )
    assert office.outputs() == {1: "a", 2: None, 4: None, 5: '{"x": 1}', 6: "last"}


def test_csv_is_read_by_its_header(office: Office) -> None:
    text = "\ufeffcity,days\r\nOslo,3\r\nBergen,many\r\nBodø\r\n"
    done = office("planner", office.write(text, "in.csv"))
    assert done.code == 1
    assert {line: record["code"] for line, record in sorted(office.results().items())} == {
        2: "SUCCESS",
        3: "INVALID_INPUT",
        4: "INVALID_INPUT",
    }
    assert office.results()[2]["output"] == {"city": "Oslo", "days": 3}
    assert "it has 1 cells, and the header has 2" in done.stderr


def test_a_text_agent_gets_the_only_cell_of_a_row(office: Office) -> None:
    assert office("echo", office.write('text\n"one, two"\n', "in.csv")).code == 0
    assert office.outputs() == {2: "one, two"}


def test_stdin_is_read_as_it_comes_and_goes_on_where_it_was(office: Office) -> None:
    assert office("echo", "-", stdin=b'"a"\n').code == 0
    assert office("echo", "-", stdin=b'"a"\n"b"\n').code == 0
    assert (office.outputs(), office.log()) == ({1: "a", 2: "b"}, ["asked a", "asked b"])


def test_a_limited_rate_is_told_waited_for_and_no_line_fails_of_it(office: Office) -> None:
    done = office("patient", office.lines("a", "b", "c"), "--max-concurrency", "1")
    assert done.code == 0, done.stderr
    assert "scripted limits the rate: no run asks it for 0.05 s." in done.stderr
    assert office.outputs() == {1: "a", 2: "b", 3: "c"}
    assert office.log() == ["asked a", "asked a", "asked b", "asked c"]


def test_a_full_disk_loses_no_result_and_the_same_command_goes_on(office: Office) -> None:
    inputs = office.lines(*"abcdef")
    (office.folder / "small-disk").touch()
    full = office("echo", inputs, "--max-concurrency", "1")
    written = office.results()  # each of them whole
    assert 0 < len(written) < 6
    assert_one_error_line(
        full, 1, [f"out.jsonl cannot be written: File too large. It has {len(written)} results. Make room there"]
    )
    (office.folder / "small-disk").unlink()
    done = office("echo", inputs)
    assert done.code == 0, done.stderr
    assert "torn" not in done.stderr
    assert office.outputs() == {line: text for line, text in enumerate("abcdef", 1)}
    assert [office.log().count(f"asked {text}") for text in "abcdef"[: len(written)]] == [1] * len(written)


def test_in_a_terminal_a_bar_shows_how_far_it_is_and_goes_when_it_ends(office: Office, warm: Warm) -> None:
    inputs = office.lines("a", "bad", "slow")
    (office.folder / "stuck").touch()
    words = ("batch", f"{AGENTS}:echo", inputs, "--out", "out.jsonl")
    with terminal(*words, folder=office.folder, start=warm.start) as tty:
        tty.wait_for(lambda shown: "2/3" in shown)
        assert "1 failed" in tty.text
        assert "line 2 failed: API_ERROR: The model call failed" in tty.text
        tty.press(b"\x03")
        assert tty.end() == 130
    assert "2/3" not in tty.text
    assert "2 results in out.jsonl: 1 succeeded, 1 failed" in tty.text
    assert tty.has_cursor


def test_a_batch_that_was_killed_goes_on_and_does_again_only_what_was_under_way(office: Office) -> None:
    inputs = office.lines("a", "slow", "b")
    assert office.stopped("echo", inputs, by=SIGKILL).code == -SIGKILL
    assert office.outputs() == {1: "a", 3: "b"}
    done = office("echo", inputs)
    assert done.code == 0, done.stderr
    assert office.outputs() == {1: "a", 2: "slow", 3: "b"}
    assert office.log() == ["asked a", "asked b", "asked slow", "asked slow"]


def test_a_durable_line_that_was_killed_goes_on_where_it_was(office: Office) -> None:
    inputs = office.lines("a", "slow", "b")
    assert office.stopped("clerk", inputs, "--durable", "runs.db", by=SIGKILL).code == -SIGKILL
    done = office("clerk", inputs, "--durable", "runs.db")
    assert done.code == 0, done.stderr
    assert (len(office.results()), office.log()) == (3, ["paid a", "paid b", "paid slow"])


@pytest.mark.parametrize("words", [(), ("--durable", "runs.db")])
def test_ctrl_c_leaves_the_lines_under_way_for_the_next_time(office: Office, words: tuple[str, ...]) -> None:
    inputs = office.lines("a", "slow", "b")
    done = office.stopped("clerk", inputs, *words, by=SIGINT)
    assert done.code == 130, done.stderr
    assert sorted(office.results()) == [1, 3]
    assert "1 line without a result" in done.stderr
    assert office("clerk", inputs, *words).code == 0
    assert office.log().count("paid slow") == (1 if words else 2)


def test_a_torn_last_line_is_cut_and_done_again(office: Office) -> None:
    inputs = office.lines("a", "b")
    assert office("echo", inputs).code == 0
    out = office.folder / "out.jsonl"
    out.write_bytes(out.read_bytes()[:-20])
    done = office("echo", inputs)
    assert done.code == 0
    assert "The last line of out.jsonl was torn, and is cut." in done.stderr
    assert (office.outputs(), len(office.log())) == ({1: "a", 2: "b"}, 3)


def test_a_spent_budget_names_the_first_line_that_was_not_taken_and_the_next_command_goes_on(office: Office) -> None:
    inputs = office.lines(*[str(number) for number in range(40)])
    done = office("echo", inputs, "--budget", "500", "--max-concurrency", "1")
    assert done.code == 1
    assert "The budget is spent. The first line that was not taken is line 18." in done.stderr
    assert office("echo", inputs).code == 0
    assert len(office.results()) == 40


def test_two_batches_on_one_output_at_once_are_refused(office: Office) -> None:
    inputs = office.lines("slow")
    (office.folder / "stuck").touch()
    command = ("batch", f"{AGENTS}:echo", inputs, "--out", "out.jsonl")
    with running(*command, cwd=office.folder) as program:
        program.wait_for("stuck")
        second = office("echo", inputs)
        assert_one_error_line(second, 1, ["Another batch writes to out.jsonl. Wait for its end"])
        program.send(SIGKILL)
        program.done()


def test_the_output_of_another_batch_is_refused_and_stays_as_it_is(office: Office) -> None:
    assert office("echo", office.lines("a", "b")).code == 0
    before = (office.folder / "out.jsonl").read_bytes()
    other = office("echo", office.lines("a", "c"))
    assert_one_error_line(other, 2, ["out.jsonl is the output of another batch: its result of line 2"])
    shorter = office("echo", office.lines("a"))
    assert_one_error_line(shorter, 2, ["it has results of lines that the inputs do not have"])
    agent = office("clerk", office.lines("a", "b"))
    assert_one_error_line(agent, 2, ["has results of the agent 'echo', not of 'clerk'"])
    assert (office.folder / "out.jsonl").read_bytes() == before


@pytest.mark.parametrize("text", ["my notes", "my notes\n", '{"line": 1}\n', "[1]\n", "\x00" * 10])
def test_a_file_of_something_else_is_refused_and_stays_as_it_is(office: Office, text: str) -> None:
    office.write(text, "out.jsonl")
    done = office("echo", office.lines("a"))
    assert_one_error_line(done, 2, ["out.jsonl is not the output of a batch: line 1 is no result of one."])
    assert (office.folder / "out.jsonl").read_text() == text


@pytest.mark.parametrize(
    ("inputs", "words", "said"),
    [
        ("none.jsonl", (), "There is no file none.jsonl."),
        ("in.txt", (), "The name of in.txt does not tell how it is written. Say it: --format jsonl, json, csv or tsv."),
        ("out.jsonl", (), "out.jsonl is both the inputs and the output."),
        ("in.jsonl", ("--max-concurrency", "0"), "for --max-concurrency. Give a number above 0."),
        ("in.jsonl", ("--cost", "-1"), "for --cost. Give a number above 0."),
        ("empty.csv", (), "The inputs cannot be used: it has no header"),
        ("in.jsonl", ("--durable", "."), "could not be opened"),
    ],
)
def test_a_command_that_cannot_be_done_is_one_line(
    office: Office, inputs: str, words: tuple[str, ...], said: str
) -> None:
    office.lines("a")
    for name in ("in.txt", "empty.csv", "out.jsonl"):
        office.write("", name)
    assert_one_error_line(office("echo", inputs, *words), 2, [said])


def test_a_batch_records_only_with_the_option_and_with_one_writer(office: Office) -> None:
    office.lines("a", "b", "c")
    office("echo", "in.jsonl")
    assert not (office.folder / ".journeyman").exists()
    (office.folder / "out.jsonl").unlink()
    done = office("echo", "in.jsonl", "--record")
    assert (done.code, done.stderr.count("Recorded in")) == (0, 1)
    with Recordings(office.folder / ".journeyman" / "runs.db") as recordings:
        assert {(run.input, run.status) for run in recordings.runs()} == {(text, "done") for text in "abc"}


def rows(*given: object) -> str:
    return "".join([json.dumps(each) + "\n" for each in given])


def test_with_a_key_lines_may_come_go_and_move_and_only_new_ones_are_done(office: Office) -> None:
    a, b, c = ({"id": name, "text": name * 2} for name in "abc")
    assert office("echo", office.write(rows(a, b)), "--key", "id").code == 0
    asked = office.log()
    again = office("echo", office.write(rows(c, b)), "--key", "id")
    assert again.code == 0
    assert len(office.log()) == len(asked) + 1
    kept = [json.loads(line) for line in (office.folder / "out.jsonl").read_text("utf-8").splitlines()]
    assert sorted([record["key"] for record in kept]) == ["a", "b", "c"]

    changed = office("echo", office.write(rows({"id": "b", "text": "other"})), "--key", "id")
    assert_one_error_line(changed, 2, ["its result of the key 'b' is of another input"])
    without = office("echo", office.write(rows(a)))
    assert_one_error_line(without, 2, ["was begun with --key"])


def test_a_line_without_a_key_or_with_that_of_another_is_a_failure_of_its_own(office: Office) -> None:
    done = office("echo", office.write(rows({"id": 7}, {"id": "7"}, {"id": None}, ["x"])), "--key", "id")
    assert done.code == 1
    errors = {line: record["error"] for line, record in office.results().items()}
    assert errors[1] is None
    assert "it has the key '7', as line 1 has" in errors[2]["message"]
    assert "its field 'id' is no text and no number" in errors[3]["message"]
    assert "it is no object" in errors[4]["message"]
    assert office("echo", "in.jsonl", "--key", "id").code == 1, "and nothing is done again"
    assert len(office.results()) == 4


@pytest.mark.parametrize("written", ["jsonl", "csv"])
def test_files_of_a_line_are_sent_after_its_text(office: Office, written: str) -> None:
    (office.folder / "scans").mkdir()
    (office.folder / "scans" / "a.txt").write_text("The page.")
    if written == "csv":
        text = "id,question,scan\n1,Read it.,a.txt\n2,No file.,\n3,Where?,gone.txt\n"
    else:
        one, two = {"id": 1, "question": "Read it.", "scan": ["a.txt"]}, {"id": 2, "question": "No file."}
        text = rows(one, two, {"id": 3, "question": "Where?", "scan": "gone.txt"})
    done = office("blocks", office.write(text, f"scans/in.{written}"), "--key", "id", "--files", "scan")
    assert done.code == 1
    results = office.results()
    first, second, third = [results[line] for line in sorted(results)]
    assert first["output"] == "Read it. + The page."
    assert second["output"] == "No file."
    assert "gone.txt cannot be read" in third["error"]["message"]


def test_a_quote_that_is_never_closed_fails_by_its_line_before_the_others_are_paid_for(office: Office) -> None:
    done = office("echo", office.write('question\nFirst\n"Second\nThird\n', "in.csv"))
    assert done.code == 1
    assert "1 line cannot be read, and no request is sent for them; line 3: its quote is never closed." in done.stderr
    assert office.outputs() == {2: "First", 3: None}


def test_text_behind_a_quote_fails_by_its_line_and_the_others_go_on(office: Office) -> None:
    assert office("echo", office.write('question\n"First" or\nSecond\n', "in.csv")).code == 1
    assert office.outputs() == {2: None, 3: "Second"}


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize(
    ("agent", "name", "content", "words", "said"),
    [
        ("echo", "in.csv", "name,city,city\na,b,c\n", (), "it has two columns named 'city'"),
        ("echo", "in.csv", "question;id\nHello;1\n", (), "seem to be separated by semicolons. Say it: --separator ';'"),
        ("echo", "in.csv", "question\tid\nHello\t1\n", (), "seem to be separated by tabs. Say it: --separator $'\\t'"),
        ("echo", "in.csv", "question|id\nHello|1\n", (), "seem to be separated by bars"),
        ("echo", "in.tsv", "question,id\nHello,1\n", (), "seem to be separated by commas"),
        ("echo", "in.csv", "question,id\nHello,1\n".encode("utf-16"), (), "say how it is written: --encoding"),
        ("echo", "in.csv", b"stra\xdfe,id\nHello,1\n", (), "The header of the inputs is not in UTF-8."),
        ("echo", "in.csv", "question,id\n", ("--key", "di"), "--key names 'di', and the inputs have no such column."),
        (
            "echo",
            "in.csv",
            "question\n",
            ("--input-field", "a"),
            "--input-field names 'a', and the inputs have no such",
        ),
        (
            "planner",
            "in.csv",
            "city,day\nOslo,3\n",
            (),
            "The agent takes no 'day', but 'days', which the inputs have no",
        ),
        ("planner", "in.csv", "town,days\nOslo,3\n", (), "The agent needs 'city', and the inputs have no such column."),
        ("echo", "in.json", '{"a": 1}\n{"a": 2}\n', (), "if each line is a JSON value of its own, add --format jsonl."),
        ("echo", "in.json", '{"a": 1}', (), "The inputs are no JSON array."),
        ("echo", "in.jsonl", '"a"', ("--separator", ";"), "--separator is for tables."),
        ("echo", "in.csv", "a\n", ("--separator", ";;"), "--separator ';;' is not one character."),
        ("echo", "in.csv", "a\n", ("--encoding", "hex"), "--encoding 'hex' is no encoding of text."),
        ("echo", "in.csv", "a\u00e9\n", ("--encoding", "ascii"), "The inputs are not in ascii: "),
    ],
)
def test_a_file_that_is_read_wrongly_is_refused_before_the_first_request(
    office: Office, agent: str, name: str, content: str | bytes, words: tuple[str, ...], said: str
) -> None:
    done = office(agent, office.write(content, name), *words)
    assert_one_error_line(done, 2, [said])
    assert office.log() == []


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("in.tsv", "id\ttext\na\tOne, two\nb\tDrei\n", ()),
        ("in.csv", "id;text\r\na;One, two\r\n\r\nb;Drei\r\n".encode("utf-16"), ("--encoding", "utf-16")),
        ("in.csv", "id|text\na|One, two\nb|Drei\n", ("--separator", "|")),
        ("in.json", '\ufeff[{"id": "a", "text": "One, two"},\n {"id": "b", "text": "Drei"}]', ()),
        ("in.jsonl", '{"id": "a", "text": "One, two"}\n{"id": "b", "text": "Drei"}\n', ()),
    ],
)
def test_each_form_of_a_table_gives_the_field_that_is_asked_for_under_its_own_key(
    office: Office, name: str, content: str | bytes, words: tuple[str, ...]
) -> None:
    words = (*words, "--separator", ";") if "--encoding" in words else words
    done = office("echo", office.write(content, name), "--key", "id", "--input-field", "text", *words)
    assert done.code == 0, done.stderr
    assert {each["key"]: each["output"] for each in office.results().values()} == {"a": "One, two", "b": "Drei"}


def test_a_line_of_openais_batches_keeps_its_custom_id(office: Office) -> None:
    lines = rows(
        {"custom_id": "r-1", "method": "POST", "url": "/v1/responses", "body": {"input": "Hello."}},
        {"custom_id": 7, "text": "another form"},
    )
    assert office("echo", office.write(lines), "--input-field", "body").code == 1
    results = office.results()
    assert (results[1]["custom_id"], results[1]["output"]) == ("r-1", '{"input": "Hello."}')
    assert "custom_id" not in results[2]
    assert "it has no field 'body', which --input-field names" in results[2]["error"]["message"]


@pytest.mark.parametrize(("name", "form"), [("in.jsonl", "%s\n%s\n%s\n%s\n"), ("in.json", "[%s,%s,%s,%s]")])
def test_a_key_that_is_misspelt_is_told_before_the_first_request(office: Office, name: str, form: str) -> None:
    given = ('{"city": "Oslo", "dayz": 3}', '{"CITY": "Rome"}', '{"city": "Bonn", "note": 1}', '{"city": "Kyiv"}')
    done = office("traveller", office.write(form % given, name))
    assert done.code == 1
    told = " ".join(done.stderr.split())
    assert "2 lines cannot be read, and no request is sent for them; line 1: it has 'dayz', and" in told
    assert "The agent takes no 'note' (1 line): left out." in told
    codes = {line: record["code"] for line, record in office.results().items()}
    assert codes == {1: "INVALID_INPUT", 2: "INVALID_INPUT", 3: "SUCCESS", 4: "SUCCESS"}


def test_another_name_of_a_key_is_not_misspelt_and_an_agent_may_take_any_key(office: Office) -> None:
    inputs = ('{"town": "Oslo", "day": 3}\n', "town,day\nOslo,3\n", '{"citi": "Oslo"}\n')
    for agent, name, text in zip(
        ("renamed", "renamed", "open_to_all"), ("in.jsonl", "in.csv", "any.jsonl"), inputs, strict=True
    ):
        done = office(agent, office.write(text, name))
        assert (done.code, "takes no" in done.stderr) == (0, False), done.stderr
        (office.folder / "out.jsonl").unlink()
