// What every page has: the theme, times in the reader's zone, copy buttons, announcements, the
// list of keys.

import { seconds } from "./formats.js";

const THEMES = ["system", "light", "dark"];

/** @returns {string} */
function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

/** @param {string} chosen */
function setTheme(chosen) {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  try {
    if (chosen === "system") localStorage.removeItem("nestmap-theme");
    else localStorage.setItem("nestmap-theme", chosen);
  } catch {
    // It holds for this page then.
  }
  document.dispatchEvent(new CustomEvent("nestmap:theme"));
}

function installTheme() {
  const button = document.querySelector("[data-theme-toggle]");
  const name = document.querySelector("[data-theme-name]");
  if (!(button instanceof HTMLButtonElement) || !name) return;
  const show = () => {
    name.textContent = `Theme: ${theme()}`;
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
    show();
    announce(`Theme: ${theme()}`);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    document.dispatchEvent(new CustomEvent("nestmap:theme"));
  });
  show();
}

/**
 * Say something to screen readers, without moving the focus.
 * @param {string} text
 */
export function announce(text) {
  const place = document.getElementById("announcements");
  if (place) place.textContent = text;
}

/**
 * Times in the reader's zone, with how long ago they were.
 * @param {ParentNode} [within]
 */
export function showTimes(within = document) {
  for (const element of within.querySelectorAll("time[datetime]")) {
    const at = new Date(element.getAttribute("datetime") ?? "");
    if (Number.isNaN(at.getTime())) continue;
    const ago = (Date.now() - at.getTime()) / 1000;
    element.setAttribute("title", `${at.toISOString()} (${at.toLocaleString()})`);
    element.textContent =
      ago < 5 ? "just now" : ago < 7 * 86400 ? `${seconds(ago)} ago` : at.toLocaleString();
  }
}

function installCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy]") : null;
    if (!(button instanceof HTMLElement)) return;
    const source = document.getElementById(button.dataset.copy ?? "");
    const text = button.dataset.copyText ?? source?.textContent ?? "";
    try {
      await navigator.clipboard.writeText(text);
      announce("Copied");
      const before = button.textContent;
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = before), 1500);
    } catch {
      announce("The browser did not allow to copy");
    }
  });
}

/** The list of keys of a page: `<dialog id="keys">`, opened by ? and closed by Escape. */
function installKeys() {
  const dialog = document.getElementById("keys");
  if (!(dialog instanceof HTMLDialogElement)) return;
  const open = () => {
    if (!dialog.open) dialog.showModal();
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "?" && !isTyping(event.target)) {
      event.preventDefault();
      open();
    }
  });
  for (const button of document.querySelectorAll("[data-show-keys]")) {
    button.removeAttribute("hidden");
    button.addEventListener("click", open);
  }
}

/**
 * Whether a key belongs to a field.
 * @param {EventTarget | null} target
 */
export function isTyping(target) {
  return target instanceof Element && target.matches("input, textarea, select, [contenteditable]");
}

/**
 * An answer of the API as JSON; an `Error` with what a person can read otherwise. Whoever has no
 * session any more is led to the form.
 * @param {string} url
 * @param {RequestInit} [options]
 * @returns {Promise<any>}
 */
export async function fetchJson(url, options = {}) {
  const response = await fetch(url, {
    ...options,
    headers: { Accept: "application/json", ...(options.headers ?? {}) },
  });
  if (response.status === 401) {
    const next = encodeURIComponent(location.pathname + location.search);
    location.assign(`/sign-in?next=${next}`);
    throw new Error("the session has ended");
  }
  const text = await response.text();
  const body = text ? JSON.parse(text) : null;
  if (!response.ok) throw new Error(body?.detail ?? `the service answered ${response.status}`);
  return body;
}

/**
 * The JSON that the page came with: `<script type="application/json" id="…">`.
 * @param {string} id
 * @returns {any}
 */
export function pageData(id) {
  const element = document.getElementById(id);
  return element?.textContent ? JSON.parse(element.textContent) : null;
}

/**
 * An element with attributes and children; texts are texts, never markup.
 * @param {string} tag
 * @param {Record<string, string | boolean | EventListener>} [attributes] `onclick` and the like
 *   are functions
 * @param {...(Node | string | null)} children
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.replace(/^on/, ""), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

installTheme();
installCopying();
installKeys();
showTimes();
setInterval(() => {
  if (!document.hidden) showTimes();
}, 10_000);
