// Small charts in SVG: lines over time, bars by name.

import { svg } from "./dom.js";
import { clock, compact } from "./words.js";

const BOX = { height: 200, left: 56, right: 12, top: 10, bottom: 24 };

export class Chart {
  constructor(label, { height = BOX.height, unit = "" } = {}) {
    this.label = label;
    this.unit = unit;
    this.height = height;
    this.width = 0;
    this.again = () => {};
    this.made = svg("svg", { class: "chart", role: "img", "aria-label": label, height });
    new ResizeObserver(() => { if (this.made.clientWidth !== this.width) this.again(); }).observe(this.made);
  }

  // One unit of the drawing is one pixel, so text has the same size in every chart.
  measured(again) {
    this.again = again;
    this.width = this.made.clientWidth || 600;
    this.made.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
  }

  get floor() { return this.height - BOX.bottom; }

  axis(top) {
    const parts = [];
    const steps = this.height > 180 ? 4 : 2;
    for (let at = 0; at <= steps; at++) {
      const y = this.floor - (this.floor - BOX.top) * at / steps;
      parts.push(svg("line", { x1: BOX.left, x2: this.width - BOX.right, y1: y, y2: y, class: "grid" }));
      parts.push(svg("text", { x: BOX.left - 8, y: y + 4, "text-anchor": "end" }, compact(top * at / steps) + this.unit));
    }
    return parts;
  }

  // Each series: {points: [[x, y], ...], name}. x are milliseconds, or plain numbers with times = false.
  lines(series, { times = true } = {}) {
    this.measured(() => this.lines(series, { times }));
    const all = series.flatMap((one) => one.points).filter(([, y]) => y !== null && Number.isFinite(y));
    if (!all.length) return this.nothing();
    const xs = all.map(([x]) => x);
    const [first, last] = [Math.min(...xs), Math.max(...xs)];
    const top = nice(Math.max(...all.map(([, y]) => y), 0));
    const x = (at) => last === first ? this.width - BOX.right : BOX.left + (at - first) / (last - first) * (this.width - BOX.left - BOX.right);
    const y = (value) => this.floor - Math.max(0, value) / top * (this.floor - BOX.top);
    const parts = this.axis(top);
    series.forEach((one, index) => {
      const points = one.points.filter(([, value]) => value !== null && Number.isFinite(value));
      if (!points.length) return;
      const way = points.map(([at, value], step) => `${step ? "L" : "M"}${x(at).toFixed(1)},${y(value).toFixed(1)}`).join("");
      if (!index) parts.push(svg("path", { class: "area", d: `${way}L${x(points.at(-1)[0])},${this.floor}L${x(points[0][0])},${this.floor}Z` }));
      parts.push(svg("path", { class: `line${index ? " second" : ""}`, d: way }));
      if (points.length <= 60) {
        for (const [at, value] of points) {
          parts.push(svg("circle", { class: "point", cx: x(at), cy: y(value), r: 2.4 }, svg("title", {}, `${times ? clock(at, true) : at}: ${compact(value)}${this.unit}`)));
        }
      }
    });
    if (times) {
      const steps = this.width > 480 ? 4 : 2;
      for (let at = 0; at <= steps; at++) {
        const when = first + (last - first) * at / steps;
        const anchor = at === 0 ? "start" : at === steps ? "end" : "middle";
        parts.push(svg("text", { x: x(when), y: this.height - 6, "text-anchor": anchor }, clock(when, true).slice(last - first > 86400000 ? 0 : 11, last - first > 86400000 ? 10 : 19)));
        if (last === first) break;
      }
    }
    this.made.replaceChildren(...parts);
  }

  bars(rows) {
    this.measured(() => this.bars(rows));
    if (!rows.length) return this.nothing();
    const top = nice(Math.max(...rows.map(([, value]) => value), 0));
    const width = (this.width - BOX.left - BOX.right) / rows.length;
    const parts = this.axis(top);
    rows.forEach(([name, value], at) => {
      const tall = Math.max(0, value) / top * (this.floor - BOX.top);
      const left = BOX.left + at * width;
      const bar = svg("rect", { class: "bar", x: left + width * .14, y: this.floor - tall, width: width * .72, height: tall, rx: Math.min(3, width / 4) });
      bar.append(svg("title", {}, `${name}: ${compact(value)}${this.unit}`));
      parts.push(bar);
      if (width > 34) parts.push(svg("text", { x: left + width / 2, y: this.height - 6, "text-anchor": "middle" }, String(name).slice(0, Math.floor(width / 7))));
    });
    this.made.replaceChildren(...parts);
  }

  nothing() {
    this.measured(() => this.nothing());
    const middle = { x: this.width / 2, y: this.height / 2, "text-anchor": "middle" };
    this.made.replaceChildren(svg("text", middle, "nothing to draw yet"));
  }
}

function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value) ?? 10 * power;
}
