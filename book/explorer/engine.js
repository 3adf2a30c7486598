// The engine of the explorer: the longest path through a table, or its events where the order of messages depends on
// times. The same rules as ppmodel/simulation, operation by operation; tests/book/test_explorer.py holds the two together. No
// page, no drawing.
(() => {
  "use strict";
  const { NONE, LETTERS, B, unpack, parse, programs, levels, unit, name, cellName } = window.ppmodelOrders;

  // What a transfer occupies: the sender, the receiver, its link.
  const OCCUPIED = {
    latency: [false, false, false], overlapped: [false, false, true], blocking_send: [true, false, false],
    blocking_recv: [false, true, false], blocking: [true, true, false], rendezvous: [true, true, false],
  };

  // ---- times -------------------------------------------------------------------------------------

  // Seconds of every operation; a transfer's are alike for all.
  function durations(table, costs) {
    const whole = [costs.forward, costs.input_grad + costs.weight_grad, costs.input_grad, costs.weight_grad];
    const seconds = new Float64Array(table.size);
    for (let op = 0; op < table.size; op++) {
      const slow = table.rank[op] === costs.slow_rank ? costs.slow_factor : 1;
      seconds[op] = whole[table.kind[op]] * table.shares[table.stage[op]] * slow;
    }
    return seconds;
  }

  // What a delayed link adds to each message on it: that of a rank and the next one, the last rank's being the first.
  function delays(table, costs) {
    const late = new Float64Array(table.size), own = costs.slow_link, ends = [own, (own + 1) % table.ranks];
    if (!(own >= 0 && own < table.ranks && costs.delay > 0)) return late;
    for (let op = 0; op < table.size; op++) {
      const taker = table.taker[op];
      if (taker !== NONE && [op, taker].every((end) => ends.includes(table.rank[end]))) late[op] = costs.delay;
    }
    return late;
  }

  // The times of a run. Nodes are cells; behind them the transfers of operations' results; and where a transfer has several
  // parts (the end that sends, the end that receives, a delay), a node for each. `cause` is the node whose end lets a node
  // begin.
  function blank(table, parts) {
    const { size, cells } = table;
    const nothing = () => new Float64Array(size).fill(NaN);
    const run = {
      start: new Float64Array(cells), end: new Float64Array(cells), sent: nothing(), arrived: nothing(),
      cause: new Int32Array(cells + size * parts).fill(NONE), deadlock: null,
    };
    [run.gone, run.taken] = parts > 1 ? [nothing(), nothing()] : [run.arrived, run.sent];
    run.through = parts > 2 ? nothing() : run.arrived;
    return run;
  }

  function cellSeconds(table, cell, seconds, overlap) {
    const first = table.cellStart[cell], last = table.cellStart[cell + 1];
    if (last - first === 1) return seconds[first];
    let sum = 0;
    for (let op = first; op < last; op++) sum += seconds[op];
    return sum * (table.overlaps[cell] ? overlap : 1);
  }

  function longestPath(table, seconds, transfer, p2p, overlap, late = new Float64Array(table.size)) {
    const { rank, source, remote, link, cellStart, cells, size } = table;
    const [sends, receives, queues] = OCCUPIED[p2p], lags = queues && late.some((delay) => delay > 0);
    const run = blank(table, (sends && receives) || lags ? 2 : 1);
    const { start, end, sent, arrived, gone, taken, cause } = run;
    const rankFree = new Float64Array(table.ranks), rankNode = new Int32Array(table.ranks).fill(NONE);
    const linkFree = new Float64Array(table.links), linkNode = new Int32Array(table.links).fill(NONE);
    for (const cell of table.order) {
      const first = cellStart[cell], last = cellStart[cell + 1], own = rank[first];
      let ready = rankFree[own], because = rankNode[own];
      for (let op = first; op < last; op++) {
        if (!remote[op]) continue; // what stays on the rank has ended before
        const needed = source[op], message = cells + needed;
        if (arrived[needed] >= ready) {
          ready = arrived[needed];
          because = receives && !sends ? table.cell[needed] : lags ? message + size : message;
        }
        if (receives) {
          const fetch = sends ? message + table.size : message;
          cause[fetch] = because;
          taken[needed] = ready;
          ready = arrived[needed] = ready + transfer + late[needed];
          because = fetch;
        }
      }
      start[cell] = ready;
      cause[cell] = because;
      const finished = (end[cell] = ready + cellSeconds(table, cell, seconds, overlap));
      rankFree[own] = finished;
      rankNode[own] = cell;
      for (let op = first; op < last; op++) {
        const way = link[op];
        if (way === NONE) continue;
        const message = cells + op;
        cause[message] = cell;
        sent[op] = finished;
        if (sends) {
          sent[op] = rankFree[own];
          cause[message] = rankNode[own];
          arrived[op] = gone[op] = rankFree[own] = sent[op] + transfer + late[op];
          rankNode[own] = message;
        } else if (receives) {
          arrived[op] = finished; // ready to be fetched; when it is, the receiver decides
        } else if (queues) {
          if (linkFree[way] > finished) [sent[op], cause[message]] = [linkFree[way], linkNode[way]];
          arrived[op] = linkFree[way] = sent[op] + transfer;
          linkNode[way] = message;
          if (lags) {
            gone[op] = taken[op] = linkFree[way];
            arrived[op] += late[op];
            cause[message + size] = message;
          }
        } else {
          arrived[op] = finished + transfer + late[op];
        }
      }
    }
    return run;
  }

  // ---- rendezvous: sender and receiver wait for one another ---------------------------------------

  // What each rank exchanges before each of its cells and after the last: batches of messages, one for each peer, at
  // the place of the first of them; results of the cell before, and then what the next cell needs.
  function exchangesOf(table) {
    if (table.exchanges) return table.exchanges;
    const { ranks, rank, cell, cellStart, rankStart, taker, source, remote } = table;
    const batches = [], phases = [], takenIn = new Int32Array(table.size).fill(NONE);
    for (let own = 0; own < ranks; own++) {
      const first = cell[rankStart[own]], last = cell[rankStart[own + 1] - 1], program = [];
      for (let at = first; at <= last + 1; at++) {
        const byPeer = new Map();
        const add = (peer, message, comes) => {
          if (!byPeer.has(peer)) byPeer.set(peer, batches.push([]) - 1);
          const batch = byPeer.get(peer);
          batches[batch].push(message);
          if (comes) takenIn[message] = batch;
        };
        if (at > first) {
          for (let op = cellStart[at - 1]; op < cellStart[at]; op++) if (taker[op] !== NONE) add(rank[taker[op]], op, false);
        }
        if (at <= last) {
          for (let op = cellStart[at]; op < cellStart[at + 1]; op++) if (remote[op]) add(rank[source[op]], source[op], true);
        }
        program.push([...byPeer.values()]);
      }
      phases.push(program);
    }
    return (table.exchanges = { batches, phases, takenIn });
  }

  function rendezvous(table, seconds, transfer, overlap, late) {
    const { ranks, rank, taker, cell, rankStart, cells } = table;
    const { batches, phases, takenIn } = exchangesOf(table);
    const run = blank(table, 1);
    const { start, end, sent, arrived, cause } = run;
    const phase = new Int32Array(ranks), place = new Int32Array(ranks), left = new Int32Array(ranks);
    const free = new Float64Array(ranks), posted = new Float64Array(ranks), sendsNext = new Float64Array(ranks);
    const node = new Int32Array(ranks).fill(NONE), postedNode = new Int32Array(ranks), sendsNode = new Int32Array(ranks);
    const awake = Array.from({ length: ranks }, (_, own) => own);
    const batchOf = (own) => phases[own][phase[own]][place[own]];

    const send = (own) => {
      for (const op of left[own] ? batches[batchOf(own)] : []) {
        if (rank[op] !== own || arrived[op] >= 0) continue;
        const other = rank[taker[op]];
        if (!left[other] || batchOf(other) !== takenIn[op]) return;
        const waits = posted[other] > sendsNext[own];
        sent[op] = waits ? posted[other] : sendsNext[own];
        cause[cells + op] = waits ? postedNode[other] : sendsNode[own];
        arrived[op] = sendsNext[own] = sent[op] + transfer + late[op];
        sendsNode[own] = cells + op;
        for (const side of [own, other]) {
          if (arrived[op] >= free[side]) [free[side], node[side]] = [arrived[op], cells + op];
          if (--left[side] === 0) {
            place[side]++;
            awake.push(side);
          }
        }
      }
    };
    const post = (own) => {
      const batch = batches[batchOf(own)];
      left[own] = batch.length;
      posted[own] = sendsNext[own] = free[own];
      postedNode[own] = sendsNode[own] = node[own];
      send(own);
      if (left[own]) send(rank[batch[0]] === own ? rank[taker[batch[0]]] : rank[batch[0]]);
    };
    while (awake.length) {
      const own = awake.pop(), program = phases[own];
      while (!left[own]) {
        if (place[own] < program[phase[own]].length) {
          post(own);
        } else if (phase[own] === program.length - 1) {
          break;
        } else {
          const at = cell[rankStart[own]] + phase[own];
          start[at] = free[own];
          cause[at] = node[own];
          free[own] = end[at] = start[at] + cellSeconds(table, at, seconds, overlap);
          node[own] = at;
          phase[own]++;
          place[own] = 0;
        }
      }
    }
    run.deadlock = phases.flatMap((program, own) => {
      if (!left[own] && phase[own] === program.length - 1 && place[own] === program[phase[own]].length) return [];
      const op = batches[batchOf(own)].find((one) => !(arrived[one] >= 0));
      const sending = rank[op] === own;
      return [{ rank: own, sends: sending, peer: rank[sending ? taker[op] : op], operation: name(table, op) }];
    });
    if (!run.deadlock.length) run.deadlock = null;
    return run;
  }

  // ---- streams: transfers are kernels, behind one queue for each rank -----------------------------

  // Cells, and messages for both of their ends, in an order that agrees with that in which every rank issues its own: by
  // planned times, a message at its producer's end and before cells. But a cell comes behind the last of the receives
  // that are due right after its start, while it is planned to run. A delay is time before a message is posted, which
  // what is issued behind it waits for, too: its own half of the message's node.
  function issued(table) {
    if (table.issued) return table.issued;
    const { ranks, size, cells, cell, cellStart, rankStart, taker, source, remote } = table;
    const plan = longestPath(table, Float64Array.from(table.kind, (kind) => (kind === B ? 2000 : 1000)), 1, "latency", 1);
    const items = Array.from({ length: cells }, (_, at) => [plan.start[at], size, 1, at]);
    for (let own = 0; own < ranks; own++) {
      const mine = [];
      for (let at = cell[rankStart[own]]; at <= cell[rankStart[own + 1] - 1]; at++) {
        mine.push([plan.start[at], 1, at, false]);
        for (let op = cellStart[at]; op < cellStart[at + 1]; op++) {
          if (taker[op] !== NONE) mine.push([plan.end[at], 0, op, false]);
          if (remote[op]) mine.push([plan.end[cell[source[op]]], 0, source[op], true]);
        }
      }
      mine.sort((one, other) => one[0] - other[0] || one[1] - other[1] || one[2] - other[2]);
      let before = NONE;
      for (const [time, isCell, number, comes] of mine) {
        if (!comes) before = isCell ? number : NONE;
        else if (before !== NONE && time <= plan.end[before]) [items[before][0], items[before][1]] = [time, number];
      }
    }
    for (let op = 0; op < size; op++) if (taker[op] !== NONE) items.push([plan.end[cell[op]], op, 0, op]);
    items.sort((one, other) => one[0] - other[0] || one[1] - other[1] || one[2] - other[2]);
    return (table.issued = items);
  }

  function streams(table, seconds, transfer, overlap, late) {
    const { ranks, rank, taker, source, remote, cellStart, cells, size } = table, lags = late.some((delay) => delay > 0);
    const run = blank(table, lags ? 2 : 1), half = lags ? size : 0;
    const { start, end, sent, arrived, gone, taken, cause } = run;
    const none = (count) => [new Float64Array(count), new Int32Array(count).fill(NONE)];
    const [free, freeNode] = none(ranks), [head, headNode] = none(ranks), [channel, channelNode] = none(ranks * ranks);
    const put = (own, time, because) => {
      if (time >= head[own]) [head[own], headNode[own]] = [time, because];
    };
    for (const [, , isCell, number] of issued(table)) {
      if (isCell) {
        const own = rank[cellStart[number]];
        put(own, free[own], freeNode[own]);
        for (let op = cellStart[number]; op < cellStart[number + 1]; op++) {
          if (remote[op]) put(own, arrived[source[op]], cells + half + source[op]);
        }
        start[number] = head[own];
        cause[number] = headNode[own];
        free[own] = end[number] = start[number] + cellSeconds(table, number, seconds, overlap);
        freeNode[own] = number;
        continue;
      }
      const ends = [rank[number], rank[taker[number]]], pair = Math.min(...ends) * ranks + Math.max(...ends);
      for (const own of ends) {
        put(own, free[own], freeNode[own]);
        put(own, channel[pair], channelNode[pair]);
      }
      if (lags) {
        sent[number] = head[ends[0]];
        cause[cells + number] = headNode[ends[0]];
        gone[number] = head[ends[0]] += late[number];
        headNode[ends[0]] = cells + number;
      }
      const last = head[ends[1]] > head[ends[0]] ? ends[1] : ends[0], node = cells + half + number;
      taken[number] = head[last];
      cause[node] = headNode[last];
      arrived[number] = channel[pair] = taken[number] + transfer;
      channelNode[pair] = node;
    }
    return run;
  }

  // ---- overlapped_nic: a rank's messages queue at its NIC -----------------------------------------

  // A NIC sends one message at a time, in the order in which they are ready, and takes in one at a time, in the order in
  // which they are sent; what leaves one NIC passes through the other meanwhile, or once that is free. A link's delay comes
  // after both, where messages of other links may overtake. Which of several
  // ranks' messages is first depends on times, so events are handled one by one: a rank has at most one cell that ends,
  // one message that has left, and one that arrives next. Of events at the same time, cells come first, then messages
  // that have left, then arrivals; and of one kind, that whose cell has the lowest level or, if these are equal, number.
  const ENDED = 0, LEFT = 1, CAME = 2, KINDS = 3;

  function queued(table, seconds, transfer, overlap, late) {
    const { ranks, rank, taker, remote, cell, cellStart, cells, size } = table, { first: next, last } = programs(table);
    const parts = late.some((delay) => delay > 0) ? 3 : 2, run = Object.assign(blank(table, parts), { queues: true });
    const { start, end, sent, arrived, gone, taken, through, cause } = run;
    const level = levels(table), missing = new Int32Array(cells);
    for (let op = 0; op < size; op++) missing[cell[op]] += remote[op];
    const idle = new Uint8Array(ranks).fill(1);
    const [leaving, coming] = [0, 1].map(() => Array.from({ length: ranks }, () => []));
    const busyUntil = new Float64Array(ranks), lastTaken = new Int32Array(ranks).fill(NONE);
    const when = new Float64Array(KINDS * ranks).fill(Infinity), tie = new Float64Array(KINDS * ranks);
    const what = new Int32Array(KINDS * ranks);
    let now = 0;

    const expect = (kind, own, time, op) => {
      const slot = kind * ranks + own;
      when[slot] = time;
      what[slot] = op;
      tie[slot] = (kind * cells + level[cell[op]]) * cells + cell[op];
    };
    const begin = (own, because) => {
      const at = next[own];
      if (!idle[own] || at > last[own] || missing[at]) return;
      idle[own] = 0;
      start[at] = now;
      cause[at] = because;
      end[at] = now + cellSeconds(table, at, seconds, overlap);
      expect(ENDED, own, end[at], cellStart[at]);
    };
    const send = (own, because) => {
      const op = leaving[own][0], message = cells + op, other = rank[taker[op]], waits = busyUntil[other] > now;
      cause[message] = because;
      sent[op] = now;
      gone[op] = now + transfer;
      expect(LEFT, own, gone[op], op);
      cause[message + size] = waits ? cells + size + lastTaken[other] : because;
      taken[op] = waits ? busyUntil[other] : now;
      through[op] = busyUntil[other] = taken[op] + transfer;
      if (parts > 2) cause[message + 2 * size] = message + size;
      arrived[op] = through[op] + late[op];
      lastTaken[other] = op;
      coming[other].push(op);
      coming[other].sort((one, two) => arrived[one] - arrived[two] || level[cell[one]] - level[cell[two]] || one - two);
      expect(CAME, other, arrived[coming[other][0]], coming[other][0]);
    };
    const ended = (own, op) => {
      for (let one = op; one < cellStart[cell[op] + 1]; one++) {
        if (taker[one] !== NONE && leaving[own].push(one) === 1) send(own, cell[op]);
      }
      idle[own] = 1;
      next[own]++;
      begin(own, cell[op]);
    };
    const left = (own, op) => {
      leaving[own].shift();
      if (leaving[own].length) send(own, cells + op);
    };
    const came = (own, op) => {
      coming[own].shift();
      if (coming[own].length) expect(CAME, own, arrived[coming[own][0]], coming[own][0]);
      missing[cell[taker[op]]]--;
      begin(own, cells + (parts - 1) * size + op);
    };
    const handle = [ended, left, came];
    for (let own = 0; own < ranks; own++) begin(own, NONE);
    for (;;) {
      let first = 0;
      for (let slot = 1; slot < when.length; slot++) {
        if (when[slot] < when[first] || (when[slot] === when[first] && tie[slot] < tie[first])) first = slot;
      }
      now = when[first];
      if (now === Infinity) return run;
      when[first] = Infinity;
      handle[Math.floor(first / ranks)](first % ranks, what[first]);
    }
  }

  // ---- what is read off ----------------------------------------------------------------------------

  function simulate(table, costs) {
    const seconds = durations(table, costs), transfer = costs.comm / table.parts, { overlap = 1 } = costs;
    const engine = { rendezvous, streams, overlapped_nic: queued }[costs.p2p], late = delays(table, costs);
    const run = engine
      ? engine(table, seconds, transfer, overlap, late) : longestPath(table, seconds, transfer, costs.p2p, overlap, late);
    run.table = table;
    if (run.deadlock) return Object.assign(run, { makespan: NaN, idle: NaN, span: NaN });
    let busy = 0, span = 0;
    finish(run);
    for (let rank = 0; rank < table.ranks; rank++) {
      const first = table.cell[table.rankStart[rank]], last = table.cell[table.rankStart[rank + 1] - 1];
      for (let at = first; at <= last; at++) busy += run.end[at] - run.start[at];
      span = Math.max(span, run.end[last] - run.start[first]);
    }
    run.busy = busy;
    run.idle = 1 - busy / (table.ranks * run.makespan);
    run.span = 1 - busy / (table.ranks * span);
    return run;
  }

  // The cell that ends last, and when it does.
  function finish(run) {
    run.last = 0;
    for (let cell = 1; cell < run.end.length; cell++) if (run.end[cell] > run.end[run.last]) run.last = cell;
    run.makespan = run.end[run.last];
    return run;
  }

  // The idealised table: whole slots, a backward of two, no transfers; a chunk's operation is as long as a stage's.
  function slots(table) {
    if (table.slots) return table.slots;
    const lengths = Float64Array.from(table.kind, (kind) => (kind === B ? 2 : 1));
    const run = finish(longestPath(table, lengths, 0, "latency", 1));
    const busy = lengths.reduce((sum, one) => sum + one, 0);
    return (table.slots = Object.assign(run, { table, idle: 1 - busy / (table.ranks * run.makespan) }));
  }

  // The same with times in forwards of a whole rank's share of the model, so that tables of unlike slots stand side by
  // side: a slot is one of `pieces` of it.
  function scaledSlots(table) {
    const run = slots(table), pieces = (table.stages / table.ranks) * table.parts;
    const scaled = (times) => times.map((time) => time / pieces);
    const [start, end, sent, arrived] = [run.start, run.end, run.sent, run.arrived].map(scaled);
    return { ...run, start, end, sent, arrived, gone: arrived, taken: sent, makespan: run.makespan / pieces, pieces };
  }

  // Activations that each rank holds in each of its cells, and after it, in microbatches on 1/S of the model.
  function activations(table) {
    if (table.activations) return table.activations;
    const during = new Float64Array(table.cells), after = new Float64Array(table.cells);
    const peaks = new Float64Array(table.ranks);
    for (let rank = 0; rank < table.ranks; rank++) {
      let level = 0;
      for (let op = table.rankStart[rank]; op < table.rankStart[rank + 1]; ) {
        const cell = table.cell[op];
        let taken = 0, given = 0;
        for (; op < table.cellStart[cell + 1]; op++) {
          const weight = table.shares[table.stage[op]], kept = table.held * weight;
          const change = [weight, -weight, kept - weight, -kept][table.kind[op]];
          if (change > 0) taken += change;
          else given += change;
        }
        during[cell] = level + taken;
        after[cell] = level = level + taken + given;
        peaks[rank] = Math.max(peaks[rank], during[cell]);
      }
    }
    return (table.activations = { during, after, peaks, peak: peaks.reduce((most, one) => Math.max(most, one), 0) });
  }

  // When a node begins and ends.
  function span(run, node) {
    const { cells, size } = run.table;
    if (node < cells) return [run.start[node], run.end[node]];
    if (node < cells + size) return [run.sent[node - cells], run.gone[node - cells]];
    if (node < cells + 2 * size) return [run.taken[node - cells - size], run.through[node - cells - size]];
    return [run.through[node - cells - 2 * size], run.arrived[node - cells - 2 * size]];
  }

  // Cells and transfers (cells + operation) from the first to the one that ends last, each begun by the one before.
  function criticalPath(run) {
    if (run.deadlock) return [];
    const path = [];
    for (let node = run.last; node !== NONE; node = run.cause[node]) path.push(node);
    return path.reverse();
  }

  // What a cell waited for: the message that let it begin, or none, and the cell that sent it, or came before on the
  // rank; since when the rank had nothing else to do, and how long that was.
  function waited(run, cell) {
    const { table, cause } = run, first = table.cellStart[cell];
    const before = cell > table.cell[table.rankStart[table.rank[first]]] ? cell - 1 : NONE;
    const since = before === NONE ? 0 : run.end[before], seconds = run.start[cell] - since;
    const node = cause[cell];
    if (node === NONE || node < table.cells) return { message: NONE, cell: node, since, seconds };
    const message = (node - table.cells) % table.size;
    return { message, cell: table.cell[message], since, seconds };
  }

  window.ppmodelEngine = {
    unpack, parse, simulate, slots, scaledSlots, activations, criticalPath, span, waited, unit, name, cellName, NONE, LETTERS,
  };
})();
