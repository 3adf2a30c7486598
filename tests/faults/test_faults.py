"""The list of seeded faults keeps up with the code: each can still be seeded."""

import pytest

from tests.faults.seeded import ROOT, faults


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_every_fault_can_be_seeded(fault):
    """Its text occurs exactly once in its file, and seeding changes the file."""
    assert (ROOT / fault.file).read_text().count(fault.was) == 1
    assert fault.was != fault.becomes
