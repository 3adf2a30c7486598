"""Whatever a notebook or a parameter of one holds comes back as one line, and nothing of it is run."""

import pytest
from attack.attempt import tried
from attack.catalogue import CATEGORIES

EVERY = {"parameters": 40, "notebooks": 18}
"""Of `make attack`, which runs all, every so many."""


@pytest.mark.parametrize("category", EVERY)
def test_attacks_on_notebooks(category, tmp_path):
    """One line, in bounded time, memory and output; nothing of others is changed."""
    for number, attack in enumerate(list(CATEGORIES[category]())[:: EVERY[category]]):
        faults, _ = tried(attack, tmp_path / str(number))
        assert not faults, (attack.name, attack.words, faults)
