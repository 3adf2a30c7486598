// A race of schedules within a page (book/ppbook/pages/race.py has written it): a slider for the transfer time. The
// engine is the explorer's, and so are the orders; what is drawn is moved.
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

  // Rows by makespan, the shortest first; equal ones stay in their order.
  const ordered = (rows) => {
    const whole = (row) => Math.floor(row.run.makespan * EQUAL + 0.5);
    return [...rows].sort((a, b) => whole(a) - whole(b));
  };

  // ---- one race ----------------------------------------------------------------------------------

  async function rowOf(element, { pp, microbatches }) {
    await load(element.dataset.name);
    const own = orders.get(element.dataset.key)[pp];
    return {
      element, label: element.querySelector("b").textContent, key: element.dataset.key,
      table: await E.unpack(own, Number(microbatches)),
      boxes: [...element.querySelectorAll("rect")], line: element.querySelector("line"),
      number: element.querySelector("text"), place: element.querySelector("p span"), longer: element.querySelector("i"),
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
    const slider = find("input"), shown = find("output"), link = find("a");
    const strip = [...figure.querySelectorAll(".racing-strip span")];
    const rows = await Promise.all([...figure.querySelectorAll(".racing-row")].map((one) => rowOf(one, figure.dataset)));

    const update = () => {
      const comm = Number(slider.value), costs = { forward: 1, input_grad: 1, weight_grad: 1, comm, p2p, slow_rank: -1 };
      for (const row of rows) {
        row.run = E.simulate(row.table, costs);
        move(row, Number(latest));
      }
      const order = ordered(rows);
      order.forEach((row, place) => {
        row.element.style.setProperty("--place", place);
        row.place.textContent = place + 1;
        row.longer.textContent = Math.floor(100 * (row.run.makespan / order[0].run.makespan - 1) + 0.5);
      });
      shown.textContent = comm.toFixed(2);
      const labels = order.map((row) => row.label).join(", ");
      slider.setAttribute("aria-valuetext", `${comm.toFixed(2)} of a forward: ${labels}`); // a reader hears the order
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
