// Asking this node, and nobody else.

const AGAIN_MS = 1500;

export const access = { role: "change", needed: false, onLogin: () => {} };

export class Refused extends Error {
  constructor(status, said) {
    super([said.error, said.detail, said.hint && `Hint: ${said.hint}`].filter(Boolean).join(" "));
    this.status = status;
    this.said = said;
  }
}

async function ask(method, path, body) {
  const asked = { method, headers: {}, credentials: "same-origin" };
  if (body !== undefined) {
    asked.headers["Content-Type"] = "application/json";
    asked.body = JSON.stringify(body);
  }
  const answer = await fetch(path, asked);
  const said = await answer.json().catch(() => ({ error: `${answer.status} ${answer.statusText}` }));
  if (answer.status === 401 && path !== "session") access.onLogin();
  if (!answer.ok) throw new Refused(answer.status, said);
  return said;
}

export const get = (path) => ask("GET", path);
export const post = (path, body) => ask("POST", path, body);
export const remove = (path) => ask("DELETE", path);
export const mayChange = () => access.role === "change";

// Events of the server, for as long as they are wanted. `at` gives the path: of now, or from the id of the last event on.
// The browser comes back by itself after a lost connection. After a refusal (503 while a node starts) it never does, so
// here it is asked again. While nobody sees the page nothing is held open: a browser has six connections to a host, for
// all tabs together. `told` gets "live" or "away".
export function events(at, handlers, told = () => {}) {
  let source = null, last = null, timer = null, over = false;
  const shut = () => { clearTimeout(timer); timer = null; source?.close(); source = null; };
  const open = () => {
    shut();
    const mine = source = new EventSource(at(last));
    for (const [kind, handle] of Object.entries({ start() {}, ...handlers })) {
      mine.addEventListener(kind, (event) => { last = event.lastEventId || last; handle(JSON.parse(event.data)); });
    }
    mine.addEventListener("open", () => told("live"));
    mine.addEventListener("error", () => {
      told("away");
      if (mine.readyState === EventSource.CLOSED) { shut(); timer = setTimeout(seen, AGAIN_MS); }
    });
  };
  const seen = () => { if (document.hidden) shut(); else if (!source && !over) open(); };
  document.addEventListener("visibilitychange", seen);
  seen();
  return { close() { over = true; shut(); document.removeEventListener("visibilitychange", seen); } };
}
