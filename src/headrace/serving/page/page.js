// The page: live numbers, one chart, views and queries. Everything comes from this node's own API.

const POLL_MS = 1000;
const REDRAW_MS = 400;
const ROWS_SHOWN = 12;
const POINTS = 60;
const BARS = 12;
const NUMBERS = /^(tinyint|smallint|int|integer|bigint|long|float|double|decimal)/;
const TIMES = /^(timestamp|date|struct<start:timestamp)/;

const $ = (id) => document.getElementById(id);
const state = { views: [], rates: new Map(), chosen: null, value: null, stream: null, due: false, asking: false };

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function element(name, text, ...classes) {
  const made = document.createElement(name);
  made.textContent = text ?? "";
  made.classList.add(...classes.filter(Boolean));
  return made;
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function shown(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return grouped.format(value);
  if (typeof value === "object") return value.start ? shownTime(value.start) : JSON.stringify(value);
  return /^\d{4}-\d\d-\d\dT/.test(value) ? shownTime(value) : String(value);
}

function shownTime(text) {
  return text.replace("T", " ").replace(/(:\d\d)(\.0+)?Z$/, "$1");
}

const offsets = (view) => view.version.split(",").reduce((sum, pair) => sum + Number(pair.split(":")[1] || 0), 0);
const fullName = (entry) => `${entry.app}.${entry.name}`;
const moment = (value) => Date.parse(value?.start ?? value);
const word = (text) => element("span", text, "dot", text.split(" ")[0]);

function cell(content, kind) {
  const made = element("td", typeof content === "object" && content ? "" : content, kind);
  if (typeof content === "object" && content) made.append(content);
  return made;
}

function fill(table, rows) {
  table.tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells);
    return row;
  }));
}

function noteRates(views) {
  const now = performance.now();
  for (const view of views) {
    const before = state.rates.get(fullName(view));
    const total = offsets(view);
    const rate = before && now > before.at ? Math.max(0, (total - before.total) * 1000 / (now - before.at)) : 0;
    state.rates.set(fullName(view), { at: now, total, rate });
  }
}

const rateOf = (view) => state.rates.get(fullName(view))?.rate ?? 0;

function showViews(views) {
  $("views-count").textContent = views.length;
  $("rows-count").textContent = grouped.format(views.reduce((sum, view) => sum + (view.rows ?? 0), 0));
  $("changes-rate").textContent = compact.format(views.reduce((sum, view) => sum + rateOf(view), 0));
  fill($("views"), views.map((view) => [
    cell(fullName(view)), cell(word(view.state)), cell(shown(view.rows), "number"),
    cell(compact.format(rateOf(view)), "number"), cell(shown(view.behind), "number"), cell(shown(view.bad), "number"),
    cell(view.version), cell(view.trouble ?? view.last_bad ?? "", "words"),
  ]));
}

function showQueries(queries) {
  $("queries-running").textContent = queries.filter((query) => query.state === "running").length;
  $("queries-failed").textContent = queries.filter((query) => ["failed", "gone"].includes(query.state)).length;
  fill($("queries"), queries.map((query) => [
    cell(fullName(query)), cell(query.kind ?? ""), cell(word(query.state ?? "waiting")),
    cell(shown(query.rows_in ?? 0), "number"), cell(shown(query.late ?? 0), "number"),
    cell(shown(query.dead ?? 0), "number"), cell(shown(query.restarts ?? 0), "number"),
    cell(query.watermark ? shown(query.watermark) : ""), cell(query.last_error ?? "", "words"),
  ]));
}

function options(select, names, chosen) {
  if (select.options.length !== names.length || names.some((name, at) => select.options[at].value !== name)) {
    select.replaceChildren(...names.map((name) => {
      const option = element("option", name);
      option.value = name;
      return option;
    }));
  }
  select.value = chosen ?? "";
}

function choose(views) {
  const names = views.map(fullName);
  if (!names.includes(state.chosen)) {
    const timed = views.find((view) => timeColumn(view) && numbers(view).length);
    const best = timed ?? views.find((view) => numbers(view).length) ?? views[0];
    follow(best ? fullName(best) : null);
  }
  options($("view-choice"), names, state.chosen);
  const view = current();
  const values = view ? numbers(view) : [];
  if (!values.includes(state.value)) {
    state.value = values.find((name) => !view.key.includes(name)) ?? null;
    state.due = true;
  }
  options($("value-choice"), values, state.value);
}

const current = () => state.views.find((view) => fullName(view) === state.chosen);
const typed = (view, pattern) => view.columns.filter((column) => pattern.test(column.type)).map((column) => column.name);
const numbers = (view) => typed(view, NUMBERS);
const timeColumn = (view) => typed(view, TIMES).find((name) => view.key.includes(name));

function follow(name) {
  state.chosen = name;
  state.value = null;
  state.stream?.close();
  state.stream = name && new EventSource(`views/${encodeURIComponent(name)}/changes`);
  for (const kind of ["start", "change", "rebuilt"]) {
    state.stream?.addEventListener(kind, () => { state.due = true; });
  }
}

function question(view) {
  const time = timeColumn(view);
  const order = time ? `-${time}` : state.value ? `-${state.value}` : view.key[0];
  return `order=${encodeURIComponent(order)}&limit=${time ? POINTS * 10 : BARS}`;
}

