// A device's page: readings over time, and taking it out of work and back.

import { fetchJson, pageData } from "./app.js";
import { figure, look, savePng, seriesColour, tooltip } from "./charts.js";
import { trimmed } from "./formats.js";

/** @typedef {{name: string, unit: string, values: (number | null)[]}} Reading */

const about = pageData("page-data");
const ROW = 92;

/**
 * Ticks of one figure have as many decimals as each other: `22.0` beside `22.2`.
 * @param {Reading} reading
 */
function tickText(reading) {
  const values = reading.values.filter((value) => value !== null);
  const span = Math.max(...values) - Math.min(...values);
  const decimals = span > 0 ? Math.max(0, Math.ceil(-Math.log10(span / 2))) : 2;
  return (/** @type {number} */ value) =>
    span > 0 ? value.toFixed(decimals) : trimmed(value.toFixed(decimals));
}

/** @returns {object} a small figure for each reading, below one another, on one axis of time */
function option() {
  const { axis, ink } = look();
  /** @type {Reading[]} */
  const readings = about.history.readings;
  const at = about.history.at.map((/** @type {string} */ text) => Date.parse(text));
  const last = readings.length - 1;
  return {
    title: readings.map((one, row) => ({
      text: one.unit ? `${one.name} in ${one.unit}` : one.name,
      left: 54, top: row * ROW + 2, textStyle: { color: ink, fontSize: 12, fontWeight: 500 },
    })),
    grid: readings.map((_, row) => ({ left: 56, right: 14, top: row * ROW + 24, height: ROW - 40 })),
    xAxis: readings.map((_, row) => ({
      type: "time", gridIndex: row, ...axis, splitLine: { show: false },
      axisLabel: { ...axis.axisLabel, show: row === last, hideOverlap: true },
    })),
    yAxis: readings.map((one, row) => ({
      type: "value", gridIndex: row, ...axis, scale: true, splitNumber: 2,
      axisLabel: { ...axis.axisLabel, hideOverlap: true, formatter: tickText(one) },
    })),
    axisPointer: { link: [{ xAxisIndex: "all" }] },
    tooltip: {
      trigger: "axis",
      className: "chart-tip",
      formatter: (/** @type {any[]} */ found) =>
        tooltip(new Date(found[0].value[0]).toLocaleString(), found.map((one) => [
          one.seriesName, one.value[1] === null ? "–" : trimmed(Number(one.value[1]).toFixed(2)),
        ])),
    },
    series: readings.map((one, row) => ({
      name: one.name, type: "line", xAxisIndex: row, yAxisIndex: row, showSymbol: at.length < 50,
      symbolSize: 4, connectNulls: false, lineStyle: { color: seriesColour(row), width: 1.6 },
      itemStyle: { color: seriesColour(row) },
      data: one.values.map((value, place) => [at[place], value]),
    })),
  };
}

async function showHistory() {
  const place = document.querySelector("[data-history]");
  if (!(place instanceof HTMLElement)) return;
  place.style.height = `${about.history.readings.length * ROW + 12}px`;
  await figure(place, option);
  document.querySelector("[data-save-history]")?.addEventListener("click", () => {
    const canvas = place.querySelector("canvas");
    if (canvas) savePng(`history-${about.device}.png`, [canvas]);
  });
}

function installState() {
  const form = document.querySelector("[data-state-form]");
  if (!(form instanceof HTMLFormElement)) return;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = /** @type {HTMLButtonElement} */ (event.submitter);
    const reason = new FormData(form).get("reason");
    button.disabled = true;
    try {
      await fetchJson(`/v1/devices/${about.device}/${button.value}`, {
        method: "POST",
        headers: reason === null ? {} : { "Content-Type": "application/json" },
        body: reason === null ? undefined : JSON.stringify({ reason }),
      });
      location.reload();
    } catch (error) {
      const place = document.querySelector("[data-error]");
      if (place) {
        place.textContent = /** @type {Error} */ (error).message;
        place.removeAttribute("hidden");
      }
      button.disabled = false;
    }
  });
}

installState();
void showHistory();
document.documentElement.setAttribute("data-complete", "");
