"""Permissions: which calls may run, which are asked about, and which are denied."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.permission.approvals import Approvals
    from journeyman.permission.permission import Permission
    from journeyman.permission.taint import TaintGate

__all__ = [
    "Approvals",
    "Permission",
    "TaintGate",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "approvals": "Approvals",
            "permission": "Permission",
            "taint": "TaintGate",
        },
    )
