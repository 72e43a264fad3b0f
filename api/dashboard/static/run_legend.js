// Variants or devices with their colours: a button each, which shows or hides its kernels.

import { element } from "./app.js";
import { seriesColour } from "./charts.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string[]} groups in the order of their colours
 * @param {string[]} hidden
 * @param {(hidden: string[]) => void} changed
 */
export function showLegend(groups, hidden, changed) {
  const legend = /** @type {HTMLElement} */ (document.querySelector("[data-legend]"));
  const buttons = groups.map((name, number) =>
    element("button", {
      type: "button",
      "aria-pressed": String(!hidden.includes(name)),
      onclick: () => {
        const others = hidden.filter((other) => other !== name);
        changed(hidden.includes(name) ? others : [...hidden, name]);
        // The legend was made anew: whoever walks with keys stays where they are.
        legend.querySelectorAll("button")[number]?.focus();
      },
    }, mark(number), name),
  );
  legend.replaceChildren(...buttons);
}

/** @param {number} number */
function mark(number) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 10 10");
  drawing.setAttribute("aria-hidden", "true");
  const square = document.createElementNS(SVG, "rect");
  square.setAttribute("width", "10");
  square.setAttribute("height", "10");
  square.setAttribute("fill", seriesColour(number));
  drawing.append(square);
  return drawing;
}
