"""Permissions: which calls may run, which are asked about, and which are denied."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.permission.approvals import Approvals, Pending
    from journeyman.permission.capability import Action, Capability, Classifier
    from journeyman.permission.permission import AuditEntry, Mode, Permission
    from journeyman.permission.rules import Root
    from journeyman.permission.taint import TaintGate

__all__ = [
    "Action",
    "Approvals",
    "AuditEntry",
    "Capability",
    "Classifier",
    "Mode",
    "Pending",
    "Permission",
    "Root",
    "TaintGate",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "approvals": "Approvals Pending",
            "capability": "Action Capability Classifier",
            "permission": "AuditEntry Mode Permission",
            "rules": "Root",
            "taint": "TaintGate",
        },
    )
