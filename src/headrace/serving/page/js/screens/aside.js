// Late and dead rows with their reasons, and alerts with what became of them.

import { get } from "../api.js";
import { card, empty, h, head, link, path, state, Table } from "../dom.js";
import { clock, compact, moment, textOf } from "../words.js";

export function open(root) {
  const table = new Table("Topics of late and dead rows", [
    { name: "topic", of: (row) => link(path("aside", row.topic), row.topic) }, { name: "kind", of: (row) => state(row.kind) },
    { name: "of", of: (row) => row.of }, { name: "rows", kind: "number", of: (row) => `${row.exact ? "" : "about "}${compact(row.records)}` },
  ], (row) => row.topic, { empty: empty("Nothing was late, nothing is dead", "Rows that come after the watermark, and rows that cannot be read, are kept here with the reason.") });
  root.append(head("Late and dead"), h("section", { class: "card", "aria-label": "Late and dead rows" }, table.made));
  return { async tick() { table.update(await get("aside")); } };
}

export function openOne(root, [topic]) {
  const filter = h("input", { id: "filter", type: "search", placeholder: "value holds …", "aria-label": "Filter rows by value" });
  const rows = new Table("Rows", [
    { name: "when", of: (row) => clock(row.timestamp_ms, true) }, { name: "reason", of: (row) => state(row.reason ?? "unknown") }, { name: "detail", kind: "words", of: (row) => row.detail ?? "" },
    { name: "from", of: (row) => row.from.topic ? link(path("topics", row.from.topic), `${row.from.topic} ${row.from.partition}:${row.from.offset}`) : "" }, { name: "query", of: (row) => row.query ?? "" },
    { name: "event time", of: (row) => moment(row.event_time) }, { name: "watermark", of: (row) => moment(row.watermark) }, { name: "value", kind: "clip", of: (row) => textOf(row, "value") ?? "null" },
  ], (row) => `${row.partition}/${row.offset}`, { tall: true, empty: empty("No rows") });
  root.append(head(topic, [["aside", "Late and dead"]], filter), h("section", { class: "card", "aria-label": "Rows" }, rows.made));
  return { async tick() {
    const asked = new URLSearchParams(filter.value ? { value: filter.value } : {});
    rows.update((await get(`${path("aside", topic)}?${asked}`)).rows);
  } };
}

export function openAlerts(root) {
  const table = new Table("Alerts", [
    { name: "alert", of: (row) => link(path("alerts", row.app, row.name), `${row.app}.${row.name}`) }, { name: "state", of: (row) => state(row.state ?? "unknown") },
    { name: "rows", kind: "number", of: (row) => compact(row.rows) }, { name: "sent", kind: "number", of: (row) => compact(row.sent) }, { name: "not sent yet", kind: "number", of: (row) => compact(row.waiting) }, { name: "given up", kind: "number", of: (row) => compact(row.dead) },
  ], (row) => row.topic, { empty: empty("No alerts yet", "An alert is a query whose rows are sent somewhere: @app.alert(to=hr.Webhook(...)).") });
  root.append(head("Alerts"), h("section", { class: "card", "aria-label": "Alerts" }, table.made));
  return { async tick() { table.update(await get("alerts")); } };
}

export function openAlert(root, [app, name]) {
  const rows = new Table("Alerts sent", [
    { name: "when", of: (row) => clock(row.timestamp_ms, true) }, { name: "delivery", of: (row) => state(row.delivery) }, { name: "detail", kind: "words", of: (row) => row.detail ?? "" },
    { name: "place", of: (row) => `${row.partition}:${row.offset}` }, { name: "row", kind: "clip", of: (row) => textOf(row, "value") ?? "null" },
  ], (row) => `${row.partition}/${row.offset}`, { tall: true, empty: empty("It has not fired yet") });
  root.append(head(`${app}.${name}`, [["alerts", "Alerts"]], link(path("queries", app, name), "its query")), card("Rows, the newest first", rows.made));
  return { slow: true, async tick() { rows.update((await get(path("alerts", app, name))).rows); } };
}
