// Time and memory of kernels on three canvases: the cloud of all points, the frame with axes and
// the front, and what follows the pointer. Drawn by hand: a brush over 20,000 points touches only
// the topmost one.

import { colour, seriesColour } from "./charts.js";
import { size, timeMs, trimmed } from "./formats.js";
import { ticks, toPixel, toValue, withRoom } from "./scales.js";

/** @typedef {import("./points.js").Points} Points */
/** @typedef {import("./scales.js").Scale} Scale */
/** @typedef {{x: [number, number], y: [number, number]}} Area in ms and bytes */

const MARGIN = { left: 76, right: 14, top: 10, bottom: 42 };
const NEAR = 14;
const CLICK = 4;

/**
 * @typedef {object} Shown
 * @property {Points} points
 * @property {(place: number) => boolean} visible
 * @property {(place: number) => number} colourOf the number of its colour
 * @property {Map<number, {low_ms: number, high_ms: number}>} intervals of ids
 * @property {boolean} logX
 * @property {boolean} logY
 * @property {Area | null} zoom
 * @property {number | null} budget bytes
 * @property {Set<string>} pins candidates
 */

export class Scatter {
  /**
   * @param {HTMLElement} root
   * @param {object} told
   * @param {(area: Area | null, done: boolean) => void} told.brushed
   * @param {(place: number | null) => void} told.hovered
   * @param {(place: number) => void} told.clicked
   */
  constructor(root, told) {
    this.root = root;
    this.told = told;
    const canvas = (/** @type {string} */ name) =>
      /** @type {HTMLCanvasElement} */ (root.querySelector(`canvas[${name}]`));
    this.cloud = canvas("data-cloud");
    this.overlay = canvas("data-overlay");
    this.frame = document.createElement("canvas");
    root.querySelector("[data-axes]")?.append(this.frame);
    /** @type {Shown | null} */
    this.shown = null;
    /** @type {Scale} */
    this.x = { log: true, least: 1, most: 10, start: 0, end: 1 };
    /** @type {Scale} */
    this.y = { log: true, least: 1, most: 10, start: 1, end: 0 };
    this.px = new Float32Array(0);
    this.py = new Float32Array(0);
    /** @type {number[] | null} places within the brush */
    this.selected = null;
    /** @type {Area | null} */
    this.brush = null;
    /** @type {number | null} */
    this.focused = null;
    /** @type {number | null} */
    this.hovered = null;
    /** @type {string[]} */
    this.colours = [];
    this.accent = "";
    this.queued = false;
    this.brushMoved = false;
    this.listen();
    new ResizeObserver(() => this.draw()).observe(root);
    document.addEventListener("nestmap:theme", () => this.draw());
  }

  /** @param {Shown} shown */
  show(shown) {
    this.shown = shown;
    this.draw();
  }

  /** Everything anew: for other data, scales, sizes and themes. */
  draw() {
    const shown = this.shown;
    if (!shown) return;
    const width = this.root.clientWidth;
    const height = this.root.clientHeight;
    if (!width || !height) return;
    for (const canvas of [this.cloud, this.frame, this.overlay]) fit(canvas, width, height);
    this.x.log = shown.logX;
    this.y.log = shown.logY;
    [this.x.start, this.x.end] = [MARGIN.left, width - MARGIN.right];
    [this.y.start, this.y.end] = [height - MARGIN.bottom, MARGIN.top];
    const area = shown.zoom ?? this.extent();
    [this.x.least, this.x.most] = area.x;
    [this.y.least, this.y.most] = area.y;
    const most = shown.points.studies.length;
    this.colours = Array.from({ length: Math.min(7, Math.max(1, most)) }, (_, n) => seriesColour(n));
    this.accent = colour("--accent");
    this.place();
    this.drawCloud();
    this.drawFrame();
    this.select(this.brush);
    this.drawOverlay();
  }

