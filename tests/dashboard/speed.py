"""How fast the page of a run is with many points, measured in Chromium.

``python -m tests.dashboard.speed`` fills a store with synthetic runs, serves it, and opens each
run's page several times: until its first paint, until the figure is drawn, and how long a frame
of a brush takes that is dragged over everything. Where others use the machine too, wall-clock
times say little, and their least says most; processor time of the service and of the page's main
thread until the figure is drawn is what the work costs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, CDPSession, sync_playwright

from tests.dashboard.conftest import CHROMIUM
from tests.dashboard.served import Served
from tests.dashboard.synthetic import write_run

SIZES = (1_000, 20_000, 100_000)
OPENED = 5
#: Milliseconds in which scripts drag a brush, move by move, and what each move costs until its
#: frame is drawn.
_DRAG = """async () => {
  const root = document.querySelector("[data-scatter]");
  root.scrollIntoView();
  const box = root.getBoundingClientRect();
  const frames = [];
  const send = (kind, x, y) => root.dispatchEvent(new PointerEvent(kind, {
    clientX: x, clientY: y, button: 0, pointerId: 1, pointerType: "mouse", bubbles: true,
  }));
  root.setPointerCapture = () => {};
  send("pointerdown", box.left + 90, box.top + 20);
  for (let step = 1; step <= 60; step += 1) {
    const began = performance.now();
    send("pointermove", box.left + 90 + step * (box.width - 120) / 60,
         box.top + 20 + step * (box.height - 80) / 60);
    const sent = performance.now() - began;
    await new Promise((done) => requestAnimationFrame(done));
    // The page's own callback ran in this frame, before this one.
    const drawn = performance.now();
    await new Promise((done) => setTimeout(done));
    frames.push({ script: sent, frame: drawn - began });
  }
  send("pointerup", box.right - 30, box.bottom - 60);
  return frames;
}"""


def opened(browser: Browser, served: Served, run_id: str) -> dict[str, float]:
    """One visit of a page, with nothing in the browser's cache: ms, counted from its request."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        context.add_cookies([{"name": "nestmap_session", "value": served.token, "url": served.url}])
        page = context.new_page()
        page.set_default_timeout(120_000)
        meter = context.new_cdp_session(page)
        meter.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = _processor_ms(served.process.pid)
        page.goto(f"{served.url}/runs/{run_id}")
        page.wait_for_selector("[data-ready]", state="attached")
        page_cpu = _main_thread_ms(meter)
        service_cpu = _processor_ms(served.process.pid) - before
        page.wait_for_selector("[data-complete]", state="attached")
        page.wait_for_timeout(500)
        times: dict[str, float] = page.evaluate(
            """() => ({
              first_byte: performance.getEntriesByType("navigation")[0].responseStart,
              first_paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
              chart: performance.getEntriesByName("nestmap:chart")[0].startTime,
            })"""
        )
        times |= {"service_cpu": service_cpu, "page_cpu": page_cpu}
        brush_before = _main_thread_ms(meter)
        frames: list[dict[str, float]] = page.evaluate(_DRAG)
        scripts = sorted(one["script"] for one in frames)
        waits = sorted(one["frame"] for one in frames)
        times["brush_cpu_per_frame"] = (_main_thread_ms(meter) - brush_before) / len(frames)
        times["brush_script_p95"] = scripts[int(0.95 * len(scripts))]
        times["brush_frame_median"] = median(waits)
        times["brush_frame_p95"] = waits[int(0.95 * len(waits))]
        return times
    finally:
        context.close()


def _processor_ms(pid: int) -> float:
    """Processor time of a process so far, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1e3


def _main_thread_ms(meter: CDPSession) -> float:
    """Processor time of the tasks of a page's main thread so far."""
    found = {one["name"]: one["value"] for one in meter.send("Performance.getMetrics")["metrics"]}
    return found["TaskDuration"] * 1e3


def main() -> int:
    """Print a table, or JSON with ``--json``; the exit status is 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="points of runs")
    parser.add_argument("--opened", type=int, default=OPENED, help="visits of each page")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        store = Path(folder) / "store.sqlite3"
        runs = {size: write_run(store, size, seed) for seed, size in enumerate(given.sizes)}
        served = Served(Path(folder), "--no-worker")
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            visits: dict[int, list[dict[str, float]]] = {size: [] for size in runs}
            opened(browser, served, runs[given.sizes[0]])  # the first one starts processes
            for _ in range(given.opened):
                for size, run_id in runs.items():
                    visits[size].append(opened(browser, served, run_id))
            version = browser.version
        finally:
            browser.close()
            served.stop()
    found, least = (
        {
            size: {name: round(of(one[name] for one in seen), 1) for name in seen[0]}
            for size, seen in visits.items()
        }
        for of in (median, min)
    )
    report: dict[str, Any] = {
        "chromium": version,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "visits": given.opened,
        "medians_ms": found,
        "least_ms": least,
    }
    if given.json:
        print(json.dumps(report, indent=1))
        return 0
    print(f"Chromium {version}, {report['cores']} cores, load {report['load']:.1f}; in ms")
    names = list(next(iter(found.values())))
    print(" ".join(["".ljust(20), *(f"{f'{size} points':>20}" for size in found)]))
    for name in names:
        cells = (f"{found[size][name]:.1f} ({least[size][name]:.1f})" for size in found)
        print(" ".join([name.ljust(20), *(f"{cell:>20}" for cell in cells)]))
    print("median (least)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
