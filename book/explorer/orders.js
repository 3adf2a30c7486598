// A table of the explorer: its order, as Python's generators wrote it, and its dependencies. No times, no page.
(() => {
  "use strict";
  const F = 0, B = 1, I = 2, W = 3, NONE = -1;
  const LETTERS = "FBIW";

  // ---- orders: what Python's generators wrote ---------------------------------------------------

  async function inflate(text) {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // A table from its bytes: one for each operation, rank by rank, then how far each microbatch is from the next of its
  // kind where they do not simply follow one another. See book/ppbook/explorer_data.py.
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

  // The first and the last cell of each rank.
  function programs({ ranks, cell, rankStart }) {
    const first = Int32Array.from({ length: ranks }, (_, rank) => cell[rankStart[rank]]);
    return { first, last: Int32Array.from({ length: ranks }, (_, rank) => cell[rankStart[rank + 1] - 1]) };
  }

  function orderOf(table) {
    const { ranks, cells, cell, cellStart, source } = table, { first: next, last } = programs(table);
    const order = new Int32Array(cells), done = new Uint8Array(cells);
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

  // How far each cell is from the first ones: one more than the furthest that it waits for, as in ppmodel's graphs.
  function levels(table) {
    if (table.levels) return table.levels;
    const { order, cell, cellStart, source } = table, { first } = programs(table), begins = new Set(first);
    const found = new Int32Array(table.cells);
    for (const at of order) {
      if (!begins.has(at)) found[at] = found[at - 1] + 1;
      for (let op = cellStart[at]; op < cellStart[at + 1]; op++) {
        if (source[op] !== NONE) found[at] = Math.max(found[at], found[cell[source[op]]] + 1);
      }
    }
    return (table.levels = found);
  }

  // ---- names ---------------------------------------------------------------------------------------

  function name(table, op) {
    const copy = table.replica[op] ? `@${table.replica[op]}` : "";
    return `${table.stage[op]}${LETTERS[table.kind[op]]}${table.microbatch[op]}${copy}`;
  }

  function cellName(table, cell) {
    const names = [];
    for (let op = table.cellStart[cell]; op < table.cellStart[cell + 1]; op++) names.push(name(table, op));
    return names.join("&");
  }

  window.ppmodelOrders = { NONE, LETTERS, B, unpack, programs, levels, name, cellName };
})();