  /** @returns {Area} what holds all visible points */
  extent() {
    const { points, visible, logX, logY } = /** @type {Shown} */ (this.shown);
    let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let place = 0; place < points.length; place += 1) {
      if (!visible(place)) continue;
      const [time, memory] = [points.time[place], points.memory[place]];
      if (time < left) left = time;
      if (time > right) right = time;
      if (memory < bottom) bottom = memory;
      if (memory > top) top = memory;
    }
    return { x: withRoom(left, right, logX), y: withRoom(bottom, top, logY) };
  }

  /** Pixels of all points; those that are not shown lie nowhere. */
  place() {
    const { points, visible } = /** @type {Shown} */ (this.shown);
    if (this.px.length < points.length) {
      this.px = new Float32Array(points.length * 2);
      this.py = new Float32Array(points.length * 2);
    }
    for (let place = 0; place < points.length; place += 1) {
      const seen = visible(place);
      this.px[place] = seen ? toPixel(this.x, points.time[place]) : NaN;
      this.py[place] = seen ? toPixel(this.y, points.memory[place]) : NaN;
    }
  }

  drawCloud() {
    const { points, colourOf } = /** @type {Shown} */ (this.shown);
    const context = cleared(this.cloud);
    this.clip(context);
    context.globalAlpha = this.brush ? 0.16 : points.length > 4000 ? 0.4 : 0.62;
    const side = points.length > 4000 ? 3 : 5;
    const groups = new Map();
    for (let place = 0; place < points.length; place += 1) {
      if (Number.isNaN(this.px[place])) continue;
      const group = colourOf(place);
      const listed = groups.get(group);
      if (listed) listed.push(place);
      else groups.set(group, [place]);
    }
    for (const [group, places] of groups) {
      context.fillStyle = seriesColour(group);
      for (const place of places) {
        context.fillRect(this.px[place] - side / 2, this.py[place] - side / 2, side, side);
      }
    }
    context.restore();
  }

  drawFrame() {
    const shown = /** @type {Shown} */ (this.shown);
    const context = cleared(this.frame);
    const font = getComputedStyle(document.body).fontFamily;
    const [left, right, bottom, top] = [this.x.start, this.x.end, this.y.start, this.y.end];
    context.font = `12px ${font}`;
    context.lineWidth = 1;
    context.textBaseline = "top";
    context.textAlign = "center";
    const [line, muted] = [colour("--line"), colour("--muted")];
    for (const value of ticks(this.x, Math.floor((right - left) / 72), "time")) {
      const at = Math.round(toPixel(this.x, value)) + 0.5;
      stroke(context, line, [[at, bottom], [at, top]]);
      context.fillStyle = muted;
      context.fillText(trimmed(timeMs(value)), Math.min(Math.max(at, left + 16), right - 20), bottom + 6);
    }
    context.fillText("time, median of the trials", (left + right) / 2, bottom + 24);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const value of ticks(this.y, Math.floor((bottom - top) / 36), "bytes")) {
      const at = Math.round(toPixel(this.y, value)) + 0.5;
      stroke(context, line, [[left, at], [right, at]]);
      context.fillStyle = muted;
      context.fillText(trimmed(size(value)), left - 8, at);
    }
    context.save();
    context.translate(11, (top + bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText("memory allocated", 0, 0);
    context.restore();
    stroke(context, colour("--strong-line"), [[left + 0.5, top], [left + 0.5, bottom], [right, bottom]]);
    this.clip(context);
    if (shown.budget !== null) {
      const at = toPixel(this.y, shown.budget);
      context.setLineDash([6, 4]);
      stroke(context, colour("--warn"), [[left, at], [right, at]]);
      context.setLineDash([]);
      context.fillStyle = colour("--warn");
      context.textAlign = "right";
      context.textBaseline = "bottom";
      context.fillText(`at most ${size(shown.budget)}`, right - 6, at - 3);
    }
    this.drawFront(context);
    context.restore();
  }

  /** @param {CanvasRenderingContext2D} context */
  drawFront(context) {
    const { points, visible, colourOf, intervals } = /** @type {Shown} */ (this.shown);
    const front = points.front.filter(visible);
    if (!front.length) return;
    const ink = colour("--ink");
    context.lineWidth = 1.6;
    /** @type {[number, number][]} */
    const steps = [[this.px[front[0]], Math.min(this.y.end, this.py[front[0]])]];
    for (const place of front) {
      steps.push([this.px[place], steps[steps.length - 1][1]], [this.px[place], this.py[place]]);
    }
    steps.push([this.x.end, steps[steps.length - 1][1]]);
    context.globalAlpha = 0.75;
    stroke(context, ink, steps);
    context.globalAlpha = 1;
    for (const place of front) {
      const [x, y] = [this.px[place], this.py[place]];
      const interval = intervals.get(points.id[place]);
      if (interval) {
        const [low, high] = [toPixel(this.x, interval.low_ms), toPixel(this.x, interval.high_ms)];
        context.lineWidth = 1.4;
        stroke(context, ink, [[low, y], [high, y]]);
        for (const end of [low, high]) stroke(context, ink, [[end, y - 4], [end, y + 4]]);
      }
      context.fillStyle = seriesColour(colourOf(place));
      context.strokeStyle = colour("--surface");
      context.lineWidth = 1.5;
      context.beginPath();
      context.arc(x, y, 5, 0, 7);
      context.fill();
      context.stroke();
    }
  }

  drawOverlay() {
    const { points, colourOf, pins } = /** @type {Shown} */ (this.shown);
    const context = cleared(this.overlay);
    this.clip(context);
    if (this.selected && this.brush) {
      const side = this.selected.length > 4000 ? 3 : 5;
      // A colour at a time: to set one costs more than to draw a point.
      this.colours.forEach((name, number) => {
        context.fillStyle = name;
        for (const place of /** @type {number[]} */ (this.selected)) {
          if (colourOf(place) % this.colours.length !== number) continue;
          context.fillRect(this.px[place] - side / 2, this.py[place] - side / 2, side, side);
        }
      });
      const [x0, x1] = this.brush.x.map((value) => toPixel(this.x, value));
      const [y1, y0] = this.brush.y.map((value) => toPixel(this.y, value));
      context.strokeStyle = this.accent;
      context.lineWidth = 1.5;
      context.strokeRect(x0, y0, x1 - x0, y1 - y0);
      context.globalAlpha = 0.08;
      context.fillStyle = this.accent;
      context.fillRect(x0, y0, x1 - x0, y1 - y0);
      context.globalAlpha = 1;
    }
    for (let place = 0; pins.size && place < points.length; place += 1) {
      if (pins.has(points.candidate[place])) this.ring(context, place, 8, "--good");
    }
    if (this.focused !== null) this.ring(context, this.focused, 10, "--accent");
    if (this.hovered !== null && this.hovered !== this.focused) {
      this.ring(context, this.hovered, 8, "--muted");
    }
    context.restore();
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} place
   * @param {number} radius
   * @param {string} name of a colour
   */
  ring(context, place, radius, name) {
    context.strokeStyle = colour(name);
    context.lineWidth = 2.5;
    context.beginPath();
    context.arc(this.px[place], this.py[place], radius, 0, 7);
    context.stroke();
  }

  /** @param {CanvasRenderingContext2D} context to be restored */
  clip(context) {
    context.save();
    context.beginPath();
    context.rect(this.x.start, this.y.end - 4, this.x.end - this.x.start, this.y.start - this.y.end + 4);
    context.clip();
  }

  /**
   * Points within an area; null for no brush at all.
   * @param {Area | null} area
   */
  select(area) {
    const dimmed = Boolean(this.brush);
    this.brush = area;
    this.selected = area && this.within(area);
    if (this.shown && dimmed !== Boolean(area)) this.drawCloud();
  }

  /**
   * @param {Area} area
   * @returns {number[]} places
   */
  within(area) {
    const { points } = /** @type {Shown} */ (this.shown);
    const found = [];
    const [[left, right], [bottom, top]] = [area.x, area.y];
    for (let place = 0; place < points.length; place += 1) {
      if (Number.isNaN(this.px[place])) continue;
      const [time, memory] = [points.time[place], points.memory[place]];
      if (time >= left && time <= right && memory >= bottom && memory <= top) found.push(place);
    }
    return found;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @returns {number | null} the point nearest to a pixel, if it is near
   */
  nearest(x, y) {
    const { points } = /** @type {Shown} */ (this.shown);
    let [best, distance] = [/** @type {number | null} */ (null), NEAR * NEAR];
    const look = (/** @type {number} */ place, /** @type {number} */ favour) => {
      const apart = ((this.px[place] - x) ** 2 + (this.py[place] - y) ** 2) * favour;
      if (apart < distance) [best, distance] = [place, apart];
    };
    for (let place = 0; place < points.length; place += 1) look(place, 1);
    // Among a crowd the front is what is meant.
    for (const place of points.front) look(place, 0.5);
    return best;
  }

  listen() {
    /** @type {{x: number, y: number, moved: boolean} | null} */
    let from = null;
    const at = (/** @type {PointerEvent} */ event) => {
      const box = this.root.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    this.root.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.shown || event.pointerType === "touch") return;
      from = { ...at(event), moved: false };
      this.root.setPointerCapture(event.pointerId);
    });
    this.root.addEventListener("pointermove", (event) => {
      if (!this.shown) return;
      const now = at(event);
      if (from && (from.moved || Math.hypot(now.x - from.x, now.y - from.y) > CLICK)) {
        from.moved = true;
        this.hover(null);
        this.select(this.area(from, now));
        this.brushMoved = true;
        this.soon();
      } else if (!from) {
        this.hover(this.nearest(now.x, now.y));
      }
    });
    const end = (/** @type {PointerEvent} */ event) => {
      if (!this.shown || !from) return;
      if (from.moved) {
        this.told.brushed(this.brush, true);
      } else {
        const near = this.nearest(from.x, from.y);
        if (near !== null) this.told.clicked(near);
        else this.told.brushed(null, true);
      }
      from = null;
      event.preventDefault();
    };
    this.root.addEventListener("pointerup", end);
    this.root.addEventListener("pointercancel", () => (from = null));
    this.root.addEventListener("pointerleave", () => this.hover(null));
    this.root.addEventListener("click", (event) => {
      // A finger: no drag, so that the page can be scrolled.
      if (!(event instanceof PointerEvent) || event.pointerType !== "touch" || !this.shown) return;
      const near = this.nearest(at(event).x, at(event).y);
      if (near !== null) this.told.clicked(near);
    });
  }

  /** @param {number | null} place */
  hover(place) {
    if (place === this.hovered) return;
    this.hovered = place;
    this.soon();
    this.told.hovered(place);
  }

  /**
   * @param {{x: number, y: number}} a
   * @param {{x: number, y: number}} b
   * @returns {Area}
   */
  area(a, b) {
    const values = (/** @type {Scale} */ scale, /** @type {number[]} */ pixels) => {
      const [low, high] = [Math.min(scale.start, scale.end), Math.max(scale.start, scale.end)];
      const found = pixels.map((pixel) => toValue(scale, Math.min(Math.max(pixel, low), high)));
      return /** @type {[number, number]} */ (found.sort((p, q) => p - q));
    };
    return { x: values(this.x, [a.x, b.x]), y: values(this.y, [a.y, b.y]) };
  }

  /** The topmost canvas anew, once at the next frame. */
  soon() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.drawOverlay();
      if (this.brushMoved) {
        this.brushMoved = false;
        this.told.brushed(this.brush, false);
      }
    });
  }

  /** Canvases from the lowest to the topmost. */
  get canvases() {
    return [this.cloud, this.frame, this.overlay];
  }
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
function fit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
}

/** @param {HTMLCanvasElement} canvas */
function cleared(canvas) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const ratio = window.devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  return context;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} style
 * @param {[number, number][]} path
 */
function stroke(context, style, path) {
  context.strokeStyle = style;
  context.beginPath();
  path.forEach(([x, y], number) => (number ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}
