// The engine of the explorer, built as ppmodel/simulation is: a table and a semantics compile into tasks, each with the tasks
// that it waits for; one loop runs them, or an event queue where the order of messages depends on times.
// tests/book/test_explorer.py holds the two together. No page, no drawing.
(() => {
  "use strict";
  const { NONE, LETTERS, B, F, R, G, S, unpack, parse, unit, name, asideName, cellName } = window.ppmodelOrders;

  // The tasks of a message, one after another: whether each takes the transfer time, and the delay of its link.
  const WAY = [true, false], LATE = [false, true], BOTH = [true, true];
  const MESSAGES = {
    latency: [BOTH], overlapped: [WAY, LATE], blocking_send: [BOTH], blocking_recv: [BOTH], blocking: [BOTH, BOTH],
    rendezvous: [BOTH], streams: [LATE, WAY], overlapped_nic: [WAY, WAY, LATE],
  };

  // ---- tasks -----------------------------------------------------------------------------------------

  // Tasks are numbered: cells; behind them the first task of each operation's message, then the second, and so on; then
  // gathers and reductions of weights; barriers; last, what takes no time: ends of transfers that are posted. Each starts when
  // those that it waits for have ended: the one before it in each of its queues (a rank, what runs beside it, a link, a
  // stream), and its inputs. Reductions are left out, overlap computing or occupy the ranks.
  function compile(table, p2p, lags, allreduce = "excluded") {
    const key = `${p2p} ${lags} ${allreduce}`;
    if (table.graphs.has(key)) return table.graphs.get(key);
    const { ranks, size, cells, rank, cell, cellStart, taker, source, remote, further, asides, apart } = table;
    const queued = p2p === "overlapped_nic", parts = MESSAGES[p2p].filter((part) => lags || queued || part !== LATE);
    const part = (number, op) => cells + number * size + op, arrival = (op) => part(parts.length - 1, op);
    const beside = part(parts.length, 0), named = beside + apart.length, waiting = [], awaited = [], last = new Map();
    const need = (task, other) => { waiting.push(task); awaited.push(other); };
    const barriers = new Map();
    const barrier = (ops) => {
      if (!barriers.has(ops)) for (const op of barriers.set(ops, named + barriers.size) && ops) need(barriers.get(ops), cell[op]);
      return barriers.get(ops);
    };
    const hold = (queue, task) => {
      if (last.has(queue) && last.get(queue) !== task) need(task, last.get(queue));
      last.set(queue, task);
    };
    for (let op = 0; op < size; op++) {
      if (remote[op]) need(cell[op], arrival(source[op]));
      else if (source[op] !== NONE) need(cell[op], cell[source[op]]);
      if (further.has(op)) need(cell[op], barrier(further.get(op)));
      if (taker[op] !== NONE) parts.forEach((_, number) => need(part(number, op), number ? part(number - 1, op) : cell[op]));
    }
    const runs = ({ kind }) => kind === G || (kind === R && allreduce !== "excluded"), occupies = ({ kind }) => kind === R && allreduce === "blocking";
    for (const aside of asides.filter(runs)) {
      if (!occupies(aside)) hold(ranks + aside.rank, beside + aside.task);
      if (aside.after !== NONE) need(beside + aside.task, aside.after);
      if (aside.taker >= 0) need(cell[aside.taker], beside + aside.task);
    }
    const lines = table.programs.map((line) => line.flatMap((at) => (at >= 0 ? at : occupies(asides[~at]) ? beside + asides[~at].task : [])));
    const opsOf = (task) => (task < cells ? Array.from({ length: cellStart[task + 1] - cellStart[task] }, (_, i) => cellStart[task] + i) : []);
    const tools = { p2p, lags, allreduce, part, arrival, need, hold, last, lines, opsOf, beside, posts: named + barriers.size };
    const programs = p2p === "rendezvous" ? meet(table, tools) : null;
    const count = p2p === "streams" ? issue(table, tools) : tools.posts;
    if (p2p !== "streams" && !programs) buffer(table, tools);
    const first = new Int32Array(count + 1), missing = new Int32Array(count), next = new Int32Array(waiting.length);
    for (const other of awaited) first[other + 1]++;
    for (let task = 0; task < count; task++) first[task + 1] += first[task];
    const place = first.slice();
    waiting.forEach((task, i) => {
      next[place[awaited[i]]++] = task;
      missing[task]++;
    });
    const order = [], left = missing.slice(), exists = (task) => task < cells || task >= named || (task >= beside && runs(apart[task - beside][0]));
    for (let task = 0; task < count; task++) if (!left[task] && exists(task)) order.push(task);
    const begins = order.length;
    for (let i = 0; i < order.length; i++) {
      for (let to = first[order[i]]; to < first[order[i] + 1]; to++) if (!--left[next[to]]) order.push(next[to]);
    }
    const graph = {
      queued, parts, part, beside, barriers: [...barriers.keys()], barrier: named, posts: tools.posts, count, first, next, missing, order, begins,
      occupies, deadlock: programs && stuck(table, programs, left),
    };
    if (queued) {
      graph.keys = new Float64Array(count); // of what is no cell nor message, the place among others at a time makes no difference
      graph.places = new Int32Array(count).fill(NONE);
      for (let op = 0; op < size; op++) {
        const at = 2 * (table.level[cell[op]] * size + op);
        if (op === cellStart[cell[op]]) graph.keys[cell[op]] = at;
        [2 ** 50 + at, 2 ** 50 + at + 1, 2 ** 51 + at].forEach((own, number) => { graph.keys[part(number, op)] = own; });
        if (taker[op] !== NONE) [graph.places[part(0, op)], graph.places[part(1, op)]] = [rank[op], ranks + rank[taker[op]]];
      }
    }
    table.graphs.set(key, graph);
    return graph;
  }

  // Messages that wait for their receivers, and hold their link or the ranks: one rank, or both in turn.
  function buffer({ ranks, taker, source, remote, link }, { p2p, part, arrival, hold, lines, opsOf }) {
    const sends = p2p.startsWith("blocking") && p2p !== "blocking_recv", receives = sends ? p2p === "blocking" : p2p === "blocking_recv";
    lines.forEach((line, own) => {
      for (const task of line) {
        for (const op of opsOf(task)) if (receives && remote[op]) hold(own, arrival(source[op]));
        hold(own, task);
        for (const op of opsOf(task)) {
          if (taker[op] === NONE) continue;
          if (sends) hold(own, part(0, op));
          else if (p2p === "overlapped") hold(2 * ranks + link[op], part(0, op));
        }
      }
    });
  }

  // Sender and receiver wait for one another. Between two cells, a rank sends the results of the first, and receives what the
  // second needs; messages with the same peer are a batch, at the place of the first of them. A message starts when both
  // of its ranks are through with what is before its batch; those that a rank sends follow one another. Returns what each
  // rank comes to, in order.
  function meet({ ranks, rank, taker, source, remote }, { part, need, hold, lines, opsOf, beside }) {
    return lines.map((line, own) => {
      const program = [];
      let before = [];
      const come = (tasks) => {
        for (const task of tasks) {
          for (const other of before) need(task, other);
          if (task >= part(0, 0) && task < beside && rank[task - part(0, 0)] === own) hold(2 * ranks + own, task);
        }
        before = tasks;
        program.push(...tasks);
      };
      for (let at = 0; at <= line.length; at++) {
        const batches = new Map(), add = (peer, op) => batches.set(peer, [...(batches.get(peer) || []), part(0, op)]);
        for (const op of at ? opsOf(line[at - 1]) : []) if (taker[op] !== NONE) add(rank[taker[op]], op);
        for (const op of at < line.length ? opsOf(line[at]) : []) if (remote[op]) add(rank[source[op]], source[op]);
        for (const batch of batches.values()) come(batch);
        if (at < line.length) come([line[at]]);
      }
      return program;
    });
  }

  // The messages at which ranks wait for one another, if they do.
  function stuck(table, programs, left) {
    const { cells, size, rank, taker } = table, found = programs.flatMap((program, own) => {
      const op = program.find((one) => left[one]) - cells;
      if (!(op >= 0 && op < size)) return [];
      const sends = rank[op] === own;
      return [{ rank: own, sends, peer: rank[sends ? taker[op] : op], operation: name(table, op) }];
    });
    return found.length ? found : null;
  }

  // Transfers are kernels, behind one queue for each rank; see `issued`. Each end of one is posted once all that was issued
  // before it on its rank has started, the last operation has ended, and the stream of the two ranks is free; the sender's
  // end on a delayed link, that much later. The transfer starts when both are. Returns the number of tasks.
  function issue(table, tools) {
    const { ranks, rank, taker, cells, cellStart, apart } = table, { lags, part, arrival, need, hold, last, posts, beside } = tools;
    let count = posts;
    for (const [, , isCell, , number] of issued(table, tools)) {
      if (isCell) {
        for (const own of number < cells ? [rank[cellStart[number]]] : apart[number - beside].map((one) => one.rank)) hold(own, number);
        continue;
      }
      const ends = [rank[number], rank[taker[number]]], stream = (2 + Math.min(...ends)) * ranks + Math.max(...ends);
      ends.forEach((own, receives) => {
        const posted = lags && !receives ? part(0, number) : count++;
        hold(own, posted);
        if (last.has(stream)) need(posted, last.get(stream));
        need(arrival(number), posted);
      });
      last.set(stream, arrival(number));
    }
    return count;
  }

  // Cells, reductions that occupy ranks, and messages for both of their ends, in an order that agrees with that in which every
  // rank issues its own: by planned times, a message at its producer's end and before cells. But a cell comes behind the last
  // of the receives that are due right after its start, while it is planned to run.
  function issued(table, { allreduce, lines, opsOf, beside }) {
    const { size, cells, cell, taker, source, remote, level, apart } = table;
    const plan = timed(table, compile(table, "latency", false, allreduce), (op) => (table.kind[op] === B ? 2000 : 1000), { transfer: 1 });
    const levelOf = (task) => (task < cells ? level[task] : apart[task - beside].level), planned = (task) => plan.begin[task < cells ? task : task - beside + plan.graph.beside];
    const items = new Map(lines.flat().map((task) => [task, [planned(task), size, 1, levelOf(task), task]])), messages = [];
    for (const line of lines) {
      const mine = [];
      for (const task of line) {
        mine.push([planned(task), 1, levelOf(task), task]);
        for (const op of opsOf(task)) {
          if (taker[op] !== NONE) mine.push([plan.end[task], 0, op, NONE]);
          if (remote[op]) mine.push([plan.end[cell[source[op]]], 0, source[op], NONE, true]);
          if (taker[op] !== NONE) messages.push([plan.end[task], op, 0, 0, op]);
        }
      }
      mine.sort(inTurn);
      let before = NONE;
      for (const [time, , number, task, comes] of mine) {
        if (!comes) before = task < cells ? task : NONE;
        else if (before !== NONE && time <= plan.end[before]) [items.get(before)[0], items.get(before)[1]] = [time, number];
      }
    }
    return [...items.values(), ...messages].sort(inTurn);
  }

  const inTurn = (one, other) => one[0] - other[0] || one[1] - other[1] || one[2] - other[2] || one[3] - other[3];

  // ---- times -------------------------------------------------------------------------------------

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

  // The times of all tasks, NaN for those that do not exist; `cause` is the task whose end lets a task begin. `ofOp` gives the
  // seconds of an operation, `ofAside` those of a gather or of a copy of a reduction, which take as long as the longest,
  // and `ofBarrier` those in which results of a kind are passed on.
  function timed(table, graph, ofOp, { transfer = 0, late = null, overlap = 1, ofAside = () => 0, ofBarrier = () => 0 }) {
    const { size, cells, cellStart, kind } = table, { count, parts, part, order, queued, beside } = graph;
    const begin = new Float64Array(count).fill(NaN), end = begin.slice(), cause = new Int32Array(count).fill(NONE);
    const seconds = new Float64Array(count), run = { table, graph, queues: queued, begin, cause, deadlock: graph.deadlock };
    for (let at = 0; at < cells; at++) {
      let sum = 0;
      for (let op = cellStart[at]; op < cellStart[at + 1]; op++) sum += ofOp(op);
      seconds[at] = sum * (table.overlaps[at] ? overlap : 1);
    }
    parts.forEach(([isWay, isLate], number) => {
      for (let op = 0; op < size; op++) seconds[part(number, op)] = (isWay ? transfer : 0) + (isLate && late ? late[op] : 0);
    });
    table.apart.forEach((group, number) => { seconds[beside + number] = Math.max(...group.map(ofAside)); });
    graph.barriers.forEach((ops, number) => { seconds[graph.barrier + number] = ofBarrier(kind[ops[0]]); });
    for (const task of order) begin[task] = 0;
    (queued ? inTime : alongPath)(table, graph, seconds, begin, end, cause);
    const [sent, arrived] = [[begin, 0], [end, parts.length - 1]].map(([times, number]) => times.subarray(part(number, 0), part(number + 1, 0)));
    const second = Math.min(1, parts.length - 1), taken = begin.subarray(part(second, 0), part(second + 1, 0));
    return Object.assign(run, { start: begin.subarray(0, cells), end: end.subarray(0, cells), ends: end, sent, arrived, gone: end.subarray(cells, cells + size), taken });
  }

  // The longest path: tasks in an order in which each comes behind those that it waits for.
  function alongPath(table, { posts, order, first, next }, seconds, begin, end, cause) {
    for (const task of order) {
      const ended = (end[task] = begin[task] + seconds[task]), because = task < posts ? task : cause[task];
      for (let to = first[task]; to < first[task + 1]; to++) {
        const other = next[to];
        if (ended >= begin[other]) [begin[other], cause[other]] = [ended, because];
      }
    }
  }

  // The same by events, with one NIC for each rank, which sends one message at a time and takes in one at a time, in the order
  // in which they are ready; what leaves one NIC passes through the other meanwhile, or once that is free. A link's delay
  // comes after both. Which message is first depends on times. Of events at the same time, cells come first, then NICs
  // that become free, then arrivals; and of one kind, that whose cell has the lowest level or, if these are equal, number.
  function inTime({ ranks, cells }, { begins, part, keys, places, posts, order, first, next, missing }, seconds, begin, end, cause) {
    const lacking = missing.slice(), due = [];
    const waiting = Array.from({ length: 2 * ranks }, () => []), serves = new Int32Array(2 * ranks).fill(NONE);
    const tell = (task, time, because) => {
      for (let to = first[task]; to < first[task + 1]; to++) {
        const other = next[to], place = places[other];
        if (time >= begin[other]) [begin[other], cause[other]] = [time, because];
        if (--lacking[other]) continue;
        if (place === NONE) start(other);
        else if (waiting[place].push(other)) serve(place, time, NONE);
      }
    };
    const serve = (place, now, because) => {
      if (serves[place] !== NONE || !waiting[place].length) return;
      const task = (serves[place] = waiting[place].shift());
      if (now > begin[task]) [begin[task], cause[task]] = [now, because];
      start(task);
    };
    const leaves = (task) => task >= cells && task < part(1, 0);
    const start = (task) => {
      end[task] = begin[task] + seconds[task];
      due.push(task);
      if (leaves(task)) tell(task, begin[task], cause[task]);
    };
    for (let i = 0; i < begins; i++) start(order[i]);
    while (due.length) {
      let soonest = 0;
      for (let i = 1; i < due.length; i++) {
        const sooner = end[due[i]] - end[due[soonest]] || keys[due[i]] - keys[due[soonest]];
        if (sooner < 0) soonest = i;
      }
      const task = due[soonest], now = end[task], place = places[task], tail = due.pop();
      if (soonest < due.length) due[soonest] = tail;
      if (place !== NONE) serves[place] = NONE;
      if (!leaves(task)) tell(task, now, task < posts ? task : cause[task]);
      if (place !== NONE) serve(place, now, task);
    }
  }

  // ---- what is read off ----------------------------------------------------------------------------

  // `output` is a pass S or T of the output layer, which is divided among the ranks; without them, the last stage's forward
  // takes as much longer as all ranks' S, and its backward as their T. `passed` is what a broadcast of the shards' inputs
  // takes, or a sum of the gradients of these, and `summed` what the shards' all-reduces of sums take. `gather` is that of
  // the weights of 1/S of the model, `reduction` that of their gradients.
  function simulate(table, costs) {
    const { output = 0, passed = 0, summed = 0, gather = 0, reduction = 0, overlap = 1, allreduce } = costs, late = delays(table, costs);
    const { kind, stage, rank, source, shares, parts, cell, rankStart } = table;
    const graph = compile(table, costs.p2p, late.some((delay) => delay > 0), allreduce);
    const whole = [costs.forward, costs.input_grad + costs.weight_grad, costs.input_grad, costs.weight_grad];
    const more = kind.includes(S) ? [0, 0, 0, 0] : [1, 1, 0.5, 0.5].map((share) => (share * output * table.ranks) / parts);
    const slower = (own) => (own === costs.slow_rank ? costs.slow_factor : 1);
    const ofOp = (op) => {
      const own = kind[op] >= S ? output / parts : whole[kind[op]] * shares[stage[op]] + (stage[op] === table.stages - 1 ? more[kind[op]] : 0);
      return own * slower(rank[op]);
    };
    const ofAside = (one) => (one.kind === G ? gather : reduction) * shares[one.stage] * parts * slower(one.rank);
    const waits = kind.findIndex((own, op) => own < S && source[op] !== NONE && kind[source[op]] >= S), early = waits >= 0 && kind[source[waits]] === S; // S computes the gradient, too
    const ofBarrier = (own) => ((own === S ? summed : 0) + (own !== S || early ? passed : 0)) / parts;
    const run = timed(table, graph, ofOp, { transfer: costs.comm / parts, late, overlap, ofAside, ofBarrier });
    if (run.deadlock) return Object.assign(run, { makespan: NaN, idle: NaN, span: NaN });
    let busy = 0, span = 0;
    finish(run);
    for (let own = 0; own < table.ranks; own++) {
      const first = cell[rankStart[own]], last = cell[rankStart[own + 1] - 1];
      for (let at = first; at <= last; at++) busy += run.end[at] - run.start[at];
      span = Math.max(span, run.end[last] - run.start[first]);
    }
    return Object.assign(run, { busy, idle: 1 - busy / (table.ranks * run.makespan), span: 1 - busy / (table.ranks * span) });
  }

  // The task that ends last, and when it does.
  function finish(run) {
    run.last = 0;
    for (let task = 1; task < run.ends.length; task++) if (run.ends[task] > run.ends[run.last]) run.last = task;
    run.makespan = run.ends[run.last];
    return run;
  }

  // The idealised table: whole slots, a backward of two, no transfers; a chunk's operation is as long as a stage's.
  function slots(table) {
    if (table.slots) return table.slots;
    const inside = table.asides.some(({ kind, next, rank }) => kind === R && next < table.rankStart[rank + 1]); // and others wait
    const run = finish(timed(table, compile(table, "latency", false, inside ? "blocking" : "excluded"), (op) => (table.kind[op] === B ? 2 : 1), {}));
    const busy = table.kind.reduce((sum, kind) => sum + (kind === B ? 2 : 1), 0);
    return (table.slots = Object.assign(run, { idle: 1 - busy / (table.ranks * run.makespan) }));
  }

  // The same with times in forwards of a whole rank's share of the model, so that tables of unlike slots stand side by
  // side: a slot is one of `pieces` of it.
  function scaledSlots(table) {
    const run = slots(table), pieces = (table.stages / table.ranks) * table.parts;
    const scaled = (times) => times.map((time) => time / pieces);
    const times = Object.fromEntries(["begin", "ends", "start", "end", "sent", "arrived", "gone", "taken"].map((key) => [key, scaled(run[key])]));
    return { ...run, ...times, makespan: run.makespan / pieces, pieces };
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
          const change = [weight, -weight, kept - weight, -kept][table.kind[op]] || 0;
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

  // When a task begins and ends.
  const span = (run, task) => [run.begin[task], run.ends[task]];

  // Gathers and reductions with their times, and whether they occupy their ranks.
  const besides = ({ table, graph, begin, ends }) => table.asides.flatMap((aside) => {
    const task = graph.beside + aside.task;
    return begin[task] >= 0 ? [{ aside, begin: begin[task], end: ends[task], occupies: graph.occupies(aside) }] : [];
  });

  // When results are passed on at barriers.
  const collectives = (run) => run.graph.barriers.map((_, number) => span(run, run.graph.barrier + number)).filter(([begin, end]) => end > begin);

  // All tasks from the first to the one that ends last, each begun by the one before.
  function criticalPath(run) {
    if (run.deadlock) return [];
    const path = [];
    for (let node = run.last; node !== NONE; node = run.cause[node]) path.push(node);
    return path.reverse();
  }

  // What a cell waited for: the message that let it begin, or none, and the cell that sent it, or came before; or the gather
  // or the reduction of weights, or the barrier at which results are passed on; since when the rank had nothing else to do,
  // and how long that was.
  function waited(run, cell) {
    const { table, cause, graph } = run, first = table.cellStart[cell];
    const before = cell > table.cell[table.rankStart[table.rank[first]]] ? cell - 1 : NONE;
    const since = before === NONE ? 0 : run.end[before], seconds = run.start[cell] - since, task = cause[cell];
    let other = task;
    while (other >= graph.beside) other = cause[other];
    const message = other < table.cells ? NONE : (other - table.cells) % table.size;
    const aside = task >= graph.beside && table.apart[task - graph.beside]?.[0], passed = task >= graph.barrier && span(run, task);
    return { message: other === task ? message : NONE, cell: message === NONE ? other : table.cell[message], aside, passed, since, seconds };
  }

  // Most weights that each rank has gathered at a time, in 1/S of the model.
  function gathered(table) {
    const now = new Float64Array(table.ranks), most = new Float64Array(table.ranks);
    for (const { kind, stage, rank } of table.asides) {
      if (kind >= G) now[rank] += (kind === G ? 1 : -1) * table.shares[stage] * table.parts;
      most[rank] = Math.max(most[rank], now[rank]);
    }
    return most;
  }

  window.ppmodelEngine = {
    unpack, parse, simulate, slots, scaledSlots, activations, gathered, besides, collectives, criticalPath, span, waited, unit, name, asideName, cellName, NONE, LETTERS,
  };
})();
