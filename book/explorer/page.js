// The page of the explorer: what is chosen, what follows, and the link that restores it.
(() => {
  "use strict";
  const E = window.ppmodelEngine, D = window.ppmodelDraw, Files = window.ppmodelFiles;
  const { Stage, number } = window.ppmodelStage;
  const { element, fillSelect, percent } = window.ppmodelLists;
  const base = document.currentScript.src.replace(/[^/]*$/, "");
  const $ = (id) => document.getElementById(`ex-${id}`);
  const root = document.documentElement;

  const DEFAULTS = {
    schedule: "interleaved-1f1b:chunks=4", against: "1f1b", pp: 4, microbatches: 8, forward: 1, input_grad: 1, weight_grad: 1,
    output: 0, gather: 0, passed: 0, summed: 0, allreduce: "excluded", reduction: 1, overlap: 1, comm: 0.1, p2p: "overlapped", slow_rank: -1, slow_factor: 1.5, slow_link: -1, delay: 1, view: "timeline", window: null, path: true,
    transfers: true, order: "time", all: false,
  };
  const PRESETS = {
    "Fast network": { comm: 0.05 },
    "Slow network": { comm: 0.6 },
    "One slow rank": { slow_rank: 2, slow_factor: 1.5 },
    "One delayed link": { schedule: "zb-v", p2p: "streams", slow_link: 1, delay: 2 },
    "Blocking transfers": { p2p: "blocking", comm: 0.15, schedule: "zb-v", against: "zb-h1", pp: 8, microbatches: 16 },
    "Less memory": { schedule: "v-half", against: "zb-v", pp: 8, microbatches: 16 },
    "Large vocabulary": { schedule: "vocab-1f1b", against: "1f1b", pp: 8, microbatches: 16, output: 0.15 },
    "Shards that wait": { schedule: "vocab-1f1b", against: "interlaced", pp: 8, microbatches: 16, output: 0.15, passed: 0.3, summed: 0.1 },
    "Reduced gradients": { schedule: "interleaved-1f1b:chunks=4", against: "1f1b", allreduce: "overlapped", reduction: 3 },
    "Gathered weights": { schedule: "interleaved-1f1b:fsdp=keep", against: "interleaved-1f1b:fsdp=drop", gather: 0.8 },
    "VPP or ZB?": { schedule: "interleaved-1f1b:chunks=4", against: "zb-h1", pp: 8, microbatches: 16 },
    "ZB or DualPipe?": { schedule: "zb-v", against: "dualpipe", pp: 8, microbatches: 16, overlap: 0.9 },
  };
  const HOLDS = {
    latency: "nothing: latency", overlapped: "its link: overlapped", overlapped_nic: "both NICs: overlapped_nic",
    blocking_send: "the sender: blocking_send",
    blocking_recv: "the receiver: blocking_recv", blocking: "both in turn: blocking",
    rendezvous: "both at once: rendezvous", streams: "a stream for each peer: streams",
  };
  const REDUCED = ["excluded", "overlapped", "blocking"];
  const OCCUPIED = { blocking_send: [1, 0], blocking_recv: [0, 1], blocking: [1, 1], rendezvous: [1, 1] };
  const LEAST = { forward: 1e-6, input_grad: 1e-6, weight_grad: 1e-6, output: 0, gather: 0, passed: 0, summed: 0, reduction: 0, overlap: 1e-6, slow_factor: 1e-6, comm: 0, delay: 0 }, MOST = 1e6;
  const NUMBERS = Object.keys(LEAST), OF_RANKS = ["slow_rank", "slow_link"];
  const CHOSEN = ["schedule", "against", "pp", "microbatches", "p2p", "allreduce", ...OF_RANKS];

  let state = { ...DEFAULTS }, index = null, stage = null, lists = null, shown = [], round = 0, curve = null;
  const variants = new Map(), loading = new Map(), orders = new Map(), tables = new Map();

  // ---- data: classic scripts, since a page on file:// cannot fetch ----------------------------------

  window.ppmodelExplorer = {
    index: (found) => { index = found; },
    orders: (name, found) => { for (const [key, own] of Object.entries(found)) orders.set(key, own); },
  };

  function load(name) {
    if (!loading.has(name)) {
      loading.set(name, new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = `${base}data/${name}.js`;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`data/${name}.js cannot be loaded`));
        document.head.append(script);
      }));
    }
    return loading.get(name);
  }

  function legal(key, pp, microbatches) {
    const { own } = variants.get(key) || {};
    if (own) return own.ranks === pp && own.microbatches === microbatches;
    const place = index.microbatches[pp] ? index.microbatches[pp].indexOf(microbatches) : -1;
    return place >= 0 && variants.has(key) && Boolean((variants.get(key).sizes[index.ranks.indexOf(pp)] >> place) & 1);
  }

  // The table of a schedule at a size; null where it is not defined. Those of the last few sizes are kept.
  function table(key, pp, microbatches) {
    if (!legal(key, pp, microbatches)) return Promise.resolve(null);
    if (variants.get(key).own) return Promise.resolve(variants.get(key).own);
    const name = `${key} ${pp} ${microbatches}`;
    if (!tables.has(name)) {
      if (tables.size > 160) tables.clear();
      tables.set(name, load(variants.get(key).name + (key.includes("fsdp") ? "-fsdp" : "")).then(() => E.unpack(orders.get(key)[pp], microbatches)));
    }
    return tables.get(name);
  }

  // ---- the link --------------------------------------------------------------------------------------

  function toHash() {
    const pairs = Object.keys(DEFAULTS).flatMap((key) => {
      const value = key === "window" ? stage && stage.window && stage.window.map((one) => Number(one.toPrecision(6))).join(":") : state[key];
      const kept = ["schedule", "against", "pp", "microbatches"].includes(key);
      return value === null || (!kept && value === DEFAULTS[key]) ? [] : [`${key}=${String(value)}`];
    });
    return `#${pairs.join("&")}`;
  }

  function fromHash(hash) {
    const found = { ...DEFAULTS }, wrong = [], given = new Set();
    const pairs = isView(hash) ? new URLSearchParams(hash.replace(/^#/, "")) : [];
    for (const [key, text] of pairs) {
      const value = read(key, text), asked = `${key} = ${text}`.slice(0, 60);
      if (given.has(key)) wrong.push(`${asked} (given twice)`);
      else if (Object.hasOwn(DEFAULTS, key) && good(key, value)) found[key] = value;
      else wrong.push(`${asked} (${rule(key)})`);
      given.add(key);
    }
    if (!sizesAt(found.pp).includes(found.microbatches)) {
      if (given.has("microbatches")) wrong.push(`microbatches = ${found.microbatches} (${rule("microbatches", found.pp)})`);
      found.microbatches = nearest(sizesAt(found.pp), found.microbatches);
    }
    for (const key of OF_RANKS) {
      if (found[key] >= found.pp) {
        wrong.push(`${key} = ${found[key]} (of ${found.pp} ranks, the last is ${found.pp - 1})`);
        found[key] = -1;
      }
    }
    return { found, wrong };
  }

  // The other fragments are names of the page's headings.
  const isView = (hash) => hash.includes("=");

  const decimal = (text) => (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text.trim()) ? Number(text) : NaN);

  function read(key, text) {
    if (key === "window") return text.split(":").map(decimal);
    if (typeof DEFAULTS[key] === "number") return decimal(text);
    return typeof DEFAULTS[key] === "boolean" ? { true: true, false: false }[text] : text;
  }

  function good(key, value) {
    if (key === "schedule" || key === "against") return variants.has(value);
    if (key === "pp") return ranksHere().includes(value);
    if (key === "p2p") return index.semantics.includes(value);
    if (key === "allreduce") return REDUCED.includes(value);
    if (key === "view") return value === "timeline" || value === "table";
    if (key === "order") return value === "time" || value === "memory";
    if (key === "window") return value.length === 2 && value.every((one) => Number.isFinite(one) && one >= 0) && value[0] < value[1];
    if (OF_RANKS.includes(key)) return Number.isInteger(value) && value >= -1;
    if (key === "microbatches") return Number.isInteger(value) && value > 0;
    if (NUMBERS.includes(key)) return (value >= LEAST[key] && value <= MOST) || (value === 0 && key !== "overlap");
    return typeof value === "boolean";
  }

  // What a value must be, for those who read why theirs is refused.
  function rule(key, pp) {
    if (!Object.hasOwn(DEFAULTS, key)) return `known are ${Object.keys(DEFAULTS).join(", ")}`;
    if (key === "schedule" || key === "against") return "not in its list; a table of your own is opened again from its file";
    if (key === "pp") return `${index.ranks[0]} to ${index.ranks.at(-1)}, or the ranks of a table of your own`;
    if (key === "microbatches") return pp ? `with ${pp} ranks, one of ${sizesAt(pp).join(", ")}` : "a whole number from 1";
    if (NUMBERS.includes(key)) return `${key === "overlap" ? "" : "0, or "}a number from ${Math.max(1e-6, LEAST[key]).toFixed(6)} to ${MOST}`;
    if (OF_RANKS.includes(key)) return "a rank, or -1 for none";
    if (key === "window") return "two times, as 0:10";
    const words = { p2p: index.semantics, allreduce: REDUCED, view: ["timeline", "table"], order: ["time", "memory"] }[key];
    return `one of ${(words || ["true", "false"]).join(", ")}`;
  }

  // Sizes that the page has orders for, with those of a reader's own tables.
  const owned = () => [...variants.values()].flatMap(({ own }) => own || []);
  const sorted = (values) => [...new Set(values)].sort((a, b) => a - b);
  const ranksHere = () => sorted([...index.ranks, ...owned().map(({ ranks }) => ranks)]);
  function sizesAt(pp) {
    return sorted([...(index.microbatches[pp] || []), ...owned().filter(({ ranks }) => ranks === pp).map(({ microbatches }) => microbatches)]);
  }

  const offered = () => (index.microbatches[state.pp] || []).includes(state.microbatches);

  const nearest = (list, value) => list.reduce((best, one) => (Math.abs(one - value) < Math.abs(best - value) ? one : best));

  let writing = 0;
  function writeHash() {
    clearTimeout(writing);
    writing = setTimeout(() => {
      try {
        history.replaceState(null, "", toHash());
      } catch { /* some browsers count how often a page may do so */ }
    }, 200);
  }

  // ---- what follows from what is chosen ----------------------------------------------------------------

  const costs = (comm = state.comm) => ({ ...state, comm });

  async function update(options = {}) {
    const mine = ++round, keys = [state.schedule, state.against];
    writeHash();
    showControls();
    const found = await Promise.all(keys.map((key) => table(key, state.pp, state.microbatches)));
    if (mine !== round) return;
    shown = keys.map((key, number_) => panelOf(key, found[number_], number_));
    showStage();
    showHeadline(options.animated);
    if (!options.animated) {
      lists.numbers();
      lists.text();
      lists.later();
    }
  }

  function panelOf(key, own, place) {
    const { label } = variants.get(key), colour = index.pair[place];
    if (!own) {
      const size = `${state.pp} ranks and ${state.microbatches} microbatches`, { legal: needs, own: given } = variants.get(key);
      const why = offered() || given ? `Not defined for ${size}; it needs ${needs}${given ? "" : " (S ranks, B microbatches)"}.` : `This page has no order of it for ${size}: open its table, too.`;
      return { key, label, colour, title: label, note: why, missing: true, table: { ranks: 2 }, run: { deadlock: [] } };
    }
    const timed = E.simulate(own, costs()), slots = state.view === "table", run = slots ? E.scaledSlots(own) : timed;
    const panel = { key, label, colour, kinds: index.kinds, table: own, run, timed, slots, slow: slots ? -1 : state.slow_rank };
    panel.occupied = slots ? [0, 0] : OCCUPIED[state.p2p] || [0, 0];
    panel.path = state.path ? E.criticalPath(run) : [];
    panel.title = slots ? `${label}: ${E.slots(own).makespan} slots${run.pieces > 1 ? ` of 1/${run.pieces}` : ""}` : `${label}: ${number(run.makespan)}`;
    if (run.deadlock) {
      const one = run.deadlock[0];
      panel.title = `${label}: deadlock`;
      panel.note = `Ranks wait for one another: rank ${one.rank} ${one.sends ? "sends" : "receives"} ${one.operation} ${one.sends ? "to" : "from"} rank ${one.peer}, which is not ready for it.`;
    }
    return panel;
  }

  function showStage() {
    document.getElementById("explorer-page").style.setProperty("--ex-path", theme().path);
    showLegend();
    const there = shown.filter((panel) => !panel.missing);
    stage.show({
      panels: shown, theme: theme(), path: state.path, transfers: state.transfers && state.view === "timeline",
      most: Math.max(1, ...there.map((panel) => E.activations(panel.table).peak)),
      unit: state.view === "table" ? "slots of a whole stage" : "time",
    });
    const said = there.map((panel) => panel.title).join("; ");
    $("canvas").setAttribute("aria-label", `${state.view === "table" ? "Tables" : "Timelines"} of ${state.pp} ranks: ${said}. Enter picks an operation.`);
  }

  function theme() {
    const style = getComputedStyle(root), read = (name, other) => style.getPropertyValue(name).trim() || other;
    const dark = root.dataset.theme === "dark";
    return {
      text: read("--pst-color-text-base", "#222222"), muted: read("--pst-color-text-muted", "#666666"),
      ground: read("--pst-color-background", "#ffffff"), line: dark ? "#777777" : "#999999",
      row: dark ? "rgba(255,255,255,0.06)" : "rgba(0,0,0,0.045)", transfer: dark ? "rgba(255,255,255,0.5)" : "rgba(0,0,0,0.42)",
      held: dark ? "rgba(255,255,255,0.45)" : "rgba(0,0,0,0.4)", path: dark ? "#ff6f9f" : index.path, kinds: index.kinds,
    };
  }

  // ---- sentences ------------------------------------------------------------------------------------------

  function showHeadline(animated) {
    const [one, two] = shown, both = shown.filter((panel) => panel.timed && !panel.timed.deadlock);
    if (both.length < 2) {
      const bad = shown.find((panel) => !both.includes(panel)), [good] = both;
      const why = `${bad.label} ${bad.missing ? `${offered() ? "is not defined" : "has no order here"} at this size` : "deadlocks: its ranks wait for one another"}.`;
      say("headline", good ? `${capital(good.label)} takes ${number(good.timed.makespan)}, ${percent(good.timed.idle)} of it idle. ${capital(why)}` : capital(why));
      say("second", bad.note || "");
      drawCurve([]);
      return;
    }
    const [a, b] = both.map((panel) => panel.timed.makespan), share = a === b ? 0 : 1 - Math.min(a, b) / Math.max(a, b);
    const [fast, slow] = a <= b ? [one, two] : [two, one];
    const claim = share < 1e-9
      ? `${one.label} and ${two.label} take the same time, ${number(a)}.`
      : `${fast.label} takes ${percent(share)} less time than ${slow.label}: ${number(Math.min(a, b))} against ${number(Math.max(a, b))}.`;
    if (animated) {
      $("headline").textContent = capital(claim);
      drawCurve(curve ? curve.crossings : []);
      return;
    }
    const crossings = sweep();
    say("headline", capital(claim) + (share < 1e-9 ? "" : otherWay(crossings.map(({ time }) => time))));
    say("second", both.map((panel) => `${capital(panel.label)}: ${percent(panel.timed.idle)} idle, peak of ${number(E.activations(panel.table).peak)} microbatches`).join(". ") + ".");
    drawCurve(crossings);
  }

  // Where the order is reversed: next to the transfer time, above it or else below it.
  function otherWay(times) {
    const above = times.filter((time) => time > state.comm), [last, first] = times.filter((time) => time <= state.comm).reverse();
    const [from, to] = above.length ? above : [first, last];
    if (!times.length) return "";
    const [low, high] = [from, to].map((time) => time !== undefined && short(time));
    let where = `From a transfer time of ${low} to ${high}`;
    if (low === false) where = `Below a transfer time of ${high}`;
    else if (high === false) where = `Above a transfer time of ${low}, as far as the curve goes`;
    return ` ${where}, it is the other way round.`;
  }

  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
  const short = (value) => Number(value.toPrecision(2));

  let saying = {};
  function say(id, text) {
    clearTimeout(saying[id]);
    saying[id] = setTimeout(() => { if ($(id).textContent !== text) $(id).textContent = text; }, 120);
  }

  // Makespans of both over transfer times, and where they are equal; kept until anything but the transfer time changes.
  function sweep() {
    const most = mostComm(), { comm, view, window: seen, path, transfers, order, all, ...rest } = state;
    const key = JSON.stringify([rest, most]);
    if (curve && curve.key === key) return curve.crossings;
    const [one, two] = shown.map((panel) => panel.table), steps = one.size + two.size > 12000 ? 24 : 48;
    const times = Array.from({ length: steps + 1 }, (_, step) => (step / steps) * most);
    const at = (own, time) => E.simulate(own, costs(time)).makespan;
    const values = [one, two].map((own) => times.map((time) => at(own, time))), crossings = [];
    const apart = times.map((_, i) => (Math.abs(values[0][i] - values[1][i]) < 1e-9 * values[0][i] ? 0 : values[0][i] - values[1][i]));
    let last = -1;
    apart.forEach((gap, i) => {
      if (!gap) return;
      if (last >= 0 && gap * apart[last] < 0) {
        let low = times[last], high = times[i];
        for (let halving = 0; halving < 24; halving++) {
          const middle = (low + high) / 2;
          if ((at(one, middle) - at(two, middle)) * apart[last] > 0) low = middle;
          else high = middle;
        }
        crossings.push({ time: high, value: at(one, high) });
      }
      last = i;
    });
    curve = { key, times, values, crossings };
    return crossings;
  }

  function mostComm() {
    const least = Math.max(state.forward, state.comm * 1.0001, 1e-6), power = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least * 0.9999);
  }

  function drawCurve(crossings) {
    const canvas = $("curve"), width = canvas.clientWidth, height = 150, ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (!width) return;
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (!curve || shown.some((panel) => !panel.timed || panel.timed.deadlock)) return;
    const curves = shown.map((panel, i) => ({ colour: panel.colour, values: curve.values[i], now: panel.timed.makespan }));
    D.paintCurve(ctx, { width, height, theme: theme(), times: curve.times, curves, comm: state.comm, crossings });
  }

  // ---- controls ----------------------------------------------------------------------------------------------------

  function showControls() {
    for (const id of ["schedule", "against"]) {
      fillSelect($(id), [...variants].map(([key, one]) => [key, one.label]), state[id]);
      for (const option of $(id).options) {
        const { label, own } = variants.get(option.value), elsewhere = legal(option.value, state.pp, state.microbatches) ? "" : " (other sizes)";
        const text = `${label}${own ? ", your table" : ""}${elsewhere}`;
        if (option.textContent !== text) option.textContent = text;
      }
    }
    const counts = (list) => list.map((one) => [String(one), String(one)]);
    fillSelect($("pp"), counts(ranksHere()), String(state.pp));
    fillSelect($("microbatches"), counts(sizesAt(state.pp)), String(state.microbatches));
    fillSelect($("p2p"), index.semantics.map((word) => [word, HOLDS[word] || word]), state.p2p);
    fillSelect($("allreduce"), REDUCED.map((word) => [word, word]), state.allreduce);
    $("reduction").disabled = state.allreduce === "excluded";
    fillSelect($("slow_rank"), [["-1", "none"], ...counts([...Array(state.pp).keys()])], String(state.slow_rank));
    $("slow_factor").disabled = state.slow_rank < 0;
    const links = [...Array(state.pp).keys()].map((own) => [String(own), `${own}\u2013${(own + 1) % state.pp}`]);
    fillSelect($("slow_link"), [["-1", "none"], ...links], String(state.slow_link));
    $("delay").disabled = state.slow_link < 0;
    for (const id of NUMBERS) showNumber($(id === "comm" ? "comm-number" : id), state[id]);
    const most = mostComm();
    $("comm").max = most;
    $("comm").step = most / 200;
    $("comm").value = state.comm;
    $("comm").setAttribute("aria-valuetext", number(state.comm));
    for (const view of ["timeline", "table"]) $(view).setAttribute("aria-pressed", state.view === view);
    for (const order of ["time", "memory"]) $(`by-${order}`).setAttribute("aria-pressed", state.order === order);
    $("path").checked = state.path;
    $("transfers").checked = state.transfers;
    $("transfers").disabled = state.view === "table";
    $("all").checked = state.all;
    for (const button of document.querySelectorAll(".ex-presets button")) {
      const wanted = { ...DEFAULTS, ...PRESETS[button.textContent] };
      const same = [...CHOSEN, ...NUMBERS].every((key) => wanted[key] === state[key]);
      button.setAttribute("aria-pressed", same);
    }
  }

  function showNumber(input, value) {
    if (document.activeElement === input && (Number(input.value) === value || input.getAttribute("aria-invalid"))) return;
    input.value = String(value);
    input.removeAttribute("aria-invalid");
  }

  // A slow rank or link that the pipeline does not have is none.
  function onRanks() {
    for (const key of OF_RANKS) if (state[key] >= state.pp) state[key] = -1;
  }

  // Change what is chosen. A schedule that is picked brings a size at which it is defined.
  function choose(changes) {
    let why = "";
    Object.assign(state, changes);
    if (changes.pp && !sizesAt(state.pp).includes(state.microbatches)) {
      state.microbatches = nearest(sizesAt(state.pp), state.microbatches);
    }
    onRanks();
    const picked = changes.schedule || changes.against;
    if (picked && !legal(picked, state.pp, state.microbatches)) {
      const other = changes.schedule ? state.against : state.schedule, sizes = sizesOf(picked);
      const both = sizes.filter(([pp, microbatches]) => legal(other, pp, microbatches));
      const far = ([pp, microbatches]) => 1000 * Math.abs(pp - state.pp) + Math.abs(microbatches - state.microbatches);
      [state.pp, state.microbatches] = (both.length ? both : sizes).reduce((best, one) => (far(one) < far(best) ? one : best));
      onRanks();
      why = `Now at ${state.pp} ranks and ${state.microbatches} microbatches: ${variants.get(picked).label} needs ${variants.get(picked).legal} (S ranks, B microbatches).`;
    }
    if (["schedule", "against", "pp", "microbatches", "view"].some((key) => key in changes)) {
      stage.window = null;
      stage.picked = null;
      $("details").replaceChildren();
    }
    note(why, $(changes.against ? "against" : "schedule"));
    return update();
  }

  // Say something right behind what was touched.
  function note(text, touched) {
    const place = touched.closest("details, .ex-grid, .ex-curve, .ex-downloads, .ex-presets");
    if (text && place.nextElementSibling !== $("note")) place.after($("note"));
    say("note", text);
  }

  // Tables of a reader's own take the places of the schedules; of several, the first two.
  async function open(files) {
    if (!files.length) return;
    const keys = [];
    for (const file of [...files].slice(0, 2)) {
      try {
        const { name, table: own } = E.parse(await file.text()), key = `file:${file.name}`;
        const needs = `${own.ranks} ranks and ${own.microbatches} microbatches`;
        const label = variants.get(name)?.label || name || file.name;
        variants.set(key, { key, name: key, label, legal: needs, own });
        keys.push(key);
      } catch (error) {
        note(`${file.name} is not read: ${error.message}.`, $("file"));
        return;
      }
    }
    const [schedule, against = state.against] = keys, { ranks: pp, microbatches } = variants.get(schedule).own;
    await choose({ schedule, against, pp, microbatches });
  }

  function sizesOf(key) {
    return ranksHere().flatMap((pp) => sizesAt(pp).filter((one) => legal(key, pp, one)).map((one) => [pp, one]));
  }

  function preset(changes) {
    const target = { ...DEFAULTS, ...changes, view: state.view, path: state.path, transfers: state.transfers, order: state.order, all: state.all };
    const from = state.comm, same = CHOSEN.every((key) => target[key] === state[key]);
    if (!same || matchMedia("(prefers-reduced-motion: reduce)").matches || from === target.comm) {
      state = target;
      return choose({ pp: state.pp });
    }
    const begin = performance.now(), mine = (preset.mine = Symbol("run"));
    const step = (now) => {
      if (preset.mine !== mine) return;
      const share = Math.min(1, Math.max(0, (now - begin) / 700)), eased = share * share * (3 - 2 * share);
      state = { ...target, comm: share < 1 ? from + (target.comm - from) * eased : target.comm };
      update({ animated: share < 1 });
      if (share < 1) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
    return undefined;
  }

  function wire() {
    for (const [name, changes] of Object.entries(PRESETS)) {
      const button = element("button", name, { type: "button", "aria-pressed": "false" });
      button.addEventListener("click", () => preset(changes));
      document.querySelector(".ex-presets").append(button);
    }
    $("controls").addEventListener("submit", (event) => event.preventDefault());
    for (const id of ["schedule", "against", "p2p", "allreduce"]) $(id).addEventListener("change", () => choose({ [id]: $(id).value }));
    for (const id of ["pp", "microbatches", ...OF_RANKS]) $(id).addEventListener("change", () => choose({ [id]: Number($(id).value) }));
    for (const id of NUMBERS) {
      const input = $(id === "comm" ? "comm-number" : id);
      const called = input.getAttribute("aria-label")?.split(",")[0] || input.labels[0].querySelector("span").textContent;
      input.addEventListener("input", () => {
        const value = input.value.trim() === "" ? NaN : Number(input.value), bad = !good(id, value);
        if (bad) {
          input.setAttribute("aria-invalid", "true");
          note(`${called}: ${input.value || "an empty field"} is not simulated; it must be ${rule(id)}. What is shown has ${state[id]}.`, input);
          return;
        }
        input.removeAttribute("aria-invalid");
        choose({ [id]: value });
      });
      input.addEventListener("blur", () => showNumber(input, state[id]));
    }
    $("comm").addEventListener("input", () => choose({ comm: Number(Number($("comm").value).toPrecision(6)) }));
    // The first rule of the page "Five rules by hand", at 0.6 of the peak; layers are spread over the ranks.
    const ofModel = () => {
      const [hidden, sequence, layers] = index.models[$("model").value] || [], speed = 1e9 * Number($("bandwidth").value);
      const ratio = (0.6 * index.gpus[$("gpu").value][0] * state.pp) / (speed * layers * (12 * hidden + sequence));
      if (ratio > 0 && ratio < MOST) choose({ comm: Number((ratio * state.forward).toPrecision(3)) });
    };
    const ofGpu = () => { $("bandwidth").value = index.gpus[$("gpu").value][1]; };
    fillSelect($("model"), [["", "a model"], ...Object.keys(index.models).map((name) => [name, name])], "");
    fillSelect($("gpu"), Object.keys(index.gpus).map((name) => [name, name]), "H100");
    ofGpu();
    $("gpu").addEventListener("change", ofGpu);
    for (const id of ["gpu", "model", "bandwidth"]) $(id).addEventListener("change", ofModel);
    const drag = (event) => {
      if (!event.buttons) return;
      const box = $("curve").getBoundingClientRect(), share = (event.clientX - box.left - 34) / (box.width - 46), most = Number($("comm").max);
      choose({ comm: Number((Math.round(Math.min(1, Math.max(0, share)) * 200) * (most / 200)).toPrecision(6)) });
    };
    $("curve").addEventListener("pointerdown", (event) => { $("curve").setPointerCapture(event.pointerId); drag(event); });
    $("curve").addEventListener("pointermove", drag);
    for (const view of ["timeline", "table"]) $(view).addEventListener("click", () => choose({ view }));
    for (const order of ["time", "memory"]) $(`by-${order}`).addEventListener("click", () => choose({ order }));
    for (const id of ["path", "transfers", "all"]) $(id).addEventListener("change", () => choose({ [id]: $(id).checked }));
    $("in").addEventListener("click", () => stage.zoom(0.6));
    $("out").addEventListener("click", () => stage.zoom(1 / 0.6));
    $("fit").addEventListener("click", () => stage.fit());
    for (const id of ["text-which", "text-rank"]) $(id).addEventListener("change", () => lists.text());
    $("text").addEventListener("toggle", () => lists.text());
    $("file").addEventListener("change", () => { open($("file").files); $("file").value = ""; });
    $("link").addEventListener("click", copyLink);
    $("svg").addEventListener("click", () => Files.save(`${fileName()}.svg`, "image/svg+xml", svg()));
    $("csv").addEventListener("click", () => Files.save(`${fileName()}.csv`, "text/csv", Files.csv(timed())));
    $("trace").addEventListener("click", () => Files.save(`${fileName()}.json`, "application/json", Files.trace(timed(), about())));
    const narrow = matchMedia("(max-width: 760px)"), fold = () => { $("more").open = !narrow.matches; };
    narrow.addEventListener("change", fold);
    fold();
    addEventListener("hashchange", () => {
      if (!isView(location.hash)) return;
      restore(location.hash);
      document.querySelector(".ex-presets").scrollIntoView({ block: "nearest" });
    });
    new MutationObserver(() => { if (!shown.length) return; showStage(); drawCurve(curve ? curve.crossings : []); }).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
    new ResizeObserver(() => { stage.resize($("stage").clientWidth); drawCurve(curve ? curve.crossings : []); }).observe($("stage"));
  }

  // ---- to take away -----------------------------------------------------------------------------------------------

  const timed = () => shown.filter((panel) => panel.timed && !panel.timed.deadlock).map((panel) => ({ ...panel, run: panel.timed }));
  const fileName = () => `${state.schedule}-${state.against}-pp${state.pp}-mb${state.microbatches}`.replace(/[^\w.-]+/g, "_");

  function about() {
    const { schedule, against, window: seen, path, transfers, order, all, view, ...rest } = state;
    return { program: "ppmodel explorer", schedule, against, ...rest, link: toHash() };
  }

  function svg() {
    const scene = { ...stage.scene, marked: null, pointer: null, window: stage.range, theme: { ...stage.scene.theme, opaque: true } };
    scene.place = D.layout(scene.panels, Math.max(720, stage.width));
    const ctx = new D.Svg(scene.place.width, scene.place.height);
    D.paint(ctx, scene);
    D.layout(scene.panels, stage.width);
    return ctx.toString();
  }

  async function copyLink() {
    clearTimeout(writing);
    history.replaceState(null, "", toHash());
    try {
      await navigator.clipboard.writeText(location.href);
      note(`The link is copied; it opens this view${shown.some(({ table: { size }, key }) => size && variants.get(key).own) ? ", but not the tables that you opened" : ""}.`, $("link"));
    } catch { // a browser that does not let pages copy: the link is shown, to be copied by hand
      $("url").hidden = false;
      $("url").value = location.href;
      $("url").select();
    }
  }

  // ---- start --------------------------------------------------------------------------------------------------------

  function showLegend() {
    const kinds = shown.flatMap(({ table, run }) => (table.kind ? [...table.kind, ...E.besides(run).map(({ aside }) => aside.kind)] : []));
    const passed = shown.some(({ run }) => run.graph && E.collectives(run).length) ? [["results are passed on to all ranks", `${index.kinds.S[1]}66`]] : [];
    const items = [...Object.values(index.kinds).filter((_, kind) => kinds.includes(kind)), ...passed].map(([name, colour]) => {
      const item = element("span");
      const box = element("i", undefined, { class: "ex-kind" });
      box.style.background = colour;
      item.append(box, name);
      return item;
    });
    const path = element("span");
    path.append(element("i", undefined, { class: "ex-line" }), "critical path");
    $("legend").replaceChildren(...items, path, element("span", "darker: deeper chunk of the rank"), element("span", "dark foot: second copy of the model"), element("span", "grey bar: a transfer holds the rank"));
    for (const box of document.querySelectorAll(".ex-kind[data-kind]")) [, box.style.background] = index.kinds[box.dataset.kind];
    ["a", "b"].forEach((one, i) => document.getElementById("explorer-page").style.setProperty(`--ex-${one}`, index.pair[i]));
  }

  function restore(hash) {
    const { found, wrong } = fromHash(hash);
    state = found;
    if (state.overlap !== 1) $("more").open = true; // what a link is about is in sight, on a phone, too
    stage.window = found.window;
    stage.picked = null;
    note(wrong.length ? `The link asks for what this page does not have: ${wrong.join("; ")}.` : "", document.querySelector(".ex-presets"));
    return update();
  }

  async function begin() {
    await load("index");
    for (const one of index.schedules) for (const variant of one.variants) variants.set(variant.key, { ...one.variants[0], ...variant, name: one.name, legal: one.legal });
    document.getElementById("explorer-page").hidden = false;
    stage = new Stage($("canvas"), $("tip"), $("details"), writeHash);
    stage.resize($("stage").clientWidth);
    const now = () => ({ state, shown, round, costs: costs(), link: toHash() });
    lists = new window.ppmodelLists.Lists({ now, variants, orders, table, choose });
    wire();
    await restore(location.hash);
    document.getElementById("explorer-page").dataset.ready = "true";
  }

  // A browser that cannot unpack the orders, or files that are missing: said in place of the page.
  function failed(error) {
    const place = document.getElementById("explorer-page");
    place.hidden = false;
    place.replaceChildren(element("p", `The explorer cannot start in this browser: ${error.message}. Browsers of 2023 and later can show it.`));
  }

  window.ppmodelExplorer.begun = begin();
  window.ppmodelExplorer.begun.catch(failed);
  window.ppmodelExplorer.table = table;
  window.ppmodelExplorer.state = () => ({ ...state });
  window.ppmodelExplorer.stage = () => stage;
})();
