// Pipelines as a graph: layers from left to right, drawn in SVG. Every node is a link.

import { path, svg } from "./dom.js";
import { bytes, compact, moment, rate } from "./words.js";

const NODE = { width: 172, gapX: 28, gapY: 18, line: 15, letters: 20 };

const TO = {
  stream: (node) => path("topics", node.name),
  derived: (node) => path("topics", node.name),
  query: (node) => path("queries", node.app, node.name),
  view: (node) => path("views", `${node.app}.${node.name}`),
  alert: (node) => path("alerts", node.app, node.name),
};

const watermark = (node) => node.watermark ? `watermark ${moment(node.watermark).slice(5)}` : "no watermark";

function facts(node) {
  if (node.kind === "query") {
    const lines = [`${node.state} · ${rate(node.rate)}`, `lag ${compact(node.lag)} · state ${bytes(node.state_bytes)}`];
    lines.push(watermark(node));
    lines.push(`late ${compact(node.late)} · dead ${compact(node.dead)}`);
    return lines;
  }
  if (node.kind === "view") return [`view · ${node.state} · ${rate(node.rate)}`, `${compact(node.rows)} rows · ${compact(node.behind ?? 0)} behind`, watermark(node)];
  if (node.kind === "alert") return [`alert · ${rate(node.rate)}`, `${compact(node.sent)} sent · ${compact(node.waiting)} waiting`, `${compact(node.dead)} given up`, watermark(node)];
  return [`${node.kind} · ${rate(node.rate)}`, `${compact(node.records)} records · ${bytes(node.bytes)}`];
}

function layers(nodes, edges) {
  const level = new Map(nodes.map((node) => [node.id, 0]));
  for (let round = 0; round < nodes.length; round++) {
    let moved = false;
    for (const edge of edges) {
      const wanted = (level.get(edge.from) ?? 0) + 1;
      if (level.has(edge.to) && level.get(edge.to) < wanted && wanted <= nodes.length) { level.set(edge.to, wanted); moved = true; }
    }
    if (!moved) break;
  }
  const found = [];
  for (const node of nodes) (found[level.get(node.id)] ??= []).push(node);
  return found.map((layer) => layer ?? []);
}

// Nodes of a layer are ordered by where their inputs are, so that few edges cross.
function placed(nodes, edges) {
  const places = new Map();
  const heights = new Map(nodes.map((node) => [node.id, 34 + facts(node).length * NODE.line]));
  layers(nodes, edges).forEach((layer, column) => {
    const middle = (node) => {
      const inputs = edges.filter((edge) => edge.to === node.id && places.has(edge.from)).map((edge) => places.get(edge.from).y);
      return inputs.length ? inputs.reduce((a, b) => a + b, 0) / inputs.length : 0;
    };
    let y = 12;
    for (const node of [...layer].sort((a, b) => middle(a) - middle(b) || a.name.localeCompare(b.name))) {
      const height = heights.get(node.id);
      places.set(node.id, { x: 12 + column * (NODE.width + NODE.gapX), y, height });
      y += height + NODE.gapY;
    }
  });
  return places;
}

export function draw({ nodes, edges }) {
  const places = placed(nodes, edges);
  const all = [...places.values()];
  const width = Math.max(...all.map((at) => at.x)) + NODE.width + 12;
  const height = Math.max(...all.map((at) => at.y + at.height)) + 12;
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const made = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Pipelines" });
  for (const edge of edges) {
    const from = places.get(edge.from), to = places.get(edge.to);
    if (!from || !to) continue;
    const x1 = from.x + NODE.width, x2 = to.x, y1 = from.y + from.height / 2, y2 = to.y + to.height / 2, bend = (x2 - x1) / 2;
    const flows = (byId.get(edge.from)?.rate || byId.get(edge.to)?.rate) ? " flows" : "";
    made.append(svg("path", { class: `edge${flows}`, d: `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}` }));
  }
  for (const node of nodes) made.append(box(node, places.get(node.id)));
  return made;
}

function box(node, at) {
  const wrong = node.kind === "query" && ["failed", "gone"].includes(node.state);
  const lines = facts(node);
  const name = node.name.length > NODE.letters ? `${node.name.slice(0, NODE.letters - 1)}…` : node.name;
  return svg("a", { href: `#/${TO[node.kind](node)}` },
    svg("g", { class: `node ${node.kind}${wrong ? " trouble-node" : ""}`, transform: `translate(${at.x},${at.y})` },
      svg("title", {}, node.name),
      svg("rect", { width: NODE.width, height: at.height, rx: node.kind === "query" ? 14 : 7 }),
      svg("text", { class: "name", x: 12, y: 21 }, name),
      ...lines.map((line, index) => svg("text", { class: wrong && !index ? "wrong" : "fact", x: 12, y: 39 + index * NODE.line }, line))));
}
