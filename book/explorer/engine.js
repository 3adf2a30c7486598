// The engine of the explorer: a table's order, its dependencies, and the longest path through them. The same rules as
// ppmodel/simulation, operation by operation; tests/test_explorer.py holds the two together. No page, no drawing.
(() => {
  "use strict";
  const F = 0, B = 1, I = 2, W = 3, NONE = -1;
  const LETTERS = "FBIW";
  // What a transfer occupies: the sender, the receiver, its link.
  const OCCUPIED = {
    latency: [false, false, false], overlapped: [false, false, true], blocking_send: [true, false, false],
    blocking_recv: [false, true, false], blocking: [true, true, false], rendezvous: [true, true, false],
  };

  // ---- orders: what Python's generators wrote ---------------------------------------------------

  async function inflate(text) {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // A table from its bytes: one for each operation, rank by rank, then how far each microbatch is from the next of its
  // kind where they do not simply follow one another. See ppmodel/artefact/explorer_data.py.
  async function unpack(packed, about) {
    const bytes = await inflate(packed.codes);
    const ranks = packed.lengths.length, size = packed.lengths.reduce((sum, length) => sum + length, 0);
    const replicas = about.placement.length, stages = about.placement[0].length;
    const table = {
      ranks, stages, replicas, size, microbatches: packed.microbatches, parts: packed.parts || 1,
      held: packed.held === undefined ? 1 : packed.held, placement: about.placement,
      kind: new Uint8Array(size), stage: new Uint16Array(size), microbatch: new Uint16Array(size),
      replica: new Uint8Array(size), rank: new Uint8Array(size), chunk: new Uint8Array(size),
      rankStart: new Int32Array(ranks + 1), cell: new Int32Array(size),
    };
    const homes = stagesOf(about.placement, ranks);
    const starts = [];
    let op = 0;
    for (let rank = 0; rank < ranks; rank++) {
      const next = new Int32Array(64);
      for (let left = packed.lengths[rank]; left > 0; left--, op++) {
        const code = bytes[op], own = code & 63;
        table.kind[op] = own >> 4;
        table.replica[op] = (own >> 3) & 1;
        table.chunk[op] = own & 7;
        table.stage[op] = homes[table.replica[op]][rank][table.chunk[op]];
        table.rank[op] = rank;
        table.microbatch[op] = packed.jumps ? (next[own] + bytes[size + op]) & 255 : next[own];
        next[own] = table.microbatch[op] + 1;
        if (!(code & 64)) starts.push(op);
        table.cell[op] = starts.length - 1;
      }
      table.rankStart[rank + 1] = op;
    }
    table.cellStart = Int32Array.from([...starts, size]);
    table.cells = starts.length;
    const pieces = (stages / ranks) * table.parts;
    table.shares = Float64Array.from({ length: stages }, (_, s) => (about.shares ? about.shares[s] : 1) / pieces);
    connect(table);
    return table;
  }

  function stagesOf(placement, ranks) {
    return placement.map((homes) => {
      const own = Array.from({ length: ranks }, () => []);
      homes.forEach((rank, stage) => own[rank].push(stage));
      return own;
    });
  }

  // ---- dependencies ------------------------------------------------------------------------------

  // Which operation's result each one needs, whether from another rank, the link on which each result leaves, which
  // cells hold a forward and a backward, and an order in which every cell comes after all that it needs.
  function connect(table) {
    const { size, stages, replicas, kind, stage, microbatch, replica, rank } = table;
    const count = table.microbatches * table.parts;
    const at = new Int32Array(4 * replicas * stages * count).fill(NONE);
    const place = (k, r, s, m) => ((k * replicas + r) * stages + s) * count + m;
    for (let op = 0; op < size; op++) at[place(kind[op], replica[op], stage[op], microbatch[op])] = op;
    const source = (table.source = new Int32Array(size).fill(NONE));
    for (let op = 0; op < size; op++) {
      const r = replica[op], s = stage[op], m = microbatch[op];
      if (kind[op] === F) source[op] = s ? at[place(F, r, s - 1, m)] : NONE;
      else if (kind[op] === W) source[op] = at[place(I, r, s, m)];
      else if (s === stages - 1) source[op] = at[place(F, r, s, m)];
      else source[op] = Math.max(at[place(B, r, s + 1, m)], at[place(I, r, s + 1, m)]);
    }
    const links = new Map();
    table.remote = new Uint8Array(size);
    table.link = new Int32Array(size).fill(NONE);
    table.taker = new Int32Array(size).fill(NONE);
    table.messages = 0;
    for (let op = 0; op < size; op++) {
      const needed = source[op];
      if (needed === NONE || rank[needed] === rank[op]) continue;
      const way = rank[needed] * table.ranks + rank[op];
      if (!links.has(way)) links.set(way, links.size);
      table.remote[op] = 1;
      table.link[needed] = links.get(way);
      table.taker[needed] = op;
      table.messages++;
    }
    table.links = links.size;
    table.overlaps = new Uint8Array(table.cells);
    for (let cell = 0; cell < table.cells; cell++) {
      let forwards = 0;
      for (let op = table.cellStart[cell]; op < table.cellStart[cell + 1]; op++) forwards += kind[op] === F;
      table.overlaps[cell] = forwards > 0 && forwards < table.cellStart[cell + 1] - table.cellStart[cell];
    }
    table.order = orderOf(table);
  }

  function orderOf(table) {
    const { ranks, cells, cell, cellStart, source, rankStart } = table;
    const order = new Int32Array(cells), done = new Uint8Array(cells);
    const next = Int32Array.from({ length: ranks }, (_, rank) => cell[rankStart[rank]]);
    const last = Int32Array.from({ length: ranks }, (_, rank) => cell[rankStart[rank + 1] - 1]);
    const ready = (at) => {
      for (let op = cellStart[at]; op < cellStart[at + 1]; op++) {
        if (source[op] !== NONE && !done[cell[source[op]]]) return false;
      }
      return true;
    };
    let found = 0;
    for (let before = -1; before < found; ) {
      before = found;
      for (let rank = 0; rank < ranks; rank++) {
        while (next[rank] <= last[rank] && ready(next[rank])) {
          done[next[rank]] = 1;
          order[found++] = next[rank]++;
        }
      }
    }
    if (found < cells) throw new Error("a table in which operations wait for one another in a circle");
    return order;
  }

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

  // The times of a run. Nodes are cells; behind them the transfers of operations' results; and where a rank first sends
  // and another then receives, a node for each half of a transfer. `cause` is the node whose end lets a node begin.
  function blank(table, halves) {
    const { size, cells } = table;
    const nothing = () => new Float64Array(size).fill(NaN);
    const run = {
      start: new Float64Array(cells), end: new Float64Array(cells), sent: nothing(), arrived: nothing(),
      cause: new Int32Array(cells + size * (halves ? 2 : 1)).fill(NONE), deadlock: null,
    };
    [run.gone, run.taken] = halves ? [nothing(), nothing()] : [run.arrived, run.sent];
    return run;
  }

  function cellSeconds(table, cell, seconds, overlap) {
    const first = table.cellStart[cell], last = table.cellStart[cell + 1];
    if (last - first === 1) return seconds[first];
    let sum = 0;
    for (let op = first; op < last; op++) sum += seconds[op];
    return sum * (table.overlaps[cell] ? overlap : 1);
  }

  function longestPath(table, seconds, transfer, p2p, overlap) {
    const { rank, source, remote, link, cellStart, cells } = table;
    const [sends, receives, queues] = OCCUPIED[p2p];
    const run = blank(table, sends && receives);
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
          because = receives && !sends ? table.cell[needed] : message;
        }
        if (receives) {
          const fetch = sends ? message + table.size : message;
          cause[fetch] = because;
          taken[needed] = ready;
          ready = arrived[needed] = ready + transfer;
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
          arrived[op] = gone[op] = rankFree[own] = sent[op] + transfer;
          rankNode[own] = message;
        } else if (receives) {
          arrived[op] = finished; // ready to be fetched; when it is, the receiver decides
        } else if (queues) {
          if (linkFree[way] > finished) [sent[op], cause[message]] = [linkFree[way], linkNode[way]];
          arrived[op] = linkFree[way] = sent[op] + transfer;
          linkNode[way] = message;
        } else {
          arrived[op] = finished + transfer;
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

  function rendezvous(table, seconds, transfer, overlap) {
    const { ranks, rank, taker, cell, rankStart, cells } = table;
    const { batches, phases, takenIn } = exchangesOf(table);
    const run = blank(table, false);
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
        const late = posted[other] > sendsNext[own];
        sent[op] = late ? posted[other] : sendsNext[own];
        cause[cells + op] = late ? postedNode[other] : sendsNode[own];
        arrived[op] = sendsNext[own] = sent[op] + transfer;
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

  // ---- what is read off ----------------------------------------------------------------------------

  function simulate(table, costs) {
    const seconds = durations(table, costs), overlap = costs.overlap === undefined ? 1 : costs.overlap;
    const transfer = costs.comm / table.parts;
    const run = costs.p2p === "rendezvous"
      ? rendezvous(table, seconds, transfer, overlap)
      : longestPath(table, seconds, transfer, costs.p2p, overlap);
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
    return [run.taken[node - cells - size], run.arrived[node - cells - size]];
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

  function name(table, op) {
    const copy = table.replica[op] ? `@${table.replica[op]}` : "";
    return `${table.stage[op]}${LETTERS[table.kind[op]]}${table.microbatch[op]}${copy}`;
  }

  function cellName(table, cell) {
    const names = [];
    for (let op = table.cellStart[cell]; op < table.cellStart[cell + 1]; op++) names.push(name(table, op));
    return names.join("&");
  }

  window.ppmodelEngine = {
    unpack, simulate, slots, scaledSlots, activations, criticalPath, span, waited, name, cellName, SEMANTICS: Object.keys(OCCUPIED), NONE, LETTERS,
  };
})();
