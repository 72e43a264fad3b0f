// The page of a run: figure, table, budget, pins and curves kept together, and up to date.

import { announce, element, fetchJson, isTyping, pageData, showTimes } from "./app.js";
import { savePng } from "./charts.js";
import { Curves } from "./curves.js";
import { count, size, timeMs } from "./formats.js";
import { Parallel } from "./parallel.js";
import { Points } from "./points.js";
import { installRoofline } from "./roofline.js";
import { fillBudget } from "./run_budget.js";
import { showLegend } from "./run_legend.js";
import { Live } from "./run_live.js";
import { Details, PointTable } from "./run_table.js";
import { Tip } from "./run_tip.js";
import { budgetOf, choicesOf, searchOf } from "./run_url.js";
import { Scatter } from "./scatter.js";
import { installTableFiles } from "./tables.js";

const NEWS_MS = 300;
const FRAGMENTS_MS = 3_000;
const MOST_PINS = 4;
const FRONT_INTERVALS = 100;

const about = pageData("page-data");
const choices = choicesOf(location.search);
/** @type {Points} */
let points = new Points({ studies: [], id: [], study: [], time: [], memory: [], candidate: [], front: [], total: 0, newest: 0 });
/** @type {Set<number> | null} ids that meet the filter */
let matching = null;
/** @type {Set<number> | null} ids that the parallel coordinates keep */
let keptLines = null;
/** @type {number | null} */
let focused = null;

const details = new Details(about.run);
/** @type {<T extends HTMLElement>(selector: string) => T} */
const one = (selector) => /** @type {any} */ (document.querySelector(selector));
const root = one("[data-scatter]");
const note = one("[data-note]");

const scatter = new Scatter(root, {
  brushed: (area, done) => {
    choices.brush = area;
    scatter.select(area);
    if (done) {
      scatter.drawOverlay();
      remember();
      announce(area ? `${scatter.selected?.length ?? 0} kernels selected` : "Selection cleared");
    }
    showSelection(done);
  },
  hovered: (place) => tip.show(points, place ?? focused),
  clicked: (place) => focus(place),
});
const tip = new Tip(root, details, scatter);
const table = new PointTable(details, {
  pinned: (candidate) => pin(candidate),
  pointed: (place) => scatter.hover(place),
});
const begun = Date.parse(one("[data-fragment=progress] time")?.getAttribute("datetime") ?? "");
const curves = new Curves(about.run, () => ({ measured: about.measured ?? 0, begun }));
const parallel = new Parallel(about.run, () => points, (ids) => {
  keptLines = ids ? new Set(ids) : null;
  redraw();
});

/** @param {number} place */
function visible(place) {
  const id = points.id[place];
  return (
    !choices.hidden.includes(points.group(place, choices.colour)) &&
    (matching === null || matching.has(id)) &&
    (keptLines === null || keptLines.has(id))
  );
}

function redraw() {
  const groups = points.groups(choices.colour);
  const numbers = points.studies.map((study) => groups.indexOf(study[choices.colour]));
  scatter.brush = null;
  scatter.show({
    points,
    visible,
    colourOf: (place) => numbers[points.study[place]] ?? 0,
    intervals: details.known,
    logX: choices.logX,
    logY: choices.logY,
    zoom: choices.zoom,
    budget: budgetOf(choices),
    pins: new Set(choices.pins),
  });
  scatter.focused = focused;
  scatter.select(choices.brush);
  scatter.drawOverlay();
  showLegend(groups, choices.hidden, (hidden) => {
    choices.hidden = hidden;
    remember();
    redraw();
  });
  showNote();
  void showSelection(true);
}

function showNote() {
  const shown = one("[data-shown-note]");
  shown.textContent =
    points.length < points.total
      ? `${count(points.length)} of ${count(points.total)} timed kernels are drawn: the whole front and an even sample of the others`
      : `${count(points.total)} timed kernels`;
  const some = points.length > 0 && scatter.px.subarray(0, points.length).some((x) => !Number.isNaN(x));
  note.hidden = some;
  note.textContent = points.length
    ? "The filters leave nothing to show."
    : about.ended
      ? "No kernel of this run was timed."
      : "Kernels appear here as they are measured.";
}

