import { Chart } from "../charts.js";
import { card, empty, h, head, link, path, state, Table, tile } from "../dom.js";
import { bytes, compact, number, rate, span } from "../words.js";

const WHERE = { query: (name) => path("queries", ...name.split(/\.(.*)/s).slice(0, 2)), view: (name) => path("views", name), group: (name) => path("groups", name), cluster: () => "topics",
  disk: () => "topics", capture: () => "pipelines", alert: (name) => path("alerts", ...name.split(/\.(.*)/s).slice(0, 2)) };

const age = (seconds) => seconds === null ? "unknown" : seconds ? span(seconds) : "up to date";

export function open(root) {
  const tiles = {
    rate: tile("records in", "rate"), lag: tile("records behind", "lag"), fresh: tile("slowest group", "fresh"),
    queries: tile("queries running", "queries-running"), views: tile("rows in views", "rows-count"),
    viewsBehind: tile("records not in views yet", "views-behind"), viewsFresh: tile("stalest view", "views-fresh"),
    aside: tile("late and dead rows", "aside-count"), disk: tile("disk free", "disk"),
  };
  const chart = new Chart("Records a second, over the last minutes", { height: 190 });
  const troubles = h("ul", { class: "trouble" });
  const fine = h("p", { class: "fine" }, "Nothing is wrong.");
  const busiest = new Table("Busiest topics", [
    { name: "topic", of: (row) => link(path("topics", row.name), row.name) },
    { name: "rate", kind: "number", of: (row) => rate(row.rate) },
    { name: "records", kind: "number", of: (row) => compact(row.records) },
    { name: "size", kind: "number", of: (row) => bytes(row.bytes) },
  ], (row) => row.name, { empty: empty("No topics yet", "Send something with any Kafka client, or try the demo.", "headrace demo") });
  const slowest = new Table("Groups that are behind", [
    { name: "group", of: (row) => link(path("groups", row.group), row.group) },
    { name: "state", of: (row) => state(row.state) },
    { name: "behind", kind: "number", of: (row) => compact(row.lag) },
    { name: "oldest", kind: "number", of: (row) => span(row.lag_seconds) },
  ], (row) => row.group, { empty: empty("No group is behind") });
  root.append(head("Overview"), h("section", { class: "tiles", "aria-label": "Numbers" }, Object.values(tiles).map((one) => one.made)),
    card("Troubles", fine, troubles), card("Records in a second", chart.made),
    h("div", { class: "columns" }, card("Busiest topics", busiest.made), card("Groups that are behind", slowest.made)));

  return { tick(told) {
    const failed = (told.queries.failed ?? 0) + (told.queries.gone ?? 0);
    const all = Object.values(told.queries).reduce((a, b) => a + b, 0);
    tiles.rate.set(rate(told.rate));
    const unmeasured = (count) => count ? `, ${number(count)} not measured` : "";
    tiles.lag.set(compact(told.lag), told.lag_seconds > 60 ? "warn" : "", unmeasured(told.groups_unmeasured));
    tiles.fresh.set(age(told.lag_seconds), told.lag_seconds > 60 ? "warn" : "", unmeasured(told.groups_without_age));
    tiles.queries.set(`${told.queries.running ?? 0} of ${all}`, failed ? "bad" : "");
    tiles.views.set(compact(told.rows));
    tiles.viewsBehind.set(compact(told.views_behind));
    tiles.viewsFresh.set(age(told.view_freshness_seconds), told.view_freshness_seconds > 60 ? "warn" : "");
    tiles.aside.set(compact(told.late + told.dead), told.late + told.dead ? "warn" : "");
    const part = told.disk.total ? told.disk.free / told.disk.total : 1;
    tiles.disk.set(bytes(told.disk.free), part < .05 ? "bad" : part < .15 ? "warn" : "");
    chart.lines([{ points: told.rates.map(([at, value]) => [at * 1000, value]) }]);
    busiest.update(told.busiest);
    slowest.update(told.slowest);
    fine.hidden = told.troubles.length > 0;
    troubles.replaceChildren(...told.troubles.map((one) => h("li", {}, link(WHERE[one.what](one.name), `${one.what} ${one.name}`), h("span", {}, one.text))));
  } };
}
