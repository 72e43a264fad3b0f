// What is said of a point beside the pointer, or beside the point that has the focus.

import { element } from "./app.js";
import { size, timeMs } from "./formats.js";
import { parametersText } from "./run_table.js";

const DETAILS_MS = 120;

export class Tip {
  /**
   * @param {HTMLElement} root the figure
   * @param {import("./run_table.js").Details} details
   * @param {import("./scatter.js").Scatter} scatter
   */
  constructor(root, details, scatter) {
    this.root = root;
    this.details = details;
    this.scatter = scatter;
    this.place = /** @type {HTMLElement} */ (root.querySelector("[data-tip]"));
    /** @type {number | undefined} */
    this.timer = undefined;
  }

  /**
   * @param {import("./points.js").Points} points
   * @param {number | null} place of the point; null hides it
   */
  show(points, place) {
    clearTimeout(this.timer);
    this.place.hidden = place === null || Number.isNaN(this.scatter.px[place]);
    if (place === null || this.place.hidden) return;
    this.fill(points, place);
    this.timer = setTimeout(async () => {
      await this.details.of([points.id[place]]);
      if (!this.place.hidden) this.fill(points, place);
    }, DETAILS_MS);
  }

  /**
   * @param {import("./points.js").Points} points
   * @param {number} place
   */
  fill(points, place) {
    const detail = this.details.known.get(points.id[place]);
    const list = element("dl");
    /** @type {(name: string, value: string) => void} */
    const fact = (name, value) => {
      if (value) list.append(element("dt", {}, name), element("dd", {}, value));
    };
    fact("time", timeMs(points.time[place]));
    if (detail) {
      fact("95 %", `${timeMs(detail.low_ms)} – ${timeMs(detail.high_ms)}`);
      fact("spread", `${(detail.spread * 100).toFixed(1)} % of ${detail.trials} trials`);
    }
    fact("memory", size(points.memory[place]));
    fact("variant", points.group(place, "variant"));
    fact("device", points.group(place, "device"));
    if (detail) {
      const error = detail.error;
      fact("clocks", detail.clocks);
      fact("correct", error === null ? "yes" : `yes, relative error ${error.toExponential(1)}`);
      fact("parameters", parametersText(detail));
      fact("work-groups", detail.local_sizes);
    }
    const name = points.candidate[place].slice(0, 10);
    this.place.replaceChildren(element("strong", { class: "mono" }, name), list);
    const [x, y] = [this.scatter.px[place], this.scatter.py[place]];
    const [width, height] = [this.root.clientWidth, this.root.clientHeight];
    const wide = this.place.offsetWidth;
    const left = x + 16 + wide > width ? Math.max(0, x - 16 - wide) : x + 16;
    this.place.style.left = `${left}px`;
    this.place.style.top = `${Math.max(0, Math.min(y - 20, height - this.place.offsetHeight))}px`;
  }
}
