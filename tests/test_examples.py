"""The numbered programs run offline, quickly, without a warning, and print what is worth reading."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import Warm, environment

EXAMPLES = Path(__file__).parent.parent / "examples"

PRINTS = {
    "01_hello.py": """\
Good morning! What shall we build today?
5 output tokens, 0 seconds
""",
    "02_tools.py": """\
convert {'value': 100, 'source': 'yard'}
    91.44
convert {'value': 100, 'source': 'ell'}
    Error: Invalid arguments for tool 'convert': - source: should be 'metre', 'foot' or 'yard', got "ell"
divide {'dividend': 91.44, 'divisor': 0}
    Error: float division by zero
divide {'dividend': 91.44, 'divisor': 4}
    22.86
multiply {'a': 2, 'b': 2}
    Error: Unknown tool multiply
100 yards are 91.44 metres; a quarter of that is 22.86 metres.
convert: 2 calls, errors: {'invalid_input': 1}
divide: 2 calls, errors: {'raised': 1}
(unknown): 1 calls, errors: {'unknown': 1}
""",
    "03_typed_output.py": """\
bug, urgency 5: The export crashes.
attempt 1: - urgency: should be less than or equal to 5, got 9
attempt 2: passed
['export', 'crash']
""",
    "04_reflection.py": """\
-- plan
09:00 museum
11:00 market
11:45 harbour
12:45 end, 45 minutes too late
-- plan
09:00 museum
10:30 market
11:00 harbour
12:00 end
-- hand_in
Accepted.
stops=[Stop(place='museum', minutes=90), Stop(place='market', minutes=30), Stop(place='harbour', minutes=60)]
""",
    "05_validators.py": """\
attempt 1, schema: passed
attempt 1, everyone_is_there: mon: Ada is away.
attempt 2, schema: passed
attempt 2, everyone_is_there: passed
attempt 2, fair: Somebody works twice (attempt 2).
attempt 3, schema: passed
attempt 3, everyone_is_there: passed
attempt 3, fair: passed
mon='Bob' tue='Ada' wed='Cleo'
""",
    "06_streaming.py": """\
Green leaves on the bough
the loop goes round once again
and returns with fruit 
-- end_turn, 20 tokens
-- the run succeeded after 1 iteration
3 lines
""",
    "07_limits_and_abort.py": """\
4 iterations: MAX_ITERATIONS, after ToolResult(content='page 1: nothing', is_error=False, tool_use_id='call_1_0')
    Raise Limits(iterations=…), or help the model get there in fewer steps.
1 second: BUDGET_EXCEEDED, after ToolResult(content='page 1: nothing', is_error=False, tool_use_id='call_1_0')
    Raise the limit, or give the agent less to do.
stopped: EXECUTION_CANCELLED, after ToolResult(content='page 1: nothing', is_error=False, tool_use_id='call_1_0')
    Nothing to fix: the run was stopped. Its history can be continued.
timeout: a cancellation from outside is an exception, as everywhere in asyncio
""",
    "08_parallel_and_cached.py": """\
> Bern
> Oslo
> Paris
  asking the weather service
  asking the weather service
  asking the weather service
< Oslo: 14 degrees
< Error: KeyError: 'Paris'
< Bern: 21 degrees
> Rome
> Bern
< Bern: 21 degrees (from the cache)
  asking the weather service
< Rome: 29 degrees
In the order of the calls: Bern: 21 degrees Oslo: 14 degrees Error: KeyError: 'Paris'
Rome is the warmest.
""",
    "09_state.py": """\
prices: {"bread":4.2,"cheese":7.8,"wine":19.5}
buy: 10.80 left
buy: Error: wine is 8.70 more than is left
buy: 3.00 left
Bread and cheese it is. Cart(budget=15.0, items=('bread', 'cheese'))
""",
    "10_testing.py": """\
passed: the result of the tool is handed in
passed: a length that is not positive is never handed in
passed: an overloaded provider is asked again
""",
    "11_budget_policy.py": """\
before call 1: 0 repeated, 0.0000 dollars
before call 2: 0 repeated, 0.0001 dollars
before call 3: 0 repeated, 0.0002 dollars
before call 4: 0 repeated, 0.0003 dollars
before call 5: 1 repeated, 0.0004 dollars
before call 6: 2 repeated, 0.0005 dollars
before call 7: 3 repeated, 0.0006 dollars
BUDGET_EXCEEDED: The run's repetition budget is used up: 3 of 2.
""",
    "12_resume.py": """\
