"""Sandboxes that cannot run here: the profile of macOS and the options of a container, as they are given."""

import os
import sys
from difflib import ndiff
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from journeyman.sandbox import Box, BoxLimits, Container, SandboxUnavailable, Seatbelt, sandbox_exam
from journeyman.sandbox.container import container_arguments
from journeyman.sandbox.seatbelt import write_profile

BOX = Box(
    work="/Users/a/a project",
    writes=("/Users/a/lib",),
    hidden=("/Users/a/.ssh",),
    protected=("/Users/a/a project/.git/hooks", '/Users/a/a project/x"y'),
    limits=BoxLimits(temporary_bytes=1_000),
)


def test_the_profile_of_macos() -> None:
    assert write_profile(BOX, "/private/tmp/box", ["/bin/rm"], ["/opt/x"]) == snapshot("""\
(version 1)
(allow default)
(deny file-write*)
(allow file-write*
  (subpath "/Users/a/a project")
  (subpath "/Users/a/lib")
  (subpath "/private/tmp/box"))
(allow file-write-data file-ioctl
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/tty")
  (literal "/dev/stdin")
  (literal "/dev/stdout")
  (literal "/dev/stderr")
  (literal "/dev/random"))
(deny file-write-setugid)
(deny file-write*
  (subpath "/Users/a/a project/.git/hooks")
  (subpath "/Users/a/a project/x\\"y"))
(deny file-write-unlink
  (literal "/Users/a/a project/.git"))
(deny file-read* file-write*
  (subpath "/Users/a/.ssh"))
(deny file-read-data process-exec*
  (literal "/bin/rm"))
(deny network*)
(deny signal (target others))
(deny process-info* (target others))
(deny appleevent-send)
(deny lsopen)
(deny mach-lookup
  (global-name "com.apple.SecurityServer")
  (global-name "com.apple.securityd.xpc")
  (global-name "com.apple.coreservices.appleevents")
  (global-name "com.apple.coreservices.launchservicesd")
  (global-name "com.apple.lsd.open")
  (global-name "com.apple.pasteboard.1"))
""")


def test_the_profile_of_a_box_that_shows_only_the_system() -> None:
    box = Box(work="/Users/a/b", changes=False, reads="system")
    whole = write_profile(Box(work="/Users/a/b"), "/private/tmp/box", [], ["/opt/x"])
    shown = ndiff(whole.splitlines(), write_profile(box, "/private/tmp/box", [], ["/opt/x"]).splitlines())
    assert "\n".join([each for each in shown if each[0] != " "]) == snapshot("""\
-   (subpath "/Users/a/b")
+ (deny file-read-data (subpath "/"))
+ (allow file-read-data (literal "/")
+   (subpath "/usr")
+   (subpath "/bin")
+   (subpath "/sbin")
+   (subpath "/System")
+   (subpath "/Library")
+   (subpath "/opt")
+   (subpath "/etc")
+   (subpath "/private/etc")
+   (subpath "/dev")
+   (subpath "/private/var")
+   (subpath "/opt/x")
+   (subpath "/Users/a/b")
+   (subpath "/private/tmp/box"))\
""")


def test_a_path_that_no_profile_can_hold_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match=r"'/Users/a/b\\nc' has characters that a profile"):
        write_profile(Box(work="/Users/a/b\nc"), "/private/tmp/box", [], [])


def test_the_options_of_a_container() -> None:
    assert [*container_arguments(Box(work="/srv/a", limits=BOX.limits), "name", "/temporary")] == snapshot(
        [
            "run",
            "--rm",
            "--interactive",
            "--init",
            "--name",
            "name",
            "--pull",
            "never",
            "--network",
            "none",
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
            "--read-only",
            "--user",
            "0:0",
            "--ipc",
            "none",
            "--mount",
            "type=bind,source=/temporary,target=/tmp",
            "--mount",
            "type=bind,source=/srv/a,target=/srv/a",
        ]
    )


def test_the_folders_around_what_a_container_protects_are_mounts_that_cannot_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    given = [*container_arguments(Box(work=str(tmp_path), protected=(str(tmp_path / "a/b"),)), "name", "/temporary")]
    assert [each.partition(",target=")[2] for each in given if ",target=" in each] == [
        *("/tmp", str(tmp_path), str(tmp_path / "a"), f"{tmp_path / 'a/b'},readonly")
    ]


def test_a_path_that_no_mount_can_hold_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="'/srv/a,b' has characters that no mount of a container can hold"):
        list(container_arguments(Box(work="/srv/a,b"), "name", "/temporary"))


def test_an_image_that_is_missing_is_told(tmp_path: Path) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho No such image >&2; exit 1")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(SandboxUnavailable, match=r"There is no image 'debian' here \(No such image\)\. Fetch it: /"):
        Container("debian", program=str(tmp_path / "docker")).open(Box(work="/srv/a"))


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(SandboxUnavailable, match="Neither no-such-docker is installed"):
        Container("debian", program="no-such-docker").open(Box(work="/srv/a"))
    if sys.platform != "darwin":
        assert Seatbelt().holds().reasons["files"] == "/usr/bin/sandbox-exec is not there: only macOS has it."


@pytest.mark.skipif(sys.platform != "darwin", reason="another system: Seatbelt is macOS's")
async def test_seatbelt_sits_the_exam_on_a_mac() -> None:
    assert (await sandbox_exam(Seatbelt)).is_enough


async def test_containers_sit_the_exam_where_an_image_is_named() -> None:
    image = os.environ.get("JOURNEYMAN_IMAGE")
    if image is None:
        pytest.skip("no image for the exam of containers: JOURNEYMAN_IMAGE is not set")
    assert (await sandbox_exam(lambda: Container(image))).is_enough
