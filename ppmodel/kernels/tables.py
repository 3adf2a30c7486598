"""From a table to an execution graph: the twins of `Schedule.dependencies`, `Schedule.slots` and `graph.compile`."""

import numpy as np

from ppmodel.kernels.jit import compiled
from ppmodel.ops import OpKind

NONE = -1
_F, _B, _I, _W, _R = (int(kind) for kind in OpKind)


@compiled
def dependencies(kind, stage, microbatch, replica, device, device_start, node, sharing, sizes):
    """Source, remote, level, order and level starts of a table; the level of what waits for ever is ``NONE``.

    `node` is the node of each operation, `sharing` whether any two may share one, and `sizes` are the numbers of
    replicas, stages and microbatches.
    """
    source = _sources(kind, stage, microbatch, replica, sizes)
    remote = np.empty(len(kind), np.bool_)
    for op in range(len(kind)):
        remote[op] = source[op] != NONE and device[source[op]] != device[op]
    if not sharing:
        level = _levels_of_operations(source, device_start)
        by_node = np.empty(0, np.int32)
    else:
        by_node, node_start = _sorted_by(node, node.max() + 1, np.empty(0, np.int32))
        level = _levels_of_nodes(source, device, device_start, node, by_node, node_start)
    order, level_start = _sorted_by(level, level.max() + 1, by_node)
    return source, remote, level, order, level_start


@compiled
def _sources(kind, stage, microbatch, replica, sizes):
    """The operation whose result each operation needs."""
    last_stage = sizes[1] - 1
    num_kinds = 2
    for op in range(len(kind)):
        if kind[op] == _I or kind[op] == _W:
            num_kinds = 4
            break
    index = np.full((num_kinds, sizes[0], sizes[1], sizes[2]), NONE, np.int32)
    finished = np.full((sizes[0], sizes[1]), NONE, np.int32)
    for op in range(len(kind)):
        if kind[op] != _R:
            index[kind[op], replica[op], stage[op], microbatch[op]] = op
        if kind[op] == _B or kind[op] == _W:
            finished[replica[op], stage[op]] = op

    source = np.full(len(kind), NONE, np.int32)
    for op in range(len(kind)):
        k, r, s, m = kind[op], replica[op], stage[op], microbatch[op]
        if k == _R:
            source[op] = finished[r, s]
        elif k == _W:
            source[op] = index[_I, r, s, m]
        elif k == _F:
            if s > 0:
                source[op] = index[_F, r, s - 1, m]
        elif s == last_stage:
            source[op] = index[_F, r, s, m]
        else:
            source[op] = index[_B, r, s + 1, m]
            if source[op] == NONE and num_kinds == 4:
                source[op] = index[_I, r, s + 1, m]
    return source


@compiled
def _sorted_by(key, num_keys, among):
    """A counting sort: positions by key, those of one key in the order of `among`, or as they are."""
    start = np.zeros(num_keys + 1, np.int32)
    for position in range(len(key)):
        if key[position] != NONE:
            start[key[position] + 1] += 1
    for k in range(num_keys):
        start[k + 1] += start[k]
    following = start[:-1].copy()
    order = np.empty(len(key), np.int32)
    for place in range(len(key)):
        position = among[place] if len(among) else place
        if key[position] != NONE:
            order[following[key[position]]] = position
            following[key[position]] += 1
    return order, start


@compiled
def _levels_of_operations(source, device_start):
    """Each device runs on until it must wait; what it waits for wakes it. Levels are those of Kahn's algorithm.

    Until its level is known, an operation that device d waits for holds ``NONE - 1 - d`` in its place.
    """
    level = np.full(len(source), NONE, np.int32)
    head = device_start[:-1].copy()
    awake = np.arange(len(head))[::-1].copy()
    num_awake = len(head)
    while num_awake:
        num_awake -= 1
        here = awake[num_awake]
        depth = NONE if head[here] == device_start[here] else level[head[here] - 1]
        while head[here] < device_start[here + 1]:
            op = head[here]
            needed = source[op]
            if needed != NONE:
                if level[needed] <= NONE:
                    level[needed] = NONE - 1 - here
                    break
                depth = max(depth, level[needed])
            depth += 1
            if level[op] < NONE:
                awake[num_awake] = NONE - 1 - level[op]
                num_awake += 1
            level[op] = depth
            head[here] += 1
    for op in range(len(level)):
        level[op] = max(level[op], NONE)
    return level


