// Candidates, comparisons and layers: parts of a page are asked for in place, trees open and
// close as a whole, figures and tables become files.

import { announce, showTimes } from "./app.js";
import { saveBlob } from "./charts.js";
import { installTableFiles } from "./tables.js";

/** How often each part was asked for. @type {Map<string, number>} */
const asked = new Map();

/**
 * Fetch a page and put its parts in place of this page's; the address follows.
 * @param {string} url
 * @param {string[]} ids of elements that both pages have
 * @param {boolean} remember whether it becomes a step of the history
 */
async function swap(url, ids, remember = true) {
  const parts = ids.map((id) => document.getElementById(id)).filter((part) => part !== null);
  // Of several answers the one to the latest question counts.
  const mine = (asked.get(ids[0]) ?? 0) + 1;
  asked.set(ids[0], mine);
  for (const part of parts) part.setAttribute("aria-busy", "true");
  announce("Asking …");
  const focused = document.activeElement?.id ?? "";
  try {
    const response = await fetch(url, { headers: { Accept: "text/html" } });
    const text = await response.text();
    // Nor does one for a part that another answer has replaced.
    if (asked.get(ids[0]) !== mine || parts.some((part) => !part.isConnected)) return;
    const within = parts.some((part) => part.contains(document.activeElement));
    const found = new DOMParser().parseFromString(text, "text/html");
    const next = ids.map((id) => found.getElementById(id));
    if (!response.ok || next.some((part) => part === null)) {
      location.assign(url);
      return;
    }
    ids.forEach((id, place) => {
      const part = next[place];
      if (part) document.getElementById(id)?.replaceWith(part);
    });
    // A form that adds a choice is answered by the page that has it.
    if (remember) history.pushState({ swap: ids }, "", response.url);
    showTimes();
    for (const part of next) if (part) askNow(part);
    const again = focused ? document.getElementById(focused) : null;
    if (again) again.focus({ preventScroll: true });
    else if (within && next[0] instanceof HTMLElement) {
      // What had the focus is gone: go on at the part that took its place.
      next[0].tabIndex = -1;
      next[0].focus({ preventScroll: true });
    }
    const told = document.querySelector("[data-announce]");
    announce(told?.textContent?.trim() || "Done");
  } catch {
    announce("The service did not answer");
    for (const part of parts) part.removeAttribute("aria-busy");
  }
}

/** @param {HTMLElement} element */
const idsOf = (element) => (element.dataset.swap ?? "").split(" ").filter(Boolean);

/** @param {HTMLFormElement} form */
function addressOf(form, /** @type {HTMLElement | null} */ submitter = null) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form, submitter)) {
    if (typeof value === "string" && value !== "") query.append(name, value);
  }
  const url = new URL(form.action);
  url.search = query.toString();
  return url.pathname + url.search;
}

function installSwapping() {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-swap]") : null;
    if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    swap(link.href, idsOf(link));
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || !form.dataset.swap || form.method !== "get") return;
    event.preventDefault();
    swap(addressOf(form, event.submitter), idsOf(form));
  });
  // A choice counts at once: nobody has to find the button.
  document.addEventListener("change", (event) => {
    const field = event.target instanceof HTMLElement ? event.target : null;
    const form = field?.closest("form[data-live]");
    if (form instanceof HTMLFormElement && field?.matches("select")) {
      swap(addressOf(form), idsOf(form));
    }
  });
  addEventListener("popstate", () => location.reload());
  askNow(document);
}

/**
 * What takes a while is asked for once the rest is there.
 * @param {ParentNode} within
 */
function askNow(within) {
  for (const link of within.querySelectorAll("a[data-swap-now]")) {
    if (link instanceof HTMLAnchorElement) swap(link.href, idsOf(link), false);
  }
}

function installTrees() {
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element
      ? event.target.closest("[data-open-all], [data-close-all]") : null;
    if (!(button instanceof HTMLElement)) return;
    const opens = button.dataset.openAll !== undefined;
    const place = document.getElementById((opens ? button.dataset.openAll : button.dataset.closeAll) ?? "");
    for (const details of place?.querySelectorAll(".nest details") ?? []) {
      if (details instanceof HTMLDetailsElement) details.open = opens;
    }
  });
}

const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity"];

/**
 * A figure as it is seen, with its title and axis, at twice its size.
 * @param {HTMLElement} figure
 * @returns {Promise<Blob | null>}
 */
async function figureAsPng(figure) {
  const svg = figure.querySelector("svg");
  if (!svg) return null;
  const { width, height } = svg.getBoundingClientRect();
  const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", `${width * 2}`);
  copy.setAttribute("height", `${height * 2}`);
  // Style sheets do not reach into an image, so that the paint becomes attributes.
  const shapes = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((shape, place) => {
    const seen = getComputedStyle(shapes[place]);
    for (const name of PAINT) shape.setAttribute(name, seen.getPropertyValue(name));
  });
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  const [margin, head, foot] = [24, 52, 48];
  const canvas = document.createElement("canvas");
  canvas.width = width * 2 + 2 * margin;
  canvas.height = height * 2 + head + foot;
  const context = canvas.getContext("2d");
  if (!context) return null;
  const page = getComputedStyle(document.body);
  context.fillStyle = page.backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, margin, head);
  context.fillStyle = page.color;
  context.font = `24px ${page.fontFamily}`;
  context.fillText(figure.dataset.title ?? "", margin, 34, width * 2);
  const labels = [...figure.querySelectorAll(".axis > *")].map((label) => label.textContent ?? "");
  labels.forEach((label, place) => {
    context.textAlign = place === 0 ? "left" : place === labels.length - 1 ? "right" : "center";
    const x = margin + (width * 2 * place) / Math.max(1, labels.length - 1);
    context.fillText(label, x, canvas.height - 14);
  });
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function installPictures() {
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-png]") : null;
    if (!(button instanceof HTMLElement)) return;
    const figure = document.getElementById(button.dataset.png ?? "");
    const blob = figure ? await figureAsPng(figure) : null;
    if (blob) saveBlob(`${button.dataset.name ?? "nestmap"}.png`, blob);
  });
}

installSwapping();
installTrees();
installPictures();
installTableFiles();
