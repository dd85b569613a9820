"""What it costs to start: importing the library, and the command line's help, each in a process of its own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from benchmarks.measuring import Costs, Effort, Row, compared
from benchmarks.server import ROOT

_BASE = "import pydantic, asyncio"
_MODEL = f"{_BASE}\nclass Report(pydantic.BaseModel):\n    total: float"
_USED = "from journeyman import Agent, Failure, Limits, Output, Success, run, tool"
_AGENT = f"""{_USED}
from pydantic import BaseModel
class Report(BaseModel):
    total: float
@tool
async def add(x: int) -> int:
    '''Add one.'''
    return x + 1
Agent(name='counter', model='anthropic:claude-haiku-4-5', tools=[add], output=Output(Report))
"""

_COMMANDS = {
    "pydantic": ["-c", _BASE],
    "pydantic and one model": ["-c", _MODEL],
    "import journeyman": ["-c", "import journeyman"],
    "from journeyman import Agent, run, ...": ["-c", _USED],
    "an agent with a tool and an output, made": ["-c", _AGENT],
    "journeyman --help": ["-m", "journeyman", "--help"],
}

_LARGEST = ("an agent with a tool and an output, made", "journeyman --help")
"""What these import is all that the others do."""

_COMPARED = [
    ("import journeyman", "pydantic and one model", "≤ 1.3"),
    ("from journeyman import Agent, run, ...", "pydantic and one model", "≤ 1.3"),
    ("an agent with a tool and an output, made", "pydantic and one model", ""),
    ("journeyman --help", "pydantic", "< 2"),
]


def measure(effort: Effort) -> list[Row]:
    """Measure the CPU time of whole processes, from start to exit."""
    costs = _costs(effort.rounds(25))
    return [
        compared(f"start: {ours}", costs, ours=ours, reference=reference, unit="ms CPU", scale=1e3, target=target)
        for ours, reference, target in _COMPARED
    ]


def _costs(rounds: int) -> Costs:
    for name in _LARGEST:
        _cpu_s(_COMMANDS[name])  # once unmeasured, so that the byte code is on the disk
    costs: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    for _ in range(rounds):
        for name, arguments in _COMMANDS.items():
            costs[name].append(_cpu_s(arguments))
    return costs


def _cpu_s(arguments: list[str]) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
