// One topic: partitions, records (live, by place, filtered), one record in full, writing a record, replaying from one.

import { events, get, mayChange, post } from "../api.js";
import { Chart } from "../charts.js";
import { card, confirm, empty, facts, h, head, link, path, state, Table, toast } from "../dom.js";
import { pretty, RecordList } from "../records.js";
import { bytes, came, clock, compact, number, plain, textOf } from "../words.js";

const AGAIN_MS = 2000;

export function open(root, [name]) {
  const at = path("topics", name);
  const list = new RecordList(`Records of ${name}`, (record) => detail.show(record));
  const detail = new Detail(name);
  const chart = new Chart("Records a second", { height: 120 });
  const partitions = new Table("Partitions", [
    { name: "partition", of: (row) => row.partition }, { name: "begins", kind: "number", of: (row) => plain(row.start) },
    { name: "ends", kind: "number", of: (row) => plain(row.end) }, { name: "records", kind: "number", of: (row) => compact(row.records) },
    { name: "size", kind: "number", of: (row) => bytes(row.bytes) }, { name: "leader", kind: "number", of: (row) => row.leader },
  ], (row) => row.partition, { tall: true });
  const settings = new Table("Settings", [
    { name: "setting", of: (row) => row.name }, { name: "value", kind: "clip", of: (row) => row.value }, { name: "from", of: (row) => row.source },
  ], (row) => row.name, { tall: true, empty: empty("All settings have their default") });
  const groups = h("p", { class: "quiet" });
  const reader = new Reader(at, list);
  root.append(head(name, [["topics", "Topics"]], mayChange() && h("button", { type: "button", id: "produce", onclick: () => produce(name, reader.partitions) }, "Write a record")),
    h("section", { class: "card flat", "aria-label": "Records" }, reader.made, list.made), detail.made,
    h("div", { class: "columns" }, card("Partitions, and records in a second", chart.made, groups, partitions.made), card("Settings", settings.made)));
  reader.follow();

  const refresh = async () => {
    const told = await get(at);
    partitions.update(told.partitions);
    reader.choices(told.partitions.map((one) => one.partition));
    settings.update(told.settings.filter((one) => one.source !== "default"));
    chart.lines([{ points: told.rates.map(([when, value]) => [when * 1000, value]) }]);
    groups.replaceChildren(...(told.groups.length ? ["Read by ", ...told.groups.flatMap((group) => [link(path("groups", group), group), " "])] : ["No group has committed offsets here."]));
  };
  return { tick: refresh, close() { reader.close(); list.close(); } };
}

class Reader {
  constructor(at, list) {
    this.at = at;
    this.list = list;
    this.stream = null;
    this.turn = 0;
    this.following = false;
    this.partitions = [];
    this.status = h("span", { id: "tail-status" }, state("waiting"));
    this.told = h("span", { class: "quiet", id: "tail-count", role: "status" });
    this.live = h("button", { type: "button", id: "live", "aria-pressed": "true", onclick: () => this.following ? this.pause() : this.follow() }, "Live");
    const field = (label, id, hint, kind = "") => h("label", { class: "stack" }, label, h("input", { id, type: "search", placeholder: hint, class: kind }));
    this.partition = h("select", { id: "partition", onchange: () => { if (this.following) this.follow(); } }, h("option", { value: "" }, "all"));
    this.form = h("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); this.read(); } },
      field("From", "from", "newest", "short"), h("label", { class: "stack" }, "Partition", this.partition), field("Key", "key", "holds …"), field("Value", "value", "holds …"), field("Header", "header", "name=text"),
      h("button", { class: "main", id: "read" }, "Read"), this.live);
    this.form.querySelector("#from").title = "newest, beginning, an offset, -100, @2026-01-31T12:00, @-15m";
    this.more = h("button", { type: "button", id: "more", hidden: true, onclick: () => this.read(this.next) }, "Go on");
    this.made = h("div", { class: "row" }, this.form, h("span", { class: "grow" }), this.status, this.told, this.more);
  }

  asked() {
    const asked = new URLSearchParams();
    for (const name of ["key", "value", "header"]) {
      const text = this.form.querySelector(`#${name}`).value;
      if (text) asked.set(name, text);
    }
    if (this.partition.value) asked.set("partition", this.partition.value);
    return asked;
  }

  choices(partitions) {
    for (const one of partitions.slice(this.partitions.length)) this.partition.append(h("option", { value: one }, one));
    this.partitions = partitions;
  }

  // What is there, the newest first; then what comes, from where that ended: nothing in between, nothing twice.
  async follow() {
    this.pause();
    const turn = this.turn, asked = this.asked();
    this.following = true;
    this.live.setAttribute("aria-pressed", "true");
    this.more.hidden = true;
    this.say("waiting for the node");
    try {
      const told = await get(`${this.at}/records?limit=100&${asked}`);
      if (turn !== this.turn) return;
      this.list.show(told.records.reverse());
      this.told.textContent = told.records.length ? "" : "no records yet";
      this.listen(asked, told.next);
    } catch (error) {
      if (turn !== this.turn) return;
      if (error.status === 400 || error.status === 404) { this.pause(); toast(error.message, true); return; }
      setTimeout(() => { if (turn === this.turn) this.follow(); }, AGAIN_MS);
    }
  }

  listen(asked, from) {
    const sum = { count: 0, skipped: 0, unseen: 0 };
    this.stream = events((last) => `${this.at}/tail?${new URLSearchParams([...asked, ["from", last ?? from]])}`, {
      frame: (frame) => {
        this.list.add(frame.rows);
        this.told.textContent = came(sum, frame);
      },
      trouble: (said) => this.say(`waiting: ${said.error}`),
    }, (word) => this.say(word === "live" ? "live" : "waiting for the node"));
  }