/** @type {number | undefined} */
let selectionTimer;
/** @param {boolean} done */
function showSelection(done) {
  clearTimeout(selectionTimer);
  const update = () => {
    const selected = scatter.selected;
    one("[data-clear-selection]").hidden = !selected;
    one("[data-zoom]").toggleAttribute("disabled", !selected?.length);
    const title = selected ? `${count(selected.length)} selected` : "The front";
    return table.show(points, selected ?? points.front.filter(visible), title);
  };
  selectionTimer = setTimeout(() => void update().catch(showError), done ? 0 : 150);
}

/** @param {number | null} place */
function focus(place) {
  focused = place;
  scatter.focused = place;
  choices.at = place === null ? null : points.candidate[place];
  scatter.drawOverlay();
  tip.show(points, place);
  remember();
  if (place !== null) {
    const on = points.front.indexOf(place);
    const where = on >= 0 ? `${on + 1} of ${points.front.length} on the front, ` : "";
    announce(`${where}${timeMs(points.time[place])}, ${size(points.memory[place])}, ${points.group(place, "variant")}`);
  }
}

/** @param {string} candidate */
function pin(candidate) {
  if (choices.pins.includes(candidate)) {
    choices.pins = choices.pins.filter((other) => other !== candidate);
  } else if (choices.pins.length >= MOST_PINS) {
    announce(`No more than ${MOST_PINS} can be compared`);
  } else {
    choices.pins = [...choices.pins, candidate];
  }
  remember();
  showPins();
}

function showPins() {
  const pins = new Set(choices.pins);
  table.showPins(pins);
  if (scatter.shown) {
    scatter.shown.pins = pins;
    scatter.drawOverlay();
  }
  one("[data-pins]").hidden = pins.size === 0;
  one("[data-pins-note]").textContent =
    pins.size === 1 ? "1 pinned: one more can be compared with it" : `${pins.size} pinned`;
  const link = one("[data-compare]");
  link.hidden = pins.size < 2;
  link.setAttribute("href", `/compare?${choices.pins.map((candidate) => `c=${candidate}`).join("&")}`);
}

function showBudget() {
  const place = fillBudget(points, choices.budget);
  if (place !== null && focused !== place) focus(place);
}

function remember() {
  history.replaceState(null, "", location.pathname + searchOf(choices) + location.hash);
}

/** @param {unknown} error */
function showError(error) {
  const place = one("[data-error]");
  place.textContent = error instanceof Error ? error.message : String(error);
  place.hidden = false;
}

function showAxes() {
  for (const button of document.querySelectorAll("[data-axis]")) {
    const log = button.getAttribute("data-axis") === "x" ? choices.logX : choices.logY;
    button.setAttribute("aria-pressed", String((button.getAttribute("data-scale") === "log") === log));
  }
}

async function filter() {
  const field = one("[data-where]");
  try {
    matching = choices.where
      ? new Set(await fetchJson(`/dashboard/runs/${about.run}/matching?where=${encodeURIComponent(choices.where)}`))
      : null;
    field.removeAttribute("aria-invalid");
    one("[data-error]").hidden = true;
  } catch (error) {
    field.setAttribute("aria-invalid", "true");
    showError(error);
    return;
  }
  redraw();
}

