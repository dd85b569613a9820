"""Boxes for commands: what a command must not do is refused by the kernel, whatever the command looks like.

    sandbox = choose_sandbox()
    opened = sandbox.open(Box(work="/home/me/project", denied=("rm",)))
    process = await opened.spawn("make", ["test"], environment=os.environ)

The names below are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.sandbox.adapter import NoSandbox
    from journeyman.sandbox.box import Box, BoxLimits, SandboxGuarantees, SandboxRefusal, secrets_of_home
    from journeyman.sandbox.bubblewrap import Bubblewrap
    from journeyman.sandbox.choose import choose_sandbox, explain_sandboxes
    from journeyman.sandbox.container import Container
    from journeyman.sandbox.landlock import Landlock
    from journeyman.sandbox.refusals import find_refusals
    from journeyman.sandbox.sandbox import OpenSandbox, Sandbox, SandboxProcess, SandboxUnavailable, TellsRefusals
    from journeyman.sandbox.seatbelt import Seatbelt
    from journeyman.sandbox.trials import sandbox_exam

__all__ = [
    "Box",
    "BoxLimits",
    "Bubblewrap",
    "Container",
    "Landlock",
    "NoSandbox",
    "OpenSandbox",
    "Sandbox",
    "SandboxGuarantees",
    "SandboxProcess",
    "SandboxRefusal",
    "SandboxUnavailable",
    "Seatbelt",
    "TellsRefusals",
    "choose_sandbox",
    "explain_sandboxes",
    "find_refusals",
    "sandbox_exam",
    "secrets_of_home",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "adapter": "NoSandbox",
            "box": "Box BoxLimits SandboxGuarantees SandboxRefusal secrets_of_home",
            "bubblewrap": "Bubblewrap",
            "choose": "choose_sandbox explain_sandboxes",
            "container": "Container",
            "landlock": "Landlock",
            "refusals": "find_refusals",
            "sandbox": "OpenSandbox Sandbox SandboxProcess SandboxUnavailable TellsRefusals",
            "seatbelt": "Seatbelt",
            "trials": "sandbox_exam",
        },
    )
