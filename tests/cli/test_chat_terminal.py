"""`journeyman chat` through a real terminal: typing while it works, answering what it asks, stopping, coming back."""

import re
from pathlib import Path
from signal import SIGTERM

import pytest

from journeyman.definition.foreign import OLD_SLASH_WORDS
from tests.cli.program import Warm
from tests.cli.terminal import COLUMNS, chatting

pytestmark = pytest.mark.timeout(60)


def test_what_is_typed_while_a_tool_runs_is_queued_and_then_delivered(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("wait", "running wait")
        chat.type("In French.", "queued: In French.")
        chat.type("/follow Thank you.", "when done: Thank you.")
        chat.press(b"half a line")
        (tmp_path / "door").write_bytes(b"open")
        shown = chat.see("heard ['Thank you.'], read []")
        assert "queued:" not in shown
        chat.see("> half a line")
        chat.press(b"\x15")
        chat.press(b"\x04")
        assert chat.end() == 0
    rows = [" ".join(row.split()) for row in chat.text.splitlines()]
    assert rows.index("> In French. delivered") < rows.index("heard ['In French.'], read ['waited']")
    assert rows.index("> Thank you. delivered") < rows.index("heard ['Thank you.'], read []")
    assert max(map(len, chat.text.splitlines())) <= COLUMNS
    assert "Go on with it: journeyman chat" in chat.text


def test_a_call_is_denied_with_a_reason_and_another_one_modified(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("bash echo 'a\u202eb'", "\nallow?")
        assert "│ $ echo " in chat.text
        chat.see_flowing(f"$ echo 'a\\u202eb' in {tmp_path}")
        assert r"a\u202eb" in chat.text
        chat.type("perhaps", "'perhaps' is no answer.")
        chat.type("n use printf", "read ['Error: denied: use printf']")
        chat.type("bash echo hello", "\nallow?")
        chat.type("m", 'arguments> {"command": "echo hello"}')
        chat.press(b"\x15")
        chat.type('{"comand": "echo bye"}', "These arguments do not fit:")
        chat.see('arguments> {"comand": "echo bye"}')
        chat.press(b"\x01\x0b")
        chat.type('{"command": "echo changed"}', "bash allowed, changed to echo changed")
        chat.see("changed\\n[exit code 0]")
        ran = "✓ bash echo changed (changed from echo hello)"
        assert ran in chat.text
        chat.kill()
    assert "✗ bash echo" in chat.text
    with chatting(tmp_path, "--resume", start=warm.start) as chat:
        chat.see(ran)  # what ran is told on resume, too


def test_a_change_that_was_modified_is_shown_as_the_change_that_is_made(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text("print('Hello')\n")
    with chatting(tmp_path, agent="editor", start=warm.start) as chat:
        chat.type("Go on.", "\nallow?")
        chat.type("m", 'arguments> {"path": "greet.py"')
        chat.press(b"\x15")
        chat.type('{"path": "greet.py", "old_text": "Hello", "new_text": "Bye"}', "It is done.")
        changed = (
            "  edit allowed, changed:\n  │ edits greet.py\n  │ @@ line 1 @@\n  │ - print('Hello')\n  │ + print('Bye')"
        )
        assert changed in chat.text
        assert "✓ edit greet.py (changed)" in chat.text
    assert (tmp_path / "greet.py").read_text() == "print('Bye')\n"


def test_a_line_that_was_begun_before_a_question_came_is_not_its_answer(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, agent="guarded", start=warm.start) as chat:
        chat.press(b"wait\ry")
        chat.see("The agent waits for an answer: first send this line, or clear it (Ctrl-U).")
        chat.type("", "queued: y")
        chat.see("\nallow?")
        assert "wait allowed" not in chat.text
        chat.type("n", "heard ['y'], read ['Error: denied: the user said no']")


def test_an_approval_for_the_session_holds_and_one_for_ever_is_kept(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("bash echo first", "for this [s]ession · [a]lways")
        chat.type("a", "first\\n[exit code 0]")
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("bash echo first", "first\\n[exit code 0]")
        assert "asks to run" not in chat.text, "allowed always: Bash(echo first), exactly so"
        chat.type("bash echo second", "\nallow?")
        chat.type("x", "stopped")


def test_a_question_of_the_model_is_answered_in_the_line(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        shown = chat.type("ask_user", "\nanswer>")
        assert "? a question Which one?\n    1 Grand\n    2 Harbour" in shown
        assert "ask_user question=" not in shown, "the question is there already"
        chat.type("2", "read ['Harbour']")


def test_the_first_interrupt_stops_the_turn_and_two_at_an_empty_line_leave(tmp_path: Path) -> None:
    with chatting(tmp_path) as chat:
        chat.type("wait", "running wait")
        chat.press(b"\x03")
        chat.see("■ stopped")
        chat.type("Hello?", "heard ['[The user stopped the work here.]', 'Hello?']")
        chat.wait_for(lambda shown: "the model is writing" not in shown)  # else it stops this turn, too
        chat.press(b"something\x03")
        chat.press(b"\x03")
        chat.see("Press Ctrl-C again to leave.")
        chat.press(b"\x03")
        assert chat.end() == 130
    assert chat.has_cursor


@pytest.mark.parametrize(
    ("tool", "keys", "code"), [("sleep", b"\x04", 0), ("block", b"\x04", 0), ("block", b"\x03\x03", 130)]
)
def test_leaving_does_not_wait_for_a_tool(warm: Warm, tmp_path: Path, tool: str, keys: bytes, code: int) -> None:
    with chatting(tmp_path, "--mode", "trust", start=warm.start) as chat:
        chat.type(tool, f"running {tool}")
        chat.press(keys)
        assert chat.end() == code  # the tool would never end


def test_a_termination_leaves_the_terminal_as_it_was(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("wait", "running wait")
        chat.process.send_signal(SIGTERM)
        assert chat.end() == 143
    assert "■ stopped" in chat.text


def test_a_killed_chat_goes_on_where_it_was(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, "--mode", "trust", start=warm.start) as chat:
        chat.type("Remember this.", "heard ['Remember this.']")
        chat.type("sleep", "running sleep")
        chat.type("Said in time.", "queued: Said in time.")
        chat.kill()
    with chatting(tmp_path, "--mode", "trust", "--resume", start=warm.start) as chat:
        chat.see("queued: Said in time.")
        shown = chat.see("The last turn was interrupted. /continue goes on where it was.")
        assert "> Remember this." in shown
        assert "heard ['Remember this.'], read []" in shown
        assert "Whether it took effect is unknown" in shown
        chat.type("/continue", "delivered")
        chat.see_flowing("'Said in time.'], read ['Error: interrupted")
        chat.type("/cost", "3 requests")


def test_a_conversation_that_goes_on_shows_what_was_said_as_it_was(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, agent="endless", start=warm.start) as chat:
        chat.type("Tell me all.", "It was a dark night")
        chat.press(b"\x1b")
        chat.see("■ stopped")
        chat.type("!seq 100 130", "exit code 0. The agent reads it")
        chat.type("Well?", "> Well?")
        chat.wait_for(lambda shown: shown.count("It was a dark night") == 2)
        chat.kill()
    with chatting(tmp_path, "--resume", agent="endless", start=warm.start) as chat:
        shown = chat.see("The last turn was interrupted")
    rows = [row.strip() for row in shown.splitlines() if row.strip()]
    said = rows[rows.index("> Tell me all.") :]
    assert said[1:5] == ["It was a dark night", "(broken off)", "■ stopped", "> I ran this command:"]
    assert said[said.index("[exit code 0]") + 1] == "Well?"
    assert "[Your answer broke off" not in shown
    assert re.search(r"^endless · \d+ tokens · balanced$", shown, re.MULTILINE), "how much the next request takes"


def test_commands_do_what_help_says_and_unknown_ones_are_explained(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("Hello", "heard ['Hello']")
        for line, sign in (
            ("/helpp", "There is no /helpp. Did you mean /help?"),
            *((f"{old} talk", f"{old} is gone. {now}"[:50]) for old, now in OLD_SLASH_WORDS.items()),
            ("/follow", "/follow needs TEXT: /follow TEXT"),
            ("/cost", "1 request · 10 tokens in, 5 out"),
            ("/resume", "2 messages · helper · Hello"),
            ("/continue", "There is nothing to go on with"),
            ("/follow Later.", "when done: Later."),
            ("/drop", "1 text withdrawn."),
            ("/reset", "Forgotten:"),
            ("/help", "Alt-Enter"),
            (" /not a command", "heard ['/not a command']"),
        ):
            chat.type(line, sign)
        chat.type("/quit")
        assert chat.end() == 0


def test_what_was_entered_is_there_again_after_a_new_start(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("A line to keep.", "heard ['A line to keep.']")
        chat.press(b"\x04")
        assert chat.end() == 0
    private = (tmp_path / "data/journeyman/entered", tmp_path / "data/journeyman")
    assert [path.stat().st_mode & 0o077 for path in private] == [0, 0]
    with chatting(tmp_path, start=warm.start) as chat:
        chat.press(b"\x1b[A")
        chat.see("> A line to keep.")


def test_what_a_tool_prints_comes_as_lines_without_escape_sequences(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("printing", "read ['printed']")
        chat.see("│ a tool prints")
        assert "I printing." in chat.text


def test_the_words_of_the_model_keep_their_lines_and_are_wrapped(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        shown = chat.type("lines", "cost unknown")
    assert "one\n\n  two\n\nthree three" in shown
    assert max(map(len, shown.splitlines())) <= COLUMNS


def test_a_typed_output_is_shown_as_json(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, agent="planner", start=warm.start) as chat:
        chat.type("A trip, please.", '{\n  "city": "Oslo"\n}')


def test_an_agents_own_gate_is_asked_and_no_other(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "door").touch()
    with chatting(tmp_path, agent="guarded", start=warm.start) as chat:
        chat.type("bash echo free", "free\\n[exit code 0]")
        assert "wait asks to run · its own gate asks" in chat.type("wait", "allow?")
        chat.type("y", "read ['waited']")


def test_what_was_allowed_is_said_to_run(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, agent="guarded", start=warm.start) as chat:
        chat.type("wait", "\nallow?")
        chat.type("y", "running wait")
