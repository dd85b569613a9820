"""The values: what a box may not be, how it is widened, and what is said of guarantees."""

from pathlib import Path

import pytest

from journeyman.errors import DefinitionError
from journeyman.sandbox import Box, SandboxGuarantees

WORK = "/srv/project"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"work": "project"}, "work holds 'project', which is no absolute path."),
        ({"work": "/srv/../project"}, "work holds '/srv/../project', which is no absolute path."),
        ({"work": WORK, "hidden": ("/a\0b",)}, "hidden holds '/a\\x00b', which is no absolute path."),
        ({"work": "/"}, "A command may not change /: it holds too much else."),
        ({"work": str(Path.home())}, f"A command may not change {Path.home()}: it holds too much else."),
        ({"work": WORK, "writes": ("/",)}, "A command may not change /: it holds too much else."),
        ({"work": WORK, "hidden": ("/srv",)}, f"{WORK} may be changed, but lies in /srv, which is hidden."),
        (
            {"work": WORK, "writes": ("/a/b",), "hidden": ("/a",)},
            "/a/b may be changed, but lies in /a, which is hidden.",
        ),
        ({"work": WORK, "hosts": ("*",)}, "hosts holds '*', which is no name of a host."),
        ({"work": WORK, "hosts": ("1.2.3.4",)}, "hosts holds '1.2.3.4', which is no name of a host."),
        ({"work": WORK, "hosts": ("0x7f.1",)}, "hosts holds '0x7f.1', which is no name of a host."),
        ({"work": WORK, "hosts": ("a.test.",)}, "hosts holds 'a.test.', which is no name of a host."),
        ({"work": WORK, "hosts": ("bücher.test",)}, "hosts holds 'bücher.test', which is no name of a host."),
        ({"work": WORK, "hosts": ("a.test:99999",)}, "hosts holds 'a.test:99999', which is no name of a host."),
        ({"work": WORK, "denied": ("bin/rm",)}, "denied holds 'bin/rm', which is no name of a program."),
        ({"work": WORK, "reads": "some"}, "reads is 'some'."),
    ],
)
def test_a_box_that_cannot_be_is_refused_in_words(given: dict[str, object], told: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        Box(**given)  # pyright: ignore[reportArgumentType] - on purpose
    assert [problem.message for problem in caught.value.problems] == [told]


def test_a_box_is_widened_by_what_is_needed_and_by_nothing_else() -> None:
    box = Box(work=WORK, changes=False, hidden=("/home/a/.ssh",), protected=(f"{WORK}/.git/config",))
    wider = box.wider(["host:Example.org", "write:../lib", "write:.", "read:/home/a/.ssh", "write:.git/config"])
    assert wider == Box(
        work=WORK, changes=True, writes=("/srv/lib",), readable=("/home/a/.ssh",), hosts=("example.org",)
    )
    assert box.wider([]) == box
    assert box.wider(["socket:/run/a.sock"]).sockets == ("/run/a.sock",)


@pytest.mark.parametrize(
    "need", ["outside", "host:", "write", "exec:rm", "", "host:1.2.3.4", "write:/", "write:~nobody/.."]
)
def test_what_is_no_need_is_refused(need: str) -> None:
    with pytest.raises(DefinitionError):
        Box(work=WORK).wider([need])


@pytest.mark.parametrize("need", ["write:link", "write:link/a", "read:link/../x", "write:./link", "write:sub/../link"])
def test_a_need_does_not_lead_by_a_link_that_a_command_may_change(tmp_path: Path, need: str) -> None:
    work, outside = tmp_path.resolve() / "work", tmp_path.resolve() / "outside"
    for each in (outside, work / "sub"):
        each.mkdir(parents=True)
    (work / "link").symlink_to(outside)
    (tmp_path / "steady").symlink_to(outside)
    with pytest.raises(DefinitionError, match="by a link that a command may change"):
        Box(work=str(work)).wider([need])
    assert Box(work=str(work)).wider(["write:../steady"]).writes == (str(outside),)
    assert Box(work=str(work), changes=False).wider(["write:link"]).writes == (str(outside),)


def test_a_box_tells_what_it_lets_change() -> None:
    box = Box(work=WORK, writes=("/srv/lib",))
    paths = (WORK, f"{WORK}/a", "/srv/lib/b", "/srv/project2", "/srv")
    assert [box.may_change(path) for path in paths] == [True, True, True, False, False]


def test_guarantees_are_told_with_the_reasons_of_those_that_do_not_hold() -> None:
    found = SandboxGuarantees(held=frozenset({"network", "files"}), reasons={"secrets": "a file was read"})
    assert str(found) == (
        "holds files, network; not protected, processes, programs: not tried; not secrets: a file was read"
    )
    assert not found.is_enough
    assert SandboxGuarantees(held=frozenset({"files", "protected", "secrets", "network"})).is_enough
