"""Events: everything that can be seen of runs, chats, tasks and teams."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.events.run import (
        ApprovalRequested,
        AttemptStarted,
        CallbackContext,
        Callbacks,
        ContextCompacted,
        Event,
        IterationStarted,
        Listener,
        MailReturned,
        MailSent,
        MemberChanged,
        ModelAnswered,
        ModelResponded,
        ModelRestarted,
        ModelRetried,
        OutputDelta,
        QuestionAsked,
        RunFailed,
        RunStarted,
        RunSucceeded,
        TaskEnded,
        TaskStarted,
        TextDelta,
        ToolCalled,
        ToolFinished,
        ToolProgress,
    )

__all__ = [
    "ApprovalRequested",
    "AttemptStarted",
    "CallbackContext",
    "Callbacks",
    "ContextCompacted",
    "Event",
    "IterationStarted",
    "Listener",
    "MailReturned",
    "MailSent",
    "MemberChanged",
    "ModelAnswered",
    "ModelResponded",
    "ModelRestarted",
    "ModelRetried",
    "OutputDelta",
    "QuestionAsked",
    "RunFailed",
    "RunStarted",
    "RunSucceeded",
    "TaskEnded",
    "TaskStarted",
    "TextDelta",
    "ToolCalled",
    "ToolFinished",
    "ToolProgress",
]

__getattr__, __dir__ = lazy_face(
    __name__,
    {
        "run": "ApprovalRequested AttemptStarted CallbackContext Callbacks ContextCompacted Event IterationStarted Listener MailReturned MailSent MemberChanged ModelAnswered ModelResponded ModelRestarted ModelRetried OutputDelta QuestionAsked RunFailed RunStarted RunSucceeded TaskEnded TaskStarted TextDelta ToolCalled ToolFinished ToolProgress",
    },
)