async function redraw() {
  const view = current();
  if (!state.due || state.asking || !view) return;
  state.due = false;
  state.asking = true;
  try {
    const answer = await get(`views/${encodeURIComponent(state.chosen)}?${question(view)}`);
    if (fullName(view) !== state.chosen) return;
    $("chart-title").textContent = state.value ? `${view.name}: ${state.value}` : view.name;
    $("chart-version").textContent = `version ${answer.version}`;
    drawTable(view, answer.rows.slice(0, ROWS_SHOWN));
    draw(view, answer.rows);
  } catch {
    state.due = true;
  } finally {
    state.asking = false;
  }
}

function drawTable(view, rows) {
  const numeric = new Set(numbers(view));
  const head = document.createElement("tr");
  head.append(...view.columns.map((column) => element("th", column.name, numeric.has(column.name) && "number")));
  $("rows").tHead.replaceChildren(head);
  fill($("rows"), rows.map((row) => view.columns.map(({ name }) => cell(shown(row[name]), numeric.has(name) ? "number" : ""))));
}

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const BOX = { left: 64, right: 880, top: 12, bottom: 246 };

function axis(top) {
  const parts = [];
  for (let at = 0; at <= 4; at++) {
    const y = BOX.bottom - (BOX.bottom - BOX.top) * at / 4;
    parts.push(svg("line", { x1: BOX.left, x2: BOX.right, y1: y, y2: y, class: "grid" }));
    parts.push(svg("text", { x: BOX.left - 8, y: y + 4, "text-anchor": "end" }, compact.format(top * at / 4)));
  }
  return parts;
}

function draw(view, rows) {
  if (!state.value) return $("chart").replaceChildren();
  const time = timeColumn(view);
  return time ? drawLine(rows, time) : drawBars(view, rows);
}

function drawLine(rows, time) {
  const sums = new Map();
  for (const row of rows) {
    const at = moment(row[time]);
    if (!Number.isNaN(at)) sums.set(at, (sums.get(at) ?? 0) + Number(row[state.value] ?? 0));
  }
  const points = [...sums].sort((a, b) => a[0] - b[0]).slice(-POINTS);
  if (!points.length) return $("chart").replaceChildren();
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const top = Math.max(...points.map(([, y]) => y), 0) || 1;
  const x = (at) => last === first ? (BOX.left + BOX.right) / 2 : BOX.left + (at - first) / (last - first) * (BOX.right - BOX.left);
  const y = (value) => BOX.bottom - Math.max(0, value) / top * (BOX.bottom - BOX.top);
  const line = points.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)},${y(value).toFixed(1)}`).join("");
  const parts = axis(top);
  parts.push(svg("path", { d: `${line}L${x(last)},${BOX.bottom}L${x(first)},${BOX.bottom}Z`, class: "area" }));
  parts.push(svg("path", { d: line, class: "line" }));
  for (const [at, value] of points) {
    const dot = svg("circle", { cx: x(at), cy: y(value), r: 3, class: "point" });
    dot.append(svg("title", {}, `${shownTime(new Date(at).toISOString())}: ${grouped.format(value)}`));
    parts.push(dot);
  }
  const step = Math.max(1, Math.ceil(points.length / 8));
  points.forEach(([at], index) => {
    if (index % step) return;
    parts.push(svg("text", { x: x(at), y: BOX.bottom + 18, "text-anchor": "middle" }, new Date(at).toISOString().slice(11, 19)));
  });
  return $("chart").replaceChildren(...parts);
}

function drawBars(view, rows) {
  const bars = rows.slice(0, BARS);
  const top = Math.max(...bars.map((row) => Number(row[state.value] ?? 0)), 0) || 1;
  const width = (BOX.right - BOX.left) / Math.max(bars.length, 1);
  const parts = axis(top);
  bars.forEach((row, index) => {
    const value = Number(row[state.value] ?? 0);
    const height = Math.max(0, value) / top * (BOX.bottom - BOX.top);
    const left = BOX.left + index * width;
    const bar = svg("rect", { x: left + width * .15, y: BOX.bottom - height, width: width * .7, height, rx: 3, class: "bar" });
    const name = view.key.map((column) => shown(row[column])).join(" ");
    bar.append(svg("title", {}, `${name}: ${grouped.format(value)}`));
    parts.push(bar, svg("text", { x: left + width / 2, y: BOX.bottom + 18, "text-anchor": "middle" }, name.slice(0, 12)));
  });
  return $("chart").replaceChildren(...parts);
}

function say(text, kind) {
  $("status").textContent = text;
  $("status").className = `dot ${kind}`;
}

async function poll() {
  try {
    const [views, queries] = await Promise.all([get("views"), get("queries")]);
    state.views = views;
    noteRates(views);
    choose(views);
    showViews(views);
    showQueries(queries);
    say("live", "live");
  } catch {
    say("the node does not answer", "bad");
  }
  setTimeout(poll, POLL_MS);
}

$("view-choice").addEventListener("change", (event) => { follow(event.target.value); choose(state.views); });
$("value-choice").addEventListener("change", (event) => { state.value = event.target.value; state.due = true; });
setInterval(redraw, REDRAW_MS);
get("version").then((told) => { $("version").textContent = told.version; }).catch(() => {});
poll();
