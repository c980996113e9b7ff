// Views: browse, filter, a chart of a number, and what changes.

import { events, get } from "../api.js";
import { Chart } from "../charts.js";
import { card, empty, h, head, link, path, set, state, Table } from "../dom.js";
import { RecordList } from "../records.js";
import { came, compact, conditions, number, value } from "../words.js";

const NUMBERS = /^(tinyint|smallint|int|integer|bigint|long|float|double|decimal)/;
const TIMES = /^(timestamp|date|struct<start:timestamp)/;
const ROWS = 100;
const IN_TIME = 400;
const TIMES_SHOWN = 120;
const LINES = 5;
const BARS = 14;
const AGAIN_MS = 2000;
const CONDITIONS = 'COLUMN=VALUE, also != < <= > >=, COLUMN is null, joined by and; a value that holds " and " in double quotes: name="rock and roll"';

export function open(root) {
  const table = new Table("Views", [
    { name: "view", of: (row) => link(path("views", `${row.app}.${row.name}`), `${row.app}.${row.name}`) }, { name: "state", of: (row) => state(row.state) },
    { name: "rows", kind: "number", of: (row) => compact(row.rows) }, { name: "behind", kind: "number", of: (row) => compact(row.behind) },
    { name: "bad", kind: "number", of: (row) => number(row.bad) }, { name: "key", of: (row) => row.key.join(", ") }, { name: "trouble", kind: "words", of: (row) => row.trouble ?? row.last_bad ?? "" },
  ], (row) => `${row.app}.${row.name}`, { empty: empty("No views yet", "A view is what a query keeps up to date. Declare one and run it.", "headrace run shop.py") });
  root.append(head("Views"), h("section", { class: "card", "aria-label": "Views" }, table.made));
  return { async tick() { table.update(await get("views")); } };
}

// Its rows are there, even if the topic of its changes is not.
function none(error) {
  if (error.status !== 404) throw error;
  return { records: [], next: "" };
}

export const openOne = (root, [name]) => new Screen(root, name);

class Screen {
  constructor(root, name) {
    this.name = name;
    this.at = path("views", name);
    this.spec = this.table = this.stream = null;
    this.due = true;
    this.asking = this.over = this.known = false;
    this.sum = { count: 0, skipped: 0, unseen: 0 };
    const again = () => { this.due = true; };
    const first = () => { this.pages.start = 0; this.due = true; };
    this.chart = new Chart(`Chart of ${name}`, { height: 220 });
    this.choice = h("select", { id: "value-choice", onchange: again });
    this.where = h("input", { id: "where", type: "search", placeholder: 'region=EU and name="a and b"', title: CONDITIONS, "aria-label": "Condition", class: "long", onchange: first });
    this.order = h("input", { id: "order", type: "search", placeholder: "-revenue", title: "columns; - for the largest first: -revenue,region", class: "short", onchange: first });
    this.pages = new Pages(() => { this.table.scroll.scrollTop = 0; this.due = true; this.draw(); });
    this.version = h("span", { class: "quiet", id: "view-version", role: "status" });
    this.status = h("span", { id: "view-status" }, state("waiting"));
    this.told = h("span", { class: "quiet", id: "change-count", role: "status" });
    this.wrong = h("p", { class: "bad-text", role: "alert" });
    this.rows = h("div");
    this.changes = new RecordList(`Changes of ${name}`, () => {}, "short");
    root.append(...this.parts(first));
    this.timer = setInterval(() => this.draw(), 500);
  }

  parts(first) {
    const form = h("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); first(); this.draw(); } },
      h("label", { class: "stack" }, "Where", this.where), h("label", { class: "stack" }, "Order", this.order), h("button", { class: "main" }, "Show"));
    return [head(this.name, [["views", "Views"]], this.version),
      h("section", { class: "card", "aria-label": "Chart" }, h("div", { class: "row" }, h("h2", {}, "Chart"), h("label", {}, "value", this.choice)), this.chart.made),
      card("Rows", form, this.wrong, this.rows, this.pages.made),
      h("section", { class: "card flat", "aria-label": "Changes" }, h("div", { class: "row" }, h("h2", {}, "Changes, the newest first"), this.status, this.told), this.changes.made)];
  }

  // Whenever the node has news, until it knows the view.
  async tick() {
    if (this.known) return;
    const spec = (await get("views")).find((view) => `${view.app}.${view.name}` === this.name || view.name === this.name);
    if (!spec) { this.rows.replaceChildren(empty("There is no such view")); return; }
    const before = await get(`${path("topics", spec.topic)}/records?limit=50`).catch(none);
    if (this.over) return;
    this.spec = spec;
    this.known = true;
    this.columns();
    this.changes.show(before.records.reverse());
    this.listen(before.next);
    await this.draw();
  }

  columns() {
    const numbers = this.spec.columns.filter((column) => NUMBERS.test(column.type)).map((column) => column.name);
    const best = numbers.find((column) => !this.spec.key.includes(column)) ?? numbers[0];
    this.choice.replaceChildren(...numbers.map((column) => h("option", { value: column }, column)));
    if (best) this.choice.value = best;
    this.table = new Table("Rows", this.spec.columns.map((column) => ({ name: column.name, kind: NUMBERS.test(column.type) ? "number" : "clip", of: (row) => value(row[column.name]) })),
      (row) => JSON.stringify(this.spec.key.map((column) => row[column])), { tall: true, empty: empty("No rows", "None yet, or none that fit the condition.") });
    this.rows.replaceChildren(this.table.made);
    this.due = true;
  }

