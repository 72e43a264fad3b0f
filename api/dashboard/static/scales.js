// Axes: where a value lies, and which values deserve a tick.

/**
 * @typedef {object} Scale
 * @property {boolean} log
 * @property {number} least
 * @property {number} most
 * @property {number} start the pixel of `least`
 * @property {number} end the pixel of `most`
 */

/**
 * The pixel of a value; values beyond the scale lie beyond its ends.
 * @param {Scale} scale
 * @param {number} value
 */
export function toPixel(scale, value) {
  const share = scale.log
    ? Math.log(Math.max(value, 1e-12) / scale.least) / Math.log(scale.most / scale.least)
    : (value - scale.least) / (scale.most - scale.least);
  return scale.start + share * (scale.end - scale.start);
}

/**
 * The value at a pixel.
 * @param {Scale} scale
 * @param {number} pixel
 */
export function toValue(scale, pixel) {
  const share = (pixel - scale.start) / (scale.end - scale.start);
  return scale.log
    ? scale.least * (scale.most / scale.least) ** share
    : scale.least + share * (scale.most - scale.least);
}

/**
 * Bounds that hold all values with some room.
 * @param {number} least
 * @param {number} most
 * @param {boolean} log
 * @returns {[number, number]}
 */
export function withRoom(least, most, log) {
  if (!(most >= least)) return log ? [1, 10] : [0, 1];
  if (log) {
    const low = Math.max(least, 1e-9);
    const room = most > low ? (most / low) ** 0.06 : 1.5;
    return [low / room, Math.max(most, low) * room];
  }
  const room = (most - least) * 0.06 || Math.abs(most) * 0.1 || 1;
  return [Math.max(0, least - room), most + room];
}

/** Which multiples of ten's powers have ticks: as many as there is room for. */
const DECADES = [[1, 1.5, 2, 3, 4, 5, 7], [1, 2, 5], [1, 3], [1]];

/**
 * Values for ticks, at most about `most` of them, in the unit's own steps.
 * @param {Scale} scale
 * @param {number} number how many there is room for
 * @param {"time" | "bytes" | "plain"} kind
 * @returns {number[]}
 */
export function ticks(scale, number, kind) {
  const ratio = scale.most / scale.least;
  if (scale.log && kind === "bytes" && ratio >= 4) return powers(scale, number, 2, [[1]]);
  if (scale.log && ratio >= 2.5) return powers(scale, number, 10, DECADES);
  const unit = kind === "bytes" ? 1024 ** Math.floor(Math.log(Math.max(scale.most, 1)) / Math.log(1024)) : 1;
  const step = niceStep((scale.most - scale.least) / unit / Math.max(2, number)) * unit;
  const found = [];
  for (let at = Math.ceil(scale.least / step); at * step <= scale.most && found.length < 50; at += 1) {
    found.push(at * step);
  }
  return found;
}

/**
 * @param {Scale} scale
 * @param {number} number
 * @param {number} base
 * @param {number[][]} steps multiples of a power that may have ticks, the most of them first
 */
function powers(scale, number, base, steps) {
  const first = Math.floor(Math.log(scale.least) / Math.log(base));
  const last = Math.ceil(Math.log(scale.most) / Math.log(base));
  /** @type {(chosen: number[], every: number) => number[]} */
  const listed = (chosen, every) => {
    const found = [];
    for (let power = Math.ceil(first / every) * every; power <= last; power += every) {
      for (const multiple of chosen) found.push(multiple * base ** power);
    }
    return found.filter((value) => value >= scale.least && value <= scale.most);
  };
  for (const chosen of steps) {
    const found = listed(chosen, 1);
    if (found.length <= number && found.length > 1) return found;
  }
  for (let every = 1; every < 64; every += 1) {
    const found = listed([1], every);
    if (found.length <= number) return found;
  }
  return [];
}

/** @param {number} rough */
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const share = rough / power;
  return (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10) * power;
}