Hello. -> I know 1 messages.
Still there? -> I know 3 messages.
died after: ['reserve 7C', 'pay 120.0']
Please check whether 120 was paid.
in both runs together: ['reserve 7C', 'pay 120.0']
""",
    "13_toolbox.py": """\
> edit mean.sh
  mean.sh has not been read. Read it before you change it.
> bash bash mean.sh 2>&1 | grep -o 'division by 0'
  division by 0
  [exit code 0]
> read mean.sh
  1	total=0
  2	for value in "$@"; do total=$((total + value)); done
  3	echo "mean: $((total / $#))"
> edit mean.sh
  Edited mean.sh: 1 place, at line 3.
> bash bash mean.sh && bash mean.sh 2 4
  mean: 0
  mean: 3
  [exit code 0]
Without any value it divided by 0; now the mean is 0.
""",
    "14_chat.py": """\
> search {'city': 'Oslo'}
  3 hotels in Oslo
> book {'hotel': 'Grand'}
  Error: not run, because the user wrote something new. Read it first; call again if that is still right.
> ask_user {'question': 'Which one?', 'options': ['Grand', 'Harbour']}
  Harbour
The Harbour it is. Shall I book?
> book {'hotel': 'Harbour'}
  Error: the run was stopped before this call finished.
Nothing was booked.
""",
    "15_compaction.py": """\
page 18: 4066 tokens to 1300, clear tool results
page 31: 4212 tokens to 1807, clear tool results
page 41: 4047 tokens to 2197, clear tool results
page 50: 4213 tokens to 2548, clear tool results
page 57: 4116 tokens to 2821, clear tool results
page 63: 4165 tokens to 3055, clear tool results
page 68: 4175 tokens to 1168, clear tool results and summarise
Calm seas on all pages, and no ship.
152 messages in the history
""",
    "16_session.py": """\
Two rooms are free.
4 messages, 2 requests, waiting: Near the harbour.
You said: Near the harbour.
You said: By train.
A room in Oslo, please. 6 messages, a branch
A room in Oslo, please. 6 messages, the first
""",
    "17_terminal_chat.py": """\
That gave: hello
[exit code 0]
""",
}


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints(name: str, tmp_path: Path, warm: Warm) -> None:  # R68, X39
    done = warm(program=EXAMPLES / name, cwd=tmp_path)
    assert (done.stderr, done.stdout, done.code) == ("", PRINTS[name], 0)


def test_an_example_prints_the_same_where_nothing_was_imported_before(tmp_path: Path) -> None:
    """As a user runs it, without a key; a warning is an error."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / "02_tools.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout, done.returncode) == ("", PRINTS["02_tools.py"], 0)


def test_every_numbered_program_is_tried_and_short() -> None:
    numbered = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("[0-9]*.py")}
    assert numbered.keys() == PRINTS.keys()
    assert {name: lines for name, source in numbered.items() if (lines := len(source.splitlines())) > 60} == {}


@pytest.mark.parametrize(("folder", "first", "most"), [("analyst", "agent.py", 100), ("crew", "research.py", 80)])
def test_every_file_of_an_example_is_short_enough_to_be_read(folder: str, first: str, most: int) -> None:
    files = (EXAMPLES / folder).glob("*.py")
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert [name for name, length in lengths.items() if length > 300] == []
    assert lengths[first] <= most


def test_a_crew_researches_the_pages_of_this_project(tmp_path: Path, warm: Warm) -> None:
    done = warm(program=EXAMPLES / "crew" / "research.py", cwd=tmp_path)
    assert (done.stderr, done.code) == ("", 0)
    assert done.stdout.startswith("Offline stand-in at work: a small program, not a language model.")
    assert "links on " in done.stdout
    assert " lead nowhere" not in done.stdout


def test_a_team_divides_its_work_by_messages(tmp_path: Path, warm: Warm) -> None:
    done = warm(program=EXAMPLES / "team" / "stocktaking.py", cwd=tmp_path)
    assert (done.stderr, done.stdout, done.code) == ("", STOCKTAKING, 0)


STOCKTAKING = """\
      ada -> max       Please count C and D.
      ada -> eve       Please count E and F.
      ada counts       12
      ada counts       7
      max counts       31
      max -> ada       C = 31
      max counts       4
      max -> ada       D = 4
      eve counts       18
      eve -> ada       E = 18
      eve counts       Error: no key for shelf F
      eve -> max       Please count F for me, and tell ada.
      max counts       9
      max -> ada       F = 9
ada says: 81 things are in stock.
21 requests
      ada is gone
      eve is gone
      max is gone
"""
