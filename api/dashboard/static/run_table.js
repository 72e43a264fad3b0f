// The table beside the figure: the front, or what the brush has selected, with pins to compare.

import { element, fetchJson } from "./app.js";
import { saveBlob } from "./charts.js";
import { ABSENT, count, size, timeMs } from "./formats.js";

/** @typedef {import("./points.js").Points} Points */
/**
 * What the service says of a measurement.
 * @typedef {{id: number, candidate: string, time_ms: number, low_ms: number, high_ms: number,
 *   coverage: number, spread: number, trials: number, memory_bytes: number, variant: string,
 *   device: string, clocks: string, error: number | null, parameters: Record<string, unknown>,
 *   mapping: string, local_sizes: string, at: string}} Detail
 */

const ROWS = 100;
const AT_ONCE = 100;
const MOST_SAVED = 2_000;
const FORMULA = /^[=+\-@\t\r]/;

/** Fetches details once each. */
export class Details {
  /** @param {string} run */
  constructor(run) {
    this.run = run;
    /** @type {Map<number, Detail>} */
    this.known = new Map();
  }

  /**
   * @param {number[]} ids
   * @returns {Promise<Detail[]>} those that are there, in this order
   */
  async of(ids) {
    const missing = ids.filter((id) => !this.known.has(id));
    for (let start = 0; start < missing.length; start += AT_ONCE) {
      const part = missing.slice(start, start + AT_ONCE).join(",");
      for (const row of await fetchJson(`/dashboard/runs/${this.run}/details?ids=${part}`)) {
        this.known.set(row.id, row);
      }
    }
    return ids.flatMap((id) => this.known.get(id) ?? []);
  }
}

export class PointTable {
  /**
   * @param {Details} details
   * @param {object} told
   * @param {(candidate: string) => void} told.pinned
   * @param {(place: number) => void} told.pointed
   */
  constructor(details, told) {
    this.details = details;
    this.told = told;
    this.table = /** @type {HTMLTableElement} */ (document.querySelector("[data-points]"));
    this.title = /** @type {HTMLElement} */ (document.querySelector("[data-table-title]"));
    this.empty = document.querySelector("[data-table-empty]");
    this.sort = { by: "time", up: true };
    /** @type {Points | null} */
    this.points = null;
    /** @type {number[]} */
    this.places = [];
    /** @type {Set<string>} */
    this.pins = new Set();
    this.turn = 0;
    for (const button of this.table.querySelectorAll("[data-sort]")) {
      button.addEventListener("click", () => this.sortBy(button));
    }
  }

  /** @param {Element} button */
  sortBy(button) {
    const by = button.getAttribute("data-sort") ?? "time";
    this.sort = { by, up: this.sort.by === by ? !this.sort.up : true };
    for (const other of this.table.querySelectorAll("[data-sort]")) {
      const cell = other.closest("th");
      if (other !== button) cell?.removeAttribute("aria-sort");
      else cell?.setAttribute("aria-sort", this.sort.up ? "ascending" : "descending");
    }
    void this.fill();
  }

  /**
   * @param {Points} points
   * @param {number[]} places
   * @param {string} title
   */
  show(points, places, title) {
    this.points = points;
    this.places = places;
    this.title.textContent =
      places.length > ROWS ? `${title}: ${count(places.length)}, of which ${ROWS} are listed` : title;
    this.table.hidden = places.length === 0;
    this.empty?.toggleAttribute("hidden", places.length > 0);
    return this.fill();
  }

  /** @returns {number[]} places in the order of the table */
  ordered() {
    const points = /** @type {Points} */ (this.points);
    const [first, second] =
      this.sort.by === "time" ? [points.time, points.memory] : [points.memory, points.time];
    const sign = this.sort.up ? 1 : -1;
    return [...this.places].sort((a, b) => sign * (first[a] - first[b] || second[a] - second[b]));
  }

