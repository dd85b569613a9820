"""Who takes which exam: each port of the library with its implementations, and the tests that all of them pass.

What holds for a port is asserted in its exam once, and run by every implementation: a twin that is left out may do
anything. `test_ports` compares this list with the source: whoever implements a port stands here.
"""

from collections.abc import Mapping
from typing import Final

PLACES: Final = ("in_process", "memory", "file", "postgres")
"""Where a run, its tasks and its team live: in its process, or as durable runs."""
SESSIONS: Final = ("file", "postgres", "redacted", "durable in memory", "durable in a file", "durable in postgres")
"""Where conversations are kept."""
CHATS: Final = ("not kept", *SESSIONS)

_SESSIONS: Final = "exams/test_sessions.py"
_TASKS: Final = "exams/test_tasks.py"
_ENGINES: Final = "durable/test_engines.py"
_DISPATCH: Final = "durable/test_dispatch.py"
_RECORDER: Final = "record/test_recorder.py"
_TEAMS: Final = "exams/test_teams.py"
_SANDBOXES: Final = "sandbox/test_exam.py"
_OTHER_SYSTEMS: Final = "sandbox/test_other_systems.py"

EXAMS: Final[Mapping[str, Mapping[str, str]]] = {
    "BackgroundTasks": {"Tasks": _TASKS},
    "Dispatcher": {"Procrastinate": _DISPATCH},
    "DurableSession": {"ChatSession": "exams/test_chats.py"},
    "Engine": {"InMemoryEngine": _ENGINES, "SqliteEngine": _ENGINES, "PostgresEngine": _ENGINES},
    "OpenSandbox": {"KeptSandbox": _SANDBOXES, "_OpenContainer": _OTHER_SYSTEMS},
    "Post": {"Mailbox": _TEAMS, "SignalPost": _TEAMS},
    "Sandbox": {
        **dict.fromkeys(("Bubblewrap", "Landlock", "NoSandbox"), _SANDBOXES),
        **dict.fromkeys(("Container", "Seatbelt"), _OTHER_SYSTEMS),  # which sit it where there is such a system
    },
    "TellsRefusals": {"KeptSandbox": "sandbox/test_proxy.py"},
    "SandboxProcess": {
        **{"KeptProcess": _SANDBOXES, "_ContainerProcess": _OTHER_SYSTEMS},
        "_ChildProcess": "toolbox/test_commands.py",
    },
    "RunChanges": dict.fromkeys(("InMemoryEngine", "SqliteEngine", "Transactions"), "durable/test_contracts.py"),
    "SentRuns": {"SentOut": _TASKS},
    "PatientSession": {"StoredSession": _SESSIONS},
    "SessionRows": dict.fromkeys(("DatabaseRows", "FileRows", "MemoryRows", "SqlRows"), _SESSIONS),
    "Sessions": dict.fromkeys(("PostgresSessions", "Store", "StoredSessions"), _SESSIONS),
    "Storage": {"FileStorage": _RECORDER, "SharedStorage": _RECORDER},
}
"""Of each port its implementations, each with the file of tests that it passes with the others."""

APART: Final[Mapping[str, str]] = {
    "Journal": "a run's, a part of another one, and that of a cassette keep different promises",
    "Model": "what stands around a model: properties/test_models_around_models.py",
    "Outside": "one implementation",
    "Records": "one implementation",
    "Reservation": "each is that of its journal",
    "Tap": "one records, one measures, one does both",
    "RecordingSink": "one records, one measures, one does both",
    "Telemetry": "one implementation",
}
"""Ports without an exam, each with the reason: a second implementation of "one implementation" is told of."""
