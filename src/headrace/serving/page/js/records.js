// A list of records that stays smooth however many come: a bounded number is kept, and only the rows in sight are elements.

import { h, set } from "./dom.js";
import { clock, textOf } from "./words.js";

const ROW = 27;
const KEPT = 2000;

export class RecordList {
  constructor(label, chosen = () => {}, kind = "") {
    this.kept = [];
    this.pool = [];
    this.chosen = chosen;
    this.selected = null;
    this.due = false;
    this.pad = h("div", { class: "pad", role: "presentation" });
    this.made = h("div", { class: `list ${kind}`, role: "listbox", tabindex: "0", "aria-label": label }, this.pad);
    this.made.addEventListener("scroll", () => this.draw(), { passive: true });
    this.made.addEventListener("click", (event) => this.pick(event.target.closest(".item")?.record));
    this.made.addEventListener("keydown", (event) => this.key(event));
    this.sized = new ResizeObserver(() => this.draw());
    this.sized.observe(this.made);
  }

  // The newest is first. While somebody has scrolled down, what they look at stays where it is.
  add(records) {
    if (!records.length) return;
    this.kept = [...records].reverse().concat(this.kept).slice(0, KEPT);
    if (this.made.scrollTop > ROW) this.made.scrollTop += records.length * ROW;
    this.draw();
  }

  show(records) {
    this.kept = records.slice(0, KEPT);
    this.made.scrollTop = 0;
    this.draw();
  }

  draw() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => { this.due = false; this.render(); });
  }

  render() {
    const tall = `${this.kept.length * ROW}px`;
    if (this.pad.style.height !== tall) this.pad.style.height = tall;
    const first = Math.max(0, Math.floor(this.made.scrollTop / ROW) - 4);
    const count = Math.min(this.kept.length - first, Math.ceil(this.made.clientHeight / ROW) + 8);
    while (this.pool.length < count) this.grow();
    this.pool.forEach((item, at) => {
      const record = at < count ? this.kept[first + at] : null;
      item.hidden = !record;
      if (record) this.put(item, record, first + at);
    });
  }

  grow() {
    const parts = ["when", "place", "key", "what"].map((kind) => h("span", { class: kind }));
    const item = h("div", { class: "item", role: "option", "aria-selected": "false" }, parts);
    this.pool.push(item);
    this.pad.append(item);
  }

  put(item, record, at) {
    const top = `translateY(${at * ROW}px)`;
    if (item.style.transform !== top) item.style.transform = top;
    if (item.record !== record) {
      item.record = record;
      const [when, place, key, what] = item.children;
      set(when, clock(record.timestamp_ms));
      set(place, `${record.partition}:${record.offset}`);
      set(key, short(textOf(record, "key")));
      set(what, short(textOf(record, "value")));
    }
    const chosen = String(record === this.selected);
    if (item.getAttribute("aria-selected") !== chosen) item.setAttribute("aria-selected", chosen);
  }

  pick(record) {
    if (!record) return;
    this.selected = record;
    this.draw();
    this.chosen(record);
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (!step || !this.kept.length) return;
    event.preventDefault();
    const at = Math.min(this.kept.length - 1, Math.max(0, this.kept.indexOf(this.selected) + step));
    const top = at * ROW;
    if (top < this.made.scrollTop) this.made.scrollTop = top;
    if (top + ROW > this.made.scrollTop + this.made.clientHeight) this.made.scrollTop = top + ROW - this.made.clientHeight;
    this.pick(this.kept[at]);
  }

  close() { this.sized.disconnect(); }
}

const short = (text) => text === null ? "null" : text.length > 300 ? text.slice(0, 300) : text;

// A value for people: JSON is indented and coloured, everything else is text. Numbers are shown as they were written: what
// JavaScript makes of a large one is another number.
export function pretty(text) {
  const made = h("pre", { tabindex: "0", "aria-label": "Value" });
  let said;
  try { said = JSON.parse(text); } catch { made.textContent = text ?? "null"; return made; }
  if (said === null || typeof said !== "object") made.textContent = text;
  else made.append(...indented(text.match(/"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g)));
  return made;
}

function indented(tokens) {
  let depth = 0;
  const line = (step) => `\n${"  ".repeat(depth += step)}`;
  return tokens.map((token, at) => {
    const hollow = "{[".includes(tokens[at - 1]) && "}]".includes(token);
    if (token === "{" || token === "[") return "}]".includes(tokens[at + 1]) ? token : token + line(1);
    if (token === "}" || token === "]") return hollow ? token : line(-1) + token;
    if (token === ",") return token + line(0);
    if (token === ":") return ": ";
    if (token.startsWith('"')) return h("span", { class: tokens[at + 1] === ":" ? "k" : "s" }, JSON.stringify(JSON.parse(token)));
    return /^-?\d/.test(token) ? h("span", { class: "n" }, token) : token;
  });
}
