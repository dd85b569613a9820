"""What a chat's terminal shows at 40, 80 and 120 columns, without colours and plain, and the keys of its line."""

import re
from pathlib import Path

import pytest

from tests.cli.program import Warm, timeless
from tests.cli.terminal import CHAT_AGENTS, Terminal, chatting
from tests.support.files import PNG

pytestmark = pytest.mark.timeout(60)
DOCS = Path(__file__).parents[2] / "docs" / "cli-chat.md"
TAB, ESCAPE, CTRL_R = b"\t", b"\x1b", b"\x12"


def screen_in_docs(begin: str) -> str:
    """Return the screen that the page on the chat in the terminal shows, from its first row on."""
    found = re.search(rf"```console\n({re.escape(begin)}.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert found, f"docs/cli-chat.md shows no screen that begins with {begin!r}"
    return timeless(found[1].rstrip())


def paste(chat: Terminal, text: str) -> None:
    chat.press(b"\x1b[200~" + text.encode() + b"\x1b[201~")


def test_an_answer_is_shown_as_in_the_docs(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("report", "Shall I fix it?")
        in_docs = screen_in_docs("> report")
        chat.wait_for(lambda shown: in_docs in timeless(shown))
    assert chat.has_colours


@pytest.mark.parametrize("columns", [40, 120])
def test_narrow_and_wide_screens_show_the_same_words(warm: Warm, tmp_path: Path, columns: int) -> None:
    with chatting(tmp_path, columns=columns, start=warm.start) as chat:
        chat.type("report", "Shall I fix it?")
        chat.type("bash echo hello", "allow?")
        shown = chat.type("y", "hello\\n")
        chat.see("function · 15 tokens · balanced")
    assert max(map(len, shown.splitlines())) <= columns
    words = " ".join(shown.split())
    assert "There are two problems in src/app.py, and one of them matters:" in words
    assert "1 total adds texts. It should add numbers. 2 Nothing tests it." in words


def test_without_colours_only_bold_and_the_like_are_left(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start, NO_COLOR="1") as chat:
        chat.type("report", "Shall I fix it?")
        chat.press(b"/mo")
        chat.see("/model  Shows the model")
    assert not chat.has_colours


def test_what_is_drawn_together_is_written_together(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("report", "Shall I fix it?")
        before = chat.n_writes
        chat.type("/cost", "1 request")
        assert chat.n_writes - before <= 12  # eight keys, and a line
        assert chat.times_drawn("Nothing tests it.") == 1


def test_a_command_shows_its_last_lines_while_it_runs_and_is_folded_after(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, "--mode", "trust", start=warm.start) as chat:
        chat.type("bash seq 1 30; cat door; seq 31 40", "│ 30")
        moving = chat.see("running bash")
        assert re.findall(r"│ (\d+)", moving) == ["26", "27", "28", "29", "30"]
        (tmp_path / "door").write_bytes(b"")
        assert re.findall(r"│ (\S+)", chat.see("│ 40\n")) == ["…", "37", "38", "39", "40"]
        chat.type("/output", "│ 1\n")
        chat.see("│ 36\n")


def test_a_paste_of_10_000_lines_is_a_mark_in_the_line_and_arrives_whole(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        paste(chat, "count\n" + "a line\r\n" * 9_999)
        chat.see("> [pasted text 1: 10,000 lines]")
        chat.press(b"\x7f")  # the whole mark
        chat.wait_for(lambda shown: "pasted" not in shown)
        paste(chat, "count\n" + "a line\n" * 9_999)
        chat.see("> [pasted text 2: 10,000 lines]")
        shown = chat.type("", "9999 line breaks")
        assert shown.count("a line") < 20
        assert "… 9,990 more lines …" in shown
        paste(chat, "a line\n" * 9_999)
        chat.see("> [pasted text 3: 9,999 lines]")
        chat.type("What is this?", "What is this?']")
        assert re.search(r"  … 9,9\d\d more lines …\n(  a line\n){3}  What is this\?\n", chat.text)
        paste(chat, "two\nlines")
        chat.see("> two\n")


def test_tab_completes_commands_modes_and_files(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "engine.py").touch()
    with chatting(tmp_path, start=warm.start) as chat:
        chat.press(b"/mo")
        chat.see("/mode   Shows what happens to calls, or changes it.")
        chat.press(b"de au" + TAB + b"\r")
        chat.see("The mode is auto from the next call on.")
        chat.see("function · auto")
        chat.press(b"look at @engi" + TAB)
        chat.see("> look at @src/deep/engine.py")
        chat.press(b"\x15@no-such-file" + TAB + b"/ex\x15")
        chat.type("/mode nonsense", "There is no mode nonsense. Use one of strict, balanced, auto, trust, plan.")


def test_a_picture_is_sent_along_by_its_path(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "a chart.png").write_bytes(PNG)
    (tmp_path / "torn.png").write_bytes(PNG[:9])
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type(r"pictures in @a\ chart.png, and none in @no.png", "1 of ['image/png']")
        assert "  with the picture a chart.png" in chat.text
        chat.type(f"'{tmp_path}/a chart.png'")
        chat.see_flowing("heard [")
        chat.wait_for(lambda shown: shown.count("with the picture") == 2)
        chat.type("pictures @torn.png", "Nothing was said: name another picture, or none.")
        chat.type(f"{tmp_path}/no.png is a path, not a command")
        chat.see_flowing("a path, not a command'], read []")


def test_ctrl_r_finds_what_was_entered(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("The first thing.", "heard ['The first thing.']")
        chat.type("Another one.", "heard ['Another one.']")
        chat.press(CTRL_R + b"third")
        chat.see("search: third\n  nothing found")
        chat.press(b"\x7f" * 5 + b"first")
        chat.see("search: first")
        chat.wait_for(lambda shown: "nothing found" not in shown)
        chat.press(b"\r")
        chat.wait_for(lambda shown: "search:" not in shown)
        chat.type(" Again.", "heard ['The first thing. Again.']")


def test_escape_stops_the_turn_and_never_leaves(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("wait", "running wait")
        chat.press(ESCAPE)
        chat.see("■ stopped")
        chat.press(ESCAPE * 3)
        chat.type("Hello?", "'Hello?']")


def test_commands_of_the_users_own_are_told_with_the_next_text_or_not(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("!echo secret", "The agent reads it with what you say next.")
        chat.type("!!echo hidden; exit 3", "  exit code 3\n")
        shown = chat.type("Well?", "Well?']")
        heard = " ".join(shown[shown.index("heard") :].split())
        assert r"I ran this command:\n$ echo secret\nsecret\n[exit code 0]\n\nWell?" in heard
        assert "hidden" not in heard
        chat.type("!!setsid flock lock sleep 60 > /dev/null 2>&1 & until [ -e lock ]; do :; done", "  exit code 0")
        chat.type("!!flock -n lock sh -c 'exit 7'", "  exit code 7\n")  # nothing of it holds the lock
        chat.type("!cat door", "running your command")
        chat.type("Said meanwhile.", "then: Said meanwhile.")
        chat.press(b"\x03")
        chat.see("interrupted. The agent reads it")
        chat.see("Said meanwhile.']")


def test_a_turn_is_undone_and_another_conversation_gone_on_with(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("The old one.", "heard ['The old one.']")
        chat.press(b"\x04")
        assert chat.end() == 0
    id = chat.text.split()[-1]
    with chatting(tmp_path, start=warm.start) as chat:
        chat.type("/undo", "There is no turn to undo")
        chat.type("Gone.", "heard ['Gone.']")
        chat.type("/undo", "The last turn is undone: 2 messages hidden.")
        chat.type("/resume nothing", "No conversation has an id that begins with nothing.")
        chat.type(f"/resume {id[:6]}", "> The old one.")
        chat.type("/cost", "1 request · ")
        chat.type(f"/resume {id}", "You are in this conversation.")
        chat.type("/model anthropic:x", "There is no key")
        chat.type("/model", "scripted:function")
        chat.type("/compact", "has no strategies to compact with")
        chat.type("/quit")
        assert chat.end() == 0
    assert " ".join(chat.text.split()).endswith(f"--resume {id}")


@pytest.mark.parametrize(("words", "kind"), [(["--plain"], "xterm-256color"), ([], "dumb")])
def test_a_plain_chat_writes_lines_and_nothing_else(warm: Warm, tmp_path: Path, words: list[str], kind: str) -> None:
    with chatting(tmp_path, *words, start=warm.start, TERM=kind) as chat:
        chat.type("report", "> Shall I fix it?\n")
        assert "# What I found" in chat.text
        chat.see("cost unknown")
        chat.type("bash echo hello", "allow?")
        chat.type("n not now", "denied: not now")
        chat.wait_for(lambda shown: shown.endswith("\n>"))
        chat.press(b"\x03")
        chat.see("Press Ctrl-C again to leave.")
        chat.press(b"\x03")
        assert chat.end() == 130
    assert "\x1b" not in chat.output


def test_a_plain_chat_is_interrupted_and_left_with_ctrl_d(warm: Warm, tmp_path: Path) -> None:
    with chatting(tmp_path, "--plain", "--mode", "trust", start=warm.start) as chat:
        chat.type("sleep", "I sleep.")
        chat.press(b"\x03")
        chat.see("■ stopped")
        chat.press(b"\x04")
        assert chat.end() == 0


def test_a_pipe_runs_no_commands_and_changes_no_mode(warm: Warm, tmp_path: Path) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path / "data")}
    lines = b"!touch evil\n/mode trust\nbash touch evil\n/model other:x\n"
    done = warm("chat", f"{CHAT_AGENTS}:helper", cwd=tmp_path, stdin=lines, env=env)
    assert done.code == 0
    assert "heard ['!touch evil']" in done.stdout
    assert "/mode [MODE] is for terminals only. Begin the chat with --mode MODE." in " ".join(done.stderr.split())
    assert not (tmp_path / "evil").exists()


def test_colours_can_be_forced_into_a_pipe(warm: Warm, tmp_path: Path) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path / "data")}
    (tmp_path / "door").touch()
    chosen = warm("chat", f"{CHAT_AGENTS}:helper", cwd=tmp_path, stdin=b"wait\n", env={**env, "FORCE_COLOR": "1"})
    assert "\x1b[32m✓" in chosen.stderr
    assert set(re.findall(r"\x1b\[[\d;?]*([a-zA-Z])", chosen.stderr)) == {"m"}
