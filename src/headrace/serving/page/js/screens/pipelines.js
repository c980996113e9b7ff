import { get, mayChange, post } from "../api.js";
import { Chart } from "../charts.js";
import { card, confirm, empty, facts, h, head, link, path, state, Table, toast } from "../dom.js";
import { draw } from "../graph.js";
import { bytes, compact, moment, number, plain, rate } from "../words.js";

export function open(root) {
  const place = h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Graph of pipelines" });
  const nothing = empty("No pipelines yet", "Declare views, derived streams and alerts in a Python file, and run it.", "headrace run shop.py");
  nothing.hidden = true;
  const queries = new Table("Queries", [
    { name: "query", of: (row) => link(path("queries", row.app, row.name), `${row.app}.${row.name}`) }, { name: "makes", of: (row) => row.makes === "derive" ? "stream" : row.makes },
    { name: "state", of: (row) => state(row.state) }, { name: "rows in", kind: "number", of: (row) => rate(row.rate) }, { name: "lag", kind: "number", of: (row) => compact(row.lag) },
    { name: "late", kind: "number", of: (row) => compact(row.late) }, { name: "dead", kind: "number", of: (row) => compact(row.dead) },
    { name: "state size", kind: "number", of: (row) => bytes(row.state_bytes) }, { name: "watermark", of: (row) => moment(row.watermark) }, { name: "last error", kind: "words", of: (row) => row.last_error ?? "" },
  ], (row) => row.id, { empty: empty("No queries") });
  let shown = "";
  root.append(head("Pipelines"), h("section", { class: "card", "aria-label": "Graph" }, nothing, place), card("Queries", queries.made));
  return { async tick() {
    const told = await get("pipelines");
    nothing.hidden = told.nodes.length > 0;
    const now = JSON.stringify(told);
    if (told.nodes.length && now !== shown && !place.contains(document.activeElement?.closest?.("a"))) place.replaceChildren(draw(told));
    shown = now;
    queries.update(told.nodes.filter((node) => node.kind === "query"));
  } };
}

export function openQuery(root, [app, name]) {
  const about = h("div");
  const batches = new Chart("How long batches took, in milliseconds", { height: 170, unit: " ms" });
  const parts = new Chart("Where the time of the last batch went", { height: 170, unit: " ms" });
  const wrong = h("section", { class: "card", "aria-label": "Last error", hidden: true });
  const plan = h("pre", { tabindex: "0", "aria-label": "Plan", id: "plan" });
  const command = async (action) => {
    if (!await confirm(`${action} ${app}.${name}`, action === "stop" ? "The rest of its app goes on." : "It goes on where it was.", action)) return;
    try { toast(`${app}.${name} is ${(await post(path("queries", app, name, action))).state}`); } catch (error) { toast(error.message, true); }
  };
  const tools = mayChange() ? [h("button", { type: "button", id: "restart", onclick: () => command("restart") }, "Restart"), h("button", { type: "button", class: "danger", id: "stop", onclick: () => command("stop") }, "Stop")] : [];
  root.append(head(`${app}.${name}`, [["pipelines", "Pipelines"]], ...tools), wrong, h("section", { class: "card", "aria-label": "About" }, about),
    h("div", { class: "columns" }, card("Batches", batches.made), card("Last batch", parts.made)), card("Plan", plan));
  return { async tick() {
    const told = await get(path("queries", app, name));
    about.replaceChildren(facts([["state", state(told.state)], ["since", moment(told.since)], ["makes", told.kind],
      ["reads", h("span", {}, told.reads.flatMap((topic) => [link(path("topics", topic), topic), " "]))], ["writes", told.topic && link(path("topics", told.topic), told.topic)],
      ["rows in", `${number(told.rows_in)} (${rate(told.rate)})`], ["lag", compact(told.lag)], ["watermark", moment(told.watermark)],
      ["late", h("span", {}, link("aside", number(told.late)))], ["dead", h("span", {}, link("aside", number(told.dead)))], ["state size", `${bytes(told.state_bytes)}${told.state_rows ? `, ${compact(told.state_rows)} rows` : ""}`],
      ["batch", plain(told.batch)], ["restarts", number(told.restarts)], ["declared in", told.place], ["process", told.pid]]));
    wrong.hidden = !told.last_error;
    wrong.replaceChildren(h("h2", {}, "Last error"), h("p", { class: "bad-text", id: "last-error" }, told.last_error ?? ""));
    batches.lines([{ points: told.batches_ms.map((ms, at) => [at, ms]) }], { times: false });
    parts.bars(Object.entries(told.parts_ms).sort((a, b) => b[1] - a[1]).slice(0, 8));
    plan.textContent = told.plan ?? "It has not said how it runs yet: that comes with its first batch.";
  } };
}
