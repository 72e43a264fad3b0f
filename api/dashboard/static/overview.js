// The overview and the list of devices, kept up to date: the page is fetched again and its
// contents put in place, so that there is one way to show a run, the server's.

import { showTimes } from "./app.js";

const EVERY_MS = 5_000;
/** What is shown, as the server sent it: scripts have changed it since. */
let lastSent = "";

async function refresh() {
  const stale = document.querySelector("[data-stale]");
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected) {
      location.assign(answer.url);
      return;
    }
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-refresh]");
    const shown = document.querySelector("[data-refresh]");
    if (!fresh || !shown) return;
    stale?.setAttribute("hidden", "");
    // What somebody reads, selects or has focused is left alone.
    if (fresh.innerHTML === lastSent || shown.contains(document.activeElement)) {
      return;
    }
    lastSent = fresh.innerHTML;
    for (const opened of shown.querySelectorAll("details[data-run][open]")) {
      const run = opened.getAttribute("data-run");
      fresh.querySelector(`details[data-run="${run}"]`)?.setAttribute("open", "");
    }
    shown.replaceChildren(...fresh.childNodes);
    showTimes(shown);
  } catch {
    stale?.removeAttribute("hidden");
  }
}

setInterval(() => {
  if (!document.hidden) void refresh();
}, EVERY_MS);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) void refresh();
});
