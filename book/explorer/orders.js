// A table of the explorer: its order, as Python's generators wrote it, and its dependencies. No times, no page.
(() => {
  "use strict";
  const [F, B, I, W, S, T, R, , G, D] = Array(10).keys(), NONE = -1, LETTERS = "FBIWSTROGD"; // ppmodel's OpKind

  // ---- orders: what Python's generators wrote ---------------------------------------------------

  async function inflate(text) {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // A table from its bytes: one for each operation, rank by rank, then how far each microbatch is from the next of its
  // kind where they do not simply follow one another. See book/ppbook/pages/explorer_data.py.
  async function unpack({ tables, ...about }, microbatches) {
    const packed = tables[microbatches], bytes = await inflate(packed.codes), homes = stagesOf(about.placement, packed.lengths.length);
    let op = 0;
    const orders = packed.lengths.map((length, rank) => {
      const next = new Int32Array(128), size = bytes.length / (packed.jumps ? 2 : 1);
      const places = homes.flatMap((own, replica) => own[rank].map((stage) => ({ replica, stage })));
      return Array.from({ length }, () => {
        const code = bytes[op], own = code & 127, microbatch = packed.jumps ? (next[own] + bytes[size + op]) & 255 : next[own];
        next[own] = microbatch + 1;
        op++;
        return { kind: own >> 3, ...places[own & 7], microbatch, joined: code & 128 };
      });
    });
    return filled(orders, { microbatches, ...packed, ...about });
  }

  // A table from the operations of each rank in order; `joined` ones share the cell of the one before. What belongs to no
  // microbatch (gathers, drops, reductions) stands aside: each with the cell after which it starts, and the operation next.
  // Reductions that a table lacks end its ranks, as in ppmodel's `Schedule.with_step`. `programs` has the cells of each
  // rank and, as ~number, what stands aside; `apart` lists the latter's tasks: gathers, and the copies of a reduction.
  function filled(orders, { microbatches, placement, parts = 1, slices = 1, held = 1, shares = null }) {
    const ranks = orders.length, stages = placement[0].length, size = orders.flat().filter(({ kind }) => kind < R).length;
    const table = {
      ranks, stages, replicas: placement.length, size, microbatches, parts, slices, held, placement,
      kind: new Uint8Array(size), stage: new Uint16Array(size), microbatch: new Uint16Array(size),
      replica: new Uint8Array(size), rank: new Uint16Array(size), chunk: new Uint16Array(size),
      rankStart: new Int32Array(ranks + 1), cell: new Int32Array(size), asides: [], programs: [], apart: [], graphs: new Map(),
    };
    const homes = stagesOf(placement, ranks), starts = [], together = new Map();
    let op = 0;
    orders.forEach((program, rank) => {
      const begins = starts.length, finished = new Map(), reduced = new Set(), own = []; // by copy and stage
      const aside = (one) => {
        const { kind, stage } = one, home = one.replica * stages + stage, key = kind === R ? stage : table.asides.length + stages;
        if (kind === R) reduced.add(home);
        if ((kind === R || kind === G) && !together.has(key)) together.set(key, table.apart.push([]) - 1);
        own.push(~table.asides.length);
        table.asides.push({ ...one, rank, home, next: op, after: starts.length > begins ? starts.length - 1 : NONE, task: together.get(key) });
        table.apart[together.get(key)]?.push(table.asides.at(-1));
      };
      for (const { joined, ...fields } of program) {
        if (fields.kind >= R) {
          aside(fields);
          continue;
        }
        for (const [key, value] of Object.entries(fields)) table[key][op] = value;
        table.rank[op] = rank;
        table.chunk[op] = homes[fields.replica][rank].indexOf(fields.stage);
        if (!joined) own.push(starts.push(op) - 1);
        table.cell[op++] = starts.length - 1;
        const home = fields.replica * stages + fields.stage;
        if (![B, W, T].includes(fields.kind)) continue;
        finished.delete(home); // the last is the last
        finished.set(home, starts.length - 1);
      }
      table.rankStart[rank + 1] = op;
      for (const home of finished.keys()) if (!reduced.has(home)) aside({ kind: R, stage: home % stages, replica: Math.floor(home / stages), added: true });
      for (const one of table.asides) if (one.rank === rank && one.kind === R) one.after = finished.get(one.home);
      table.programs.push(own);
    });
    table.cellStart = Int32Array.from([...starts, size]);
    table.cells = starts.length;
    table.gathers = table.asides.filter(({ kind }) => kind === G);
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
          const [, stage, letter, microbatch, slice, replica] = /^(\d+)([FBIWSTROGD])(\d*)(?:\.(\d+))?(?:@(\d))?$/.exec(name_) || [];
          if (["", ".", "~", "None"].includes(name_)) return;
          if (!letter || (microbatch === "") !== LETTERS.indexOf(letter) >= R) refused(`line ${at + 1}, cell ${word.slice(0, 20)}`, "is no operation, such as 2F0, 2B0@1, 2S0, 2G or 1F1&0B0");
          if ("GD".includes(letter) && word.includes("&")) refused(`line ${at + 1}, cell ${word.slice(0, 20)}`, "must have its gather or drop in a cell of its own");
          program.push({ kind: LETTERS.indexOf(letter), stage: Number(stage), microbatch: Number(microbatch), slice: Number(slice || 0), replica: Number(replica || 0), joined: place });
        });
      }
      if (!program.some(({ kind }) => kind < R)) refused(`line ${at + 1}`, "has no forward or backward");
      orders.push(program);
    });
    const slices = orders.flat().reduce((most, op) => Math.max(most, op.slice), 0) + 1;
    for (const op of orders.flat()) {  // units of work, as Schedule.microbatch numbers them
      op.microbatch = op.microbatch * slices + op.slice;
      delete op.slice;
    }
    const every = orders.flatMap((program, rank) => program.map((op) => ({ ...op, rank }))), all = every.filter(({ kind }) => kind < R);
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
      const done = seen.get(task) || { replica, stage, kinds: "" };
      if (done.replica !== replica || done.kinds.includes(LETTERS[kind])) refused(task, "occurs twice");
      seen.set(task, { ...done, kinds: [...done.kinds, LETTERS[kind]].sort().join("") });
    }
    const shards = all.some(({ kind }) => kind === S || kind === T) ? orders.length : 0, own = new Set(placement[0].slice(0, shards));
    if (shards && (placement.length > 1 || own.size < shards)) refused("the output layer", "must have a shard on each rank, of the first stages, of one copy of the model");
    for (const [task, { kinds, stage }] of seen) {
      const ST = stage < shards ? "ST" : "", [whole, split] = [`BF${ST}`, ["F", "I", ...ST, "W"].join("")];
      if (kinds.length !== kinds.replace(/[ST]/g, "").length + ST.length) refused(task, ST ? "lacks a pass of the output layer, S or T" : "is no shard of the output layer: each rank's first stage has one");
      if (kinds !== whole && kinds !== split) refused("the table", "lacks a forward or a backward");
    }
    const gathered = new Set(), gathers = every.some(({ kind }) => kind >= G);
    for (const { kind, stage, replica, rank } of every.filter((op) => gathers && (op.kind < R || op.kind >= G))) {
      const home = `${stage} ${replica}`, there = gathered.has(home);
      if (there === (kind === G)) refused(`rank ${rank}, ${stage}${LETTERS[kind]}`, there ? "gathers weights that its rank has" : "needs weights that are not gathered");
      if (kind !== D) gathered.add(home);
      else gathered.delete(home);
    }
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

  // Which operation's result each one needs, whether from another rank, the link on which each result leaves, the
  // barrier of all ranks at which it waits (`further`: what that needs), which cells hold a forward and a backward, the level of each cell as
  // in ppmodel's graphs, and the order by levels, in which every cell comes after all that it needs.
  function connect(table) {
    const { size, stages, replicas, ranks, kind, stage, microbatch, replica, rank, placement } = table;
    const count = table.microbatches * table.parts, at = new Int32Array(R * replicas * stages * count).fill(NONE);
    const place = (k, r, s, m) => ((k * replicas + r) * stages + s) * count + m;
    for (let op = 0; op < size; op++) at[place(kind[op], replica[op], stage[op], microbatch[op])] = op;
    const source = (table.source = new Int32Array(size).fill(NONE)), further = (table.further = new Map()), barriers = new Map();
    const shards = kind.includes(S) ? [...Array(ranks).keys()] : [], last = placement[0].indexOf(placement[0][stages - 1]);
    for (let op = 0; op < size; op++) {
      const r = replica[op], s = stage[op], m = microbatch[op], k = kind[op], needed = (one) => at[place(one, r, s, m)];
      if (k === F) source[op] = s ? at[place(F, r, s - 1, m)] : NONE;
      else if (k === W) source[op] = needed(I);
      else if (k === S) source[op] = at[place(F, 0, stages - 1, m)];
      else if (k === T) source[op] = needed(S);
      else if (s < stages - 1) source[op] = Math.max(at[place(B, r, s + 1, m)], at[place(I, r, s + 1, m)]);
      else source[op] = shards.length ? at[place(at[place(T, 0, last, m)] < op ? T : S, 0, last, m)] : needed(F);
      if (!shards.length || !(k === S || k === T || ((k === B || k === I) && s === stages - 1))) continue;
      const barrier = place(kind[source[op]], 0, 0, m);
      if (!barriers.has(barrier)) barriers.set(barrier, k === S ? [source[op]] : shards.map((shard) => at[barrier + shard * count]));
      further.set(op, barriers.get(barrier));
    }
    const links = new Map(), ofShard = (op) => kind[op] === S || kind[op] === T;
    table.remote = new Uint8Array(size);
    table.link = new Int32Array(size).fill(NONE);
    table.taker = new Int32Array(size).fill(NONE);
    table.messages = 0;
    for (let op = 0; op < size; op++) {
      const needed = source[op];
      if (needed === NONE || rank[needed] === rank[op] || ofShard(needed) !== ofShard(op)) continue;
      const way = rank[needed] * ranks + rank[op];
      if (!links.has(way)) links.set(way, links.size);
      table.remote[op] = 1;
      table.link[needed] = links.get(way);
      table.taker[needed] = op;
      table.messages++;
    }
    table.overlaps = new Uint8Array(table.cells);
    for (let cell = 0; cell < table.cells; cell++) {
      const kinds = kind.subarray(table.cellStart[cell], table.cellStart[cell + 1]);
      table.overlaps[cell] = kinds.includes(F) && kinds.some((one) => one >= B && one <= W);
    }
    for (const gather of table.gathers) {
      const end = table.rankStart[gather.rank + 1];
      gather.taker = gather.next;
      while (gather.taker < end && (stage[gather.taker] !== gather.stage || replica[gather.taker] !== gather.replica)) gather.taker++;
      if (gather.taker === end) gather.taker = NONE;
    }
    levels(table);
  }

  // One more than the level of the furthest that a cell waits for; what stands aside counts on its rank, too, and the copies
  // of a reduction have one level.
  function levels(table) {
    const { ranks, cells, cell, cellStart, source, further, programs, asides, apart } = table;
    const level = (table.level = new Int32Array(cells).fill(NONE)), next = new Int32Array(ranks), reached = next.slice().fill(NONE);
    const ready = (at) => {
      let found = 0;
      for (let op = cellStart[at]; op < cellStart[at + 1]; op++) {
        const barrier = further.get(op) || [];
        for (const needed of source[op] === NONE ? barrier : [source[op], ...barrier]) {
          if (level[cell[needed]] === NONE) return NONE;
          found = Math.max(found, level[cell[needed]] + (barrier.length ? 2 : 1)); // a barrier has a level of its own
        }
      }
      return found;
    };
    let found = 0, left = programs.flat().length;
    for (let before = -1; before < found; ) {
      before = found;
      for (let rank = 0; rank < ranks; rank++) {
        for (let at; (at = programs[rank][next[rank]]) !== undefined; found++) {
          const group = at < 0 && asides[~at].kind === R ? apart[asides[~at].task] : [{ rank }];
          const least = at < 0 ? group.every((one) => asides[~programs[one.rank][next[one.rank]]]?.task === asides[~at].task && level[one.after] !== NONE) - 1 : ready(at);
          if (least === NONE) break;
          const own = group.reduce((most, one) => Math.max(most, reached[one.rank] + 1), least);
          for (const one of group) [reached[one.rank], next[one.rank]] = [own, next[one.rank] + 1];
          if (at < 0) group.level = own;
          else level[at] = own;
          left -= group.length;
        }
      }
    }
    if (left) throw new Error("a table in which operations wait for one another in a circle");
  }

  // ---- names ---------------------------------------------------------------------------------------

  function name(table, op) {
    const copy = table.replica[op] ? `@${table.replica[op]}` : "";
    return `${table.stage[op]}${LETTERS[table.kind[op]]}${unit(table, op)}${copy}`;
  }

  const asideName = ({ stage, kind, replica }) => `${stage}${LETTERS[kind]}${replica ? `@${replica}` : ""}`;

  function cellName(table, cell) {
    const names = [];
    for (let op = table.cellStart[cell]; op < table.cellStart[cell + 1]; op++) names.push(name(table, op));
    return names.join("&");
  }

  window.ppmodelOrders = { NONE, LETTERS, B, F, R, G, S, unpack, parse, unit, name, asideName, cellName };
})();
