// Tables: a card for each row on a phone, and long ones sorted by a click or a key on a heading.
(function () {
  "use strict";
  const SORTED_FROM = 12, PHONE = window.matchMedia("(max-width: 480px)"), WIDE = 3;

  function headings(table) {
    const row = table.tHead && table.tHead.rows.length === 1 ? table.tHead.rows[0] : null;
    return row && ![...row.cells].some((cell) => cell.colSpan > 1) ? [...row.cells] : null;
  }

  function label(table, heads) {
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, place) => {
        const text = heads[place] ? heads[place].textContent.trim() : "";
        if (text) cell.dataset.label = text;
        if (cell.childNodes.length > 1) { // what a cell holds is one piece beside its name
          const piece = document.createElement("span");
          piece.append(...cell.childNodes);
          cell.append(piece);
        }
      });
    }
  }

  function lay(table) {
    table.classList.remove("cards");
    const row = table.tBodies[0].rows[0];
    if (!PHONE.matches || !row) return;
    table.classList.toggle("cards", row.cells.length > (table.scrollWidth > table.clientWidth ? 2 : WIDE));
  }

  function key(text) {
    const plain = text.replace(/\u2212/g, "-").replace(/[,\s]/g, "");
    const number = /^[×x<>≤≥+]*(-?[\d.]+(?:e[+-]?\d+)?)/i.exec(plain);
    return number ? Number(number[1]) : NaN;
  }

  function order(texts, sign) { // numbers as numbers where all are; what is empty comes last
    const keys = texts.map(key), numeric = texts.every((text, place) => !text.trim() || !Number.isNaN(keys[place]));
    return texts.map((_, place) => place).sort((one, two) => {
      const empty = !texts[one].trim() - !texts[two].trim();
      if (empty) return empty;
      const apart = numeric ? keys[one] - keys[two] : texts[one].localeCompare(texts[two], "en", { numeric: true });
      return (Number.isNaN(apart) ? 0 : apart) * sign || one - two;
    });
  }

  function sort(table, heads, place) {
    const down = heads[place].getAttribute("aria-sort") === "ascending";
    heads.forEach((head) => head.setAttribute("aria-sort", "none"));
    heads[place].setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    const texts = rows.map((row) => (row.cells[place] ? row.cells[place].textContent : ""));
    table.tBodies[0].append(...order(texts, down ? -1 : 1).map((number) => rows[number]));
  }

  function make(table, heads) {
    table.classList.add("sortable");
    heads.forEach((head, place) => {
      if (!head.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, heads, place));
      head.append(button);
      head.setAttribute("aria-sort", "none");
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    const found = [...document.querySelectorAll("article table")].filter((table) => table.tBodies.length === 1);
    const tables = found.map((table) => [table, headings(table)]).filter(([, heads]) => heads);
    for (const [table, heads] of tables) {
      label(table, heads);
      const spans = [...table.tBodies[0].rows].some((row) => [...row.cells].some((cell) => cell.rowSpan > 1));
      if (table.tBodies[0].rows.length >= SORTED_FROM && !spans) make(table, heads);
    }
    const all = () => tables.forEach(([table]) => lay(table));
    all();
    PHONE.addEventListener("change", all);
  });
})();