  listen(from) {
    this.stream = events((last) => `${this.at}/frames?${new URLSearchParams({ from: last ?? from })}`, {
      start: (told) => { if (told.topic !== this.spec.topic) this.begin(); },
      frame: (frame) => {
        this.told.textContent = `${came(this.sum, frame)} since you are here`;
        this.changes.add(frame.rows);
        this.due = true;
      },
      trouble: (said) => this.say(`waiting: ${said.error}`),
    }, (word) => {
      this.say(word === "live" ? "live" : "waiting for the node");
      this.due = true;
    });
  }

  // The view was made anew, perhaps with other columns.
  begin() {
    this.stream.close();
    this.known = false;
  }

  say(word) { this.status.replaceChildren(state(word)); }

  async draw() {
    if (!this.due || this.asking || !this.table || document.hidden) return;
    this.asking = true;
    this.due = false;
    const time = this.time(), own = this.order.value.trim(), start = this.pages.start;
    const newest = time && `-${time}`;
    try {
      const order = own || newest || (this.choice.value && `-${this.choice.value}`);
      const found = await this.ask(order, time && !start ? IN_TIME : ROWS + 1, start);
      if (!found.rows.length && start) { this.pages.turn(-ROWS); return; }
      this.wrong.textContent = "";
      this.table.update(found.rows.slice(0, ROWS));
      this.version.textContent = `version ${found.version}`;
      this.picture(time && (own || start) ? (await this.ask(newest, IN_TIME)).rows : found.rows, time);
      this.pages.show(start, found.rows.length, found.rows.length > ROWS ? await this.count() : null);
    } catch (error) {
      this.wrong.textContent = error.message;
      if (error.status !== 400) setTimeout(() => { this.due = true; }, AGAIN_MS);
    } finally { this.asking = false; }
  }

  // How many rows there are; of those that fit a condition nobody knows it.
  async count() {
    if (conditions(this.where.value).length) return null;
    return (await get("views")).find((view) => view.app === this.spec.app && view.name === this.spec.name)?.rows;
  }

  // Integers that are no numbers in JavaScript come as text. Rows that are equal in what they are ordered by keep an order
  // of their own, so that no page has a row of another.
  ask(order, limit, offset = 0) {
    const asked = new URLSearchParams({ limit, offset, exact: "true" });
    const named = (order || "").split(",").map((name) => name.trim()).filter(Boolean);
    const ties = this.spec.key.filter((name) => !/^-|,/.test(name) && !named.some((one) => one.replace(/^-+/, "") === name));
    asked.set("order", [...named, ...ties].join(","));
    for (const condition of conditions(this.where.value)) asked.append("where", condition);
    return get(`${this.at}?${asked}`);
  }

  time() { return this.spec.key.find((name) => this.isTime(name)); }

  isTime(name) { return TIMES.test(this.spec.columns.find((column) => column.name === name)?.type ?? ""); }

  picture(found, time) {
    const column = this.choice.value;
    if (!column) return this.chart.nothing();
    if (time) return this.overTime(found, time, column);
    const bars = found.filter((row) => row[column] !== null).slice(0, BARS);
    return this.chart.bars(bars.map((row) => [this.spec.key.map((name) => value(row[name])).join(" "), Number(row[column])]));
  }

  // A line for each of the other keys, those with the largest values: their values are not added up, since nobody knows
  // whether they may be. Of the oldest time there may be rows that were not asked for, so it is left out.
  overTime(found, time, column) {
    const others = this.spec.key.filter((name) => !this.isTime(name));
    const when = (row) => Date.parse(row[time]?.start ?? row[time]);
    const times = [...new Set(found.map(when))].filter((at) => !Number.isNaN(at)).sort((a, b) => b - a);
    if (found.length === IN_TIME && times.length > 1) times.pop();
    const shown = new Set(times.slice(0, TIMES_SHOWN));
    const lines = new Map();
    for (const row of found.filter((one) => shown.has(when(one)) && one[column] !== null)) {
      const key = others.map((name) => value(row[name])).join(" ");
      if (!lines.has(key)) lines.set(key, { name: others.length ? key : undefined, size: 0, points: [] });
      const line = lines.get(key);
      line.size += Math.abs(Number(row[column]));
      line.points.push([when(row), Number(row[column])]);
    }
    const all = [...lines.values()].sort((a, b) => b.size - a.size);
    for (const line of all) line.points.sort((a, b) => a[0] - b[0]);
    const drawn = all.slice(0, LINES).sort((a, b) => a.name?.localeCompare(b.name));
    this.chart.lines(drawn, { more: all.length - drawn.length });
  }

  close() {
    this.over = true;
    this.stream?.close();
    clearInterval(this.timer);
    this.changes.close();
  }
}

// A hundred rows at a time.
class Pages {
  constructor(turned) {
    this.start = 0;
    this.turned = turned;
    this.place = h("span", { class: "quiet", id: "place", role: "status" });
    this.previous = h("button", { type: "button", id: "previous", hidden: true, onclick: () => this.turn(-ROWS) }, "Previous");
    this.next = h("button", { type: "button", id: "next", hidden: true, onclick: () => this.turn(ROWS) }, "Next");
    this.made = h("div", { class: "row end pages" }, this.place, this.previous, this.next);
  }

  turn(by) {
    this.start = Math.max(0, this.start + by);
    this.turned();
  }

  // `found`: how many rows there are from `start` on, more than a hundred if there is a next page; `counted`: all there are.
  show(start, found, counted) {
    const more = found > ROWS, last = start + Math.min(found, ROWS);
    const range = `${number(start + 1)} to ${number(last)}`, all = more ? counted : last;
    if (!start && !more) set(this.place, last ? `${last} ${last === 1 ? "row" : "rows"}` : "");
    else set(this.place, all > last || !more ? `${range} of ${number(all)} rows` : `${range}, and more`);
    this.previous.hidden = this.next.hidden = !start && !more;
    this.previous.disabled = !start;
    this.next.disabled = !more;
  }
}
