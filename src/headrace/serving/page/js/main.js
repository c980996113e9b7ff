// The page: which screen is shown, the one live connection that all of them follow, theme, shortcuts, logging in.

import { access, events, get, post, remove } from "./api.js";
import { empty, h, set, toast } from "./dom.js";
import * as aside from "./screens/aside.js";
import * as groups from "./screens/groups.js";
import * as overview from "./screens/overview.js";
import * as pipelines from "./screens/pipelines.js";
import * as queues from "./screens/queues.js";
import * as topic from "./screens/topic.js";
import * as topics from "./screens/topics.js";
import * as views from "./screens/views.js";

const SCREENS = [
  ["overview", "Overview", "o"], ["topics", "Topics", "t"], ["groups", "Groups", "g"], ["queues", "Queues", "q"],
  ["pipelines", "Pipelines", "p"], ["views", "Views", "v"], ["aside", "Late and dead", "d"], ["alerts", "Alerts", "a"],
];
const ROUTES = {
  overview: [overview.open], topics: [topics.open, topic.open], groups: [groups.open, groups.openOne], queues: [queues.open, queues.openOne],
  "dead-letters": [queues.open, queues.openLetters], pipelines: [pipelines.open], queries: [pipelines.open, pipelines.openQuery],
  views: [views.open, views.openOne], aside: [aside.open, aside.openOne], alerts: [aside.openAlerts, aside.openAlert],
};
const PARENT = { "dead-letters": "queues", queries: "pipelines" };
const SLOW_EVERY_MS = 3000;

const $ = (id) => document.getElementById(id);
const now = { screen: null, told: null, busy: false, asked: 0, live: null, counts: {} };

function show() {
  const [kind, ...names] = location.hash.replace(/^#\/?/, "").split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  const route = ROUTES[kind] ?? ROUTES.overview;
  const here = ROUTES[kind] ? kind : "overview";
  now.screen?.close?.();
  const root = $("screen");
  root.replaceChildren();
  for (const one of $("nav").children) {
    const current = one.dataset.name === (PARENT[here] ?? here);
    if (current) one.setAttribute("aria-current", "page"); else one.removeAttribute("aria-current");
    if (current) one.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  window.scrollTo(0, 0);
  now.asked = 0;
  now.screen = (names.length && names[0] ? route[1] ?? route[0] : route[0])(root, names);
  const title = root.querySelector("h1")?.textContent ?? "";
  document.title = `${title} · Headrace`;
  tick(true);
}

// Screens are asked to bring themselves up to date whenever the node has news; one question at a time.
async function tick(first = false) {
  const screen = now.screen;
  if (!screen || now.busy || (!now.told && screen.tick.length)) return;
  if (!first && screen.slow && performance.now() - now.asked < SLOW_EVERY_MS) return;
  now.busy = true;
  now.asked = performance.now();
  try {
    await screen.tick(now.told);
    document.body.dataset.ready = location.hash;
  } catch (error) {
    if (error.status === 404 && screen === now.screen) $("screen").append(empty("There is nothing here", error.message));
    else if (error.status && error.status !== 401) say(error.said.error, "waiting");
    if (error.status === 404 && screen === now.screen) { screen.close?.(); now.screen = null; }
  } finally {
    now.busy = false;
    if (screen !== now.screen) tick(true);
  }
}

function say(text, kind) {
  set($("status"), text);
  $("status").className = `state is-${kind}`;
}

function connect() {
  now.live?.close();
  now.live = events(() => "live", { overview: (told) => {
    now.told = told;
    say("live", "live");
    set($("version"), told.version);
    badge("topics", told.topics);
    badge("groups", told.groups);
    badge("views", told.views);
    badge("pipelines", told.troubles.filter((one) => one.what === "query").length, true);
    badge("aside", told.late + told.dead);
    if (!document.hidden) tick();
  } }, (word) => { if (word !== "live") { say("the node does not answer", "away"); recognise(); } });
}

// Whether we are still who we were: a node that was started again may want another token.
async function recognise() {
  const told = await get("session").catch(() => null);
  if (told && access.role && told.role !== access.role) begin();
}

function badge(name, count, alarm = false) {
  const place = document.querySelector(`#nav [data-name="${name}"] .count`);
  set(place, count ? new Intl.NumberFormat("en", { notation: "compact" }).format(count) : "");
  place.classList.toggle("alarm", alarm && count > 0);
}

function theme(next) {
  const root = document.documentElement;
  if (next) localStorage.setItem("headrace-theme", next);
  const chosen = localStorage.getItem("headrace-theme");
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
}

function otherTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme(dark ? "light" : "dark");
}

function shortcuts() {
  const list = [...SCREENS.map(([, title, key]) => [`g ${key}`, title]), ["/", "to the filter"], ["Shift+T", "light or dark"], ["?", "this help"], ["↑ ↓", "in a list of records: choose"]];
  $("shortcuts").append(...list.flatMap(([key, what]) => [h("dt", {}, key), h("dd", {}, what)]));
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    const screen = SCREENS.find(([, , key]) => key === event.key);
    if (performance.now() - going < 1200 && screen) { location.hash = `#/${screen[0]}`; going = 0; event.preventDefault(); $("screen").focus(); return; }
    if (event.key === "g") going = performance.now();
    else if (event.key === "?") $("help").showModal();
    else if (event.key === "T") otherTheme();
    else if (event.key === "/") { event.preventDefault(); $("screen").querySelector("input[type=search]")?.focus(); }
  });
}

function login() {
  now.live?.close();
  now.screen?.close?.();
  now.screen = null;
  say("a token is needed", "waiting");
  const token = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const wrong = h("p", { class: "bad-text", role: "alert", id: "login-wrong" });
  const form = h("form", { class: "grid", onsubmit: async (event) => {
    event.preventDefault();
    try { await post("session", { token: token.value }); token.value = ""; begin(); } catch (error) { wrong.textContent = error.message; }
  } }, h("h1", {}, "Log in"), h("p", { class: "quiet" }, "This node asks for a token: the one it was started with."), h("label", { class: "stack" }, "Token", token), wrong, h("button", { class: "main" }, "Log in"));
  $("screen").replaceChildren(h("section", { class: "card login", "aria-label": "Log in" }, form));
  document.title = "Log in · Headrace";
  document.body.dataset.ready = "login";
  token.focus();
}

async function begin() {
  let told;
  try { told = await get("session"); } catch { say("the node does not answer", "away"); setTimeout(begin, 2000); return; }
  Object.assign(access, told);
  $("nav").hidden = told.needed && !told.role;
  $("logout").hidden = !(told.needed && told.role);
  $("role").hidden = told.role !== "look";
  set($("role"), "you may look, not change");
  if (!told.role) { login(); return; }
  connect();
  show();
}

access.onLogin = () => { if (document.body.dataset.ready !== "login") begin(); };
$("nav").append(...SCREENS.map(([name, title, key]) => h("a", { href: `#/${name}`, "data-name": name, title: `g ${key}` }, h("span", {}, title), h("span", { class: "count" }))));
$("theme").addEventListener("click", otherTheme);
$("help-button").addEventListener("click", () => $("help").showModal());
$("logout").addEventListener("click", async () => { await remove("session").catch(() => {}); begin(); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("screen").focus(); });
window.addEventListener("hashchange", () => { if (access.role) show(); });
window.addEventListener("unhandledrejection", (event) => { if (event.reason?.message) toast(event.reason.message, true); });
theme();
shortcuts();
begin();
