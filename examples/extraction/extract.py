"""Extraction: a typed record of every document in a folder, sixteen at a time, each checked against its text.

Run it: `python examples/extraction/extract.py examples/extraction/invoices`, with ANTHROPIC_API_KEY (or another MODEL).
It writes records.jsonl and failures.jsonl. Stopped with Ctrl-C and started again, it does what has no record yet.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from pydantic import BaseModel

from journeyman import Agent, Budget, Output, Rejected, Runtime, Success, Usage, run

RECORDS, FAILURES = Path("records.jsonl"), Path("failures.jsonl")


class Invoice(BaseModel):
    number: str
    customer: str
    total: float


def stands_in_the_text(invoice: Invoice, text: str) -> None:
    for value in (invoice.number, invoice.customer, f"{invoice.total:.2f}"):
        if value not in text:
            raise Rejected(f"{value!r} does not stand in the document. Copy what is written there.")


extractor = Agent(
    name="extractor",
    model=os.environ.get("MODEL", "anthropic:claude-sonnet-5-5"),
    system="Extract the invoice. Copy what is written, and make nothing up.",
    output=Output(Invoice),
    deps=str,  # the text of the document, for the validator
    validators=[stands_in_the_text],
)


def append(file: Path, **line: object) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")
    print(f"{line['document']}: {line.get('why', 'done')}", flush=True)


async def extract(paths: list[Path]) -> None:
    runtime = Runtime(budget=Budget(tokens=2_000_000, scope="extraction"))  # for all documents together
    slots, used = asyncio.Semaphore(16), list[Usage]()

    async def one(path: Path) -> None:
        async with slots:
            try:
                text = await asyncio.to_thread(path.read_text, encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                return append(FAILURES, document=path.name, code="UNREADABLE", why=str(error))
            result = await run(extractor, text, deps=text, runtime=runtime)
        used.append(result.metadata.usage or Usage())
        if isinstance(result, Success):
            return append(RECORDS, document=path.name, record=result.output.model_dump(mode="json"))
        append(FAILURES, document=path.name, code=result.code, why=result.error.message)

    try:
        async with asyncio.TaskGroup() as group:
            for path in paths:
                group.create_task(one(path))
    finally:
        print(f"{len(used)} of {len(paths)} documents were asked about: {sum(used, Usage())}")


if __name__ == "__main__":
    RECORDS.touch()
    FAILURES.write_text("")  # what failed is tried again
    done = {json.loads(line)["document"] for line in RECORDS.read_text(encoding="utf-8").splitlines()}
    try:
        asyncio.run(extract([path for path in sorted(Path(*sys.argv[1:]).glob("*.txt")) if path.name not in done]))
    except KeyboardInterrupt:
        sys.exit("Stopped. Start it again to go on.")
