"""The command line of the benchmarks: `python -m benchmarks [name ...] [--quick] [--json FILE]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    boxes,
    checks,
    crew,
    durable_file,
    durable_postgres,
    fan_out,
    gemini_wire,
    growth,
    in_process,
    keystrokes,
    mail,
    many_inputs,
    million_a_day,
    openai_wire,
    over_http,
    parallel_calls,
    recorder,
    round_trips,
    runs_in_a_row,
    serving,
    start_up,
    viewer,
)
from benchmarks.measuring import FULL, QUICK, TINY, Effort, Row
from benchmarks.table import document, header, table

BENCHMARKS: dict[str, Callable[[Effort], list[Row]]] = {
    "in-process": in_process.measure,
    "over-http": over_http.measure,
    "in-a-row": runs_in_a_row.measure,
    "openai": openai_wire.measure,
    "gemini": gemini_wire.measure,
    "growth": growth.measure,
    "fan-out": fan_out.measure,
    "crew": crew.measure,
    "parallel": parallel_calls.measure,
    "mail": mail.measure,
    "batch": many_inputs.measure,
    "durable": durable_file.measure,
    "postgres": durable_postgres.measure,
    "fleet": million_a_day.measure,
    "recorder": recorder.measure,
    "serve": serving.measure,
    "answers": round_trips.measure,
    "start-up": start_up.measure,
    "checks": checks.measure,
    "boxes": boxes.measure,
    "keystrokes": keystrokes.measure,
    "viewer": viewer.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for, and print it."""
    options = _parser().parse_args(arguments)
    effort = TINY if options.tiny else QUICK if options.quick else FULL
    rows: list[Row] = []
    print(header(), flush=True)
    for name in options.names or BENCHMARKS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += BENCHMARKS[name](effort)
    print(table(rows))
    if options.json is not None:
        options.json.write_bytes(document(rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure this library; see docs/performance.md."
    )
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="a tenth of the turns: good for a first look only")
    parser.add_argument("--tiny", action="store_true", help="as little as possible: only to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
