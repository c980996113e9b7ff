// Asking this node, and nobody else.

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

// Events of the server. The browser comes back by itself after a lost connection, with the id of the last event.
export function events(path, handlers, told = () => {}) {
  const source = new EventSource(path);
  for (const [kind, handle] of Object.entries(handlers)) {
    source.addEventListener(kind, (event) => handle(JSON.parse(event.data), event));
  }
  source.addEventListener("open", () => told("live"));
  source.addEventListener("error", () => told(source.readyState === EventSource.CLOSED ? "closed" : "reconnecting"));
  return source;
}
