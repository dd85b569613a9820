"""What the check of a rule costs: time in proportion to what a model wrote, however many stars the rule has."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.permission.capability import Action, fits_name
from journeyman.permission.rules import Roots, Rules
from tests.support.stopwatch import slowness

MANY = 8_000
"""As many characters of a command as are read as one, about."""
ROOTS = Roots(["/r"], resolve=str)


def run(command: str) -> Action:
    return Action(tool="bash", capability="exec", command=command)


def read(path: str) -> Action:
    return Action(tool="read", capability="read", paths=(path,))


def fetch(url: str) -> Action:
    return Action(tool="fetch", capability="network", url=url)


def delegate(name: str) -> Action:
    return Action(tool="subagent", capability="internal", agents=(name,))


# each of a size at which what tries every place of each star takes seconds
COSTLY: dict[str, tuple[str, Callable[[int], Action]]] = {
    "stars in a word": ("Bash(git *a*b*c*d*e)", lambda n: run("git " + "abcd" * (n // 4))),
    "stars in the program": ("Bash(*a*b*c*d*e)", lambda n: run("abcd" * (n // 4))),
    "stars among words": ("Bash(git * a * b * c * z)", lambda n: run("git " + "a b c " * (n // 6))),
    "stars behind options": ("Bash(git * a * z)", lambda n: run("git " + "-a " * (n // 3))),
    "an option that begins the rule": ("Bash(git -a * b * z)", lambda n: run("git " + "-a " * (n // 3))),
    "words that repeat": ("Bash(git a a a a * a a a b)", lambda n: run("git " + "a " * (n // 2))),
    "many commands": ("Bash(git * a * z)", lambda n: run("git a; " * (n // 7))),
    "commands in commands": ("Bash(git * a * z)", lambda n: run("$(git a " * (n // 9) + ")" * (n // 9))),
    "what cannot be read": ("Bash(git * a * z)", lambda n: run("git $(x) " + "-a b " * (n // 5))),
    "stars in a name of a path": ("Read(*a*b*c*d*e)", lambda n: read("/r/" + "abcd" * (min(n, 4_000) // 4))),
    "stars among folders": ("Read(//**/a/**/b/**/c/**/z)", lambda n: read("/a/b/c" * (min(n, 4_000) // 6))),
    "both": ("Read(**/*a*b*/**/*c*d*/**/*e)", lambda n: read("/r" + "/abcd" * (min(n, 4_000) // 5))),
    "a host": ("WebFetch(*.example.org)", lambda n: fetch("https://" + "a." * (n * 8) + "com")),
    "a host that can be read in many ways": ("WebFetch(*.example.org)", lambda n: fetch("https:\\" + "a\\@" * n)),
    "a name of an agent": ("Subagent(aaaa*)", lambda n: delegate("a" * n * 8)),
    "a name of a tool": ("aaaa*", lambda n: Action(tool="a" * n * 8, capability="unknown")),
}


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize(("rule", "make"), COSTLY.values(), ids=COSTLY)
def test_a_rule_with_many_stars_costs_time_in_proportion(rule: str, make: Callable[[int], Action]) -> None:
    every = Rules([rule], [rule], [rule], ROOTS)

    def seconds(n: int) -> float:
        action = make(n)
        best = 1.0
        for _ in range(3):
            began = time.thread_time()
            every.denying(action, [action.tool])
            every.asking(action, [action.tool])
            every.allowing(action)
            every.doubting(action)
            best = min(best, time.thread_time() - began)
        return best

    seconds(100)  # patterns are compiled once
    assert seconds(MANY) < 0.05 + 24 * seconds(MANY // 8)  # what grows with the square takes 64 times as long
    assert seconds(MANY) < 0.25 * slowness()


WORDS = st.lists(st.sampled_from(["-a", "-b", "a", "b", "z"]), max_size=7)
TOKENS = st.lists(st.sampled_from(["*", "-a", "a", "b", "*b", "z"]), min_size=1, max_size=5)


def begins(tokens: list[str], words: list[str]) -> bool:
    """Tell, by trying every way, whether words begin as tokens say."""
    if not tokens:
        return True
    if tokens[0] == "*":
        return any(begins(tokens[1:], words[n:]) for n in range(len(words) + 1))
    fits = bool(words) and (words[0].endswith("b") if tokens[0] == "*b" else words[0] == tokens[0])
    return fits and begins(tokens[1:], words[1:])


@given(TOKENS, WORDS)
def test_a_deny_rule_matches_what_it_would_if_every_way_were_tried(tokens: list[str], words: list[str]) -> None:
    starts, is_option = [0], [word.startswith("-") for word in words]
    while starts[-1] < len(words) and (is_option[starts[-1]] or (starts[-1] > 0 and is_option[starts[-1] - 1])):
        starts.append(starts[-1] + 1)
    shown = tokens[:-1] if tokens[-1] == "*" else tokens
    expected = any(begins(shown, words[start:]) for start in starts)
    rules = Rules([], [f"Bash(git {' '.join(tokens)})"], [], ROOTS)
    assert (rules.denying(run(" ".join(["git", *words])), ["bash"]) is not None) == expected


def test_a_star_in_a_name_stands_at_its_end_only(tmp_path: Path) -> None:
    assert fits_name("a*b*", "a*bc")
    assert not fits_name("a*b*", "axbc")
