// The answer to "the fastest kernel within so much memory", as the server gives it, too.

import { element } from "./app.js";
import { parsedSize, size, timeMs } from "./formats.js";

/**
 * Show the answer.
 * @param {import("./points.js").Points} points
 * @param {string} budget as typed
 * @returns {number | null} the place of the kernel
 */
export function fillBudget(points, budget) {
  const result = /** @type {HTMLElement} */ (document.getElementById("budget-result"));
  const field = /** @type {HTMLElement} */ (document.getElementById("budget"));
  const front = points.front;
  const smallest = front.length ? size(points.memory[front[front.length - 1]]) : "";
  field.removeAttribute("aria-invalid");
  if (!budget) {
    const largest = front.length ? size(points.memory[front[0]]) : "";
    const text = front.length ? `The front goes from ${smallest} to ${largest}.` : "";
    result.replaceChildren(element("span", { class: "muted" }, text));
    return null;
  }
  const bytes = parsedSize(budget);
  if (bytes === null) {
    field.setAttribute("aria-invalid", "true");
    const allowed = "write 4096, 64 KiB or 1.5 MiB";
    result.replaceChildren(`“${budget}” is no amount of memory: ${allowed}.`);
    return null;
  }
  const place = points.fastestWithin(bytes);
  if (place === null) {
    const least = smallest ? `: the smallest needs ${smallest}` : "";
    result.replaceChildren(`Nothing on the front is that small${least}.`);
    return null;
  }
  const path = `/candidates/${points.candidate[place]}`;
  result.replaceChildren(
    element("a", { class: "button primary", href: path }, "Open the kernel"),
    " ",
    element("strong", {}, timeMs(points.time[place])),
    ` in ${size(points.memory[place])}, ${points.group(place, "variant")}`,
  );
  return place;
}
