"""`journeyman demo`: an analyst at work on real data, offline where there is no key."""

import json
from pathlib import Path

from tests.cli.program import Warm


def test_the_demo_says_first_that_a_stand_in_is_at_work_and_hands_in_a_checked_report(
    tmp_path: Path, warm: Warm
) -> None:
    done = warm("demo", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert done.code == 0
    assert done.stderr.startswith("Offline stand-in at work: a small program, not a language model.")
    assert report["rows_examined"] == 10_000
    assert {finding["title"]: finding["value"] for finding in report["findings"]} == {
        "Share of Approach": 46.19,
        "Average Speed IAS in knots": 153.54,
        "Average Cost Total $": 4054.53,
    }, "the report answers what the question asks, and nothing else"
    for step in ("attempt 2 of 3", "✗ findings_match_the_data", "✓ headline_states_a_finding", "✓ done"):
        assert step in done.stderr


def test_the_demo_takes_a_table_and_a_question(tmp_path: Path, warm: Warm) -> None:
    table = tmp_path / "cups.csv"
    table.write_text("colour,price\nred,3\nred,5\nblue,4\n")
    done = warm("demo", "Which colour is dearest?", "--data", table, "--json")
    document = json.loads(done.stdout)
    assert document["output"]["table"] == "cups"
    assert document["history"][0]["content"][0]["text"] == "Which colour is dearest?"


def test_the_first_line_names_the_model_that_was_asked_for(warm: Warm) -> None:
    done = warm("demo", "--model", "anthropic:claude-sonnet-5-5")
    assert done.code == 1
    assert done.stderr.startswith("At work: anthropic:claude-sonnet-5-5.\n")
    assert "MODEL_UNAVAILABLE" in done.error


def test_a_quiet_demo_prints_the_report_alone(warm: Warm) -> None:
    done = warm("demo", "--quiet")
    assert (done.code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["table"] == "birdstrikes"
