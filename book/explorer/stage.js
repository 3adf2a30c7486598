// The canvas with both timelines: pan, zoom, pointing, and the same by keyboard and touch.
(() => {
  "use strict";
  const E = window.ppmodelEngine, D = window.ppmodelDraw;
  const { NONE } = E;
  const number = (value) => String(Number(value.toPrecision(4)));

  // What an operation is, when it runs and what it waited for: a heading and a sentence.
  function describe(panel, cell) {
    const { table, run } = panel, first = table.cellStart[cell], rank = table.rank[first], parts = [];
    for (let op = first; op < table.cellStart[cell + 1]; op++) {
      const copy = table.replica[op] ? " of the second copy" : "";
      const place = "ST".includes(E.LETTERS[table.kind[op]]) ? "shard" : "stage";
      parts.push(`${panel.kinds[E.LETTERS[table.kind[op]]][0]} of microbatch ${E.unit(table, op)}, ${place} ${table.stage[op]}${copy}`);
    }
    const slot = (time) => Math.round(time * run.pieces);
    const times = panel.slots
      ? `Rank ${rank}, slots ${slot(run.start[cell])} to ${slot(run.end[cell])}.`
      : `Rank ${rank}, from ${number(run.start[cell])} to ${number(run.end[cell])}.`;
    const waited = waiting(panel, cell, rank);
    const head = parts.join(" with ");
    return { head: head.charAt(0).toUpperCase() + head.slice(1), waited, text: `${times} ${waited}` };
  }

  function waiting(panel, cell, rank) {
    const { table, run } = panel, { message, cell: other, aside, passed, seconds } = E.waited(run, cell);
    if (seconds <= 1e-12 * run.makespan) return cell === table.cell[table.rankStart[rank]] ? "Nothing comes before it." : "It did not wait.";
    const idle = panel.slots ? `The rank waited ${Math.round(seconds * run.pieces)} slots` : `The rank waited ${number(seconds)}`;
    if (aside) return `${idle} for the ${E.LETTERS[aside.kind] === "R" ? "reduced gradients" : "weights"} of stage ${aside.stage}.`;
    if (message === NONE) {
      const from = other === NONE ? rank : table.rank[table.cellStart[other]];
      if (passed && passed[1] > passed[0]) return `${idle} for ${E.cellName(table, other)} on rank ${from}, passed on by ${number(passed[1])}.`;
      return from === rank ? `${idle}.` : `${idle} for ${E.cellName(table, other)} on rank ${from}.`;
    }
    const what = `${table.kind[message] ? "gradient" : "activations"} of ${E.name(table, message)}`;
    if (table.rank[message] === rank) return `${idle} until it had sent the ${what} to rank ${table.rank[table.taker[message]]}.`;
    const way = panel.slots ? "" : `, sent at ${number(run.sent[message])}, there at ${number(run.arrived[message])}`;
    return `${idle} for the ${what} from rank ${table.rank[message]}${way}.${run.queues ? queueing(panel, message) : ""}`;
  }

  // How long a message queued at the NICs of its two ranks.
  function queueing({ table, run }, op) {
    const waits = [[run.sent[op] - run.end[table.cell[op]], table.rank[op]], [run.taken[op] - run.sent[op], table.rank[table.taker[op]]]];
    const said = waits.filter(([seconds]) => seconds > 1e-12 * run.makespan).map(([seconds, rank]) => `${number(seconds)} at the NIC of rank ${rank}`);
    return said.length ? ` The message had queued ${said.join(" and ")}.` : "";
  }

  class Stage {
    constructor(canvas, tip, said, changed) {
      Object.assign(this, { canvas, tip, said, changed, scene: null, window: null, hover: null, picked: null, pointers: new Map() });
      this.ctx = canvas.getContext("2d");
      const on = (name, run, options) => canvas.addEventListener(name, run.bind(this), options);
      on("pointerdown", this.#down);
      on("pointermove", this.#move);
      on("pointerup", this.#up);
      on("pointercancel", this.#up);
      on("pointerleave", (event) => event.pointerType !== "touch" && this.#point(null)); // a tap's words stay in view
      on("wheel", this.#wheel, { passive: false });
      on("dblclick", (event) => this.zoom(0.5, this.#time(event)));
      on("keydown", this.#key);
    }

    // Show other panels; what was in sight stays, as far as there is something.
    show(scene) {
      this.scene = scene;
      this.whole = Math.max(1e-9, ...scene.panels.filter((panel) => !panel.run.deadlock).map((panel) => panel.run.makespan));
      this.hover = null;
      this.tip.hidden = true;
      const { picked } = this;
      if (picked && !(scene.panels[picked.panel] && picked.cell < scene.panels[picked.panel].table.cells && !scene.panels[picked.panel].run.deadlock)) this.picked = null;
      this.#keep();
      this.redraw();
    }

    resize(width) {
      this.width = width;
      if (this.scene) this.redraw();
    }

    get range() {
      return this.window || [0, this.whole];
    }

    redraw() {
      if (this.frame) return;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.draw();
      });
    }

    draw() {
      if (!this.scene || !this.width) return;
      const { canvas, scene } = this, ratio = Math.min(window.devicePixelRatio || 1, 2);
      scene.place = D.layout(scene.panels, this.width);
      const size = [Math.round(scene.place.width * ratio), Math.round(scene.place.height * ratio)];
      if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
      canvas.style.height = `${scene.place.height}px`;
      this.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      scene.window = this.range;
      scene.marked = this.hover || this.picked;
      scene.pointer = this.at === undefined ? null : this.at;
      D.paint(this.ctx, scene);
    }

    // ---- what is in sight ------------------------------------------------------------------------

    #keep() {
      if (!this.window) return;
      const length = Math.min(this.whole, Math.max(this.whole / 4000, this.window[1] - this.window[0]));
      const from = Math.min(Math.max(0, this.window[0]), this.whole - length);
      this.window = length >= this.whole * (1 - 1e-9) ? null : [from, from + length];
    }

    see(from, to) {
      this.window = [from, to];
      this.#keep();
      this.redraw();
      this.changed();
    }

    fit() {
      this.window = null;
      this.redraw();
      this.changed();
    }

    zoom(factor, around) {
      const [from, to] = this.range, middle = around === undefined ? (from + to) / 2 : around;
      this.see(middle - (middle - from) * factor, middle + (to - middle) * factor);
    }

    pan(share) {
      const [from, to] = this.range, by = share * (to - from);
      this.see(...(by < 0 ? [Math.max(0, from + by), Math.max(0, from + by) + to - from] : [from + by, to + by]));
    }

    // ---- pointers ----------------------------------------------------------------------------------

    #place(event) {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }

    #time(event) {
      const [from, to] = this.range, { left, plot } = this.scene.place;
      return from + ((this.#place(event)[0] - left) / plot) * (to - from);
    }

    #down(event) {
      this.canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event);
      this.begin = { x: event.clientX, y: event.clientY, range: this.range, moved: false };
      this.pinch = this.pointers.size === 2 ? this.#spread() : null;
    }

    // Middle and distance of two fingers, and the time between them.
    #spread() {
      const [one, two] = [...this.pointers.values()];
      const middle = { clientX: (one.clientX + two.clientX) / 2, clientY: one.clientY };
      return { distance: Math.max(20, Math.abs(one.clientX - two.clientX)), time: this.#time(middle), range: this.range };
    }

    #move(event) {
      if (!this.pointers.has(event.pointerId)) return this.#point(event);
      this.pointers.set(event.pointerId, event);
      if (this.pinch && this.pointers.size === 2) {
        const { distance, time, range } = this.pinch, factor = distance / this.#spread().distance;
        this.begin.moved = true;
        return this.see(time - (time - range[0]) * factor, time + (range[1] - time) * factor);
      }
      const [from, to] = this.begin.range, by = ((this.begin.x - event.clientX) / this.scene.place.plot) * (to - from);
      if (Math.abs(event.clientX - this.begin.x) > 4) this.begin.moved = true;
      if (!this.begin.moved) return undefined;
      this.#point(null);
      this.canvas.classList.add("ex-dragged");
      return this.window || this.begin.range[1] - this.begin.range[0] < this.whole ? this.see(from + by, to + by) : undefined;
    }

    #up(event) {
      const click = this.begin && !this.begin.moved && event.type === "pointerup" && this.pointers.size === 1;
      this.pointers.delete(event.pointerId);
      this.canvas.classList.remove("ex-dragged");
      if (this.pointers.size === 1) this.begin = { x: [...this.pointers.values()][0].clientX, range: this.range, moved: true };
      if (this.pointers.size < 2) this.pinch = null;
      if (!click) return;
      const found = D.at(this.scene, ...this.#place(event));
      this.pick(found && found.cell !== undefined ? found : null);
      this.#point(event);
    }

    #wheel(event) {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(Math.exp(Math.sign(event.deltaY) * Math.min(0.3, Math.abs(event.deltaY) / 250)), this.#time(event));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && this.window) {
        event.preventDefault();
        this.pan(event.deltaX / this.scene.place.plot);
      }
    }

    #point(event) {
      const found = event && this.scene ? D.at(this.scene, ...this.#place(event)) : null;
      this.hover = found && found.cell !== undefined ? found : null;
      this.at = event && this.scene ? this.#time(event) : undefined;
      this.tip.hidden = !this.hover;
      if (this.hover) {
        const { head, text } = describe(this.scene.panels[this.hover.panel], this.hover.cell), [x, y] = this.#place(event);
        const strong = document.createElement("strong");
        strong.textContent = head;
        this.tip.replaceChildren(strong, text);
        const room = this.width - this.tip.offsetWidth - 4, below = y + 18;
        this.tip.style.left = `${Math.max(4, Math.min(x + 14, room))}px`;
        this.tip.style.top = `${event.pointerType === "touch" ? y - this.tip.offsetHeight - 24 : below}px`;
      }
      this.redraw();
    }

    // ---- keyboard ------------------------------------------------------------------------------------

    #key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.scene) return;
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], row = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (event.key === "+" || event.key === "=") this.zoom(0.7, this.#middle());
      else if (event.key === "-") this.zoom(1 / 0.7, this.#middle());
      else if (event.key === "0") this.fit();
      else if (event.key === "Escape") this.pick(null);
      else if (event.key === "Enter") this.#enter();
      else if (this.picked && step) this.#step(step);
      else if (this.picked && row) this.#row(row);
      else if (step) this.pan(0.15 * step);
      else return;
      event.preventDefault();
    }

    #middle() {
      if (!this.picked) return undefined;
      const { panel, cell } = this.picked, { run } = this.scene.panels[panel];
      return (run.start[cell] + run.end[cell]) / 2;
    }

    // Pick what is in the middle of the first row; what is picked already leads to what it waited for.
    #enter() {
      const { panels } = this.scene;
      if (!this.picked) {
        const panel = panels.findIndex((one) => !one.run.deadlock);
        const [from, to] = this.range;
        if (panel >= 0) this.pick({ panel, cell: Math.min(D.firstAfter(panels[panel], 0, (from + to) / 2), D.lastOf(panels[panel], 0)) });
        return;
      }
      const { cell } = E.waited(panels[this.picked.panel].run, this.picked.cell);
      if (cell !== NONE) this.pick({ panel: this.picked.panel, cell });
    }

    #step(by) {
      const { panel, cell } = this.picked, { table } = this.scene.panels[panel], rank = table.rank[table.cellStart[cell]];
      const first = table.cell[table.rankStart[rank]], last = D.lastOf(this.scene.panels[panel], rank);
      this.pick({ panel, cell: Math.min(last, Math.max(first, cell + by)) });
    }

    #row(by) {
      const { panels } = this.scene;
      let { panel, cell } = this.picked, rank = panels[panel].table.rank[panels[panel].table.cellStart[cell]] + by;
      const time = panels[panel].run.start[cell];
      if (rank < 0 || rank >= panels[panel].table.ranks) {
        panel += by;
        if (!panels[panel] || panels[panel].run.deadlock) return;
        rank = by < 0 ? panels[panel].table.ranks - 1 : 0;
      }
      this.pick({ panel, cell: Math.min(D.firstAfter(panels[panel], rank, time), D.lastOf(panels[panel], rank)) });
    }

    // Pick an operation: it is framed, described below, and brought into sight.
    pick(found) {
      this.picked = found;
      this.said.replaceChildren();
      if (found) {
        const panel = this.scene.panels[found.panel], { head, text } = describe(panel, found.cell);
        const strong = document.createElement("strong");
        strong.textContent = `${panel.label}: ${head.charAt(0).toLowerCase()}${head.slice(1)}`;
        this.said.replaceChildren(strong, text);
        const [from, to] = this.range, start = panel.run.start[found.cell], end = panel.run.end[found.cell];
        if (start < from || end > to) this.see(start - (to - from) / 2, start + (to - from) / 2);
      }
      this.redraw();
    }
  }

  window.ppmodelStage = { Stage, describe, number };
})();
