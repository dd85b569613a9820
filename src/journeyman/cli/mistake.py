"""What was asked for cannot be done as it was said. Imports `errors`; everything else here may raise it."""

from __future__ import annotations

from journeyman.errors import DefinitionError, JourneymanError


class Mistake(JourneymanError):
    """The command line, or a file that it names, cannot be used. Becomes one line on stderr and exit code 2."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message} {hint}")
        self.message = message
        """What is wrong, with the values."""
        self.hint = hint
        """What to do about it."""


class Misdefined(Mistake):
    """Importing the file raised `DefinitionError`."""

    def __init__(self, message: str, hint: str, *, place: str, error: DefinitionError) -> None:
        super().__init__(f"{place}: {message}", hint)
        self.place = place
        """The file and line."""
        self.error = error
        """Lists every problem."""
