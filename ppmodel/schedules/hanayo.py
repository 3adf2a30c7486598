"""Hanayo (Liu et al., SC'23): waves that zigzag over the devices, without copies of the weights."""

from heapq import heappop, heappush

import numpy as np

from ppmodel.ops import Op, OpKind
from ppmodel.schedule import Schedule
from ppmodel.schedules.registry import Option, require, schedule

_MAX_OPERATIONS = 2**20
_WAVES_RULE = "must be a whole number of at least 1"


def _waves(text):
    waves = int(text)
    if waves < 1:
        raise ValueError
    return waves


@schedule(
    "hanayo",
    title="2W stages per device in W waves, one copy of the weights",
    legal="B = S",
    options=[Option("waves", _waves, 1, "W", _WAVES_RULE, "waves, of two stages per device each")],
)
def hanayo(num_stages, num_microbatches, waves=1):
    """Hanayo in its restricted regime, as many microbatches as devices.

    The model is cut into 2 W S stages that run over the devices to and fro. The authors published no
    code; the order is found by list scheduling without communication, a backward twice as long as a
    forward, and then kept: backward first, then the operation furthest along its microbatch's way, then
    the oldest microbatch. (The furthest backward is the one nearest to the input: taking the backward of
    the highest stage number instead costs 34 against 31.5 forward-times at S = B = 8, W = 2.)

    Parameters
    ----------
    num_stages, num_microbatches : int
        Devices and microbatches; B = S.
    waves : int
        W.

    Raises
    ------
    ScheduleError
        If B differs from S.

    Examples
    --------
    >>> print(*hanayo(2, 2).table(backward=1)[1])
    . 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 .
    """
    rule = f"must equal stages ({num_stages}) for hanayo, which is defined in this regime only"
    remedy = f"pass microbatches {num_stages}"
    require(num_microbatches == num_stages, "microbatches", num_microbatches, rule, remedy)
    whole = isinstance(waves, int) and not isinstance(waves, bool)
    require(whole and waves >= 1, "waves", waves, _WAVES_RULE, "pass waves 1, 2 or 4")
    size = 4 * waves * num_stages * num_microbatches
    require(size <= _MAX_OPERATIONS, "operations", size, f"must be at most {_MAX_OPERATIONS}", "pass fewer waves")
    stage = np.arange(2 * waves * num_stages)
    segment, step = np.divmod(stage, num_stages)
    placement = np.where(segment % 2 == 0, step, num_stages - 1 - step)
    return Schedule.from_rows("hanayo", _list_schedule(placement.tolist(), num_microbatches))


def _list_schedule(placement, num_microbatches, durations=(1, 2)):
    """Rows of operations: whenever a device is free it takes the best operation that is ready."""
    last_stage = len(placement) - 1
    ready = [[] for _ in range(max(placement) + 1)]
    rows = [[] for _ in ready]
    running, busy = [], [False] * len(ready)

    def release(kind, stage, microbatch):
        way = stage if kind == OpKind.F else 2 * last_stage + 1 - stage
        heappush(ready[placement[stage]], (kind != OpKind.B, -way, microbatch, Op(kind, stage, microbatch)))

    for microbatch in range(num_microbatches):
        release(OpKind.F, 0, microbatch)
    now = 0
    while True:
        for device, waiting in enumerate(ready):
            if waiting and not busy[device]:
                op = heappop(waiting)[-1]
                rows[device].append(op)
                busy[device] = True
                heappush(running, (now + durations[op.kind], device, op))
        if not running:
            return rows
        now = running[0][0]
        while running and running[0][0] == now:
            _, device, op = heappop(running)
            busy[device] = False
            if op.kind == OpKind.F and op.stage < last_stage:
                release(OpKind.F, op.stage + 1, op.microbatch)
            elif op.kind == OpKind.F:
                release(OpKind.B, op.stage, op.microbatch)
            elif op.stage > 0:
                release(OpKind.B, op.stage - 1, op.microbatch)