  async fill() {
    const points = this.points;
    if (!points) return;
    const turn = (this.turn += 1);
    const places = this.ordered().slice(0, ROWS);
    const rows = await this.details.of(places.map((place) => points.id[place]));
    // Something else was chosen while these were fetched.
    if (turn !== this.turn) return;
    const byId = new Map(rows.map((row) => [row.id, row]));
    const made = places.map((place) => this.row(points, place, byId.get(points.id[place])));
    this.table.tBodies[0].replaceChildren(...made);
  }

  /**
   * @param {Points} points
   * @param {number} place
   * @param {Detail | undefined} detail
   */
  row(points, place, detail) {
    const candidate = points.candidate[place];
    const short = candidate.slice(0, 10);
    const box = element("input", {
      type: "checkbox",
      "aria-label": `Pin ${short}`,
      checked: this.pins.has(candidate),
      onchange: () => this.told.pinned(candidate),
    });
    const made = element(
      "tr",
      { "data-place": String(place), onmouseenter: () => this.told.pointed(place) },
      element("td", {}, box),
      element("th", { scope: "row" },
        element("a", { class: "mono", href: `/candidates/${candidate}` }, short)),
      cell(timeMs(points.time[place]), "number", `${points.time[place]} ms`),
      cell(detail ? `${timeMs(detail.low_ms)} – ${timeMs(detail.high_ms)}` : ABSENT, "number",
        detail ? `${(detail.coverage * 100).toFixed(1)} % of ${detail.trials} trials` : ""),
      cell(size(points.memory[place]), "number", `${points.memory[place]} bytes`),
      cell(points.group(place, "variant")),
      cell(points.group(place, "device")),
      cell(detail?.mapping ?? "", "mono wrap"),
      cell(detail ? parametersText(detail) : "", "mono wrap"),
    );
    if (this.pins.has(candidate)) made.classList.add("chosen");
    return made;
  }

  /** @param {Set<string>} pins */
  showPins(pins) {
    this.pins = pins;
    for (const row of this.table.tBodies[0].rows) {
      const link = row.querySelector("th a")?.getAttribute("href") ?? "";
      const pinned = pins.has(link.slice("/candidates/".length));
      row.classList.toggle("chosen", pinned);
      const box = row.querySelector("input");
      if (box) box.checked = pinned;
    }
  }

  /**
   * Save what is listed, in the table's order, and what was selected beyond it.
   * @param {"csv" | "json"} format
   * @param {string} name
   */
  async save(format, name) {
    const points = this.points;
    if (!points) return;
    const ids = this.ordered().slice(0, MOST_SAVED).map((place) => points.id[place]);
    const rows = await this.details.of(ids);
    const text = format === "json" ? `${JSON.stringify(rows, null, 1)}\n` : csvOf(rows);
    const type = format === "json" ? "application/json" : "text/csv";
    saveBlob(`${name}.${format}`, new Blob([text], { type }));
  }
}

/** @param {Detail} detail */
export function parametersText(detail) {
  return Object.entries(detail.parameters).map(([name, value]) => `${name} ${value}`).join(", ");
}

/** @param {Detail[]} rows */
function csvOf(rows) {
  /** @type {(keyof Detail)[]} */
  const names = ["id", "candidate", "time_ms", "low_ms", "high_ms", "coverage", "spread", "trials",
    "memory_bytes", "variant", "device", "clocks", "error", "parameters", "mapping", "local_sizes",
    "at"];
  const lines = rows.map((row) => names.map((name) => field(row[name])).join(","));
  return [names.join(","), ...lines, ""].join("\r\n");
}

/** @param {unknown} value */
function field(value) {
  if (typeof value === "number") return String(value);
  let text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  // A spreadsheet takes a text that begins so for a formula.
  if (FORMULA.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * @param {string} text
 * @param {string} [classes]
 * @param {string} [title]
 */
function cell(text, classes = "", title = "") {
  return element("td", { class: classes, title: title || false }, text);
}
