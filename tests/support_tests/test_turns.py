"""Which second turns `make test` has: those of the list, which are turns of tests, and a share of the others."""

from dataclasses import dataclass

from tests.support.turns import ALWAYS, has_turn, lost_turns, name_of


@dataclass(frozen=True)
class Turn:
    """A test that was collected, as far as a share is drawn of it."""

    nodeid: str


def test_a_tenth_of_the_turns_is_drawn() -> None:
    drawn = [n for n in range(2_000) if has_turn(Turn(f"tests/loop/test_x.py::test_{n}[journaled]"))]
    assert 120 < len(drawn) < 280


def test_what_is_listed_is_always_drawn() -> None:
    assert [each for each in ALWAYS if not has_turn(Turn(each))] == []
    assert len(ALWAYS) >= 10


def test_a_turn_of_the_list_that_its_file_has_no_more_is_told() -> None:
    gone, *others = sorted(ALWAYS)
    assert lost_turns([*others, f"{gone.partition('::')[0]}::test_another"]) == [gone]
    assert lost_turns(["tests/loop/test_nothing_of_the_list.py::test_another"]) == []


def test_the_order_of_the_parameters_does_not_matter() -> None:
    assert name_of("a.py::test_a[over http-1]") == name_of("a.py::test_a[1-over http]") != name_of("a.py::test_a[1]")
