// A run as it goes on: one stream of events, closed while nobody looks, and polling where the
// stream cannot be had.

/** @typedef {"live" | "polling" | "paused" | "stale" | "ended"} Mode */

const POLL_MS = 5_000;
const TRY_AGAIN_MS = 30_000;
/** Longer than the stream is silent by its heartbeats and the service's own reconnection. */
const STALE_MS = 4_000;
const KINDS = ["measured", "run-state", "proposed", "job-failed", "job-expired", "gap"];

export class Live {
  /**
   * @param {string} run
   * @param {number} event the last one that the page knows of
   * @param {object} told
   * @param {(kind: string) => void} told.news
   * @param {(mode: Mode) => void} told.mode
   * @param {() => Promise<boolean>} told.poll asks once; whether the run has ended
   */
  constructor(run, event, told) {
    this.run = run;
    this.event = event;
    this.told = told;
    this.paused = false;
    this.ended = false;
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {number | undefined} */
    this.timer = undefined;
    /** @type {number | undefined} */
    this.staleTimer = undefined;
    this.streamFailedAt = -Infinity;
    document.addEventListener("visibilitychange", () => this.follow());
    window.addEventListener("pagehide", () => this.close());
    window.addEventListener("pageshow", () => this.follow());
    this.follow();
  }

  /** @param {boolean} paused */
  pause(paused) {
    this.paused = paused;
    this.follow();
  }

  /** Listen, or not, as things are. */
  follow() {
    this.close();
    if (this.ended) return;
    if (this.paused) this.told.mode("paused");
    else if (!document.hidden) this.open();
  }

  open() {
    if (performance.now() - this.streamFailedAt < TRY_AGAIN_MS) {
      void this.poll();
      return;
    }
    const source = new EventSource(`/v1/runs/${this.run}/events?after=${this.event}`);
    this.source = source;
    source.addEventListener("open", () => {
      clearTimeout(this.staleTimer);
      this.staleTimer = undefined;
      this.told.mode("live");
      this.told.news("open");
    });
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        this.event = Number(/** @type {MessageEvent} */ (event).lastEventId) || this.event;
        this.told.news(kind);
      });
    }
    source.addEventListener("end", () => this.end());
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) {
        // Refused: too many streams, or the run has ended and all is said.
        this.streamFailedAt = performance.now();
        this.close();
        void this.poll();
      } else {
        // It tries again by itself; only when that lasts is it worth a word.
        this.staleTimer ??= setTimeout(() => this.told.mode("stale"), STALE_MS);
      }
    });
  }

  async poll() {
    if (this.ended || this.paused || document.hidden) return;
    try {
      const ended = await this.told.poll();
      if (ended) {
        this.end();
        return;
      }
      this.told.mode("polling");
    } catch {
      this.told.mode("stale");
    }
    const again = performance.now() - this.streamFailedAt >= TRY_AGAIN_MS;
    this.timer = setTimeout(() => (again ? this.follow() : this.poll()), POLL_MS);
  }

  end() {
    this.ended = true;
    this.close();
    this.told.news("end");
    this.told.mode("ended");
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.staleTimer);
    this.staleTimer = undefined;
    this.source?.close();
    this.source = null;
  }
}
