// Colours of the theme for canvases, ECharts when something wants it, and pictures of canvases.

import { element } from "./app.js";

/** @type {Promise<any> | null} */
let library = null;

/** ECharts, fetched when the first figure wants it: pages are there before. */
function echarts() {
  library ??= import("./vendor/echarts.esm.min.js");
  return library;
}

const probe = document.createElement("span");
probe.hidden = true;
document.documentElement.append(probe);

/**
 * A colour of base.css as canvases take it, in the theme that holds now.
 * @param {string} name such as `--series-1`
 */
export function colour(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

/**
 * @param {number} number counted from 0
 */
export function seriesColour(number) {
  return colour(`--series-${(number % 7) + 1}`);
}

/** What axes, texts and lines of every ECharts figure look like in this theme. */
export function look() {
  const ink = colour("--ink");
  const muted = colour("--muted");
  const line = colour("--line");
  const axis = {
    axisLine: { lineStyle: { color: colour("--strong-line") } },
    axisTick: { lineStyle: { color: colour("--strong-line") } },
    axisLabel: { color: muted, fontSize: 12 },
    splitLine: { lineStyle: { color: line } },
    nameTextStyle: { color: muted, fontSize: 12 },
  };
  return { ink, muted, line, axis, font: getComputedStyle(document.body).fontFamily };
}

/**
 * An ECharts figure that follows its element's size and the theme.
 * @param {HTMLElement} place
 * @param {() => object} option made anew for each theme
 */
export async function figure(place, option) {
  const { init } = await echarts();
  const chart = init(place, null, { renderer: "canvas" });
  const draw = () => {
    chart.setOption(
      {
        animation: false,
        textStyle: { fontFamily: look().font, color: look().ink },
        ...option(),
      },
      { notMerge: true },
    );
  };
  draw();
  new ResizeObserver(() => chart.resize()).observe(place);
  document.addEventListener("nestmap:theme", draw);
  return { chart, draw };
}

/**
 * A tooltip as an element: texts are texts, and no style is in markup.
 * @param {string} title
 * @param {[string, string][]} rows
 */
export function tooltip(title, rows) {
  const list = element("dl");
  for (const [name, value] of rows) {
    list.append(element("dt", {}, name), element("dd", {}, value));
  }
  return element("div", { class: "tip-content" }, element("strong", {}, title), list);
}

/**
 * Save what canvases show, one upon the other, on the page's ground.
 * @param {string} name
 * @param {HTMLCanvasElement[]} canvases
 */
export function savePng(name, canvases) {
  const whole = document.createElement("canvas");
  whole.width = canvases[0].width;
  whole.height = canvases[0].height;
  const context = /** @type {CanvasRenderingContext2D} */ (whole.getContext("2d"));
  context.fillStyle = colour("--surface");
  context.fillRect(0, 0, whole.width, whole.height);
  for (const canvas of canvases) {
    context.drawImage(canvas, 0, 0, whole.width, whole.height);
  }
  whole.toBlob((blob) => {
    if (blob) saveBlob(name, blob);
  }, "image/png");
}

/**
 * @param {string} name of the file
 * @param {Blob} blob
 */
export function saveBlob(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = element("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