  say(word) { this.status.replaceChildren(state(word)); }

  pause() {
    this.turn++;
    this.stream?.close();
    this.stream = null;
    this.following = false;
    this.live.setAttribute("aria-pressed", "false");
    this.say("paused");
  }

  async read(from) {
    this.pause();
    const asked = this.asked();
    asked.set("from", from ?? (this.form.querySelector("#from").value.trim() || "newest"));
    asked.set("limit", "200");
    try {
      const told = await get(`${this.at}/records?${asked}`);
      this.next = told.next;
      this.list.show(asked.get("from") === "newest" ? told.records.reverse() : told.records);
      this.told.textContent = `${number(told.records.length)} found in ${compact(told.scanned)}${told.complete ? "" : ", there is more"}`;
      this.more.hidden = told.complete || asked.get("from") === "newest";
    } catch (error) { toast(error.message, true); }
  }

  close() { this.pause(); }
}

class Detail {
  constructor(topic) {
    this.topic = topic;
    this.body = h("div", { class: "detail" });
    this.made = h("section", { class: "card", id: "record", "aria-label": "Record", hidden: true }, this.body);
  }

  async show(record) {
    if (record.cut || record.size > 500) record = await this.whole(record);
    const place = `${record.partition}:${record.offset}`;
    const headers = record.headers.map((one) => [one.name, textOf(one, "value") ?? "null"]);
    this.made.hidden = false;
    this.body.replaceChildren(
      h("div", { class: "row" }, h("h2", {}, `Record ${place}`), h("span", { class: "quiet" }, `${clock(record.timestamp_ms, true)} · ${bytes(record.size)}`),
        mayChange() && h("button", { type: "button", id: "replay", onclick: () => this.replay(record) }, "Replay from here"),
        h("button", { type: "button", class: "plain", "aria-label": "Close the record", onclick: () => { this.made.hidden = true; } }, "✕")),
      facts([["key", textOf(record, "key") ?? "null"], ...headers]), pretty(textOf(record, "value")));
  }

  async whole(record) {
    const asked = new URLSearchParams({ from: record.offset, partition: record.partition, limit: 1, whole: "true" });
    const told = await get(`${path("topics", this.topic)}/records?${asked}`).catch(() => ({ records: [] }));
    return told.records[0]?.offset === record.offset ? told.records[0] : record;
  }

  replay(record) {
    const groups = h("input", { id: "replay-group", list: "known-groups", required: true, placeholder: "billing", autocomplete: "off" });
    const known = h("datalist", { id: "known-groups" });
    get("groups").then((all) => known.append(...all.filter((one) => one.type !== "share").map((one) => h("option", { value: one.group }))));
    dialog("Replay from here", "Replay", h("p", { class: "quiet" }, `The group goes back to offset ${record.offset} of partition ${record.partition}. Its consumers must be stopped.`),
      h("label", { class: "stack" }, "Group", groups), known, async () => {
        const told = await post(path("groups", groups.value), { to: String(record.offset), topic: this.topic, partition: record.partition });
        const [moved] = told.offsets;
        toast(`${told.group} goes on at ${moved.topic} ${moved.partition}:${moved.after}`);
      });
  }
}

export function produce(topic, partitions) {
  const key = h("input", { id: "new-key", autocomplete: "off" });
  const value = h("textarea", { id: "new-value", rows: 6, spellcheck: "false" });
  const nothing = h("input", { id: "new-null", type: "checkbox", onchange: () => { value.disabled = nothing.checked; } });
  const partition = h("select", { id: "new-partition" }, h("option", { value: "" }, "by key"), partitions.map((one) => h("option", { value: one }, one)));
  const headers = h("input", { id: "new-headers", placeholder: "name=text, name=text", autocomplete: "off" });
  dialog(`Write to ${topic}`, "Write", h("label", { class: "stack" }, "Key (empty: none)", key), h("label", { class: "stack" }, "Value", value),
    h("label", {}, nothing, "no value: a tombstone, which deletes the key where a topic is compacted"), h("label", { class: "stack" }, "Headers", headers),
    h("label", { class: "stack" }, "Partition", partition), async () => {
      const pairs = headers.value.split(",").map((one) => one.trim()).filter(Boolean).map((one) => one.split(/=(.*)/s).slice(0, 2));
      const record = { key: key.value || null, value: nothing.checked ? null : value.value, headers: Object.fromEntries(pairs.map(([name, text]) => [name, text ?? ""])) };
      if (partition.value) record.partition = Number(partition.value);
      const told = await post(`${path("topics", topic)}/records`, record);
      toast(`Written to ${told.topic} ${told.partition}:${told.offset}`);
    });
}

function dialog(title, verb, ...rest) {
  const done = rest.pop();
  const wrong = h("p", { class: "bad-text", role: "alert" });
  const made = h("dialog", { "aria-label": title }, h("form", { onsubmit: async (event) => {
    event.preventDefault();
    try { await done(); made.close(); } catch (error) { wrong.textContent = error.message; }
  } }, h("h2", {}, title), ...rest, wrong, h("div", { class: "row end" }, h("button", { type: "button", onclick: () => made.close() }, "Cancel"), h("button", { class: "main", id: "dialog-do" }, verb))));
  made.addEventListener("close", () => made.remove());
  document.body.append(made);
  made.showModal();
}
