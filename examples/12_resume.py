"""Going on later: from a stored conversation, or, after a death in the middle, from a journal.

Offline: the model is a script.
"""

import tempfile
from pathlib import Path

from journeyman import Agent, Runtime, dump_messages, load_messages, run_sync, tool
from journeyman.journal import InMemoryJournal
from journeyman.testing import FunctionModel, ScriptedModel, call

parrot = Agent(name="parrot", model=FunctionModel(lambda request: f"I know {len(request.messages)} messages."))


def talk(file: Path, text: str) -> None:
    earlier = load_messages(file.read_bytes()) if file.exists() else []
    result = run_sync(parrot, text, history=earlier)
    file.write_bytes(dump_messages(result.history))
    print(f"{text} -> {result.unwrap()}")


sent: list[str] = []


@tool(effect="idempotent")
def reserve(seat: str) -> str:
    """Reserve a seat. Doing it twice changes nothing."""
    sent.append(f"reserve {seat}")
    return f"{seat} is yours"


@tool(effect="once", thread=False)
def pay(amount: float) -> str:
    """Pay. Doing it twice would be wrong."""
    sent.append(f"pay {amount}")
    raise KeyboardInterrupt  # here the process dies


calls = [call("reserve", seat="7C", id="a"), call("pay", amount=120, id="b")]
agent = Agent(name="clerk", model=ScriptedModel([*calls, "Please check whether 120 was paid."]), tools=[reserve, pay])

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        talk(Path(folder) / "talk.json", "Hello.")
        talk(Path(folder) / "talk.json", "Still there?")

    runtime = Runtime(journal=InMemoryJournal())
    try:
        run_sync(agent, "Book a seat.", runtime=runtime)
    except KeyboardInterrupt:
        print("died after:", sent)
    print(run_sync(agent, "Book a seat.", runtime=runtime).unwrap())
    print("in both runs together:", sent)
