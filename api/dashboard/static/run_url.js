// What a reader has chosen on the page of a run, in its URL: a link shows the same.

import { parsedSize } from "./formats.js";

/** @typedef {import("./scatter.js").Area} Area */

/**
 * @typedef {object} Choices
 * @property {string} budget as typed
 * @property {boolean} logX
 * @property {boolean} logY
 * @property {"variant" | "device"} colour
 * @property {string[]} hidden variants or devices that are not shown
 * @property {string} where
 * @property {Area | null} brush
 * @property {Area | null} zoom
 * @property {string | null} at the candidate in focus
 * @property {string[]} pins candidates
 */

const MOST_PINS = 4;
const HASH = /^[0-9a-f]{64}$/;

/**
 * @param {string} search of a location
 * @returns {Choices}
 */
export function choicesOf(search) {
  const given = new URLSearchParams(search);
  const at = given.get("at");
  return {
    budget: given.get("budget") ?? "",
    logX: given.get("x") !== "linear",
    logY: given.get("y") !== "linear",
    colour: given.get("colour") === "device" ? "device" : "variant",
    hidden: given.getAll("hide"),
    where: given.get("where") ?? "",
    brush: areaOf(given.get("brush")),
    zoom: areaOf(given.get("zoom")),
    at: at && HASH.test(at) ? at : null,
    pins: given.getAll("pin").filter((one) => HASH.test(one)).slice(0, MOST_PINS),
  };
}

/**
 * @param {Choices} choices
 * @returns {string} with its question mark, or nothing where all is as it comes
 */
export function searchOf(choices) {
  const made = new URLSearchParams();
  if (choices.budget) made.set("budget", choices.budget);
  if (!choices.logX) made.set("x", "linear");
  if (!choices.logY) made.set("y", "linear");
  if (choices.colour !== "variant") made.set("colour", choices.colour);
  for (const name of choices.hidden) made.append("hide", name);
  if (choices.where) made.set("where", choices.where);
  if (choices.brush) made.set("brush", areaText(choices.brush));
  if (choices.zoom) made.set("zoom", areaText(choices.zoom));
  if (choices.at) made.set("at", choices.at);
  for (const pin of choices.pins) made.append("pin", pin);
  const text = made.toString();
  return text ? `?${text}` : "";
}

/** @param {Choices} choices */
export function budgetOf(choices) {
  return choices.budget ? parsedSize(choices.budget) : null;
}

/**
 * @param {string | null} text
 * @returns {Area | null}
 */
function areaOf(text) {
  const values = (text ?? "").split(",").map(Number);
  if (text === null || values.length !== 4 || !values.every(Number.isFinite)) return null;
  const [left, right, bottom, top] = values;
  return left < right && bottom < top ? { x: [left, right], y: [bottom, top] } : null;
}

/** @param {Area} area */
function areaText(area) {
  return [...area.x, ...area.y].map((value) => Number(value.toPrecision(6))).join(",");
}
