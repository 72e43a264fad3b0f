// Tables as files: a button names the table and the file.

import { saveBlob } from "./charts.js";

/**
 * A table as CSV: what `data-value` says, else the text.
 * @param {HTMLTableElement} table
 */
function tableAsCsv(table) {
  return [...table.rows].map((row) => [...row.cells].map((cell) => {
    const text = (cell.dataset.value ?? cell.textContent ?? "").trim().replaceAll(/\s+/g, " ");
    return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",")).join("\r\n") + "\r\n";
}

/** Every `<button data-csv="id of a table" data-name="name of the file">`, those to come too. */
export function installTableFiles() {
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-csv]") : null;
    if (!(button instanceof HTMLElement)) return;
    const table = document.getElementById(button.dataset.csv ?? "");
    if (!(table instanceof HTMLTableElement)) return;
    const name = `${button.dataset.name ?? "nestmap"}.csv`;
    saveBlob(name, new Blob([tableAsCsv(table)], { type: "text/csv" }));
  });
}
