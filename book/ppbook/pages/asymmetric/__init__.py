"""The claim about asymmetric Chimera, settled: exact peaks of every split, and the front of every placement."""
