// Parameters of kernels as parallel coordinates: a line each, the front strong.

import { fetchJson } from "./app.js";
import { colour, figure, look, savePng } from "./charts.js";
import { count, size, timeMs, trimmed } from "./formats.js";

/** @typedef {import("./points.js").Points} Points */

const MOST_AXES = 10;
const ROOM = 62;

export class Parallel {
  /**
   * @param {string} run
   * @param {() => Points} points
   * @param {(ids: number[] | null) => void} kept lines that pass through all brushed spans
   */
  constructor(run, points, kept) {
    this.run = run;
    this.points = points;
    this.kept = kept;
    this.place = /** @type {HTMLElement} */ (document.querySelector("[data-parallel]"));
    this.note = /** @type {HTMLElement} */ (document.querySelector("[data-parallel-note]"));
    /** @type {{id: number[], axes: {name: string, values: (number | string | null)[]}[]} | null} */
    this.found = null;
    /** @type {{chart: any, draw: () => void} | null} */
    this.figure = null;
    document.querySelector("[data-save-parallel]")?.addEventListener("click", () => {
      const canvas = this.place.querySelector("canvas");
      if (canvas) savePng(`parameters-${run}.png`, [canvas]);
    });
  }

  async refresh() {
    this.found = await fetchJson(`/dashboard/runs/${this.run}/axes`);
    if (!this.found?.id.length) {
      this.note.textContent = "no kernel has been timed yet";
      return;
    }
    if (this.figure) {
      this.figure.draw();
      return;
    }
    this.figure = await figure(this.place, () => this.option());
    this.figure.chart.on("axisareaselected", () => {
      const model = this.figure?.chart.getModel();
      const everything = [];
      let narrowed = false;
      for (const series of model.getSeries()) {
        const active = series.getRawIndicesByActiveState("active");
        // Where no span is brushed every line is neither.
        narrowed ||= active.length > 0 || series.getRawIndicesByActiveState("inactive").length > 0;
        for (const index of active) everything.push(series.option.data[index]?.id ?? null);
      }
      this.kept(narrowed ? everything.filter((id) => id !== null) : null);
    });
  }

  /** The axes that vary most come first: there is room for ten. */
  chosen() {
    const axes = this.found?.axes ?? [];
    const distinct = (/** @type {{values: unknown[]}} */ axis) => new Set(axis.values).size;
    return [...axes].sort((a, b) => distinct(b) - distinct(a)).slice(0, MOST_AXES);
  }

  option() {
    const { axis, ink } = look();
    const points = this.points();
    const axes = this.chosen();
    const all = this.found?.axes.length ?? 0;
    const lines = (this.found?.id ?? []).flatMap((id, row) => {
      const place = points.place.get(id);
      return place === undefined ? [] : [{ id, row, place }];
    });
    this.note.textContent =
      `${count(lines.length)} of ${count(points.total)} kernels` +
      (all > axes.length ? `, ${axes.length} of ${all} parameters` : "");
    const front = new Set(points.front);
    /** @type {(line: {id: number, row: number, place: number}) => object} */
    const item = (line) => ({
      id: line.id,
      value: [
        points.group(line.place, "variant"),
        ...axes.map((one) => one.values[line.row] ?? NaN),
        points.memory[line.place],
        points.time[line.place],
      ],
    });
    const variants = points.groups("variant");
    const drawn = axes.map((one, number) => ({ dim: number + 1, name: one.name, ...typed(one.values) }));
    const last = axes.length + 1;
    const widths = ROOM * (axes.length + 3);
    this.place.style.minWidth = `${Math.min(widths, 1400)}px`;
    return {
      parallel: {
        left: 70, right: 76, top: 42, bottom: 22,
        parallelAxisDefault: {
          ...axis,
          nameTextStyle: { color: ink, fontSize: 12 },
          nameGap: 16,
          axisLabel: { ...axis.axisLabel, hideOverlap: true, fontSize: 11 },
          areaSelectStyle: { width: 18, borderWidth: 1, borderColor: colour("--accent"), color: colour("--accent"), opacity: 0.25 },
        },
      },
      parallelAxis: [
        { dim: 0, name: "variant", type: "category", data: variants },
        ...drawn,
        { dim: last, name: "memory", type: "log", logBase: 2, axisLabel: { ...axis.axisLabel, formatter: (/** @type {number} */ v) => trimmed(size(v)) } },
        { dim: last + 1, name: "time", type: "log", axisLabel: { ...axis.axisLabel, formatter: (/** @type {number} */ v) => trimmed(timeMs(v)) } },
      ],
      series: [
        {
          type: "parallel", smooth: false, data: lines.filter((line) => !front.has(line.place)).map(item),
          lineStyle: { color: colour("--series-1"), width: 1, opacity: lines.length > 300 ? 0.12 : 0.3 },
          inactiveOpacity: 0.02, activeOpacity: 0.7,
        },
        {
          type: "parallel", smooth: false, data: lines.filter((line) => front.has(line.place)).map(item),
          lineStyle: { color: colour("--series-2"), width: 2.2, opacity: 0.9 },
          inactiveOpacity: 0.08, activeOpacity: 1,
        },
      ],
    };
  }
}

/** @param {(number | string | null)[]} values */
function typed(values) {
  const known = values.filter((value) => value !== null);
  if (known.every((value) => typeof value === "number")) return { type: "value", scale: true };
  return { type: "category", data: [...new Set(known.map(String))].sort() };
}
