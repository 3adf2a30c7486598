// A race of schedules within a page (book/ppbook/race.py has written it): a slider for the transfer time. The
// engine is the explorer's, and so are the orders; what is drawn is moved, and the sentence above says what changed.
(() => {
  "use strict";
  const E = window.ppmodelEngine;
  const base = document.currentScript.src.replace(/[^/]*$/, "");
  const EQUAL = 1e6; // as in race.py: values are equal if they round to the same multiple of one over this
  const orders = new Map();

  // Data are classic scripts, since a page on file:// cannot fetch.
  window.ppmodelExplorer = { orders: (name, found) => { for (const [key, own] of Object.entries(found)) orders.set(key, own); } };

  const load = (name) => new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${base}data/${name}.js`;
    script.onload = resolve;
    script.onerror = () => reject(new Error(`data/${name}.js cannot be loaded`));
    document.head.append(script);
  });

  // ---- sentences, as in race.py ------------------------------------------------------------------

  // Rows by value, the smallest first, with equal ones in one list.
  function levels(rows, value) {
    const whole = (row) => Math.floor(value(row) * EQUAL + 0.5), found = [];
    for (const row of [...rows].sort((a, b) => whole(a) - whole(b))) {
      const last = found[found.length - 1];
      if (last && whole(last[0]) === whole(row)) last.push(row);
      else found.push([row]);
    }
    return found;
  }

  const labels = (level) => level.map((row) => row.label).join(" and ");

  function more(share) {
    const whole = Math.floor(100 * share + 0.5);
    return whole ? `${whole} %` : "less than 1 %";
  }

  function sentence(rows) {
    const found = levels(rows, (row) => row.run.makespan), [best, ...others] = found;
    const slower = others.flat().map((row, place) => {
      const by = more(row.run.makespan / best[0].run.makespan - 1);
      return place ? `, ${row.label} ${by}` : `; ${row.label} takes ${by} longer`;
    });
    const said = `${labels(best)} ${best.length === 1 ? "is" : "are"} the fastest${slower.join("")}`;
    return `${said[0].toUpperCase()}${said.slice(1)}. ${byBubble(found.map(labels), levels(rows, (row) => row.bubble).map(labels))}`;
  }

  function byBubble(found, promised) {
    if (found.join() === promised.join()) return "Their bubbles say the same.";
    if (found.join() === [...promised].reverse().join()) return "Their bubbles say the reverse.";
    if (found[0] === promised[0]) return "Their bubbles put the others in another order.";
    return `Their bubbles put ${promised[0]} first.`;
  }

  // ---- one race ----------------------------------------------------------------------------------

  async function rowOf(element, { pp, microbatches }) {
    await load(element.dataset.name);
    const own = orders.get(element.dataset.key)[pp];
    return {
      element, label: element.querySelector("b").textContent, key: element.dataset.key,
      bubble: Number(element.dataset.bubble), table: await E.unpack(own.tables[microbatches], own),
      boxes: [...element.querySelectorAll("rect")], line: element.querySelector("line"),
      number: element.querySelector("text"), place: element.querySelector("p span"),
    };
  }

  function move({ table, run, boxes, line, number, element }, latest) {
    const share = (time) => `${(100 * time) / latest}%`;
    boxes.forEach((box, op) => {
      const cell = table.cell[op];
      box.setAttribute("x", share(run.start[cell]));
      box.setAttribute("width", share(run.end[cell] - run.start[cell]));
    });
    for (const end of ["x1", "x2"]) line.setAttribute(end, share(run.makespan));
    number.setAttribute("x", share(run.makespan));
    number.textContent = run.makespan.toFixed(1);
    element.dataset.makespan = run.makespan;
  }

  async function begin(figure) {
    const { pp, microbatches, p2p, latest } = figure.dataset, find = (part) => figure.querySelector(part);
    const slider = find("input"), shown = find("output"), said = find(".racing-said"), link = find("a");
    const strip = [...figure.querySelectorAll(".racing-strip span")];
    const rows = await Promise.all([...figure.querySelectorAll(".racing-row")].map((one) => rowOf(one, figure.dataset)));

    const update = () => {
      const comm = Number(slider.value), costs = { forward: 1, input_grad: 1, weight_grad: 1, comm, p2p, slow_rank: -1 };
      for (const row of rows) {
        row.run = E.simulate(row.table, costs);
        move(row, Number(latest));
      }
      const order = levels(rows, (row) => row.run.makespan).flat();
      order.forEach((row, place) => {
        row.element.style.setProperty("--place", place);
        row.place.textContent = place + 1;
      });
      shown.textContent = comm.toFixed(2);
      slider.setAttribute("aria-valuetext", `${comm.toFixed(2)} of a forward`);
      const text = sentence(rows);
      if (said.textContent !== text) said.textContent = text; // a reader hears what changed
      strip.forEach((part) => part.classList.toggle("now", part.textContent === order[0].label));
      const [first, last] = [order[0].key, order[order.length - 1].key];
      link.href = `../explorer.html#schedule=${first}&against=${last}&pp=${pp}&microbatches=${microbatches}&comm=${comm}&p2p=${p2p}`;
    };
    slider.addEventListener("input", update);
    update();
    slider.hidden = false;
    figure.dataset.ready = "true";
  }

  // Where orders are missing, or a browser cannot unpack them, the picture stays as it is.
  for (const figure of document.querySelectorAll(".racing")) begin(figure).catch(() => {});
})();
