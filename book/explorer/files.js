// What the explorer gives to take away: a picture, a table and a trace of the two schedules that it shows.
(() => {
  "use strict";
  const E = window.ppmodelEngine;
  const { NONE, LETTERS } = E;

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // The columns of ppmodel's `run.to_frame()`, after the schedule's name; rank by rank in program order.
  function csv(panels) {
    const rows = ["schedule,rank,operation,kind,stage,microbatch,replica,start_s,end_s,sent_s,arrived_s"];
    const seconds = (value) => (Number.isNaN(value) ? "" : String(value));
    for (const { key, table, run } of panels) {
      const name = key.includes(",") ? `"${key}"` : key, asides = [...table.asides], beside = E.besides(run);
      for (let op = 0; op <= table.size; op++) {
        for (; asides.length && asides[0].next === op; asides.shift()) {
          const [aside] = asides, { begin = NaN, end = NaN } = beside.find((one) => one.aside === aside) || {}, times = [begin, end];
          if (!aside.added || end >= 0) rows.push([name, aside.rank, E.asideName(aside), LETTERS[aside.kind], aside.stage, -1, aside.replica, ...times.map(seconds), "", ""].join());
        }
        if (op === table.size) break;
        const cell = table.cell[op];
        rows.push([
          name, table.rank[op], E.name(table, op), LETTERS[table.kind[op]], table.stage[op],
          Math.floor(table.microbatch[op] / table.slices), table.replica[op], run.start[cell], run.end[cell], seconds(run.sent[op]), seconds(run.arrived[op]),
        ].join());
      }
    }
    return `${rows.join("\n")}\n`;
  }

  // Chrome's trace-event format, for Perfetto: a process for each schedule and one for what its ranks hold, a track for
  // each rank, an arrow for each message; microseconds, with one unit of the page as a second.
  function trace(panels, about) {
    const events = [], us = (time) => Math.round(time * 1e9) / 1e3;
    panels.forEach(({ label, table, run }, number) => {
      const ranks = 2 * number + 1, held = 2 * number + 2;
      const { during, after } = E.activations(table);
      events.push({ ph: "M", name: "process_name", pid: ranks, args: { name: label } });
      events.push({ ph: "M", name: "process_name", pid: held, args: { name: `${label}: activations` } });
      for (let rank = 0; rank < table.ranks; rank++) {
        for (const [tid, what] of [[rank, ""], [table.ranks + rank, ", gathers and reductions"]].slice(0, E.besides(run).length ? 2 : 1)) {
          events.push({ ph: "M", name: "thread_name", pid: ranks, tid, args: { name: `rank ${rank}${what}` } });
        }
      }
      for (let cell = 0; cell < table.cells; cell++) {
        const rank = table.rank[table.cellStart[cell]], begin = us(run.start[cell]), end = us(run.end[cell]);
        const same = { pid: ranks, tid: rank };
        events.push({ ph: "X", name: E.cellName(table, cell), ...same, ts: begin, dur: Number((end - begin).toFixed(3)) });
        const counter = { ph: "C", name: `rank ${rank} activations`, pid: held, tid: 0 };
        events.push({ ...counter, ts: begin, args: { microbatches: Number(during[cell].toFixed(9)) } });
        events.push({ ...counter, ts: end, args: { microbatches: Number(after[cell].toFixed(9)) } });
      }
      for (const { aside, begin, end } of E.besides(run)) {
        events.push({ ph: "X", name: E.asideName(aside), pid: ranks, tid: table.ranks + aside.rank, ts: us(begin), dur: Number((us(end) - us(begin)).toFixed(3)) });
      }
      for (let op = 0; op < table.size; op++) {
        if (table.taker[op] === NONE) continue;
        const same = { name: "transfer", cat: "transfer", id: number * 1e6 + op, pid: ranks };
        const end = us(run.end[table.cell[op]]), head = table.cell[table.taker[op]];
        events.push({ ph: "s", ...same, tid: table.rank[op], ts: Number((end - 0.001).toFixed(3)) });
        events.push({ ph: "f", bp: "e", ...same, tid: table.rank[table.taker[op]], ts: us(run.start[head]) });
      }
    });
    return `${JSON.stringify({ displayTimeUnit: "ms", otherData: about, traceEvents: events })}\n`;
  }

  window.ppmodelFiles = { save, csv, trace };
})();
