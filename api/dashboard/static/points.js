// The measured kernels of a run in columns, with the front among them.

/**
 * What the service sends.
 * @typedef {object} Columns
 * @property {{variant: string, device: string}[]} studies
 * @property {number[]} id
 * @property {number[]} study
 * @property {number[]} time
 * @property {number[]} memory
 * @property {string[]} candidate
 * @property {number[]} front ids
 * @property {number} total
 * @property {number} newest
 */

export class Points {
  /** @param {Columns} columns */
  constructor(columns) {
    this.studies = columns.studies;
    this.id = columns.id;
    this.study = columns.study;
    this.time = columns.time;
    this.memory = columns.memory;
    this.candidate = columns.candidate;
    this.total = columns.total;
    this.newest = columns.newest;
    /** @type {Map<number, number>} */
    this.place = new Map(columns.id.map((id, place) => [id, place]));
    /** @type {number[]} places of the front, fastest first */
    this.front = [];
    this.setFront(columns.front);
  }

  get length() {
    return this.id.length;
  }

  /**
   * Points that have come since: they join, and the front is the one that came with them.
   * @param {Columns} columns
   * @returns {number} how many are new
   */
  add(columns) {
    let added = 0;
    columns.id.forEach((id, from) => {
      if (this.place.has(id)) return;
      this.place.set(id, this.id.length);
      this.id.push(id);
      this.study.push(columns.study[from]);
      this.time.push(columns.time[from]);
      this.memory.push(columns.memory[from]);
      this.candidate.push(columns.candidate[from]);
      added += 1;
    });
    this.studies = columns.studies;
    this.total = columns.total;
    this.newest = Math.max(this.newest, columns.newest);
    this.setFront(columns.front);
    return added;
  }

  /** @param {number[]} ids */
  setFront(ids) {
    this.front = ids
      .map((id) => this.place.get(id))
      .filter((place) => place !== undefined)
      .sort((a, b) => this.time[a] - this.time[b] || this.memory[a] - this.memory[b]);
  }

  /**
   * @param {number} place
   * @param {"variant" | "device"} by
   */
  group(place, by) {
    return this.studies[this.study[place]]?.[by] ?? "";
  }

  /**
   * The names of all variants or devices, in a fixed order.
   * @param {"variant" | "device"} by
   * @returns {string[]}
   */
  groups(by) {
    return [...new Set(this.studies.map((study) => study[by]))].sort();
  }

  /**
   * The fastest that needs no more memory.
   * @param {number} bytes
   * @returns {number | null} its place
   */
  fastestWithin(bytes) {
    return this.front.find((place) => this.memory[place] <= bytes) ?? null;
  }
}
