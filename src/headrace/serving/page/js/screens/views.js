// Views: browse, filter, a chart of a number, and what changes.

import { events, get } from "../api.js";
import { Chart } from "../charts.js";
import { card, empty, h, head, link, path, state, Table } from "../dom.js";
import { RecordList } from "../records.js";
import { compact, number, value } from "../words.js";

const NUMBERS = /^(tinyint|smallint|int|integer|bigint|long|float|double|decimal)/;
const TIMES = /^(timestamp|date|struct<start:timestamp)/;
const ROWS = 100;

export function open(root) {
  const table = new Table("Views", [
    { name: "view", of: (row) => link(path("views", `${row.app}.${row.name}`), `${row.app}.${row.name}`) }, { name: "state", of: (row) => state(row.state) },
    { name: "rows", kind: "number", of: (row) => compact(row.rows) }, { name: "behind", kind: "number", of: (row) => compact(row.behind) },
    { name: "bad", kind: "number", of: (row) => number(row.bad) }, { name: "key", of: (row) => row.key.join(", ") }, { name: "trouble", kind: "words", of: (row) => row.trouble ?? row.last_bad ?? "" },
  ], (row) => `${row.app}.${row.name}`, { empty: empty("No views yet", "A view is what a query keeps up to date. Declare one and run it.", "headrace run shop.py") });
  root.append(head("Views"), h("section", { class: "card", "aria-label": "Views" }, table.made));
  return { async tick() { table.update(await get("views")); } };
}

export function openOne(root, [name]) {
  const chart = new Chart(`Chart of ${name}`, { height: 220 });
  const choice = h("select", { id: "value-choice", onchange: () => { due = true; } });
  const where = h("input", { id: "where", type: "search", placeholder: "region=EU", "aria-label": "Condition", onchange: () => { due = true; } });
  const order = h("input", { id: "order", type: "search", placeholder: "-revenue", class: "short", onchange: () => { due = true; } });
  const status = h("span", { class: "quiet", id: "view-version", role: "status" });
  const told = h("span", { class: "quiet", id: "change-count", role: "status" });
  const wrong = h("p", { class: "bad-text", role: "alert" });
  const rows = h("div");
  const changes = new RecordList(`Changes of ${name}`, () => {}, "short");
  let spec = null, table = null, due = true, asking = false, count = 0;
  const form = h("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); due = true; draw(); } },
    h("label", { class: "stack" }, "Where", where), h("label", { class: "stack" }, "Order", order), h("button", { class: "main" }, "Show"));
  root.append(head(name, [["views", "Views"]], status), h("section", { class: "card", "aria-label": "Chart" }, h("div", { class: "row" }, h("h2", {}, "Chart"), h("label", {}, "value", choice)), chart.made),
    card("Rows", form, wrong, rows), h("section", { class: "card flat", "aria-label": "Changes" }, h("div", { class: "row" }, h("h2", {}, "Changes, the newest first"), told), changes.made));

  const timeColumn = () => spec.columns.find((column) => TIMES.test(column.type) && spec.key.includes(column.name))?.name;
  async function start() {
    spec = (await get("views")).find((view) => `${view.app}.${view.name}` === name || view.name === name);
    if (!spec) { rows.replaceChildren(empty("There is no such view")); return; }
    const numbers = spec.columns.filter((column) => NUMBERS.test(column.type)).map((column) => column.name);
    const best = numbers.find((column) => !spec.key.includes(column)) ?? numbers[0];
    choice.replaceChildren(...numbers.map((column) => h("option", { value: column }, column)));
    if (best) choice.value = best;
    table = new Table("Rows", spec.columns.map((column) => ({ name: column.name, kind: NUMBERS.test(column.type) ? "number" : "clip", of: (row) => value(row[column.name]) })),
      (row) => JSON.stringify(spec.key.map((column) => row[column])), { tall: true, empty: empty("No rows", "None yet, or none that fit the condition.") });
    rows.replaceChildren(table.made);
    due = true;
    await draw();
    const before = await get(`${path("topics", spec.topic)}/records?limit=50`).catch(() => ({ records: [] }));
    changes.show([...changes.kept, ...before.records.reverse()]);
  }
  async function draw() {
    if (!due || asking || !table) return;
    asking = true;
    due = false;
    const time = timeColumn();
    const asked = new URLSearchParams({ limit: time ? 400 : ROWS });
    const sorted = order.value.trim() || (time ? `-${time}` : choice.value ? `-${choice.value}` : "");
    if (sorted) asked.set("order", sorted);
    for (const condition of where.value.split(/\s+and\s+/i).map((one) => one.trim()).filter(Boolean)) asked.append("where", condition);
    try {
      const found = await get(`${path("views", name)}?${asked}`);
      wrong.textContent = "";
      table.update(found.rows.slice(0, ROWS));
      status.textContent = `version ${found.version}`;
      picture(found.rows, time);
    } catch (error) { wrong.textContent = error.message; } finally { asking = false; }
  }
  function picture(found, time) {
    if (!choice.value) return chart.nothing();
    if (!time) return chart.bars(found.slice(0, 14).map((row) => [spec.key.map((column) => value(row[column])).join(" "), Number(row[choice.value] ?? 0)]));
    const sums = new Map();
    for (const row of found) {
      const at = Date.parse(row[time]?.start ?? row[time]);
      if (!Number.isNaN(at)) sums.set(at, (sums.get(at) ?? 0) + Number(row[choice.value] ?? 0));
    }
    return chart.lines([{ points: [...sums].sort((a, b) => a[0] - b[0]).slice(-120) }]);
  }
  const stream = events(`${path("views", name)}/frames`, { frame: (frame) => {
    count += frame.count;
    told.textContent = `${compact(count)} since you came`;
    changes.add(frame.rows);
    due = true;
  } });
  const timer = setInterval(draw, 500);
  start();
  return { tick() {}, close() { stream.close(); clearInterval(timer); changes.close(); } };
}
