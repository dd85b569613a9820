"""Starting: `import journeyman` and `journeyman --help`, in processes of their own."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.measuring import Pairs, Row

_MODEL = "import pydantic, asyncio\nclass A(pydantic.BaseModel):\n    x: int"
_PLAIN = "import pydantic, asyncio"


async def start_up(rounds: int) -> list[Row]:
    """CPU of whole processes."""
    python = sys.executable
    program = str(Path(python).with_name("journeyman"))
    rows = [
        ("import journeyman, against pydantic and a model", [python, "-c", "import journeyman"], _MODEL, "<= 1.3"),
        (
            "from journeyman import Agent, run, likewise",
            [python, "-c", "from journeyman import Agent, run"],
            _MODEL,
            "-",
        ),
        ("journeyman --help, against import pydantic", [program, "--help"], _PLAIN, "< 2"),
    ]
    return [
        Pairs([(_cpu(ours), _cpu([python, "-c", other])) for _ in range(rounds + 1)][1:]).row(
            name, per=1, unit="ms", target=target
        )
        for name, ours, other, target in rows
    ]


def _cpu(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
