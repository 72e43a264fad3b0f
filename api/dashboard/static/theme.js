// Runs before the first paint, so that no page flashes in the other theme. No module: these wait.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("nestmap-theme");
  } catch {
    // Storage may be forbidden; the system's scheme holds then.
  }
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
  document.documentElement.classList.add("scripted");
})();
