import { get } from "../api.js";
import { empty, h, head, link, path, Table } from "../dom.js";
import { bytes, compact, rate } from "../words.js";

export function open(root) {
  let all = [];
  const filter = h("input", { type: "search", id: "filter", placeholder: "name", "aria-label": "Filter topics by name", oninput: () => show() });
  const internal = h("input", { type: "checkbox", id: "internal", onchange: () => show() });
  const table = new Table("Topics", [
    { name: "topic", of: (row) => link(path("topics", row.name), row.name) },
    { name: "partitions", kind: "number", of: (row) => row.partitions },
    { name: "records", kind: "number", of: (row) => compact(row.records) },
    { name: "size", kind: "number", of: (row) => bytes(row.bytes) },
    { name: "in", kind: "number", of: (row) => rate(row.rate) },
  ], (row) => row.name, { empty: empty("No topics here", "Make one, or send something with any Kafka client.", "headrace topic create orders") });
  const show = () => table.update(all.filter((row) => (internal.checked || !row.internal) && row.name.includes(filter.value)));
  root.append(head("Topics", [], h("label", {}, internal, "internal ones"), filter), h("section", { class: "card", "aria-label": "Topics" }, table.made));
  const refresh = async () => { all = await get("topics"); show(); };
  return { tick: refresh };
}
