// Numbers with their units: the same rules as api/dashboard/formats.py, held together by a test.

const SPACE = "\u202f";
export const ABSENT = "–";

/**
 * @param {number} value
 * @param {number} [figures]
 * @returns {string}
 */
export function significant(value, figures = 3) {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return ABSENT;
  const decimals = Math.max(0, figures - 1 - Math.floor(Math.log10(Math.abs(value))));
  const text = value.toFixed(decimals);
  const again = Math.max(0, figures - 1 - Math.floor(Math.log10(Math.abs(Number(text)))));
  return again === decimals ? text : value.toFixed(again);
}

/** @param {number | null | undefined} value milliseconds */
export function timeMs(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return ABSENT;
  if (value === 0) return `0${SPACE}ms`;
  const size = Math.abs(value);
  const [unit, factor] =
    size >= 1e3 ? ["s", 1e-3] : size >= 1 ? ["ms", 1] : size >= 1e-3 ? ["µs", 1e3] : ["ns", 1e6];
  return `${significant(value * Number(factor))}${SPACE}${unit}`;
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** @param {number | null | undefined} value bytes */
export function size(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return ABSENT;
  let power = 0;
  while (Math.abs(value) >= 1024 && power < BYTE_UNITS.length - 1) {
    value /= 1024;
    power += 1;
  }
  return `${power === 0 ? value.toFixed(0) : significant(value)}${SPACE}${BYTE_UNITS[power]}`;
}

/**
 * A number with its unit as a tick has it: `64 KiB`, not `64.0 KiB`.
 * @param {string} text
 */
export function trimmed(text) {
  return text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

/** @param {number | null | undefined} value */
export function count(value) {
  if (value === null || value === undefined) return ABSENT;
  return value.toFixed(0).replace(/\B(?=(\d{3})+(?!\d))/g, SPACE);
}

/** @param {number | null | undefined} value seconds */
export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return ABSENT;
  if (value < 60) return `${value.toFixed(0)}${SPACE}s`;
  const whole = Math.round(value);
  /** @type {[number, string, number, string][]} */
  const steps = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
  for (const [least, unit, smaller, smallUnit] of steps) {
    if (whole >= least) {
      const rest = Math.floor((whole % least) / smaller);
      const tail = rest ? ` ${rest}${SPACE}${smallUnit}` : "";
      return `${Math.floor(whole / least)}${SPACE}${unit}${tail}`;
    }
  }
  return ABSENT;
}

const BYTE_SCALE = /** @type {Record<string, number>} */ ({
  "": 1, b: 1, k: 1e3, kb: 1e3, kib: 1024, m: 1e6, mb: 1e6, mib: 1024 ** 2,
  g: 1e9, gb: 1e9, gib: 1024 ** 3,
});

/**
 * Bytes that somebody has typed: `4096`, `1.5 MiB`, `2M`.
 * @param {string} text
 * @returns {number | null} null for what is none
 */
export function parsedSize(text) {
  const found = /^\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*$/.exec(text);
  if (!found) return null;
  const scale = BYTE_SCALE[found[2].toLowerCase()];
  return scale === undefined ? null : Math.floor(Number(found[1]) * scale);
}
