// How a search got better: the best time and the hypervolume after each outcome, as Figure 5 of
// "Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22) draws it.

import { element, fetchJson, showTimes } from "./app.js";
import { colour, figure, look, savePng, tooltip } from "./charts.js";
import { count, seconds, timeMs, trimmed } from "./formats.js";

/**
 * @typedef {{number: number, at: string, time_ms: number, memory_bytes: number}} Step
 * @typedef {{number: number, at: string, hypervolume: number}} Volume
 * @typedef {{improvements: Step[], hypervolume: Volume[]}} Series
 */

/** Steps that the table of the hypervolume lists, the last ones of more. */
const MOST_LISTED = 500;

export class Curves {
  /**
   * @param {string} run
   * @param {() => {measured: number, begun: number}} progress outcomes so far; ms since 1970
   */
  constructor(run, progress) {
    this.run = run;
    this.progress = progress;
    this.over = "number";
    /** @type {Series | null} */
    this.series = null;
    /** @type {Record<string, {chart: any, draw: () => void}>} */
    this.figures = {};
    for (const button of document.querySelectorAll("[data-over]")) {
      button.addEventListener("click", () => this.change(button.getAttribute("data-over") ?? ""));
    }
    for (const button of document.querySelectorAll("[data-save-curves]")) {
      button.addEventListener("click", () => {
        const name = button.getAttribute("data-save-curves") ?? "";
        const canvas = document.querySelector(`[data-curve="${name}"] canvas`);
        if (canvas instanceof HTMLCanvasElement) savePng(`${name}-${run}.png`, [canvas]);
      });
    }
  }

  /** @param {string} over */
  change(over) {
    this.over = over;
    for (const button of document.querySelectorAll("[data-over]")) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-over") === over));
    }
    this.draw();
  }

  async refresh() {
    this.series = await fetchJson(`/v1/runs/${this.run}/series`);
    for (const name of ["best", "volume"]) {
      const place = document.querySelector(`[data-curve="${name}"]`);
      if (place instanceof HTMLElement && !this.figures[name]) {
        this.figures[name] = await figure(place, () => this.option(name));
      }
    }
    this.draw();
    this.list();
  }

  /** The hypervolume as a table; the server has written that of the best time. */
  list() {
    const place = document.querySelector("[data-volumes]");
    const steps = this.series?.hypervolume ?? [];
    const last = steps[steps.length - 1]?.hypervolume || 1;
    if (!(place instanceof HTMLElement)) return;
    place.hidden = steps.length === 0;
    place.querySelector("summary")?.replaceChildren(`${count(steps.length)} steps of the hypervolume`);
    place.querySelector("tbody")?.replaceChildren(...steps.slice(-MOST_LISTED).map((step) =>
      element("tr", {},
        element("td", { class: "number" }, count(step.number)),
        element("td", { class: "number" }, `${(100 * step.hypervolume / last).toFixed(1)}\u202f%`),
        element("td", { class: "nowrap" }, element("time", { datetime: step.at })))));
    showTimes(place);
  }

  draw() {
    for (const made of Object.values(this.figures)) made.draw();
  }

  /** @param {string} name */
  option(name) {
    const { axis } = look();
    const best = name === "best";
    const ink = colour(best ? "--series-1" : "--series-3");
    const rows = this.rows(best);
    const most = best ? 1 : Math.max(...rows.map(([, value]) => value), 1e-30);
    const data = best ? rows : rows.map(([at, value]) => [at, value / most]);
    const overTime = this.over === "time";
    return {
      grid: { left: 64, right: 16, top: 14, bottom: 40 },
      xAxis: {
        type: "value",
        ...axis,
        name: overTime ? "since the run began" : "outcomes of any kind",
        nameLocation: "middle",
        nameGap: 26,
        axisLabel: { ...axis.axisLabel, hideOverlap: true, formatter: (/** @type {number} */ v) => (overTime ? seconds(v) : count(v)) },
        splitLine: { show: false },
      },
      yAxis: {
        ...axis,
        ...(best ? bounds(rows.map(([, value]) => value)) : { type: "value", min: 0, max: 1 }),
        axisLabel: { ...axis.axisLabel, formatter: (/** @type {number} */ v) => (best ? trimmed(timeMs(v)) : `${Math.round(v * 100)} %`) },
      },
      tooltip: {
        trigger: "axis",
        className: "chart-tip",
        axisPointer: { lineStyle: { color: axis.axisLine.lineStyle.color } },
        formatter: (/** @type {any[]} */ found) => {
          const [at, value] = found[0].data;
          return tooltip(overTime ? seconds(at) : `outcome ${count(at)}`,
            [[best ? "best" : "share of the last", best ? timeMs(value) : `${(value * 100).toFixed(1)} %`]]);
        },
      },
      series: [
        {
          type: "line",
          step: "end",
          data,
          showSymbol: data.length < 60,
          symbolSize: 5,
          lineStyle: { color: ink, width: 2 },
          itemStyle: { color: ink },
        },
      ],
    };
  }

  /**
   * @param {boolean} best
   * @returns {[number, number][]} with the last value drawn to where the run is now
   */
  rows(best) {
    if (!this.series) return [];
    const { measured, begun } = this.progress();
    const overTime = this.over === "time";
    /** @type {(found: {number: number, at: string}) => number} */
    const at = (found) => (overTime ? Math.max(0, (Date.parse(found.at) - begun) / 1000) : found.number);
    const rows = best
      ? this.series.improvements.map((found) => /** @type {[number, number]} */ ([at(found), found.time_ms]))
      : this.series.hypervolume.map((found) => /** @type {[number, number]} */ ([at(found), found.hypervolume]));
    const last = rows[rows.length - 1];
    if (last && !overTime && measured > last[0]) rows.push([measured, last[1]]);
    return rows;
  }
}

/**
 * An axis that holds times: logarithmic where they differ by an order of magnitude.
 * @param {number[]} values
 */
function bounds(values) {
  if (!values.length) return { type: "value" };
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (most / least >= 10) return { type: "log", min: least / 1.3, max: most * 1.3 };
  return { type: "value", scale: true };
}