@compiled
def _levels_of_nodes(source, device, device_start, node, by_node, node_start):
    """The same where operations share nodes: a node's level is known when all its operations have come up."""
    num_nodes = len(node_start) - 1
    level, depth = np.full(num_nodes, NONE, np.int32), np.zeros(num_nodes, np.int32)
    missing = node_start[1:] - node_start[:-1]
    head = device_start[:-1].copy()
    waiter = np.full(len(source), NONE, np.int32)
    awake = np.empty(len(head) + 2 * len(source), np.int32)
    num_awake = 0
    for here in range(len(head)):
        awake[num_awake] = here
        num_awake += 1
    while num_awake:
        num_awake -= 1
        here = awake[num_awake]
        while head[here] < device_start[here + 1]:
            op = head[here]
            current, needed = node[op], source[op]
            if op > device_start[here] and node[op - 1] != current:
                if level[node[op - 1]] == NONE:
                    break  # its firing wakes all its devices
                depth[current] = max(depth[current], level[node[op - 1]] + 1)
            if needed != NONE and node[needed] != current:
                if level[node[needed]] == NONE:
                    waiter[needed] = here
                    break
                depth[current] = max(depth[current], level[node[needed]] + 1)
            head[here] += 1
            missing[current] -= 1
            if missing[current]:
                continue
            level[current] = depth[current]
            for place in range(node_start[current], node_start[current + 1]):
                done = by_node[place]
                if waiter[done] != NONE:
                    awake[num_awake] = waiter[done]
                    num_awake += 1
                if device[done] != here:
                    awake[num_awake] = device[done]
                    num_awake += 1
    result = np.empty(len(source), np.int32)
    for op in range(len(source)):
        result[op] = level[node[op]]
    return result


@compiled
def slots(length, source, device, node, order, num_devices):
    """Start and end of every node in slots, each as early as its devices and its inputs allow."""
    start, end = np.zeros(len(length), np.int64), np.zeros(len(length), np.int64)
    free = np.zeros(num_devices, np.int64)
    first = 0
    while first < len(order):
        current, last = node[order[first]], first
        ready = np.int64(0)
        while last < len(order) and node[order[last]] == current:
            op = order[last]
            ready = max(ready, free[device[op]])
            if source[op] != NONE:
                ready = max(ready, end[node[source[op]]])
            last += 1
        start[current], end[current] = ready, ready + length[current]
        for place in range(first, last):
            free[device[order[place]]] = end[current]
        first = last
    return start, end


@compiled
def renumbered(order, kind, replica, stage, device, source, remote, node, reductions, sizes):
    """The arrays of an `ExecutionGraph`, in the order by level.

    `reductions` is 0 where they are left out, 1 where they occupy the devices, 2 where they have streams of their own;
    `sizes` are the numbers of replicas, stages and devices.
    """
    num_replicas, num_stages, num_devices = sizes
    packed = np.empty((len(order), 4), np.int32)  # one place to read for each operation, and not six
    for op in range(len(order)):
        sums = kind[op] == _R
        packed[op, 0] = (kind[op] * num_replicas + replica[op]) * num_stages + stage[op]
        if sums and reductions == 0:
            packed[op, 0] = NONE
        packed[op, 1] = device[op] + (num_devices if sums and reductions == 2 else 0)
        packed[op, 2] = source[op]
        packed[op, 3] = node[op]
    position = np.empty(len(order), np.int32)
    index, class_, stream = (
        np.empty(len(order), np.int32),
        np.empty(len(order), np.int32),
        np.empty(len(order), np.int32),
    )
    source_, link = np.empty(len(order), np.int32), np.empty(len(order), np.int32)
    remote_, node_start = np.empty(len(order), np.bool_), np.empty(len(order) + 1, np.int32)
    used = np.full((2 * num_devices, num_devices), NONE, np.int32)
    count, num_nodes, previous = 0, 0, NONE
    for op in order:
        if packed[op, 0] == NONE:
            continue
        position[op] = count
        index[count], class_[count], stream[count], link[count] = op, packed[op, 0], packed[op, 1], NONE
        needed = packed[op, 2]
        source_[count] = NONE if needed == NONE else position[needed]
        remote_[count] = remote[op]
        if remote[op]:
            used[stream[source_[count]], stream[count]] = 0
        if packed[op, 3] != previous:
            node_start[num_nodes], previous = count, packed[op, 3]
            num_nodes += 1
        count += 1
    node_start[num_nodes] = count
    num_links = 0
    for sender in range(2 * num_devices):
        for receiver in range(num_devices):
            if used[sender, receiver] != NONE:
                used[sender, receiver] = num_links
                num_links += 1
    for place in range(count):
        if remote_[place]:
            link[source_[place]] = used[stream[source_[place]], stream[place]]
    index, class_, stream, source_, link = index[:count], class_[:count], stream[:count], source_[:count], link[:count]
    return index, class_, stream, source_, remote_[:count], link, node_start[: num_nodes + 1], num_links
