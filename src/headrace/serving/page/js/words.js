// Numbers, sizes and times for people.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const small = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => value === null || value === undefined ? "–" : grouped.format(value);
export const compact = (value) => value === null || value === undefined ? "–" : Math.abs(value) < 10000 ? grouped.format(value) : short.format(value);
// Offsets and other numbers that name something: as they are, to be copied.
export const plain = (value) => value === null || value === undefined ? "–" : String(value);
export const tick = (value) => value && Math.abs(value) < 1 ? small.format(value) : compact(value);
export const rate = (value) => value ? `${compact(value)}/s` : "0/s";

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1024 || unit === "TiB") return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1024;
  }
  return "";
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return seconds < 0.05 ? "0 s" : `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

const two = (value) => String(value).padStart(2, "0");
const sameDay = (a, b) => a.toDateString() === b.toDateString();

export function clock(ms, always = false) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return "–";
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (!always && sameDay(at, new Date())) return `${time}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

export const moment = (text) => text ? clock(Date.parse(text), true) : "–";

export function value(cell) {
  if (cell === null || cell === undefined) return "null";
  if (typeof cell === "object") return cell.start ? value(cell.start) : JSON.stringify(cell);
  return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(cell) ? cell.replace("T", " ").replace(/(:\d\d)(\.0+)?Z$/, "$1") : String(cell);
}

// The conditions of `a=1 and b="rock and roll"`. A value in double quotes is what is between them, a doubled one is one.
const QUOTED = /^((?:(?!\sand\s)[^=<>])*[=<>]+)\s*"((?:[^"]|"")*)"(?:\s+and\s+|\s*$)/i;
const BARE = /^(.*?)(?:\s+and\s+|$)/is;

export function conditions(text) {
  const found = [];
  for (let rest = text.trimStart(); rest;) {
    const quoted = rest.match(QUOTED), [whole, bare] = quoted ?? rest.match(BARE);
    found.push(quoted ? bare + quoted[2].replaceAll('""', '"') : bare.trim());
    rest = rest.slice(whole.length);
  }
  return found.filter(Boolean);
}

// What came since, added up frame by frame.
export function came(sum, frame) {
  for (const name of ["count", "skipped", "unseen"]) sum[name] += frame[name];
  const left = [[sum.skipped, "not shown"], [sum.unseen, "not looked at"]].filter(([count]) => count);
  return [`${compact(sum.count)} came`, ...left.map(([count, what]) => `${compact(count)} ${what}`)].join(", ");
}

export const textOf = (record, field) => record[field] ?? (record[`${field}_base64`] !== undefined ? `base64 ${record[`${field}_base64`]}` : null);
