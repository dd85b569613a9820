"""Who plays in the tests: models, tools, gates, agents, listeners, the clock; and how a run ended.

`README.md` shows it in ten tests to copy. What only one room needs stands in that room.
"""

from tests.play.agents import Report, chatting, report, reporter, script_of, small, submit, talker
from tests.play.models import Door, door, echo, following, hang, n_answers
from tests.play.recorder import Recorder, calls, check_balance, names, recorder, transcript
from tests.play.results import cancelled, context_of, existing, failed, instance_of, results_in, succeeded, texts
from tests.play.stage import Stage, broken, only_over_http, stage
from tests.play.tools import answered, look, make_gate, make_tool, raising
from tests.support.clock import on_virtual_clock, virtual_clock

__all__ = [
    "Door", "Recorder", "Report", "Stage", "answered", "broken", "calls", "cancelled", "chatting", "check_balance",
    "context_of", "door", "echo", "existing", "failed", "following", "hang", "instance_of", "look", "make_gate",
    "make_tool", "n_answers", "names", "on_virtual_clock", "only_over_http", "raising", "recorder", "report",
    "reporter", "results_in", "script_of", "small", "stage", "submit", "succeeded", "talker", "texts", "transcript",
    "virtual_clock",
]  # fmt: skip
