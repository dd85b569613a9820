"""The tests of the loop and the crews that have no second turn with a journal, each with the reason."""

from collections.abc import Mapping
from typing import Final

WITHOUT_JOURNAL: Final[Mapping[str, str]] = {
    "loop/test_replay.py::test_a_state_that_may_be_anything_is_refused_where_it_would_have_to_be_stored": (
        "it says that without a journal such a state is none of its business"
    ),
    "loop/test_state.py::test_new_state_replaces_the_old_whole": (
        "a call makes of the state what its function does not declare, which a journal refuses"
    ),
}
