"""Names for parametrised tests that are the same in every process."""

import re
from typing import cast


def steady_repr(value: object) -> str:
    """Return the repr of `value` without addresses, and with sets in order."""
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(steady_repr(each) for each in cast("set[object]", value))) + "}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
