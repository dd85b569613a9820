"""The live tree, in a terminal of 80 columns: what stays is what a pipe would get, what moves is the tail alone."""

from __future__ import annotations

import re

from tests.cli.program import AGENTS, Warm, command, environment, timeless
from tests.cli.terminal import Screen, Terminal, terminal


def in_terminal(*words: str, **more: str) -> tuple[list[str], dict[str, str]]:
    return command(*words), environment(TERM="xterm-256color", **more)


def test_what_stays_on_the_screen_is_what_a_pipe_gets(warm: Warm) -> None:
    with terminal(*in_terminal("run", f"{AGENTS}:busy", "Where does it rain?")) as tty:
        code = tty.end()
    piped = warm("run", f"{AGENTS}:busy", "Where does it rain?")
    assert code == piped.code == 0
    assert timeless(tty.screen.text).rstrip() == timeless(f"{piped.stderr}\n{piped.stdout}").rstrip()
    assert tty.screen.has_colours
    assert tty.screen.has_cursor
    assert "\x1b" not in piped.stderr


def test_the_words_of_the_model_are_shown_as_they_come_and_then_go() -> None:
    def is_speaking(screen: Screen) -> bool:
        return "It was a dark and stormy night, and" in screen.text and "the model is writing" in screen.text

    with terminal(*in_terminal("run", f"{AGENTS}:silent", "Go on")) as tty:
        tty.wait_for(is_speaking)
        assert not tty.screen.has_cursor
        tty.press(b"\x03")
        assert tty.end() == 130
    assert "the model is writing" not in tty.screen.text
    assert "■ stopped · 1 attempt, 1 iteration, 0 calls" in tty.screen.text
    assert "at least 7 tokens in" in tty.screen.text
    assert tty.screen.has_cursor


def test_a_call_under_way_is_shown_with_its_time_at_most_ten_times_a_second() -> None:
    def has_run_for(screen: Screen, seconds: float) -> bool:
        times = re.findall(r"wait +([\d.]+) s", screen.text)
        return any(float(time) >= seconds for time in times)

    with terminal(*in_terminal("run", f"{AGENTS}:waiter", "Go on")) as tty:
        tty.wait_for(lambda screen: has_run_for(screen, 0.3))
        before = tty.n_writes
        tty.wait_for(lambda screen: has_run_for(screen, 1.3))
        assert tty.n_writes - before <= 12
        assert "running wait" in tty.screen.text
    assert max(len(line) for line in tty.screen.lines) <= 80


def test_a_second_interrupt_leaves_the_terminal_with_its_cursor() -> None:
    with terminal(*in_terminal("run", f"{AGENTS}:blocker", "Go on")) as tty:
        tty.wait_for(lambda screen: "running block" in screen.text)
        press_twice(tty)
        assert tty.end() == 130
    assert tty.screen.has_cursor
    assert tty.screen.lines[-1] == ""


def press_twice(tty: Terminal) -> None:
    tty.press(b"\x03")
    tty.wait_for(lambda screen: "stopping; press Ctrl-C again to quit at once" in screen.text)
    tty.press(b"\x03")


def test_no_color_is_honoured() -> None:
    with terminal(*in_terminal("run", f"{AGENTS}:greeter", "Hello", NO_COLOR="1")) as tty:
        assert tty.end() == 0
    assert "✓ done" in tty.screen.text
    assert not tty.screen.has_colours


def test_a_terminal_gets_the_result_without_escape_sequences_and_an_error_wrapped() -> None:
    with terminal(*in_terminal("run", f"{AGENTS}:echo", "\x1b[2J\x1b]0;title\x07harmless")) as tty:
        assert tty.end() == 0
    assert tty.screen.text.rstrip().endswith("\n<harmless>")
    with terminal(*in_terminal("run", f"{AGENTS}:hopeless", "Hello", "--quiet")) as tty:
        assert tty.end() == 1
    first, second, *_ = tty.screen.lines
    assert first.startswith("error: MAX_ATTEMPTS_EXCEEDED: ")
    assert second.startswith("       ")
