"""The tree in plain lines: what each event adds, and that nothing in it can harm a terminal."""

import re
from pathlib import Path

from journeyman.cli.show.lines import clean, clock, duration, one_line, usage_sentence
from journeyman.types import Usage
from tests.cli.program import AGENTS, Warm, timeless

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_on_the_command_line_shows_what_happens(tmp_path: Path, warm: Warm) -> None:
    page = PAGE.read_text(encoding="utf-8")
    program = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0]
    (tmp_path / "agents.py").write_text(program, encoding="utf-8")
    session = re.findall(
        r"```console\n\$ journeyman run agents.py:planner \"A trip to Oslo\"\n(.*?)```", page, re.DOTALL
    )
    done = warm("run", "agents.py:planner", "A trip to Oslo", cwd=tmp_path)
    assert timeless(done.stderr + done.stdout) == timeless(session[0])


def test_calls_show_their_input_their_fault_and_the_cache(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:busy", "Where does it rain?")
    assert timeless(done.stderr).splitlines() == [
        "the file prints",
        "busy · scripted:scripted",
        "Where does it rain?",
        "",
        "attempt 1 of 3",
        "  1 I look at two cities.                                           10 in, 5 out",
        "    ✓ look Oslo",
        "    ✓ look Rome",
        "  2                                                                 10 in, 5 out",
        "    ✓ look Oslo                                                           cached",
        "    ✗ fail",
        "      │ Error: no such thing",
        '    ✗ fly to="Mars", fast=true',
        "      │ Error: Unknown tool fly",
        "  3 Rain.                                                           10 in, 5 out",
        "",
        "✓ done · 1 attempt, 3 iterations, 5 calls ·",
        "  30 tokens in, 15 out · cost unknown",
    ]


def test_a_list_of_work_is_shown_below_its_call(warm: Warm) -> None:
    shown = timeless(warm("run", f"{AGENTS}:lister", "Go.").stderr).splitlines()
    place = shown.index("    ✓ todo Write it.")
    assert shown[place + 1 : place + 3] == ["      │ [x] Read it.", "      │ [>] Write it."]


def test_a_draft_shows_its_preview_and_a_second_one_what_is_new(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:planner", '{"city": "Oslo", "days": 3}')
    shown = timeless(done.stderr)
    assert "    ✓ output\n      │ To Oslo!\n      │ Days: 1\n" in shown
    assert "    ✓ output what the preview shows again:\n      │ Days: 2\n" in shown
    assert "    ▸ submit\n      ✓ schema\n      ✓ long_enough\n" in shown
    assert "30 tokens in, 15 out · $0.0003" in shown


def test_a_repeated_request_shows_why_and_when(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:unlucky", "Hello")
    assert "    ↻ overloaded: Try later. (request 2 of 3 in 200 ms)\n" in done.stderr
    assert ">= 10 in, 5 out" in done.stderr
    assert "at least " in done.stderr


def test_lines_fit_and_plain_encodings_get_plain_symbols(warm: Warm) -> None:
    done = warm("demo", env={"PYTHONIOENCODING": "ascii"})
    assert done.stderr.isascii()
    assert max(len(line) for line in done.stderr.splitlines()) <= 80
    assert "\n    > submit\n      + schema\n      x findings_match_the_data\n" in done.stderr


def test_an_unknown_cost_is_never_zero() -> None:
    usage = Usage(requests=1, input_tokens=10, cache_read_tokens=1_000, output_tokens=5)
    assert usage_sentence(usage) == "1,010 tokens in (1,000 from the cache), 5 out · cost unknown"
    assert usage_sentence(Usage()) == "no tokens used"


def test_text_from_outside_cannot_move_the_cursor_or_forge_lines() -> None:
    assert clean("\x1b[2J\x1b]0;title\x07a\x1b[31mb\x1b[0m\rc\x08\u202ed\r\ne\x9b2Kf\x1bPq\x1b\\g") == "abcd\ne2Kfg"
    assert clean("a\x1b]0;x\nb\x1bPq\nc\x07d") == "a\nb\ncd"  # what never ends hides no line below it
    assert one_line("a\n\n  b\tc", 3) == "a b…"


def test_durations_read_well() -> None:
    durations = [duration(s) for s in (0.0004, 0.0123, 0.9994, 0.9996, 59.94, 59.96, 185)]
    assert durations == ["0 ms", "12 ms", "999 ms", "1.0 s", "59.9 s", "1 min 00 s", "3 min 05 s"]
    assert [clock(s) for s in (0.04, 9.94, 9.96, 61)] == ["0.0 s", "9.9 s", "10 s", "1 min 01 s"]
