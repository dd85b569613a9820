"""Permissions: which calls may run, which are asked about, and which are denied."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.permission.approvals import Approvals, PendingApproval
    from journeyman.permission.capability import Action, Capability, Classifier
    from journeyman.permission.permission import AuditEntry, Permission, PermissionMode, make_box, rules_beyond_box
    from journeyman.permission.rules import WorkingFolder
    from journeyman.permission.taint import TaintGate

__all__ = [
    "Action",
    "Approvals",
    "AuditEntry",
    "Capability",
    "Classifier",
    "PendingApproval",
    "Permission",
    "PermissionMode",
    "TaintGate",
    "WorkingFolder",
    "make_box",
    "rules_beyond_box",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "approvals": "Approvals PendingApproval",
            "capability": "Action Capability Classifier",
            "permission": "AuditEntry Permission PermissionMode make_box rules_beyond_box",
            "rules": "WorkingFolder",
            "taint": "TaintGate",
        },
    )
