"""The analyst: what its report shows, what its checks refuse, and how a whole run of it goes, on any table."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from examples.analyst.agent import CLAUDE, agent, analyst, birdstrikes, demo_agent
from examples.analyst.csv_file import DataError
from examples.analyst.offline import answer, offline_model
from examples.analyst.report import Breakdown, Finding, Report, Share, checks, preview
from examples.analyst.tables import Table
from journeyman import ErrorCode, Rejected, Success, run
from journeyman.events import Event, LayerCompleted, ToolCalled, ToolFinished
from journeyman.model import Request
from journeyman.types import Message, Text, ToolResult, ToolUse
from tests.play import existing, failed, succeeded
from tests.support.stand_ins import asked, assert_keeps_no_state
from tests.test_analyst_data import sales as sales
from tests.test_analyst_data import table as loaded

EXAMPLE = Path(__file__).parent.parent / "examples" / "analyst"


AVERAGE_SQL, ON_AVERAGE = "SELECT AVG(amount) FROM sales", "A sale brings 15 $ on average."
AVERAGE = Finding(title="Average amount", sql=AVERAGE_SQL, value=15, unit="$", sentence=ON_AVERAGE)
NORTH, SOUTH = Share(name="north", count=2, share=66.7), Share(name="south", count=1, share=33.3)
REPORT = Report(
    headline="A sale brings 15 $",
    table="sales",
    rows_examined=3,
    findings=[AVERAGE],
    breakdown=Breakdown(column="region", rows=[NORTH, SOUTH], other=0),
    caveats=["One amount is missing."],
)


def test_the_preview_shows_the_report_as_its_readers_will_see_it() -> None:
    largest = AVERAGE.model_copy(update={"title": "Largest", "value": 1234.5, "unit": "", "sentence": "So much."})
    assert preview(REPORT.model_copy(update={"findings": [AVERAGE, largest]})) == (
        "A sale brings 15 $\n"
        "Table sales, rows examined: 3\n"
        "\n"
        "  Average amount       15 $\n"
        "      A sale brings 15 $ on average.\n"
        "  Largest         1,234.5\n"
        "      So much.\n"
        "\n"
        "Rows by region\n"
        "  north           2   66.7% #############\n"
        "  south           1   33.3% #######\n"
        "  (other)         0    0.0%\n"
        "  total           3  100.0% ####################\n"
        "\n"
        "Caveat: One amount is missing."
    )


@pytest.mark.parametrize(
    ("rows", "other", "warning"),
    [([NORTH], 0, "WARNING: rows missing: 1"), ([NORTH, SOUTH], 4, "WARNING: rows too many: 4")],
)
def test_the_preview_warns_of_a_breakdown_that_does_not_add_up(rows: list[Share], other: int, warning: str) -> None:
    assert warning in preview(with_breakdown(rows=rows, other=other))


def with_finding(**changes: object) -> Report:
    return REPORT.model_copy(update={"findings": [AVERAGE.model_copy(update=changes)]})


def with_breakdown(**changes: object) -> Report:
    return REPORT.model_copy(update={"breakdown": REPORT.breakdown.model_copy(update=changes)})


def faults(table: Table, report: Report) -> list[str]:
    """Return the faults that the first refusing check finds, each with its place in front."""
    for check in checks(table):
        try:
            check(report)
        except Rejected as rejected:
            return [in_words(rejected)]
        except ExceptionGroup as several:
            return [in_words(rejected) for rejected in several.exceptions]
    return []


def in_words(rejected: Exception) -> str:
    assert isinstance(rejected, Rejected)
    return f"{'.'.join(map(str, rejected.path))}: {rejected.text}"


def test_a_report_whose_numbers_are_in_the_data_passes(sales: Table) -> None:
    assert faults(sales, REPORT) == []


@pytest.mark.parametrize(
    ("number", "value", "passes"),
    [
        ("200.0 / 3", 66.67, True),
        ("200.0 / 3", 66.6667, True),
        ("200.0 / 3", 66.7, False),
        ("200.0 / 3", 66.66, False),
        ("0.00042", 0.00042, True),
        ("0.00042", 0.0, False),
        ("12345678", 12345678.0, True),
        ("12345678", 12345679.0, False),
        ("-0.125", -0.13, True),
        ("0", 0.0, True),
    ],
)
def test_a_number_may_be_rounded_to_two_decimals_and_no_further(
    sales: Table, number: str, value: float, passes: bool
) -> None:
    report = with_finding(sql=f"SELECT {number} FROM sales LIMIT 1", value=value, sentence=f"It is {abs(value):.10f}.")
    found = [fault for fault in faults(sales, report) if fault.startswith("findings")]
    assert (found == []) is passes


@pytest.mark.parametrize(
    ("report", "found"),
    [
        (with_finding(value=10.0), ["findings.0.value: it says 10, the data says 15 (SELECT AVG(amount) FROM sales)."]),
        (
            with_finding(sentence="A sale brings 20 $ on average."),
            ["findings.0.sentence: it does not state the finding's number, 15."],
        ),
        (
            with_finding(sql="SELECT AVG(profit) FROM sales"),
            ['findings.0.sql: no such column: profit. The table is "sales", its columns are "region", "amount".'],
        ),
        (with_finding(sql="SELECT 15"), ['findings.0.sql: it does not read the table "sales".']),
        (
            with_finding(sql="DELETE FROM sales"),
            ['findings.0.sql: not authorized. Only SELECT on "sales" is allowed: no PRAGMA, ATTACH or change.'],
        ),
        (
            with_finding(sql="SELECT region, amount FROM sales LIMIT 1"),
            ["findings.0.sql: It gives 1 rows, beginning [['north', 10]], not one row with one number."],
        ),
        (
            REPORT.model_copy(update={"table": "sold", "rows_examined": 2}),
            ["table: it says 'sold', the table is 'sales'.", "rows_examined: it says 2, the table has 3 rows."],
        ),
        (with_breakdown(column="country"), ['breakdown.column: the columns are "region", "amount".']),
        (with_breakdown(rows=[NORTH]), ["breakdown.other: listed and other rows are 2 together, the table has 3."]),
        (
            with_breakdown(rows=[NORTH, Share(name="south", count=2, share=33.3)]),
            [
                "breakdown.rows.1.count: it says 2 for 'south', the data says 1.",
                "breakdown.other: listed and other rows are 4 together, the table has 3.",
            ],
        ),
        (
            with_breakdown(rows=[NORTH, Share(name="south", count=1, share=33)]),
            ["breakdown.rows.1.share: it says 33 % for 'south', it is 33.33 %."],
        ),
        (with_breakdown(rows=[SOUTH, SOUTH], other=1), ["breakdown.rows.1.name: 'south' is listed twice."]),
        (
            with_breakdown(rows=[NORTH], other=1).model_copy(update={"headline": "Sales: 16 $"}),
            ["headline: it states none of the findings' numbers (15)."],
        ),
    ],
)
def test_a_claim_that_the_data_does_not_bear_out_is_refused_with_what_it_says(
    sales: Table, report: Report, found: list[str]
) -> None:
    assert faults(sales, report) == found


def test_empty_cells_and_numbers_are_values_of_a_breakdown(sales: Table) -> None:
    shares = [Share(name=name, count=1, share=33.3) for name in (None, "10", "20")]
    assert faults(sales, with_breakdown(column="amount", rows=shares)) == []


async def watched(table: Table, question: str) -> tuple[Success[Report], list[Event]]:
    events: list[Event] = []
    return succeeded(await run(analyst(table, offline_model()), question, on_event=events.append)), events


def calls(events: Sequence[Event]) -> list[tuple[int, int, str]]:
    return [(event.attempt, event.iteration, event.tool_name) for event in events if isinstance(event, ToolCalled)]


async def test_the_demo_explores_drafts_reflects_is_rejected_repairs_and_succeeds() -> None:
    result, events = await watched(birdstrikes, demo_agent().question)
    assert calls(events) == [
        (1, 1, "describe_table"),
        *[(1, 2, "query")] * 3,
        (1, 3, "report"),
        (1, 4, "report"),
        (1, 5, "submit"),
        *[(2, 1, "query")] * 3,
        (2, 2, "report"),
        (2, 3, "submit"),
    ]
    layers = [event.outcome for event in events if isinstance(event, LayerCompleted)]
    refused = next(layer for layer in layers if not layer.passed)
    assert refused.name == "findings_match_the_data"
    assert refused.feedback == (
        "findings[0].value: it says 46, the data says 46.19 "
        """(SELECT 100.0 * SUM("Phase of flight" IS 'Approach') / COUNT(*) FROM "birdstrikes").\n"""
        "findings[2].value: it says 109.99, the data says 153.535175879397 "
        """(SELECT AVG("Speed IAS in knots") FROM "birdstrikes")."""
    )
    ended = [event for event in events if isinstance(event, ToolFinished)]
    previews = [event.tool_result for event in ended if event.tool_name == "report"]
    assert ["WARNING: rows missing: 29" in shown for shown in previews] == [True, False, False]
    assert [finding.value for finding in result.output.findings] == [46.19, 4054.53, 153.54]
    assert result.output.headline == (
        "Phase of flight: Approach leads with 46.19 % of all rows (10,000); average Cost Total $: 4,054.53 $; "
        "average Speed IAS in knots: 153.54 knots"
    ), "it answers all that was asked"
    assert faults(birdstrikes, result.output) == []


async def test_the_demo_counts_tokens_and_attempts() -> None:
    result, _ = await watched(birdstrikes, demo_agent().question)
    usage = existing(result.metadata.usage)
    assert (usage.requests, len(result.metadata.attempts)) == (8, 2)
    assert usage.input_tokens > usage.output_tokens > 500


@pytest.mark.parametrize(
    "content",
    [
        "a,b\nx,1\n",
        "a,b\nx,u\ny,u\nx,v\n",
        "p,q\n" + "".join(f"{number * 1.37},{number * number}\n" for number in range(200)),
        "a,b\n,\n,\n",
        "a,b,c\n,,\n,,\nx,,1\n,,3\n",
        '"a ""q"" {x}",,sel\'ect; DROP,in (kg)\nit\'s,2,{y},0.001\nit\'s,,{y},\nx{},3,NULL,4e-4\n',
        "id,select\n1,x\n2,y\n3,x\n",
        "Date,Amount ($),Zip\n1/2/2020,-5.5,00123\n12/31/2020,1e3,00124\n",
        "größe in cm,名\n1,日本\n,日本\n2.5,中国\n",
        f"text,n\n{'x' * 30_000},1\n{'y' * 30_000},2\n",
        "k,v\na,9e99\na,9e99\nb,\n",
        "k,v\na,1e-12\na,-3e-9\nb,\n",
        "k,v\na,999999999999999999\nb,999999999999999999\nc,1\n",
    ],
    ids=[
        *("one row", "no number", "no category", "nothing but empty", "mostly empty", "odd names", "only an id"),
        *("dates and codes", "not English", "long texts", "huge numbers", "tiny numbers", "sums beyond 64 bits"),
    ],
)
async def test_the_stand_in_hands_in_a_true_report_on_any_table(tmp_path: Path, content: str) -> None:
    table = loaded(tmp_path, content)
    result, _ = await watched(table, "What stands out?")
    assert faults(table, result.output) == []
    assert result.output.rows_examined == table.n_rows


async def test_a_draft_with_guesses_is_repaired_from_the_feedback(sales: Table) -> None:
    result, events = await watched(sales, "What is the average amount in each region?")
    first, *_, last = [event.tool_input for event in events if isinstance(event, ToolCalled) and event.kind == "output"]
    assert (Report.model_validate(first).findings[1].value, Report.model_validate(last).findings[1].value) == (10, 15)
    assert result.output.caveats[0] == "amount is empty in 1 of 3 rows; its average leaves them out."


async def test_the_stand_in_keeps_no_state_the_conversation_alone_decides() -> None:
    result, _ = await watched(birdstrikes, demo_agent().question)
    assert_keeps_no_state(answer, result.history)


def exchange(*calls: tuple[str, str, ToolResult]) -> list[Message]:
    """Return a response that calls tools, given by name and arguments, and the message with their results."""
    uses = [ToolUse(f"{name}_{hash(arguments)}", name, arguments) for name, arguments, _ in calls]
    results = [replace(result, tool_use_id=use.id) for use, (_, _, result) in zip(uses, calls, strict=True)]
    return [Message("assistant", tuple(uses)), Message("user", tuple(results))]


async def up_to_first_draft(sales: Table) -> list[Message]:
    result, _ = await watched(sales, "amount by region")
    return list(result.history[:5])


def test_the_stand_in_gives_up_in_words_when_the_table_cannot_be_described() -> None:
    refusal = ToolResult("Error: disk on fire", is_error=True)
    once = [Message("user", (Text("What stands out?"),)), *exchange(("describe_table", "{}", refusal))]
    assert [use.name for use in Message("assistant", answer(asked(once)).content).tool_uses] == ["describe_table"]
    twice = answer(asked([*once, *exchange(("describe_table", '{"again":1}', refusal))]))
    words = "I cannot read the table, so I have nothing to report. It said: Error: disk on fire"
    assert (twice.stop_reason, twice.content) == ("end_turn", (Text(words),))


@pytest.mark.parametrize(
    ("failing", "outcome"),
    [(0, "I cannot divide the rows by region, so I have nothing to report."), (1, ["Share of north"])],
)
async def test_the_stand_in_leaves_out_what_a_failed_query_would_have_told(
    sales: Table, failing: int, outcome: str | list[str]
) -> None:
    messages = await up_to_first_draft(sales)
    results = [block for block in messages[4].content if isinstance(block, ToolResult)]
    results[failing] = replace(results[failing], content="Error: too slow", is_error=True)
    said = answer(asked([*messages[:4], Message("user", tuple(results))])).content
    match said:
        case (Text(words),):
            assert words == outcome
        case (_, ToolUse() as use):
            assert [finding.title for finding in Report.model_validate(use.input).findings] == outcome
        case _:
            pytest.fail(f"unexpected: {said}")


async def test_a_stand_in_with_nothing_to_report_ends_the_run_as_a_model_would() -> None:
    def mute(request: Request) -> str:
        return "I cannot read the table, so I have nothing to report."

    from_mute = replace(offline_model(), function=mute)
    result = failed(await run(analyst(birdstrikes, from_mute), "What stands out?"))
    assert result.error.code == ErrorCode.INVALID_RESPONSE


def test_without_a_key_the_first_line_says_that_a_stand_in_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    demo = demo_agent()
    assert demo.notice == (
        "Offline stand-in at work: a small program, not a language model. All the rest is real. "
        "To use Claude, set ANTHROPIC_API_KEY."
    )
    assert not isinstance(demo.agent.model, str)
    assert (demo.agent.model.provider, demo.agent.model.name) == ("offline", "stand-in")


def test_with_a_key_the_demo_is_claudes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    demo = demo_agent()
    assert (demo.agent.model, demo.notice) == (CLAUDE, f"At work: {CLAUDE}.")


def test_the_demo_takes_a_file_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "Sales 2024.csv"
    path.write_text("region,amount\nnorth,10\n", encoding="utf-8")
    assert demo_agent(path).question == "What stands out in the table sales_2024?"
    with pytest.raises(DataError, match="does not exist"):
        demo_agent(tmp_path / "gone.csv")


def test_the_agent_is_there_to_be_run_by_name() -> None:
    assert (agent.name, list(agent.plan.tools)) == ("analyst", ["describe_table", "query"])


def test_the_example_works_wherever_it_is_installed(tmp_path: Path) -> None:
    package = tmp_path / "elsewhere"
    shutil.copytree(EXAMPLE, package / "demo", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    program = (
        "import sys; sys.path.insert(0, '.'); from elsewhere.demo.agent import birdstrikes; print(birdstrikes.n_rows)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("10000\n", "")
