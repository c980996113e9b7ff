// Small charts in SVG: lines over time, bars by name.

import { h, svg } from "./dom.js";
import { clock, tick } from "./words.js";

const BOX = { height: 200, left: 56, right: 12, top: 10, bottom: 24 };

export class Chart {
  constructor(label, { height = BOX.height, unit = "" } = {}) {
    this.label = label;
    this.unit = unit;
    this.height = height;
    this.width = 0;
    this.again = () => {};
    this.drawing = svg("svg", { class: "chart", role: "img", "aria-label": label, height });
    this.names = h("p", { class: "legend", hidden: true });
    this.made = h("div", {}, this.drawing, this.names);
    new ResizeObserver(() => { if (this.drawing.clientWidth !== this.width) this.again(); }).observe(this.drawing);
  }

  // One unit of the drawing is one pixel, so text has the same size in every chart.
  measured(again) {
    this.again = again;
    this.width = this.drawing.clientWidth || 600;
    this.drawing.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
  }

  get floor() { return this.height - BOX.bottom; }

  // The axis goes from the least to the greatest value, and zero is always on it.
  axis(values) {
    const [least, most] = [Math.min(0, ...values), Math.max(0, ...values)];
    const step = nice((most - least) / (this.height > 180 ? 4 : 2));
    const [from, to] = [Math.floor(least / step), Math.ceil(most / step) || (least < 0 ? 0 : 1)];
    const y = (value) => this.floor - (value / step - from) / (to - from) * (this.floor - BOX.top);
    const parts = [];
    for (let at = from; at <= to; at++) {
      const place = { x1: BOX.left, x2: this.width - BOX.right, y1: y(at * step), y2: y(at * step) };
      parts.push(svg("line", { ...place, class: at === 0 && from < 0 ? "zero" : "grid" }));
      parts.push(svg("text", { x: BOX.left - 8, y: place.y1 + 4, "text-anchor": "end" }, tick(at * step) + this.unit));
    }
    return { y, parts };
  }

  // Each series: {points: [[x, y], ...], name}. x are milliseconds, or plain numbers with times = false. `more`: how many
  // series there are besides.
  lines(series, { times = true, more = 0 } = {}) {
    this.measured(() => this.lines(series, { times, more }));
    this.legend(series, more);
    const all = series.flatMap((one) => one.points).filter(([, y]) => y !== null && Number.isFinite(y));
    if (!all.length) return this.nothing();
    const xs = all.map(([x]) => x);
    const [first, last] = [Math.min(...xs), Math.max(...xs)];
    const { y, parts } = this.axis(all.map(([, value]) => value));
    const x = (at) => last === first ? this.width - BOX.right : BOX.left + (at - first) / (last - first) * (this.width - BOX.left - BOX.right);
    series.forEach((one, index) => {
      const points = one.points.filter(([, value]) => value !== null && Number.isFinite(value));
      if (!points.length) return;
      const way = points.map(([at, value], step) => `${step ? "L" : "M"}${x(at).toFixed(1)},${y(value).toFixed(1)}`).join("");
      if (series.length === 1) parts.push(svg("path", { class: "area", d: `${way}L${x(points.at(-1)[0])},${y(0)}L${x(points[0][0])},${y(0)}Z` }));
      parts.push(svg("path", { class: `line c${index}`, d: way }));
      if (points.length <= 60) {
        for (const [at, value] of points) {
          const what = `${one.name ? `${one.name}, ` : ""}${times ? clock(at, true) : at}: ${value}${this.unit}`;
          parts.push(svg("circle", { class: `point c${index}`, cx: x(at), cy: y(value), r: 2.4 }, svg("title", {}, what)));
        }
      }
    });
    if (times) {
      const steps = this.width > 480 ? 4 : 2;
      for (let at = 0; at <= steps; at++) {
        const when = first + (last - first) * at / steps;
        const anchor = last === first ? "end" : at === 0 ? "start" : at === steps ? "end" : "middle";
        parts.push(svg("text", { x: x(when), y: this.height - 6, "text-anchor": anchor }, clock(when, true).slice(last - first > 86400000 ? 0 : 11, last - first > 86400000 ? 10 : 19)));
        if (last === first) break;
      }
    }
    this.drawing.replaceChildren(...parts);
  }

  bars(rows) {
    this.measured(() => this.bars(rows));
    this.legend([], 0);
    if (!rows.length) return this.nothing();
    const width = (this.width - BOX.left - BOX.right) / rows.length;
    const { y, parts } = this.axis(rows.map(([, value]) => value));
    rows.forEach(([name, value], at) => {
      const left = BOX.left + at * width;
      const bar = svg("rect", { class: "bar", x: left + width * .14, y: Math.min(y(value), y(0)), width: width * .72, height: Math.abs(y(value) - y(0)), rx: Math.min(3, width / 4) });
      bar.append(svg("title", {}, `${name}: ${value}${this.unit}`));
      parts.push(bar);
      if (width > 34) parts.push(svg("text", { x: left + width / 2, y: this.height - 6, "text-anchor": "middle" }, short(String(name), Math.floor(width / 7))));
    });
    this.drawing.replaceChildren(...parts);
  }

  legend(series, more) {
    const named = series.filter((one) => one.name !== undefined);
    this.names.hidden = !named.length;
    const names = named.map((one, index) => h("span", { class: `named c${index}` }, one.name));
    this.names.replaceChildren(...names, more ? h("span", {}, `and ${more} more, not drawn`) : "");
  }

  nothing() {
    this.measured(() => this.nothing());
    const middle = { x: this.width / 2, y: this.height / 2, "text-anchor": "middle" };
    this.drawing.replaceChildren(svg("text", middle, "nothing to draw yet"));
  }
}

// Names that begin alike are told apart by their ends.
function short(name, room) {
  const end = Math.floor((room - 1) / 2);
  return name.length <= room ? name : `${name.slice(0, room - 1 - end)}…${name.slice(name.length - end)}`;
}

function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value) ?? 10 * power;
}
