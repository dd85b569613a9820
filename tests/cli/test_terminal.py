"""The live tree, in a terminal of 80 columns: what stays is what a pipe would get, what moves is the tail alone."""

import re

from tests.cli.program import AGENTS, Warm, timeless
from tests.cli.terminal import terminal


def test_what_stays_on_the_screen_is_what_a_pipe_gets(warm: Warm) -> None:
    with terminal("run", f"{AGENTS}:busy", "Where does it rain?") as tty:
        code = tty.end()
    piped = warm("run", f"{AGENTS}:busy", "Where does it rain?")
    assert code == piped.code == 0
    assert timeless(tty.text).rstrip() == timeless(f"{piped.stderr}\n{piped.stdout}").rstrip()
    assert tty.has_colours
    assert tty.has_cursor
    assert tty.is_calm
    assert "\x1b" not in piped.stderr


def test_the_words_of_the_model_are_shown_as_they_come_and_then_go(warm: Warm) -> None:
    def is_speaking(shown: str) -> bool:
        return "It was a dark and stormy night, and" in shown and "the model is writing" in shown

    with terminal("run", f"{AGENTS}:silent", "Go on", start=warm.start) as tty:
        tty.wait_for(is_speaking)
        assert not tty.has_cursor
        tty.press(b"\x03")
        assert tty.end() == 130
    assert "the model is writing" not in tty.text
    assert "■ stopped · 1 attempt, 1 iteration, 0 calls" in tty.text
    assert "at least 10 tokens in" in tty.text
    assert tty.has_cursor


def test_a_call_under_way_is_shown_with_its_time_at_most_ten_times_a_second(warm: Warm) -> None:
    def has_run_for(shown: str, seconds: float) -> bool:
        times = re.findall(r"wait +([\d.]+) s", shown)
        return any(float(time) >= seconds for time in times)

    with terminal("run", f"{AGENTS}:waiter", "Go on", start=warm.start) as tty:
        tty.wait_for(lambda shown: has_run_for(shown, 0.3))
        before = tty.n_writes
        tty.wait_for(lambda shown: has_run_for(shown, 1.3))
        assert tty.n_writes - before <= 12
        assert "running wait" in tty.text
    assert max(len(line) for line in tty.text.splitlines()) <= 80


def test_a_second_interrupt_leaves_the_terminal_with_its_cursor(warm: Warm) -> None:
    with terminal("run", f"{AGENTS}:blocker", "Go on", start=warm.start) as tty:
        tty.see("running block")
        tty.press(b"\x03")
        tty.see("stopping; press Ctrl-C again to quit at once")
        tty.press(b"\x03")
        assert tty.end() == 130
    assert tty.has_cursor
    rest = tty.output.removesuffix("^C")  # the terminal sends the signal before it echoes the key
    assert rest.endswith("\r\n\x1b[?25h"), repr(rest[-200:])


def test_no_color_is_honoured(warm: Warm) -> None:
    with terminal("run", f"{AGENTS}:greeter", "Hello", NO_COLOR="1", start=warm.start) as tty:
        assert tty.end() == 0
    assert "✓ done" in tty.text
    assert not tty.has_colours


def test_a_terminal_gets_the_result_without_escape_sequences_and_an_error_wrapped(warm: Warm) -> None:
    with terminal("run", f"{AGENTS}:echo", "\x1b[2J\x1b]0;title\x07harmless", start=warm.start) as tty:
        assert tty.end() == 0
    assert tty.text.rstrip().endswith("\n<harmless>")
    with terminal("run", f"{AGENTS}:hopeless", "Hello", "--quiet", start=warm.start) as tty:
        assert tty.end() == 1
    first, second, *_ = tty.text.splitlines()
    assert first.startswith("error: MAX_ATTEMPTS_EXCEEDED: ")
    assert second.startswith("       ")
