// What our scripts use of ECharts: its own types are many times larger than what we draw.
export declare function init(
  place: HTMLElement,
  theme: null,
  options: { renderer: "canvas" },
): any;
