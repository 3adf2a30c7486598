"""Laws of whole iterations: what hides more, occupies less or is not copied is never slower."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import is_legal

from ppmodel import names, simulate
from ppmodel.errors import PPModelError
from ppmodel.simulation import BUFFERED

FASTER = {
    "nothing copied": ({"offload": 0.5}, {}),
    "all copied, or half": ({"offload": 1.0}, {"offload": 0.5}),
    "a free link": ({"p2p": "overlapped"}, {"p2p": "latency"}),
    "a NIC without neighbours": ({"p2p": "overlapped_nic"}, {"p2p": "overlapped"}),
    "reductions beside the ranks": ({"allreduce": "blocking"}, {"allreduce": "overlapped"}),
    "gradients under the backward": ({"dp": 2}, {"dp": 2, "overlap_gradients": True}),
    "parameters under the forward": ({"dp": 2, "zero": 3}, {"dp": 2, "zero": 3, "overlap_parameters": True}),
    "the best order in a cell": ({"tp": 4}, {"tp": 4, "pairing": "best"}),
}
"""Two settings of which the second is never slower, where no queue depends on costs."""


@pytest.mark.parametrize("law", FASTER)
@settings(max_examples=25, deadline=None)
@given(
    case=st.tuples(st.sampled_from(names()), st.sampled_from([2, 4, 6, 8]), st.sampled_from([4, 8, 12, 16])),
    model=st.sampled_from(["llama3_8b", "llama3_70b", "deepseek_v3"]),
    system=st.sampled_from(["h100", "a800", "dgx_h100"]),
    p2p=st.sampled_from(BUFFERED),
    tp=st.sampled_from([1, 2, 8]),
)
def test_what_hides_more_is_never_slower(law, case, model, system, p2p, tp):
    """Any schedule, with a layout, on any semantics under which messages of one pair of ranks occupy no other's link.

    Where ranks share NICs, or reductions occupy links, queues serve first come, first served, and less work may take
    longer: anomalies of every such system (Graham, 1969), of which `test_nodes` has examples.
    """
    if not is_legal(case[0], case[1:]):
        return
    given_all = {"model": model, "system": system, "p2p": p2p, "tp": tp, "allreduce": "overlapped"}
    try:
        slower, faster = (simulate(*case, **given_all | setting).iteration_s for setting in FASTER[law])
    except PPModelError:  # the model has too few blocks, heads or sequences for this size
        return
    assert faster <= slower * (1 + 1e-9)
