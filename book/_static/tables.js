// Tables: on a phone a card for each row, under one heading those that share their first cell, else the first of them,
// until all are asked for; long ones sorted by a click or a key on a heading; wide ones use the margin. Without a script,
// and on paper, a table is a table.
(function () {
  "use strict";
  const SORTED_FROM = 12, PHONE = window.matchMedia("(max-width: 480px)"), WIDE = 3;
  const FEW = 3, FOLDED_FROM = 6; // rows: as in book.css, which hides the others
  const MOST_GROUPS = 8, SHARED = 0.75, HIGH = 160; // headings of a table, and for each row; px of a card
  const SIZES = [[8, "quarter"], [11, "third"], [17, "half"], [Infinity, "whole"]]; // of a card, by letters
  const BRIEF = 11; // letters of a cell that is not broken
  const MARGIN = window.matchMedia("(min-width: 1200px)"), EDGE = 16, TALL = 100; // px

  function headings(table) {
    const row = table.tHead && table.tHead.rows.length === 1 ? table.tHead.rows[0] : null;
    return row && ![...row.cells].some((cell) => cell.colSpan > 1) ? [...row.cells] : null;
  }

  function label(table, heads) {
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, place) => {
        const text = heads[place] ? heads[place].textContent.trim() : "";
        if (text) cell.dataset.label = text;
        if (cell.textContent.trim().length <= BRIEF) cell.classList.add("brief");
        if (cell.childNodes.length > 1) { // what a cell holds is one piece beside its name
          const piece = document.createElement("span");
          piece.append(...cell.childNodes);
          cell.append(piece);
        }
      });
    }
  }

  function lay(table) {
    ungroup(table);
    table.classList.remove("cards");
    const row = table.tBodies[0].rows[0];
    if (PHONE.matches && row) {
      table.classList.toggle("cards", row.cells.length > (table.scrollWidth > table.clientWidth ? 2 : WIDE));
    }
    if (!table.classList.contains("cards")) return;
    if (!table.dataset.tiled) tile(table);
    if (!grouped.has(table)) grouped.set(table, groupsOf(table));
    if (grouped.get(table)) group(table, grouped.get(table));
    else if (table.tBodies[0].rows.length >= FOLDED_FROM && !table.dataset.folded) fold(table);
  }

  // How wide each cell of a card is: the same place on every card, so that the eye can run down a column.
  function tile(table) {
    const rows = [...table.tBodies[0].rows];
    const letters = (cell) => (cell.querySelector(".math") ? 1.4 : 1) * cell.textContent.trim().replace(/\\[a-z]+|[\\{}$]/g, "").length;
    const word = (text) => Math.max(0, ...text.split(/[\s/-]+/).map((part) => part.length));
    const wide = [...rows[0].cells].map((_, place) => Math.max(...rows.map((row) => {
      const cell = row.cells[place];
      const said = cell?.dataset.label || ""; // on up to three lines
      return cell ? Math.max(letters(cell), word(said), said.length / 2.5) : 0;
    })));
    for (const row of rows) {
      [...row.cells].forEach((cell, place) => {
        cell.classList.add(SIZES.find(([letters]) => wide[place] <= letters)[1]);
      });
    }
    table.dataset.tiled = "yes";
  }

  function fold(table) {
    const count = table.tBodies[0].rows.length, button = switchOf((open) => {
      table.classList.toggle("few", !open);
      button.textContent = open ? `Show the first ${FEW} rows` : `Show all ${count} rows`;
      if (!open && table.dataset.folded) table.scrollIntoView({ block: "start" }); // not left far below the table
    });
    button.className = "all-rows";
    button.set(false);
    table.dataset.folded = "yes";
    table.after(button);
  }

  function switchOf(change) {
    const button = document.createElement("button");
    button.type = "button";
    button.set = (open) => {
      button.setAttribute("aria-expanded", String(open));
      change(open);
    };
    button.addEventListener("click", () => button.set(button.getAttribute("aria-expanded") !== "true"));
    return button;
  }

  // Rows that share their first cell, or one each where the cards of a notebook's table are high; null where neither is.
  const grouped = new Map();
  function groupsOf(table) {
    const rows = [...table.tBodies[0].rows], groups = [];
    for (const row of rows) {
      const name = row.cells[0].textContent.trim(), last = groups[groups.length - 1];
      if (last && last.name === name) last.rows.push(row);
      else groups.push({ name, rows: [row] });
    }
    const high = table.closest(".cell_output") && table.tBodies[0].offsetHeight > HIGH * rows.length;
    const plain = ({ name, rows: [row] }) => name && row.cells[0].rowSpan === 1 && !row.cells[0].querySelector(".math");
    const named = groups.every(plain) && new Set(groups.map(({ name }) => name)).size === groups.length;
    const fair = rows.length > FEW && groups.length > 1 && groups.length <= MOST_GROUPS;
    return named && fair && (high || groups.length <= SHARED * rows.length) ? groups : null;
  }

  function group(table, groups) {
    groups.forEach(({ rows }) => table.tBodies[0].append(...rows)); // as written, whatever they were sorted by
    table.tHead.querySelectorAll("[aria-sort]").forEach((head) => head.setAttribute("aria-sort", "none"));
    const buttons = groups.map(({ name, rows }) => heading(name, rows)), count = groups.flatMap(({ rows }) => rows).length;
    buttons[0].set(groups[0].rows.length <= FEW);
    const all = switchOf((open) => {
      all.textContent = open ? `Fold the ${count} rows` : `Show all ${count} rows`;
      if (all.isConnected) buttons.forEach((button) => button.set(open));
    });
    all.className = "all-rows";
    all.set(false);
    table.classList.add("grouped");
    table.after(all);
  }

  function heading(name, rows) {
    const line = document.createElement("tr"), cell = line.insertCell();
    const button = switchOf((open) => rows.forEach((row) => row.classList.toggle("folded", !open)));
    line.className = "group";
    cell.colSpan = rows[0].cells.length;
    button.textContent = name + (rows.length > 1 ? ` (${rows.length})` : "");
    button.dataset.label = rows[0].cells[0].dataset.label || "";
    button.set(false);
    cell.append(button);
    rows[0].before(line);
    return button;
  }

  function ungroup(table) {
    if (!table.classList.contains("grouped")) return;
    table.querySelectorAll("tr.group").forEach((line) => line.remove());
    table.classList.remove("grouped");
    table.nextElementSibling.remove();
  }

  // What is wider than the text, or breaks short cells or has high rows there, reaches into the margin as far as there
  // is room.
  function widen(part) {
    const frame = part.closest(".cell_output") || part.closest(".pst-scrollable-table-container, div[class*='highlight-']");
    if (!frame) return null;
    frame.style.width = part.style.width = "";
    frame.classList.remove("wide");
    part.classList.remove("unbroken");
    const main = document.querySelector(".bd-main");
    if (!MARGIN.matches || !main) return null;
    const room = main.getBoundingClientRect().right - EDGE - frame.getBoundingClientRect().right;
    const lacking = part.rows ? lackingOf(part, frame.clientWidth, room) : part.scrollWidth - part.clientWidth;
    if (lacking < 1 || room < 1) return null;
    frame.style.width = `${frame.offsetWidth + Math.min(lacking + 1, room)}px`;
    frame.classList.add("wide");
    return frame;
  }

  function lackingOf(table, width, room) {
    table.classList.add("unbroken");
    if (table.scrollWidth > width + room) table.classList.remove("unbroken");
    const high = [...table.rows].some((row) => row.offsetHeight > TALL);
    if (table.scrollWidth > width || high) table.style.width = "max-content"; // then as wide as its text would be
    const whole = table.scrollWidth;
    table.style.width = "";
    return whole - width;
  }

  // The list of headings in the margin gives way while a wide table is beside it.
  let watching = null;
  function giveWay(frames) {
    const aside = document.querySelector(".bd-sidebar-secondary");
    if (watching) watching.disconnect();
    if (!aside) return;
    aside.classList.remove("covered");
    const listed = aside.querySelector(".sidebar-secondary-items") || aside;
    const below = Math.max(0, Math.round(window.innerHeight - listed.getBoundingClientRect().bottom));
    const here = new Set();
    watching = new IntersectionObserver((seen) => {
      seen.forEach(({ target, isIntersecting }) => here[isIntersecting ? "add" : "delete"](target));
      aside.classList.toggle("covered", here.size > 0);
    }, { rootMargin: `0px 0px -${below}px 0px` });
    frames.forEach((frame) => watching.observe(frame));
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
    const code = document.querySelectorAll("article .cell_output pre, article [class*='highlight-'] pre");
    const parts = [...found, ...code];
    const reach = () => {
      giveWay(parts.map(widen).filter(Boolean));
      document.dispatchEvent(new Event("laid-out"));
    };
    reach();
    addEventListener("load", () => {
      reach(); // fonts are there
      window.MathJax?.startup?.promise?.then(reach);
    });
    addEventListener("resize", () => requestAnimationFrame(reach));
  });
})();
