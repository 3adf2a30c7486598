"""The claim on asymmetric Chimera, settled: exact peaks of every split, and the front of every placement."""
