// The drawing of the explorer: timelines of two schedules on one axis, what each rank holds below, and the curve of both
// against the transfer time. Everything is painted on a canvas context, or on `Svg`, which takes the same calls.
(() => {
  "use strict";
  const E = window.ppmodelEngine;
  const { NONE, LETTERS } = E;
  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
  const MOST_LINES = 700; // transfers in sight beyond which their lines would cover the operations

  // ---- colours -------------------------------------------------------------------------------------

  function channels(colour) {
    return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  }

  // As plot.timelines: deeper chunks of a rank are darker; letters are white on what is dark.
  function shades(colour, chunks) {
    return Array.from({ length: chunks }, (_, chunk) => {
      const share = chunks > 1 ? (0.45 * chunk) / (chunks - 1) : 0;
      const shaded = channels(colour).map((one) => Math.round((1 - share) * one));
      const light = shaded.reduce((sum, one) => sum + one, 0) >= 1.2 * 255;
      return { fill: `rgb(${shaded.join(",")})`, text: light ? "#111111" : "#ffffff" };
    });
  }

  const kept = new Map();
  function coloursOf(table, kinds) {
    const chunks = Math.max(1, Math.round(table.stages / table.ranks));
    if (!kept.has(chunks)) kept.set(chunks, [...LETTERS].map((letter) => shades(kinds[letter][1], chunks)));
    return kept.get(chunks);
  }

  // ---- geometry ------------------------------------------------------------------------------------

  const TITLE = 26, GAP = 18, AXIS = 34;

  function layout(panels, width) {
    const narrow = width < 560, left = narrow ? 24 : 34, right = narrow ? 30 : 40;
    let top = 2;
    for (const panel of panels) {
      const ranks = panel.table.ranks;
      panel.row = ranks <= 4 ? 26 : ranks <= 8 ? 24 : ranks <= 12 ? 16 : 14;
      panel.lane = ranks <= 4 ? 16 : ranks <= 8 ? 11 : 8;
      panel.top = top;
      panel.rows = top + TITLE;
      panel.memory = panel.rows + ranks * panel.row + 18;
      top = panel.memory + ranks * panel.lane + GAP;
    }
    return { width, left, plot: Math.max(80, width - left - right), height: top - GAP + AXIS + 4, bottom: top - GAP + 6 };
  }

  // The first cell of a rank that ends behind a time; cells of a rank follow one another.
  function firstAfter(panel, rank, time) {
    const { table, run } = panel;
    let low = table.cell[table.rankStart[rank]], high = table.cell[table.rankStart[rank + 1] - 1] + 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (run.end[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function lastOf(panel, rank) {
    return panel.table.cell[panel.table.rankStart[rank + 1] - 1];
  }

  function at(scene, x, y) {
    const { place, panels, window: [from, to] } = scene;
    const time = from + ((x - place.left) / place.plot) * (to - from);
    for (const [number, panel] of panels.entries()) {
      const rank = Math.floor((y - panel.rows) / panel.row);
      if (rank < 0 || rank >= panel.table.ranks || panel.run.deadlock) continue;
      const cell = firstAfter(panel, rank, time), slack = (3 / place.plot) * (to - from);
      if (cell <= lastOf(panel, rank) && panel.run.start[cell] <= time + slack) return { panel: number, cell };
      return { panel: number, rank };
    }
    return null;
  }

  // ---- timelines -----------------------------------------------------------------------------------

  function paint(ctx, scene) {
    const { place, theme } = scene;
    ctx.clearRect(0, 0, place.width, place.height);
    if (theme.opaque) fill(ctx, theme.ground, 0, 0, place.width, place.height);
    ctx.textBaseline = "middle";
    scene.panels.forEach((panel, number) => paintPanel(ctx, scene, panel, number));
    paintAxis(ctx, scene);
  }

  function fill(ctx, colour, x, y, width, height) {
    ctx.fillStyle = colour;
    ctx.fillRect(x, y, width, height);
  }

  function write(ctx, text, x, y, colour, font, align = "left") {
    ctx.fillStyle = colour;
    ctx.font = `${font} ${FONT}`;
    ctx.textAlign = align;
    ctx.fillText(text, x, y);
  }

  function paintPanel(ctx, scene, panel, number) {
    const { place, theme } = scene;
    fill(ctx, panel.colour, place.left, panel.top + 7, 10, 10);
    write(ctx, panel.title, place.left + 16, panel.top + 13, theme.text, "600 13px");
    if (panel.run.deadlock) {
      write(ctx, panel.note, place.left, panel.rows + 18, theme.text, "13px");
      return;
    }
    const step = panel.table.ranks > 8 && panel.row < 15 ? 2 : 1;
    for (let rank = 0; rank < panel.table.ranks; rank++) {
      const y = panel.rows + rank * panel.row;
      fill(ctx, theme.row, place.left, y + 1, place.plot, panel.row - 2);
      if (rank % step === 0) write(ctx, rank, place.left - 6, y + panel.row / 2, rank === panel.slow ? theme.path : theme.muted, rank === panel.slow ? "700 11px" : "11px", "right");
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(place.left, panel.top, place.plot, panel.memory - panel.top + panel.table.ranks * panel.lane);
    ctx.clip();
    paintCollectives(ctx, scene, panel);
    paintOccupied(ctx, scene, panel);
    paintCells(ctx, scene, panel);
    if (scene.transfers) paintTransfers(ctx, scene, panel);
    if (scene.path) paintPath(ctx, scene, panel);
    if (scene.marked && scene.marked.panel === number) paintMarked(ctx, scene, panel, scene.marked.cell);
    paintMemory(ctx, scene, panel);
    ctx.restore();
    paintPeaks(ctx, scene, panel);
  }

  function scaleOf(scene) {
    const [from, to] = scene.window;
    const perUnit = scene.place.plot / (to - from);
    return (time) => scene.place.left + (time - from) * perUnit;
  }

  // Calls `visit` for every cell in sight, rank by rank.
  function inSight(scene, panel, visit) {
    const [from, to] = scene.window;
    for (let rank = 0; rank < panel.table.ranks; rank++) {
      const last = lastOf(panel, rank);
      for (let cell = firstAfter(panel, rank, from); cell <= last && panel.run.start[cell] < to; cell++) visit(cell, rank);
    }
  }

  // Operations, colour by colour, so that a context changes its colour a few times and not for each of thousands.
  function paintCells(ctx, scene, panel) {
    const { table, run } = panel, x = scaleOf(scene), colours = coloursOf(table, scene.theme.kinds);
    const boxes = new Map(), letters = [], asides = E.besides(run), strip = asides.some((one) => !one.occupies) && 4;
    const add = (colour, ...box) => boxes.set(colour, boxes.get(colour) || []).get(colour).push(...box);
    inSight(scene, panel, (cell, rank) => {
      const first = table.cellStart[cell], last = table.cellStart[cell + 1];
      const left = x(run.start[cell]), width = x(run.end[cell]) - left;
      if (width <= 0) return;
      const gap = width > 3 ? 1 : 0, height = (panel.row - 3 - strip) / (last - first), size = Math.min(11, Math.floor(height - 1));
      const [begin, stop] = [Math.max(left, scene.place.left), Math.min(left + width, scene.place.left + scene.place.plot)];
      for (let op = first; op < last; op++) {
        const colour = colours[table.kind[op]][Math.min(table.chunk[op], colours[0].length - 1)];
        const y = panel.rows + rank * panel.row + 1.5 + (op - first) * height;
        add(colour, left, y, width - gap, height - (last - first > 1 ? 0.5 : 0), table.replica[op]);
        const name = E.unit(table, op);
        if (stop - begin > (name.length > 1 ? name.length - 0.5 : 1) * size && size > 7) {
          letters.push(name, (begin + stop) / 2, y + height / 2 + 0.5, colour.text, size);
        }
      }
    });
    for (const { aside: { kind, rank }, begin, end, occupies } of asides) { // between the operations of a rank, or below them
      const [from, to] = scene.window, gap = x(end) - x(begin) > 3 ? 1 : 0, height = occupies ? panel.row - 3 - strip : 3;
      const y = panel.rows + rank * panel.row + (occupies ? 1.5 : panel.row - 4.5);
      if (end > begin && end > from && begin < to) add(colours[kind][0], x(begin), y, x(end) - x(begin) - gap, height, 0);
    }
    for (const [colour, list] of boxes) {
      ctx.fillStyle = colour.fill;
      for (let i = 0; i < list.length; i += 5) ctx.fillRect(list[i], list[i + 1], Math.max(list[i + 2], 0.6), list[i + 3]);
    }
    ctx.fillStyle = "rgba(0,0,0,0.5)"; // the second copy of the model has a dark foot
    for (const list of boxes.values()) {
      for (let i = 0; i < list.length; i += 5) if (list[i + 4]) ctx.fillRect(list[i], list[i + 1] + list[i + 3] - 3, list[i + 2], 3);
    }
    ctx.textAlign = "center";
    for (let i = 0, size = 0; i < letters.length; i += 5) {
      if (letters[i + 4] !== size) ctx.font = `${(size = letters[i + 4])}px ${FONT}`;
      ctx.fillStyle = letters[i + 3];
      ctx.fillText(letters[i], letters[i + 1], letters[i + 2]);
    }
  }

  // While results of shards are passed on: a band behind all ranks.
  function paintCollectives(ctx, scene, panel) {
    const x = scaleOf(scene), { ranks } = panel.table;
    for (const [begin, end] of E.collectives(panel.run)) fill(ctx, `${scene.theme.kinds.S[1]}66`, x(begin), panel.rows + 1, x(end) - x(begin), ranks * panel.row - 2);
  }

  // Where a transfer holds its sender or its receiver: a thin bar in their rows.
  function paintOccupied(ctx, scene, panel) {
    const [sends, receives] = panel.occupied;
    if (!sends && !receives) return;
    const { table, run } = panel, x = scaleOf(scene), [from, to] = scene.window;
    ctx.fillStyle = scene.theme.held;
    const bar = (rank, begin, end) => {
      if (end <= from || begin >= to || end <= begin) return;
      ctx.fillRect(x(begin), panel.rows + rank * panel.row + panel.row / 2 - 2, Math.max(0.6, x(end) - x(begin)), 4);
    };
    for (let op = 0; op < table.size; op++) {
      if (table.taker[op] === NONE) continue;
      if (sends) bar(table.rank[op], run.sent[op], run.gone[op]);
      if (receives) bar(table.rank[table.taker[op]], run.taken[op], run.arrived[op]);
    }
  }

  function transferLine(ctx, panel, op, x, [begin, end] = [panel.run.sent[op], panel.run.arrived[op]]) {
    const { table } = panel, here = table.rank[op], there = table.rank[table.taker[op]], down = there > here;
    ctx.moveTo(x(begin), panel.rows + (here + (down ? 1 : 0)) * panel.row + (down ? -2 : 2));
    ctx.lineTo(x(end), panel.rows + (there + (down ? 0 : 1)) * panel.row + (down ? 2 : -2));
  }

  function paintTransfers(ctx, scene, panel) {
    const { table, run } = panel, x = scaleOf(scene), [from, to] = scene.window, seen = [];
    for (let op = 0; op < table.size; op++) {
      if (table.taker[op] === NONE || run.arrived[op] < from || run.sent[op] > to) continue;
      if (seen.push(op) > MOST_LINES) return;
    }
    ctx.strokeStyle = scene.theme.transfer;
    ctx.lineWidth = 1;
    ctx.beginPath();
    for (const op of seen) transferLine(ctx, panel, op, x);
    ctx.stroke();
  }

  function paintPath(ctx, scene, panel) {
    const { table, run } = panel, x = scaleOf(scene), [from, to] = scene.window;
    ctx.strokeStyle = ctx.fillStyle = scene.theme.path;
    ctx.lineWidth = 2;
    ctx.beginPath();
    const boxes = [];
    for (const node of panel.path) {
      const [begin, end] = E.span(run, node);
      if (end < from || begin > to) continue;
      const copies = table.apart[node - run.graph.beside], aside = copies?.find(({ after }) => after === run.cause[node]) || copies?.[0], row = (one) => panel.rows + (table.rank[table.cellStart[one]] + 0.5) * panel.row;
      if (node < table.cells) boxes.push([x(begin), x(end), table.rank[table.cellStart[node]]]);
      else if (aside) {
        const y = panel.rows + (aside.rank + (run.graph.occupies(aside) ? 0.5 : 1)) * panel.row - (run.graph.occupies(aside) ? 0 : 3);
        ctx.moveTo(x(begin), y);
        ctx.lineTo(x(end), y);
      } else if (node >= run.graph.barrier) {
        ctx.moveTo(x(begin), row(run.cause[node]));
        ctx.lineTo(x(end), row(panel.path[panel.path.indexOf(node) + 1]));
      }
      else if (end > begin || !run.queues) transferLine(ctx, panel, (node - table.cells) % table.size, x, run.queues ? [begin, end] : undefined);
    }
    ctx.stroke();
    for (const [left, right, rank] of boxes) {
      const y = panel.rows + rank * panel.row + 1.5;
      if (right - left > 7) ctx.strokeRect(left + 1, y + 0.5, right - left - 3, panel.row - 4);
      else ctx.fillRect(left, y + panel.row - 6, Math.max(1, right - left), 3);
    }
  }

  function paintMarked(ctx, scene, panel, cell) {
    const { table, run } = panel, x = scaleOf(scene), why = E.waited(run, cell);
    const frame = (one, width) => {
      const left = x(run.start[one]), rank = table.rank[table.cellStart[one]];
      ctx.lineWidth = width;
      ctx.strokeRect(left, panel.rows + rank * panel.row + 1, Math.max(2, x(run.end[one]) - left - 1), panel.row - 2);
    };
    ctx.strokeStyle = scene.theme.text;
    if (why.message !== NONE) {
      ctx.lineWidth = 2;
      ctx.beginPath();
      transferLine(ctx, panel, why.message, x);
      ctx.stroke();
    }
    ctx.setLineDash([3, 2]);
    if (why.cell !== NONE) frame(why.cell, 1.5);
    ctx.setLineDash([]);
    frame(cell, 2.5);
  }

  // ---- memory --------------------------------------------------------------------------------------

  function paintMemory(ctx, scene, panel) {
    const { table, run } = panel, x = scaleOf(scene), [from, to] = scene.window;
    const { during, after } = E.activations(table);
    write(ctx, "activations held, by rank", scene.place.left + 1, panel.memory - 9, scene.theme.muted, "11px");
    for (let rank = 0; rank < table.ranks; rank++) {
      const base = panel.memory + (rank + 1) * panel.lane - 1, unit = (panel.lane - 2) / scene.most;
      const first = table.cell[table.rankStart[rank]], last = lastOf(panel, rank);
      fill(ctx, scene.theme.row, scene.place.left, base - panel.lane + 2, scene.place.plot, panel.lane - 2);
      ctx.fillStyle = panel.colour;
      let cell = Math.max(first, firstAfter(panel, rank, from) - 1);
      let pixel = -1, high = 0, begin = 0; // where many cells share a pixel, the highest of them is drawn
      const flush = (until) => {
        const left = Math.round(begin), right = Math.round(until); // whole pixels, or seams would show
        if (pixel >= 0 && high > 0 && right > left) ctx.fillRect(left, base - high * unit, right - left, high * unit);
      };
      for (; cell <= last && run.start[cell] < to; cell++) {
        const next = cell < last ? run.start[cell + 1] : run.end[cell];
        for (const [time, level] of [[run.start[cell], during[cell]], [run.end[cell], after[cell]]]) {
          const left = x(time), place = Math.floor(left);
          if (place === pixel) {
            high = Math.max(high, level);
          } else {
            flush(left);
            [pixel, high, begin] = [place, level, left];
          }
        }
        if (cell === last || next >= to) flush(x(Math.min(next, to)));
      }
    }
  }

  function paintPeaks(ctx, scene, panel) {
    const { peaks, peak } = E.activations(panel.table), x = scene.place.left + scene.place.plot + 5;
    const size = Math.min(11, panel.lane + 1);
    for (let rank = 0; rank < panel.table.ranks; rank++) {
      if (panel.lane < 10 && rank % 2) continue;
      const text = peaks[rank] >= 10 ? peaks[rank].toFixed(0) : peaks[rank].toFixed(1).replace(".0", "");
      write(ctx, text, x, panel.memory + (rank + 0.5) * panel.lane, scene.theme.muted, `${peaks[rank] === peak ? "700" : "400"} ${size}px`);
    }
  }

  // ---- axis and curve --------------------------------------------------------------------------------

  function ticks(from, to, most) {
    const rough = (to - from) / most, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
    const found = [];
    for (let tick = Math.ceil(from / step - 1e-9); tick * step <= to * (1 + 1e-9); tick++) found.push(tick * step);
    return found.map((one) => Number(one.toPrecision(8)));
  }

  function paintAxis(ctx, scene) {
    const { place, theme } = scene, x = scaleOf(scene), [from, to] = scene.window;
    ctx.strokeStyle = theme.line;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(place.left, place.bottom + 0.5);
    ctx.lineTo(place.left + place.plot, place.bottom + 0.5);
    const marks = ticks(from, to, Math.max(3, place.plot / 90));
    for (const tick of marks) {
      ctx.moveTo(x(tick), place.bottom);
      ctx.lineTo(x(tick), place.bottom + 4);
    }
    ctx.stroke();
    for (const tick of marks) write(ctx, String(tick), x(tick), place.bottom + 12, theme.muted, "11px", "center");
    write(ctx, scene.unit, place.left + place.plot, place.bottom + 26, theme.muted, "11px", "right");
    if (scene.pointer !== null && scene.pointer >= from && scene.pointer <= to) {
      ctx.strokeStyle = theme.muted;
      ctx.setLineDash([2, 3]);
      ctx.beginPath();
      ctx.moveTo(x(scene.pointer), scene.panels[0].rows);
      ctx.lineTo(x(scene.pointer), place.bottom);
      ctx.stroke();
      ctx.setLineDash([]);
    }
  }

  // Makespan of both schedules against the transfer time; `scene.curves` are lists of values at `scene.times`.
  function paintCurve(ctx, scene) {
    const { width, height, theme, times, curves, comm, crossings } = scene;
    const left = 34, right = 12, top = 8, bottom = height - 20;
    const most = times[times.length - 1], values = curves.flatMap((curve) => curve.values).filter((one) => one > 0);
    const low = 0.96 * Math.min(...values), high = 1.02 * Math.max(...values);
    const x = (time) => left + (time / most) * (width - left - right);
    const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
    ctx.clearRect(0, 0, width, height);
    ctx.textBaseline = "middle";
    for (const tick of ticks(low, high, 4)) {
      fill(ctx, theme.row, left, Math.round(y(tick)), width - left - right, 1);
      write(ctx, String(tick), left - 5, y(tick), theme.muted, "11px", "right");
    }
    for (const tick of ticks(0, most, width < 480 ? 4 : 8)) write(ctx, String(tick), x(tick), height - 8, theme.muted, "11px", "center");
    ctx.lineWidth = 2.25;
    ctx.lineJoin = "round";
    for (const curve of curves) {
      ctx.strokeStyle = curve.colour;
      ctx.beginPath();
      curve.values.forEach((value, i) => value > 0 && ctx.lineTo(x(times[i]), y(value)));
      ctx.stroke();
    }
    ctx.strokeStyle = theme.text;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(x(comm), top);
    ctx.lineTo(x(comm), bottom);
    ctx.stroke();
    for (const curve of curves) if (curve.now > 0) dot(ctx, x(comm), y(curve.now), 4, curve.colour, theme.ground);
    for (const { time, value } of crossings) {
      dot(ctx, x(time), y(value), 4.5, theme.ground, theme.text);
      const far = x(time) > width - 130, below = y(value) + 18 > bottom;
      write(ctx, `equal at ${Number(time.toPrecision(2))}`, x(time) + (far ? -9 : 9), y(value) + (below ? -12 : 12), theme.text, "600 11px", far ? "right" : "left");
    }
  }

  function dot(ctx, x, y, radius, colour, edge) {
    ctx.beginPath();
    ctx.arc(x, y, radius, 0, 2 * Math.PI);
    ctx.fillStyle = colour;
    ctx.fill();
    ctx.lineWidth = 1.5;
    ctx.strokeStyle = edge;
    ctx.stroke();
  }

  // ---- the same on a picture that is made of lines ---------------------------------------------------

  class Svg {
    constructor(width, height) {
      Object.assign(this, { width, height, parts: [], points: "", clips: 0, open: 0, dash: "" });
    }

    clearRect() {}
    fillRect(x, y, w, h) {
      if (w > 0 && h > 0) this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}" fill="${this.fillStyle}"/>`);
    }
    strokeRect(x, y, w, h) {
      this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(Math.max(w, 0))}" height="${short(h)}" fill="none" ${this.#line()}/>`);
    }
    fillText(text, x, y) {
      const anchor = { left: "start", right: "end", center: "middle" }[this.textAlign];
      const [, weight, size] = /^(\d+ )?([\d.]+)px/.exec(this.font);
      const safe = String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");
      this.parts.push(`<text x="${short(x)}" y="${short(y)}" dy="0.35em" font-size="${size}"${weight ? ` font-weight="${weight.trim()}"` : ""} text-anchor="${anchor}" fill="${this.fillStyle}">${safe}</text>`);
    }
    beginPath() { this.points = ""; }
    moveTo(x, y) { this.points += `M${short(x)} ${short(y)}`; }
    lineTo(x, y) { this.points += `${this.points ? "L" : "M"}${short(x)} ${short(y)}`; }
    rect(x, y, w, h) { this.box = [x, y, w, h].map(short); }
    stroke() { if (this.points) this.parts.push(`<path d="${this.points}" fill="none" ${this.#line()}/>`); }
    setLineDash(dash) { this.dash = dash.join(" "); }
    save() {}
    clip() {
      const [x, y, w, h] = this.box, id = `clip${this.clips++}`;
      this.parts.push(`<clipPath id="${id}"><rect x="${x}" y="${y}" width="${w}" height="${h}"/></clipPath><g clip-path="url(#${id})">`);
    }
    restore() { this.parts.push("</g>"); }
    #line() {
      return `stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${this.dash ? ` stroke-dasharray="${this.dash}"` : ""}`;
    }
    toString() {
      const size = `width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"`;
      return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${FONT.replace(/"/g, "'")}">${this.parts.join("\n")}</svg>\n`;
    }
  }

  function short(number) {
    return Number(number.toFixed(2));
  }

  window.ppmodelDraw = { layout, at, paint, paintCurve, firstAfter, lastOf, Svg };
})();
