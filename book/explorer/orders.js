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
  // kind where they do not simply follow one another. See book/ppbook/pages/explorer_data.py.
  async function unpack(packed, about) {
    const bytes = await inflate(packed.codes), ranks = packed.lengths.length, homes = stagesOf(about.placement, ranks);
    let op = 0;
    const orders = packed.lengths.map((length, rank) => {
      const next = new Int32Array(64), size = bytes.length / (packed.jumps ? 2 : 1);
      return Array.from({ length }, () => {
        const code = bytes[op], own = code & 63, replica = (own >> 3) & 1;
        const microbatch = packed.jumps ? (next[own] + bytes[size + op]) & 255 : next[own];
        next[own] = microbatch + 1;
        op++;
        return { kind: own >> 4, replica, stage: homes[replica][rank][own & 7], microbatch, joined: code & 64 };
      });
    });
    return filled(orders, { ...packed, ...about });
  }

  // A table from the operations of each rank in order; `joined` ones share the cell of the one before.
  function filled(orders, { microbatches, placement, parts = 1, slices = 1, held = 1, shares = null }) {
    const ranks = orders.length, stages = placement[0].length, size = orders.reduce((sum, { length }) => sum + length, 0);
    const table = {
      ranks, stages, replicas: placement.length, size, microbatches, parts, slices, held, placement,
      kind: new Uint8Array(size), stage: new Uint16Array(size), microbatch: new Uint16Array(size),
      replica: new Uint8Array(size), rank: new Uint16Array(size), chunk: new Uint16Array(size),
      rankStart: new Int32Array(ranks + 1), cell: new Int32Array(size),
    };
    const homes = stagesOf(placement, ranks), starts = [];
    let op = 0;
    orders.forEach((program, rank) => {
      for (const { joined, ...fields } of program) {
        for (const [key, value] of Object.entries(fields)) table[key][op] = value;
        table.rank[op] = rank;
        table.chunk[op] = homes[fields.replica][rank].indexOf(fields.stage);
        if (!joined) starts.push(op);
        table.cell[op++] = starts.length - 1;
      }
      table.rankStart[rank + 1] = op;
    });
    table.cellStart = Int32Array.from([...starts, size]);
    table.cells = starts.length;
    table.shares = Float64Array.from({ length: stages }, (_, s) => (shares ? shares[s] : 1) / ((stages / ranks) * parts));
    connect(table);
    return table;
  }

  // ---- a reader's own table, as `ppmodel table --format csv` or text prints it -----------------------

  const MOST_OPERATIONS = 60000, COUNT = /^[1-9]\d{0,8}$/, NUMBER = /^(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?$/i;
  const COMMENTS = ["letters", "schedule", "microbatches", "microbatch_parts", "stage_shares", "held_for_weight_grad"];

  function refused(where, why) {
    throw new Error(`${where}: ${why}; \`ppmodel check FILE\` says more, \`ppmodel table NAME --format csv\` prints what is read here`);
  }

  function parse(text) {
    const about = {}, orders = [];
    text.split(/\r?\n/).forEach((line, at) => {
      const [, key, sign, value] = /^\s*#[\s#]*([^:=]+?)\s*([:=])\s*(.*?)\s*$/.exec(line) || [];
      if (key && !(COMMENTS.includes(key) && sign === ":")) refused(`line ${at + 1}, ${key}`, `is not read here; known are ${COMMENTS.join(": ")}:`);
      if (key && Object.hasOwn(about, key) && about[key] !== value) refused(`line ${at + 1}, ${key}`, "was given before, with another value");
      if (key) about[key] = value;
      if (/^\s*(#|rank\b|$)/.test(line)) return;
      const words = line.trim().split(line.includes(",") ? /\s*,\s*/ : /\s+/), program = [];
      if (words[0] !== String(orders.length)) refused(`line ${at + 1}`, `must begin with its rank, ${orders.length}`);
      for (const word of words.slice(1)) {
        word.split("&").forEach((name_, place) => {
          const [, stage, letter, microbatch, slice, replica] = /^(\d+)([FBIWR])(\d*)(?:\.(\d+))?(?:@(\d))?$/.exec(name_) || [];
          if (letter === "R" || ["", ".", "~", "None"].includes(name_)) return;
          if (!letter || microbatch === "") refused(`line ${at + 1}, cell ${word.slice(0, 20)}`, "is no operation, such as 2F0, 2B0@1 or 1F1&0B0");
          program.push({ kind: LETTERS.indexOf(letter), stage: Number(stage), microbatch: Number(microbatch), slice: Number(slice || 0), replica: Number(replica || 0), joined: place });
        });
      }
      if (!program.length) refused(`line ${at + 1}`, "has no forward or backward");
      orders.push(program);
    });
    const slices = orders.flat().reduce((most, op) => Math.max(most, op.slice), 0) + 1;
    for (const op of orders.flat()) {  // units of work, as Schedule.microbatch numbers them
      op.microbatch = op.microbatch * slices + op.slice;
      delete op.slice;
    }
    const all = orders.flatMap((program, rank) => program.map((op) => ({ ...op, rank })));
    if (all.length === 0 || all.length > MOST_OPERATIONS) refused("the table", `has ${all.length} operations, and must have 1 to ${MOST_OPERATIONS}`);
    const ask = (key, form, usual) => {
      const text_ = about[key] === undefined ? String(usual) : about[key];
      if (!form.test(text_)) refused(key, `must be a ${form === COUNT ? "whole number from 1" : "number of at least 0"}, not ${text_.slice(0, 20)}`);
      return Number(text_);
    };
    if (!/^(F forward|pytorch)|^$/.test(about.letters || "")) refused("letters", "must be those of ppmodel");
    const parts = slices * ask("microbatch_parts", COUNT, 1), held = ask("held_for_weight_grad", NUMBER, 1), count = (key) => all.reduce((most, op) => Math.max(most, op[key]), 0) + 1;
    const [stages, tasks] = [count("stage"), count("microbatch")], placement = Array.from({ length: count("replica") }, () => Array(stages).fill(NONE));
    const seen = new Map();
    for (const { kind, stage, microbatch, replica, rank } of all) {
      const home = placement[replica], task = `stage ${stage}, microbatch ${microbatch}`;
      if (home[stage] !== NONE && home[stage] !== rank) refused(`stage ${stage}`, `is on ranks ${home[stage]} and ${rank}`);
      home[stage] = rank;
      const done = seen.get(task) || { replica, kinds: "" };
      if (done.replica !== replica || done.kinds.includes(LETTERS[kind])) refused(task, "occurs twice");
      seen.set(task, { replica, kinds: [...done.kinds, LETTERS[kind]].sort().join("") });
    }
    for (const { kinds } of seen.values()) if (kinds !== "BF" && kinds !== "FIW") refused("the table", "lacks a forward or a backward");
    if (seen.size !== stages * tasks || placement.flat().includes(NONE)) refused("the table", "lacks operations of some stage and microbatch");
    const microbatches = ask("microbatches", COUNT, tasks / parts);
    if (microbatches * parts !== tasks) refused("microbatches", `must be ${tasks} over the parts of each`);
    const written = about.stage_shares === undefined ? Array(stages).fill("1") : about.stage_shares.split(/\s+/);
    if (written.length !== stages || !written.every((text_) => NUMBER.test(text_) && Number(text_) > 0)) refused("stage_shares", `must be ${stages} numbers above 0`);
    const sum = written.reduce((total, share) => total + Number(share), 0), shares = written.map((share) => (Number(share) * stages) / sum);
    if (!shares.every((share) => share > 1e-9)) refused("stage_shares", "must be none 1e+09 times smaller than their mean");
    return { name: about.schedule, table: filled(orders, { microbatches, placement, parts, slices, held, shares }) };
  }

  // A microbatch as people write it: with its slice, if it has any.
  function unit(table, op) {
    const number = table.microbatch[op];
    return table.slices > 1 ? `${Math.floor(number / table.slices)}.${number % table.slices}` : String(number);
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
    return `${table.stage[op]}${LETTERS[table.kind[op]]}${unit(table, op)}${copy}`;
  }

  function cellName(table, cell) {
    const names = [];
    for (let op = table.cellStart[cell]; op < table.cellStart[cell + 1]; op++) names.push(name(table, op));
    return names.join("&");
  }

  window.ppmodelOrders = { NONE, LETTERS, B, unpack, parse, programs, levels, unit, name, cellName };
})();
