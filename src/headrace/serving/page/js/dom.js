// Building elements. Whatever comes from the log is set as text, never as HTML.

const NS = "http://www.w3.org/2000/svg";

export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(NS, name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const card = (title, ...content) => h("section", { class: "card", "aria-label": title }, h("div", { class: "row" }, h("h2", {}, title)), ...content);
export const state = (word) => h("span", { class: `state is-${String(word).split(/\W/)[0]}` }, word);
export const link = (to, text, kind) => h("a", { href: `#/${to}`, class: kind }, text);
export const path = (...parts) => parts.map(encodeURIComponent).join("/");

export function empty(title, hint, command) {
  return h("div", { class: "empty" }, h("b", {}, title), hint && h("span", {}, hint), command && h("code", {}, command));
}

export function tile(label, id) {
  const number = h("b", { id }, "–"), words = h("span", {}, label);
  const made = h("div", { class: "tile" }, number, words);
  return { made, set(text, kind = "", note = "") { set(number, text); set(words, label + note); made.className = `tile ${kind}`; number.title = text; } };
}

export function set(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function head(title, crumbs = [], ...tools) {
  const way = crumbs.flatMap(([to, text]) => [link(to, text), " / "]);
  return h("div", { class: "head" }, h("h1", {}, h("span", { class: "crumb" }, way), title), h("span", { class: "grow" }), ...tools);
}

// A table that is brought up to date in place: rows keep their elements, so focus and selection stay where they are. That
// there is nothing it says once it was told so.
export class Table {
  constructor(label, columns, keyOf, { tall = false, empty: nothing = null } = {}) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.rows = new Map();
    this.body = h("tbody");
    const heads = columns.map((column) => h("th", { scope: "col", class: column.kind }, column.name));
    this.table = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, heads)), this.body);
    this.scroll = h("div", { class: `scroll${tall ? " tall" : ""}`, tabindex: "0", role: "group", "aria-label": label }, this.table);
    this.nothing = nothing;
    this.made = h("div", {}, nothing, this.scroll);
    this.update([]);
    if (nothing) nothing.hidden = true;
  }

  update(list) {
    if (this.nothing) this.nothing.hidden = list.length > 0;
    this.scroll.hidden = Boolean(this.nothing) && list.length === 0;
    const seen = new Set();
    let before = null;
    for (const row of list) {
      const key = String(this.keyOf(row));
      seen.add(key);
      let known = this.rows.get(key);
      if (!known) {
        known = { element: h("tr"), shown: [] };
        known.element.append(...this.columns.map((column) => h("td", { class: column.kind })));
        this.rows.set(key, known);
      }
      this.columns.forEach((column, at) => this.cell(known, at, column.of(row)));
      const place = before ? before.nextSibling : this.body.firstChild;
      if (place !== known.element) this.body.insertBefore(known.element, place);
      before = known.element;
    }
    for (const [key, known] of this.rows) {
      if (!seen.has(key)) { known.element.remove(); this.rows.delete(key); }
    }
  }

  cell(known, at, content) {
    const signature = content instanceof Node ? content.outerHTML : String(content ?? "");
    if (known.shown[at] === signature) return;
    known.shown[at] = signature;
    known.element.cells[at].replaceChildren(content instanceof Node ? content : signature);
    if (!(content instanceof Node)) known.element.cells[at].title = signature.length > 40 ? signature : "";
  }
}

export function toast(text, wrong = false) {
  const made = h("div", { class: `toast${wrong ? " wrong" : ""}` }, text);
  document.getElementById("toasts").append(made);
  setTimeout(() => made.remove(), wrong ? 9000 : 4000);
}

export function confirm(title, text, yes = "Do it") {
  const dialog = document.getElementById("ask");
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-text").textContent = text;
  document.getElementById("ask-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}
