// Kernels of the front, and the baselines, below the roofs of their device, in a figure and a table.

import { element, fetchJson } from "./app.js";
import { colour, figure, look, savePng, tooltip } from "./charts.js";
import { significant, size, timeMs, trimmed } from "./formats.js";

const PREFIXES = ["", "k", "M", "G", "T", "P"];

/**
 * @param {number} value
 * @param {string} unit
 */
function rate(value, unit) {
  let power = 0;
  while (value >= 1000 && power < PREFIXES.length - 1) {
    value /= 1000;
    power += 1;
  }
  return `${significant(value)}\u202f${PREFIXES[power]}${unit}`;
}

/** @param {string} run */
export function installRoofline(run) {
  const button = document.querySelector("[data-roofline]");
  const place = document.querySelector("[data-roofline-figure]");
  const note = document.querySelector("[data-roofline-note]");
  const save = document.querySelector("[data-save-roofline]");
  if (!(button instanceof HTMLButtonElement) || !(place instanceof HTMLElement) || !note) return;
  button.addEventListener("click", async () => {
    button.disabled = true;
    note.textContent = "A solver process fits the cost model to measured kernels …";
    try {
      const found = await fetchJson(`/dashboard/runs/${run}/roofline`);
      place.hidden = false;
      await figure(place, () => option(found));
      fillTable(found);
      note.textContent = explained(found);
      save?.removeAttribute("hidden");
      document.querySelector("[data-save-rates]")?.removeAttribute("hidden");
    } catch (error) {
      note.textContent = `The roofs could not be had: ${/** @type {Error} */ (error).message}`;
      button.disabled = false;
    }
  });
  save?.addEventListener("click", () => {
    const canvas = place.querySelector("canvas");
    if (canvas) savePng(`roofline-${run}.png`, [canvas]);
  });
}

/** @param {any} found */
function explained(found) {
  const roofs = [
    found.operations_per_s && `${rate(found.operations_per_s, "FLOP/s")} of arithmetic`,
    found.bytes_per_s && `${rate(found.bytes_per_s, "B/s")} of memory`,
  ].filter(Boolean);
  const units = `${found.compute_units} compute unit${found.compute_units === 1 ? "" : "s"}`;
  const fit = found.fitted
    ? `fitted to ${found.fitted} kernels of this run, median error ${(found.median_error * 100).toFixed(0)} %`
    : "of no device in particular: too few kernels are measured for a fit";
  return `${roofs.join(", ") || "No roof is known"} on ${units}, ${fit}. Intensity counts each allocated byte once, so that kernels really stand further to the left.`;
}

/** @param {any} found */
function option(found) {
  const { axis, ink } = look();
  /** @type {(point: any) => string} */
  const groupOf = (point) => (point.baseline ? `${point.variant}, baseline` : point.variant);
  const groups = [...new Set(found.points.map(groupOf))].sort();
  const per = found.points.map((/** @type {any} */ p) => p.per_byte);
  const ridge = found.operations_per_s && found.bytes_per_s ? found.operations_per_s / found.bytes_per_s : null;
  const left = Math.min(...per, ridge ?? Infinity) / 3;
  const right = Math.max(...per, ridge ?? 0) * 3;
  /** @type {(x: number) => number} */
  const roof = (x) => Math.min(found.operations_per_s ?? Infinity, x * (found.bytes_per_s ?? Infinity));
  const stairs = [left, ...(ridge ? [ridge] : []), right].map((x) => [x, roof(x)]).filter(([, y]) => Number.isFinite(y));
  const rates = found.points.map((/** @type {any} */ p) => p.per_s);
  const heights = [...rates, ...stairs.map(([, y]) => y)];
  return {
    grid: { left: 92, right: 20, top: 34, bottom: 44 },
    legend: { top: 0, textStyle: { color: ink }, data: [...groups, ...(stairs.length ? ["roofs"] : [])] },
    xAxis: { type: "log", min: left, max: right, ...axis, splitLine: { show: false }, name: "operations per allocated byte", nameLocation: "middle", nameGap: 28, axisLabel: { ...axis.axisLabel, formatter: (/** @type {number} */ v) => trimmed(significant(v)) } },
    yAxis: { type: "log", min: Math.min(...heights) / 2, max: Math.max(...heights) * 2, ...axis, axisLabel: { ...axis.axisLabel, formatter: (/** @type {number} */ v) => trimmed(rate(v, "FLOP/s")) } },
    tooltip: {
      className: "chart-tip",
      formatter: (/** @type {any} */ at) =>
        at.data.point
          ? tooltip(at.data.point.candidate.slice(0, 10), [["time", timeMs(at.data.point.time_ms)], ["memory", size(at.data.point.memory_bytes)], ["rate", rate(at.data.point.per_s, "FLOP/s")]])
          : tooltip("roof", [["rate", rate(at.data[1], "FLOP/s")]]),
    },
    series: [
      { name: "roofs", type: "line", data: stairs, showSymbol: false, lineStyle: { color: ink, width: 2 }, itemStyle: { color: ink } },
      ...groups.map((name, number) => ({
        name, type: "scatter", symbolSize: 9, symbol: name.endsWith(", baseline") ? "diamond" : "circle", itemStyle: { color: colour(`--series-${(number % 7) + 1}`) },
        data: found.points.filter((/** @type {any} */ p) => groupOf(p) === name).map((/** @type {any} */ p) => ({ value: [p.per_byte, p.per_s], point: p })),
      })),
    ],
  };
}

/** @param {any} found */
function fillTable(found) {
  const place = document.querySelector("[data-roofline-table]");
  if (!(place instanceof HTMLElement)) return;
  const head = ["Kernel", "Variant", "Rate", "Operations per byte", "Of the roof"].map((text, number) =>
    element("th", { scope: "col", class: number > 1 ? "number" : "" }, text));
  const rows = found.points.map((/** @type {any} */ point) => {
    const roof = Math.min(found.operations_per_s ?? Infinity, point.per_byte * (found.bytes_per_s ?? Infinity));
    const share = Number.isFinite(roof) ? `${((point.per_s / roof) * 100).toFixed(0)} %` : "–";
    return element("tr", {},
      element("th", { scope: "row", "data-value": point.candidate }, element("a", { class: "mono", href: `/candidates/${point.candidate}` }, point.candidate.slice(0, 10))),
      element("td", {}, point.baseline ? `${point.variant}, baseline` : point.variant),
      element("td", { class: "number", "data-value": String(point.per_s) }, rate(point.per_s, "FLOP/s")),
      element("td", { class: "number", "data-value": String(point.per_byte) }, significant(point.per_byte)),
      element("td", { class: "number" }, share));
  });
  place.replaceChildren(element("table", { id: "roofline-table" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)));
  place.hidden = false;
}
