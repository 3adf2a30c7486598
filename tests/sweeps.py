"""Specifications of sweeps, the command that computes them, and a stand-in that counts what is computed."""

from ppmodel.cli import main
from ppmodel.studies.sweep import compute_rows

PLAIN = """
schedules: [gpipe, 1f1b, {name: chimera, concat: [direct, forward-doubling]}, {name: hanayo, waves: [1, 2]}]
pp: [2, 3, 4, 6]
microbatches: [4, 6, 8, 12]
p2p: [latency, overlapped, blocking]
systems: [dgx_a100, dgx_h100]
models: [gpt3_175b, paper]
"""
NOISY = """
schedules: [1f1b, chimera]
pp: 4
microbatches: [4, 8]
allreduce: [excluded, blocking]
systems: mid_cp_slow_nw
models: paper
noise: [{jitter: 0.1}, {straggling: 0.5, slowdown: 2.0}]
seeds: [{from: 3, to: 9}, 1]
"""
SHORT = """
schedules: [gpipe, 1f1b, eager-1f1b]
pp: [2, 3, 4, 5]
microbatches: [2, 4, 8, 16]
p2p: [latency, overlapped]
systems: dgx_h100
models: paper
"""


def run(capsys, *words):
    code = main(["sweep", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


class Counted:
    """`compute_rows` that notes what it is asked for; after some calls, it stops its sweep as Ctrl-C does."""

    def __init__(self, stop_after=None):
        self.calls, self.stop_after = [], stop_after

    def __call__(self, sweep, first, last):
        if len(self.calls) == self.stop_after:
            raise KeyboardInterrupt
        self.calls.append((first, last))
        return compute_rows(sweep, first, last)