function installControls() {
  for (const button of document.querySelectorAll("[data-axis]")) {
    button.addEventListener("click", () => {
      const log = button.getAttribute("data-scale") === "log";
      if (button.getAttribute("data-axis") === "x") choices.logX = log;
      else choices.logY = log;
      remember();
      showAxes();
      redraw();
    });
  }
  const colours = /** @type {HTMLSelectElement} */ (one("[data-colour]"));
  colours.value = choices.colour;
  colours.addEventListener("change", () => {
    choices.colour = colours.value === "device" ? "device" : "variant";
    choices.hidden = [];
    remember();
    redraw();
  });
  const where = /** @type {HTMLInputElement} */ (one("[data-where]"));
  where.value = choices.where;
  where.addEventListener("change", () => {
    choices.where = where.value.trim();
    remember();
    void filter();
  });
  const budget = /** @type {HTMLInputElement} */ (one("#budget"));
  const find = () => {
    choices.budget = budget.value.trim();
    remember();
    if (scatter.shown) scatter.shown.budget = budgetOf(choices);
    scatter.drawFrame();
    showBudget();
  };
  budget.addEventListener("input", find);
  one("[data-budget-form]").addEventListener("submit", (event) => {
    event.preventDefault();
    find();
  });
  one("[data-zoom]").addEventListener("click", () => {
    choices.zoom = choices.brush;
    choices.brush = null;
    remember();
    redraw();
  });
  one("[data-reset]").addEventListener("click", () => {
    Object.assign(choices, { zoom: null, brush: null, hidden: [], where: "" });
    where.value = "";
    focus(null);
    remember();
    void filter();
  });
  one("[data-clear-selection]").addEventListener("click", clearSelection);
  one("[data-unpin]").addEventListener("click", () => {
    choices.pins = [];
    remember();
    showPins();
  });
  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", () => {
      const format = button.getAttribute("data-save");
      if (format === "png") savePng(`front-${about.run}.png`, scatter.canvases);
      else void table.save(format === "json" ? "json" : "csv", `kernels-${about.run}`).catch(showError);
    });
  }
  root.addEventListener("keydown", onKey);
}

function clearSelection() {
  choices.brush = null;
  scatter.select(null);
  focus(null);
  showSelection(true);
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
  const front = points.front.filter(visible);
  const at = focused === null ? -1 : front.indexOf(focused);
  const step = (/** @type {number} */ to) => {
    if (front.length) focus(front[Math.min(Math.max(to, 0), front.length - 1)]);
  };
  /** @type {Record<string, () => void>} */
  const keys = {
    ArrowRight: () => step(at + 1),
    ArrowDown: () => step(at + 1),
    ArrowLeft: () => step(at < 0 ? 0 : at - 1),
    ArrowUp: () => step(at < 0 ? 0 : at - 1),
    Home: () => step(0),
    End: () => step(front.length - 1),
    Enter: () => {
      if (focused !== null) location.assign(`/candidates/${points.candidate[focused]}`);
    },
    p: () => {
      if (focused !== null) pin(points.candidate[focused]);
    },
    Escape: clearSelection,
  };
  const act = keys[event.key] ?? keys[event.key.toLowerCase()];
  if (!act) return;
  event.preventDefault();
  act();
}

/** @type {Promise<void> | null} one request at a time */
let fetching = null;
let again = false;

/** Points that have come since, and the front that they leave. */
function fetchNews() {
  if (fetching) {
    again = true;
    return fetching;
  }
  fetching = (async () => {
    try {
      const columns = await fetchJson(`/dashboard/runs/${about.run}/points?after=${points.newest}`);
      const before = points.front.map((place) => points.id[place]).join();
      const added = points.add(columns);
      if (added) {
        await intervalsOfFront();
        if (matching && choices.where) await filter();
        else redraw();
        if (points.front.map((place) => points.id[place]).join() !== before) showBudget();
      }
    } finally {
      fetching = null;
    }
    if (again) {
      again = false;
      await fetchNews();
    }
  })();
  return fetching;
}

/** Confidence intervals of the front, for its bars. */
async function intervalsOfFront() {
  await details.of(points.front.slice(0, FRONT_INTERVALS).map((place) => points.id[place]));
}

