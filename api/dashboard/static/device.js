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

/**
 * Say something to the service about this device, then show it anew; what it refuses is shown.
 * @param {HTMLButtonElement} button
 * @param {string} path
 * @param {object | null} body
 */
async function send(button, path, body) {
  button.disabled = true;
  try {
    await fetchJson(`/v1/devices/${about.device}/${path}`, {
      method: "POST",
      headers: body === null ? {} : { "Content-Type": "application/json" },
      body: body === null ? undefined : JSON.stringify(body),
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
}

function installState() {
  const form = document.querySelector("[data-state-form]");
  if (!(form instanceof HTMLFormElement)) return;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const button = /** @type {HTMLButtonElement} */ (event.submitter);
    const reason = new FormData(form).get("reason");
    void send(button, button.value, reason === null ? null : { reason });
  });
}

function installStrikes() {
  for (const button of document.querySelectorAll("[data-lift]")) {
    if (!(button instanceof HTMLButtonElement)) continue;
    button.addEventListener("click", () => {
      void send(button, `strikes/${button.dataset.lift}/lift`, null);
    });
  }
  const form = document.querySelector("[data-strike-form]");
  if (!(form instanceof HTMLFormElement)) return;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = new FormData(form);
    const time = (/** @type {string} */ name) => {
      const text = String(given.get(name) ?? "");
      return text ? new Date(text).toISOString() : null;
    };
    const body = { reason: given.get("reason"), since: time("since"), until: time("until") };
    void send(/** @type {HTMLButtonElement} */ (event.submitter), "strikes", body);
  });
}

installState();
installStrikes();
void showHistory();
document.documentElement.setAttribute("data-complete", "");
