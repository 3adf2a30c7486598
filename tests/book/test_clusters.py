"""How a cluster is divided into pipelines of tensor and context groups."""

from ppbook.clusters import divisions


def test_all_gpus_are_used():
    """Nothing is left over, and replicas share the batch evenly."""
    for gpus, batch in ((16, 48), (24, 20)):
        ways = list(divisions(gpus, batch, [1, 2, 3], [1, 2, 4], [1, 2]))
        assert all(pp * tp * cp * dp == gpus and batch % dp == 0 for pp, tp, cp, dp in ways)
        assert len(set(ways)) == len(ways) > 0
