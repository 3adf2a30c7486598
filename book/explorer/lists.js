// What the explorer says beside the drawing: the numbers of both schedules, the ranking of all, and the timeline as text.
(() => {
  "use strict";
  const E = window.ppmodelEngine, D = window.ppmodelDraw;
  const { describe, number } = window.ppmodelStage;
  const $ = (id) => document.getElementById(`ex-${id}`);

  // Nothing is a share of no time at all.
  function percent(share) {
    if (share === undefined || Number.isNaN(share)) return "–";
    if (share > 0 && share < 5e-4) return "under 0.1%";
    return `${(100 * share).toFixed(Math.abs(share) < 0.0995 || share > 0.9905 ? 1 : 0)}%`;
  }

  function element(name, text, attributes = {}) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  function fillSelect(select, options, value) {
    const key = options.join("\n");
    if (select.dataset.filled !== key) {
      select.replaceChildren(...options.map(([one, text]) => element("option", text, { value: one })));
      select.dataset.filled = key;
    }
    if (options.some(([one]) => one === value)) select.value = value;
  }

  function fillTable(table, head, rows) {
    const top = element("thead"), line = element("tr"), body = element("tbody");
    line.append(...head);
    top.append(line);
    body.append(...rows.map(([first, values, title]) => {
      const row = element("tr");
      row.append(element("th", first, { scope: "row", ...(title ? { title } : {}) }), ...values.map((value) => element("td", value)));
      return row;
    }));
    table.replaceChildren(top, body);
  }

  // The time that the critical path spends in transfers.
  function inTransfers(run) {
    return E.criticalPath(run).filter((node) => node >= run.table.cells && node < run.graph.beside).reduce((sum, node) => {
      const [begin, end] = E.span(run, node);
      return sum + end - begin;
    }, 0);
  }

  const last = (run) => run.end.reduce((most, one) => Math.max(most, one), 0);

  class Lists {
    // `page` gives what is chosen now, all variants with their orders, a table at a size, and takes a choice.
    constructor(page) {
      Object.assign(this, page);
    }

    numbers() {
      const { state, shown } = this.now();
      const of = (read) => shown.map((panel) => (panel.missing ? "–" : read(panel)));
      const timed = (read) => of((panel) => (panel.timed.deadlock ? "–" : read(panel.timed)));
      const formula = (panel) => this.orders.get(panel.key)?.[state.pp].tables[state.microbatches].formula;
      fillTable($("numbers"), [element("td"), ...shown.map((panel, place) => {
        return element("th", panel.label, { scope: "col", class: `ex-of-${"ab"[place]}` });
      })], [
        ["Makespan", timed((run) => number(run.makespan))],
        ["Idle, by formula", of((panel) => percent(formula(panel)))],
        ["Idle, in the table", of((panel) => percent(E.slots(panel.table).idle))],
        ["Idle, simulated", timed((run) => percent(run.idle))],
        ["Idle over a rank’s span", timed((run) => percent(run.span))],
        ["Transfers on the critical path", timed((run) => percent(inTransfers(run) / run.makespan))],
        ["Peak activations", of((panel) => number(E.activations(panel.table).peak))],
        ...(shown.some(({ table }) => table.gathers?.length) ? [["Peak weights", of(({ table }) => number(table.gathers.length ? Math.max(...E.gathered(table)) : 1))]] : []),
        ...(shown.some(({ timed: run }) => run && run.makespan > last(run)) ? [["Reductions at the end", timed((run) => number(run.makespan - last(run)))]] : []),
        ["Messages", of((panel) => String(panel.table.messages))],
      ]);
    }

    // ---- the ranking ---------------------------------------------------------------------------------

    later() {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.rank(), 80);
    }

    async rank() {
      const { state, round, costs, link } = this.now(), keys = [...this.variants.keys()];
      const found = await Promise.all(keys.map((key) => this.table(key, state.pp, state.microbatches)));
      if (round !== this.now().round) return;
      const all = keys.flatMap((key, i) => {
        if (!found[i]) return [];
        const { label, name } = this.variants.get(key), { makespan, deadlock } = E.simulate(found[i], costs);
        return [{ key, label, name, deadlock, time: makespan, memory: E.activations(found[i]).peak }];
      });
      const value = (row) => (state.order === "time" ? row.time : row.memory), chosen = [state.schedule, state.against];
      let rows = all.filter((row) => !row.deadlock);
      rows.sort((a, b) => value(a) - value(b) || a.time - b.time || a.memory - b.memory);
      if (!state.all) rows = rows.filter((row, i) => chosen.includes(row.key) || rows.findIndex((one) => one.name === row.name) === i);
      const focused = document.activeElement?.dataset?.key;
      $("ranking").replaceChildren(...rows.map((row) => this.#bar(row, value, rows, state)));
      if (focused) [...$("ranking").querySelectorAll("button")].find((one) => one.dataset.key === focused)?.focus();
      const named = (list) => list.map((row) => row.label).join(", "), dead = all.filter((row) => row.deadlock);
      const missing = keys.filter((_, i) => !found[i]).map((key) => this.variants.get(key));
      const parts = dead.length ? [`Deadlock: ${named(dead)}.`] : [];
      if (missing.length) parts.push(`Not defined at this size: ${named(missing)}.`);
      $("missing").textContent = parts.join(" ");
      $("ranking").dataset.of = link;
    }

    #bar(row, value, rows, state) {
      const most = Math.max(...rows.map(value)), least = value(rows[0]), over = least > 0 ? value(row) / least - 1 : 0;
      const role = row.key === state.schedule ? "a" : row.key === state.against ? "b" : "";
      const item = element("li", undefined, role ? { class: `ex-is-${role}` } : {});
      const unit = state.order === "time" ? "" : " microbatches", more = over < 1e-9 ? "" : percent(over);
      const said = `${row.label}: ${number(value(row))}${unit}, ${more ? `${more} more than the best` : "the best"}. Compare it.`;
      const button = element("button", undefined, { type: "button", "data-key": row.key, "aria-label": said });
      const values = element("span", number(value(row)), { class: "ex-value" });
      values.append(element("span", more && `+${more}`, { class: "ex-more" }));
      const track = element("span", undefined, { class: "ex-bar" }), fill = element("i");
      fill.style.width = `${most > 0 ? (100 * value(row)) / most : 0}%`;
      track.append(fill);
      button.append(element("span", row.label, { class: "ex-name" }), values, track);
      button.addEventListener("click", () => row.key !== state.schedule && this.choose({ against: row.key }));
      item.append(button);
      return item;
    }

    // ---- the timeline as text --------------------------------------------------------------------------

    text() {
      if (!$("text").open) return;
      const { state, shown } = this.now();
      fillSelect($("text-which"), shown.map((panel, i) => [String(i), panel.label]), $("text-which").value || "0");
      fillSelect($("text-rank"), Array.from({ length: state.pp }, (_, one) => [String(one), String(one)]), $("text-rank").value || "0");
      const panel = shown[Number($("text-which").value)], rank = Number($("text-rank").value), rows = [];
      const head = ["Operation", "Start", "End", "What it waited for"].map((name) => element("th", name, { scope: "col" }));
      if (!panel.run.deadlock) {
        for (let cell = panel.table.cell[panel.table.rankStart[rank]]; cell <= D.lastOf(panel, rank); cell++) {
          const told = describe(panel, cell);
          rows.push([E.cellName(panel.table, cell), [number(panel.run.start[cell]), number(panel.run.end[cell]), told.waited], told.head]);
        }
      }
      const asides = panel.missing ? [] : E.besides(panel.run).filter(({ aside, end, begin }) => aside.rank === rank && end > begin);
      rows.push(...asides.map(({ aside, begin, end }) => [E.asideName(aside), [number(begin), number(end), "\u2013"], panel.kinds[E.LETTERS[aside.kind]][0]]));
      fillTable($("operations"), head, rows);
    }
  }

  window.ppmodelLists = { Lists, element, fillSelect, percent };
})();