let fragmentsAt = -Infinity;
/** @type {number | undefined} */
let fragmentsTimer;
/** Progress, outcomes and tables as the server shows them, not more often than is worth it. */
function refreshFragments() {
  clearTimeout(fragmentsTimer);
  const wait = Math.max(0, fragmentsAt + FRAGMENTS_MS - performance.now());
  fragmentsTimer = setTimeout(async () => {
    fragmentsAt = performance.now();
    // What does not come now comes with the next news; the badge says when nothing does.
    const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } }).catch(() => null);
    if (!answer?.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const shown of document.querySelectorAll("[data-fragment]")) {
      const fresh = page.querySelector(`[data-fragment="${shown.getAttribute("data-fragment")}"]`);
      if (!fresh || shown.contains(document.activeElement)) continue;
      if (shown instanceof HTMLDetailsElement) shown.hidden = !fresh.querySelector("tbody tr");
      shown.replaceChildren(...fresh.childNodes);
      showTimes(shown);
    }
    about.measured = Number(page.querySelector("[data-measured]")?.getAttribute("data-measured") ?? 0);
    await curves.refresh().catch(() => {});
  }, wait);
}

/** @type {Record<import("./run_live.js").Mode, [string, string]>} */
const MODES = {
  live: ["live", "live"],
  polling: ["live", "every 5 s"],
  paused: ["warn", "updates paused"],
  stale: ["warn", "not up to date: the service does not answer"],
  ended: ["", "complete"],
};

function follow() {
  /** @type {number | undefined} */
  let timer;
  const news = () => {
    timer ??= setTimeout(() => {
      timer = undefined;
      // A service that is away is told by the badge.
      void fetchNews().catch(() => {});
      refreshFragments();
    }, NEWS_MS);
  };
  const live = new Live(about.run, about.event, {
    news,
    mode: (mode) => {
      const badge = one("[data-live]");
      badge.hidden = false;
      badge.className = `badge ${MODES[mode][0]}`;
      badge.textContent = MODES[mode][1];
      if (mode === "ended") {
        about.ended = true;
        one("[data-pause]").hidden = true;
      }
    },
    poll: async () => {
      await fetchNews();
      refreshFragments();
      const run = await fetchJson(`/v1/runs/${about.run}`);
      return ["finished", "failed", "cancelled"].includes(run.state);
    },
  });
  const button = one("[data-pause]");
  button.addEventListener("click", () => {
    const paused = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on with updates" : "Pause updates";
    live.pause(paused);
  });
}

function installActions() {
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-run-action]") : null;
    if (!(button instanceof HTMLButtonElement)) return;
    const action = button.getAttribute("data-run-action");
    if (action === "cancel" && !confirm("Cancel the run? What was measured stays.")) return;
    button.disabled = true;
    try {
      await fetchJson(`/v1/runs/${about.run}/${action}`, { method: "POST" });
      button.blur();
      refreshFragments();
    } catch (error) {
      button.disabled = false;
      showError(error);
    }
  });
}

/**
 * Do something when its place comes into view: figures far below cost nothing before.
 * @param {Element} place
 * @param {() => Promise<void>} act
 */
function whenSeen(place, act) {
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    void act().catch(showError);
  }, { rootMargin: "200px" });
  observer.observe(place);
}

async function start() {
  about.measured = Number(one("[data-measured]")?.getAttribute("data-measured") ?? 0);
  installControls();
  installActions();
  installRoofline(about.run);
  installTableFiles();
  showAxes();
  points = new Points(await fetchJson(`/dashboard/runs/${about.run}/points`));
  if (choices.at) {
    const place = points.candidate.indexOf(choices.at);
    focused = place < 0 ? null : place;
  }
  redraw();
  performance.mark("nestmap:chart");
  root.setAttribute("data-ready", "");
  showPins();
  showBudget();
  await intervalsOfFront();
  if (choices.where) await filter();
  else redraw();
  if (focused !== null) tip.show(points, focused);
  whenSeen(one("[data-curve]"), () => curves.refresh());
  whenSeen(one("[data-parallel]"), () => parallel.refresh());
  root.setAttribute("data-complete", "");
  if (!about.ended) follow();
}

void start().catch(showError);
