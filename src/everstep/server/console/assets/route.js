// Where the console is: every view, selection and filter is in the address.

const listeners = new Set();

/** `prefix` is the path below which the service lies; `path` what follows `/ui`; `query` what is asked. */
export const here = { prefix: "", path: "/", query: new URLSearchParams() };

export function begin(prefix) {
  here.prefix = `${prefix}/ui`;
  addEventListener("popstate", look);
  look();
}

/** A file has no paths: there the view stands behind a `#`. */
export function beginInFile(first) {
  here.prefix = "#";
  if (!location.hash) history.replaceState(null, "", `#${first}`);
  addEventListener("popstate", look);
  addEventListener("hashchange", look);
  look();
}

function look() {
  const [path, asked] = here.prefix === "#" ? location.hash.slice(1).split("?") : [location.pathname.slice(here.prefix.length), location.search];
  here.path = path || "/";
  here.query = new URLSearchParams(asked || "");
  for (const listener of listeners) listener();
}

export function onMove(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Go to another view; `replace` where going back should pass by this one. */
export function go(to, { replace = false } = {}) {
  const target = here.prefix + to;
  if (target === (here.prefix === "#" ? location.hash : location.pathname + location.search)) return;
  history[replace ? "replaceState" : "pushState"](null, "", target);
  look();
}

/** Change some of what stands behind the question mark. */
export function ask(changes, options) {
  const query = new URLSearchParams(here.query);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== "" && one !== false) query.append(name, one);
  }
  const text = query.toString();
  go(here.path + (text ? `?${text}` : ""), options);
}

/** The address of a run, at a checkpoint, with a step selected. */
export function runAt(run, at, step, query) {
  const place = `/runs/${encodeURIComponent(run)}${at == null ? "" : `@${at}`}`;
  const selected = step ? `/${step.split("/").map(encodeURIComponent).join("/")}` : "";
  return place + selected + (query && query.toString() ? `?${query}` : "");
}

/** What an address of a run names: its id, the checkpoint, the step. */
export function runOf(path) {
  const [, , first = "", ...rest] = path.split("/");
  const found = /^(.*?)(?:@(\d+))?$/.exec(decodeURIComponent(first));
  return { run: found[1], at: found[2] === undefined ? null : Number(found[2]), step: rest.map(decodeURIComponent).join("/") || null };
}
