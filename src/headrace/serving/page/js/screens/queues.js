// Queues and their dead letters.

import { get, mayChange, post } from "../api.js";
import { card, confirm, empty, facts, h, head, link, path, state, Table, toast } from "../dom.js";
import { compact, number, plain, textOf } from "../words.js";

export function open(root) {
  const queues = new Table("Queues", [
    { name: "queue", of: (row) => link(path("queues", row.group), row.group) }, { name: "topics", kind: "clip", of: (row) => row.topics.join(" ") },
    { name: "to settle", kind: "number", of: (row) => compact(row.lag) }, { name: "in flight", kind: "number", of: (row) => compact(row.in_flight) }, { name: "to retry", kind: "number", of: (row) => compact(row.to_retry) },
    { name: "dead letters waiting", kind: "number", of: (row) => compact(row.dead_letters_waiting) },
  ], (row) => row.group, { empty: empty("No queues yet", "A queue is a share group: it begins with its first share consumer.", "headrace queue --help") });
  const letters = new Table("Dead letters", [
    { name: "topic", of: (row) => link(path("dead-letters", row.topic), row.topic) }, { name: "of", kind: "clip", of: (row) => row.groups.join(" ") },
    { name: "letters", kind: "number", of: (row) => compact(row.letters) }, { name: "waiting", kind: "number", of: (row) => compact(row.waiting) },
  ], (row) => row.topic, { empty: empty("No queue has a dead-letter topic", "What a queue gives up is kept once it has one.", "headrace queue alter GROUP --set headrace.dead.letter.topic=NAME") });
  root.append(head("Queues"), card("Queues", queues.made), card("Dead letters", letters.made));
  return { slow: true, async tick() {
    const [found, dead] = await Promise.all([get("queues"), get("dead-letters")]);
    queues.update(found);
    letters.update(dead);
  } };
}

export function openOne(root, [name]) {
  const about = h("div");
  const parts = new Table("Partitions", [
    { name: "topic", of: (row) => link(path("topics", row.topic), row.topic) }, { name: "partition", kind: "number", of: (row) => row.partition },
    { name: "settled before", kind: "number", of: (row) => plain(row.start) }, { name: "end", kind: "number", of: (row) => plain(row.end) },
    { name: "to settle", kind: "number", of: (row) => number(row.lag) }, { name: "to retry", kind: "number", of: (row) => number(row.to_retry) },
  ], (row) => `${row.topic}/${row.partition}`);
  const members = new Table("Members", [
    { name: "client", of: (row) => row.client }, { name: "host", of: (row) => row.host }, { name: "partitions", kind: "words", of: (row) => row.partitions.join(" ") },
  ], (row) => row.member, { empty: empty("No consumer is at work") });
  const records = new Table("Next records", [
    { name: "place", of: (row) => `${row.topic} ${row.partition}:${row.offset}` }, { name: "state", of: (row) => row.state }, { name: "attempts", kind: "number", of: (row) => row.attempts },
    { name: "key", kind: "clip", of: (row) => textOf(row, "key") ?? "null" }, { name: "value", kind: "clip", of: (row) => textOf(row, "value") ?? "null" },
  ], (row) => `${row.topic}/${row.partition}/${row.offset}`, { tall: true, empty: empty("Everything is settled") });
  const settings = new Table("Settings", [{ name: "setting", of: (row) => row[0] }, { name: "value", kind: "clip", of: (row) => row[1] }], (row) => row[0], { empty: empty("All settings have their default") });
  root.append(head(name, [["queues", "Queues"]]), h("section", { class: "card", "aria-label": "About" }, about), card("Partitions", parts.made), card("Next records", records.made),
    h("div", { class: "columns" }, card("Consumers", members.made), card("Settings", settings.made)));
  return { slow: true, async tick() {
    const told = await get(path("queues", name));
    const dead = told.settings["headrace.dead.letter.topic"];
    about.replaceChildren(facts([["state", state(told.state)], ["to settle", number(told.partitions.reduce((sum, one) => sum + one.lag, 0))],
      ["in flight", number(told.in_flight)], ["to retry", number(told.partitions.reduce((sum, one) => sum + one.to_retry, 0))], ["dead letters", dead && link(path("dead-letters", dead), dead)]]));
    settings.update(Object.entries(told.settings));
    parts.update(told.partitions);
    members.update(told.members);
    records.update(told.records);
  } };
}

export function openLetters(root, [topic]) {
  const count = h("span", { class: "quiet", role: "status" });
  const redrive = async (body, what) => {
    if (!await confirm("Redrive", `${what} of ${topic} go back to where they came from, each once.`, "Redrive")) return;
    try {
      const told = await post(`${path("dead-letters", topic)}/redrive`, body);
      toast(`${number(told.redriven)} redriven${told.without_topic ? `, ${told.without_topic} have no topic any more` : ""}`);
      await screen.tick();
    } catch (error) { toast(error.message, true); }
  };
  const letters = new Table("Dead letters", [
    { name: "letter", of: (row) => row.letter }, { name: "from", of: (row) => `${row.from.topic} ${row.from.partition}:${row.from.offset}` },
    { name: "group", of: (row) => row.group }, { name: "attempts", kind: "number", of: (row) => row.attempts }, { name: "reason", kind: "words", of: (row) => row.reason },
    { name: "key", kind: "clip", of: (row) => textOf(row, "key") ?? "null" }, { name: "value", kind: "clip", of: (row) => textOf(row, "value") ?? "null" },
    { name: "", of: (row) => mayChange() ? h("button", { type: "button", class: "redrive", "data-letter": row.letter, "aria-label": `Redrive ${row.letter}`, onclick: () => redrive({ letters: [row.letter] }, "One dead letter") }, "Redrive") : "" },
  ], (row) => row.letter, { tall: true, empty: empty("No dead letters", "Nothing was given up, or all of it was sent back.") });
  const all = mayChange() && h("button", { type: "button", id: "redrive-all", onclick: () => redrive({ all: true }, "All dead letters") }, "Redrive all");
  root.append(head(topic, [["queues", "Queues"]], count, all), h("section", { class: "card", "aria-label": "Dead letters" }, letters.made));
  const screen = { slow: true, async tick() {
    const told = await get(path("dead-letters", topic));
    letters.update(told.letters);
    count.textContent = `${number(told.count)} not redriven`;
    if (all) all.disabled = !told.count;
  } };
  return screen;
}
