import { get } from "../api.js";
import { Chart } from "../charts.js";
import { card, empty, facts, h, head, link, path, set, state, Table } from "../dom.js";
import { compact, number, plain, span } from "../words.js";

const SHOWN = 200;

export function open(root) {
  let all = [];
  const filter = h("input", { type: "search", id: "filter", placeholder: "name", "aria-label": "Filter groups by name", oninput: () => show() });
  const table = new Table("Groups", [
    { name: "group", of: (row) => link(path("groups", row.group), row.group) }, { name: "type", of: (row) => row.type },
    { name: "state", of: (row) => state(row.state) }, { name: "members", kind: "number", of: (row) => row.members },
    { name: "behind", kind: "number", of: (row) => compact(row.lag) }, { name: "oldest", kind: "number", of: (row) => row.lag === 0 ? "0 s" : span(row.lag_seconds) },
    { name: "topics", kind: "clip", of: (row) => (row.topics ?? []).join(" ") },
  ], (row) => row.group, { empty: empty("No groups yet", "A group begins with its first consumer.", "headrace consume orders --group billing") });
  const more = h("p", { class: "quiet", id: "more-groups", role: "status" });
  const show = () => {
    const found = all.filter((row) => row.group.includes(filter.value));
    table.update(found.slice(0, SHOWN));
    set(more, found.length > SHOWN ? `+ ${number(found.length - SHOWN)} more: find them by name` : "");
  };
  root.append(head("Groups", [], filter), h("section", { class: "card", "aria-label": "Groups" }, table.made, more));
  return { slow: true, async tick() { all = await get("groups"); show(); } };
}

export function openOne(root, [name]) {
  const about = h("div");
  const records = new Chart("Records behind, over the last minutes", { height: 170 });
  const seconds = new Chart("Age of the oldest unread record, in seconds", { height: 170, unit: " s" });
  const offsets = new Table("Offsets", [
    { name: "topic", of: (row) => link(path("topics", row.topic), row.topic) }, { name: "partition", kind: "number", of: (row) => row.partition },
    { name: "committed", kind: "number", of: (row) => plain(row.committed) }, { name: "end", kind: "number", of: (row) => plain(row.end) },
    { name: "behind", kind: "number", of: (row) => number(row.lag) }, { name: "oldest", kind: "number", of: (row) => row.lag ? span(row.lag_seconds) : "0 s" },
  ], (row) => `${row.topic}/${row.partition}`, { tall: true, empty: empty("It has committed nothing yet") });
  const members = new Table("Members", [
    { name: "client", of: (row) => row.client }, { name: "host", of: (row) => row.host }, { name: "partitions", kind: "words", of: (row) => row.partitions.join(" ") },
    { name: "member", kind: "clip", of: (row) => row.member },
  ], (row) => row.member, { empty: empty("Nobody is in it now", "Its offsets can be moved: open a topic, choose a record, and replay from there.") });
  root.append(head(name, [["groups", "Groups"]]), h("section", { class: "card", "aria-label": "About" }, about),
    h("div", { class: "columns" }, card("Behind, in records", records.made), card("Behind, in seconds", seconds.made)), card("Members", members.made), card("Offsets", offsets.made));
  return { async tick() {
    const told = await get(path("groups", name));
    about.replaceChildren(facts([["state", state(told.state)], ["type", told.type], ["assignor", told.assignor], ["coordinator", told.coordinator],
      ["behind", number(told.offsets.reduce((sum, one) => sum + one.lag, 0))]]));
    offsets.update(told.offsets);
    members.update(told.members);
    records.lines([{ points: told.lags.map(([at, lag]) => [at * 1000, lag]) }]);
    seconds.lines([{ points: told.lags.map(([at, , age]) => [at * 1000, age]) }]);
  } };
}
