"""Stores, recorders, sessions and connections that were opened before the process forked."""

import os
from pathlib import Path

import pytest

from journeyman.record import Recordings
from tests.cli.program import Warm

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

HEAD = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from journeyman import Agent, Runtime, run_sync
from journeyman.errors import StoreError
from journeyman.testing.scripted import FunctionModel
from journeyman.record import Recorder
from journeyman.events import Target
from journeyman.session import Step
from journeyman.store import Store
from journeyman.types import Message, Text

path = sys.argv[1]
bot = Agent(name="bot", model=FunctionModel(lambda request: "ok"))


def in_child(work):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, "the child failed"


def refused(work):
    try:
        work()
    except StoreError as error:
        assert "was opened before this process was forked" in str(error), error
    else:
        raise AssertionError("it was not refused")
"""


def complete(warm: Warm, path: Path, body: str) -> None:
    program = path.with_name("program.py")
    program.write_text(HEAD + body, encoding="utf-8")
    done = warm(path, program=program)
    assert done.code == 0, done.stderr


def test_a_recorder_of_the_parent_begins_anew_in_a_forked_child(warm: Warm, tmp_path: Path) -> None:
    complete(
        warm,
        tmp_path / "runs.db",
        """
recorder = Recorder(path)
run_sync(bot, "parent", runtime=Runtime(recorder=recorder))


def work():
    run_sync(bot, "child", runtime=Runtime(recorder=recorder))
    run_sync(bot, "child of a path", runtime=Runtime(recorder=path))
    recorder.close()


in_child(work)
run_sync(bot, "parent again", runtime=Runtime(recorder=recorder))
recorder.close()
""",
    )
    with Recordings(tmp_path / "runs.db") as recordings:
        assert [run.status for run in recordings.runs()] == ["done"] * 4


def test_a_forked_child_does_not_use_the_durable_store_of_its_parent(warm: Warm, tmp_path: Path) -> None:
    complete(
        warm,
        tmp_path / "runs.db",
        """
from journeyman.durable import Durable


async def whole():
    async with Durable(path) as durable:

        def work():
            try:
                durable.list().send(None)
            except RuntimeError as error:
                assert "before the process forked" in str(error), error
            else:
                raise AssertionError("it was not refused")

        in_child(work)
        assert not await durable.list()


asyncio.run(whole())
""",
    )


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_fork_waits_for_the_work_of_other_threads(kind: str, warm: Warm, tmp_path: Path) -> None:
    complete(
        warm,
        tmp_path / "unused",
        f"""
import threading
from journeyman.machine.forks import hold_at_forks

first, second = threading.{kind}(), threading.{kind}()
hold_at_forks(first)
hold_at_forks(second)
forks, done = threading.Event(), []
os.register_at_fork(before=forks.set)  # those that are registered last come first


def work_in_thread(begun):
    with first:
        begun.set()
        forks.wait()
        with second:  # nobody who waits for the first holds this one
            done.append("work")


begun = threading.Event()
threading.Thread(target=work_in_thread, args=(begun,)).start()
begun.wait()


def work():
    assert done == ["work"]
    with first, second:
        pass


in_child(work)
for lock in (first, second):
    free = []
    other = threading.Thread(target=lambda: free.append(lock.acquire(timeout=5)))
    other.start()
    other.join()
    assert free == [True]
""",
    )


def test_a_fork_does_not_wait_for_ever(warm: Warm, tmp_path: Path) -> None:
    complete(
        warm,
        tmp_path / "unused",
        """
import threading
from journeyman.machine import forks

forks._PATIENCE_S = 0.05
lock, end, begun = threading.Lock(), threading.Event(), threading.Event()
forks.hold_at_forks(lock)


def hold():
    with lock:
        begun.set()
        end.wait()


threading.Thread(target=hold).start()
begun.wait()
in_child(lambda: None)
end.set()
""",
    )


def test_a_recording_that_was_begun_before_the_fork_ends_in_the_child_with_the_reason(
    warm: Warm, tmp_path: Path
) -> None:
    complete(
        warm,
        tmp_path / "runs.db",
        """
recorder = Recorder(path)
tape = recorder.begin("run", "bot")


def work():
    for n in range(20_000):
        tape.hear(Target(path=("bot",), target=str(n)))
    asyncio.run(tape.room())  # waits for nobody
    assert tape.ended_early() == "it was begun before this process was forked"
    asyncio.run(tape.end("success"))


in_child(work)
assert tape.ended_early() is None
recorder.close()
""",
    )


def test_a_session_and_a_store_are_refused_in_a_child_and_go_on_in_the_parent(warm: Warm, tmp_path: Path) -> None:
    complete(
        warm,
        tmp_path / "chats.db",
        """
store = Store(path)
session = store.session("c", agent="bot", create=True)
step = Step(position=0, messages=[Message("user", (Text("hello"),))])
session.write(step)


def work():
    refused(lambda: session.write(step))
    refused(store.sessions)
    session.close()
    store.close()


in_child(work)
session.write(Step(position=1, messages=[Message("user", (Text("on"),))]))
with Store(path) as second:
    try:
        second.session("c", agent="bot")  # the child has not given the parent's lock away
    except StoreError as error:
        assert "is open in" in str(error), error
    else:
        raise AssertionError("two have it")
session.close()
store.close()
""",
    )


def test_a_child_leaves_the_connections_of_its_parent_open(warm: Warm, tmp_path: Path) -> None:
    complete(
        warm,
        tmp_path / "unused",
        """
from journeyman.connect import connect
import http.server, json, threading
from journeyman import run

peers = []


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        peers.append(self.client_address)
        self.rfile.read(int(self.headers["content-length"]))
        said = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}
        body = f"data: {json.dumps(said)}\\n\\ndata: [DONE]\\n\\n".encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
threading.Thread(target=server.serve_forever, daemon=True).start()
model = connect("openai-chat:m", api_key="k", base_url=f"http://127.0.0.1:{server.server_address[1]}")
asker = Agent(name="asker", model=model)
loop = asyncio.new_event_loop()


def ask():
    assert loop.run_until_complete(run(asker, "?")).unwrap() == "ok"


ask()
in_child(lambda: asyncio.run(run(asker, "?")).unwrap())
ask()
assert len(peers) == 3 and peers[0] == peers[2] != peers[1], peers
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
server.shutdown()
""",
    )
