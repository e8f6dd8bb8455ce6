// What changed, as it happens: one connection for all tabs of a browser, none while no tab is looked at.
//
// The tab that holds the lock has the connection and tells the others what comes. A hidden tab lets go of the
// lock, so another takes over. Only ids come; each view asks for what it shows.

import { address, get } from "./api.js";

const LOCK = "everstep-live";
const listeners = new Set();
let channel = null;
let source = null;
let letGo = null;
let again = null;
let last = "";
/** How long to wait after an answer that is no stream, a proxy's say: then a browser does not ask again by itself. */
const PAUSE = 3000;
export const state = { isLive: false, isTroubled: false };

/** Call `listener` with `{kind: "runs", runs: [{run_id, sequence, status}]}`, `refetch` after a gap, or `trouble`; returns how to stop. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function begin(prefix) {
  channel = new BroadcastChannel(`everstep-live${prefix}`);
  channel.onmessage = (event) => {
    if (event.data.kind !== "who") tell(event.data);
    else if (source) channel.postMessage({ kind: "live", isLive: source.readyState === EventSource.OPEN, isTroubled: state.isTroubled, last });
  };
  document.addEventListener("visibilitychange", look);
  look();
}

function look() {
  if (document.hidden) return stop();
  tell({ kind: "refetch" });
  channel.postMessage({ kind: "who" }); // the tab that has the connection says how it is
  lead();
}

function lead() {
  if (letGo || !navigator.locks) return navigator.locks ? undefined : connect();
  const giveUp = new AbortController();
  letGo = () => giveUp.abort();
  navigator.locks.request(LOCK, { signal: giveUp.signal }, () => new Promise((done) => {
    letGo = done;
    connect();
  })).catch(() => {});
}

function stop() {
  clearTimeout(again);
  if (source) source.close();
  source = null;
  if (letGo) letGo();
  letGo = null;
}

function connect() {
  source = new EventSource(address(`/changes${last ? `?after=${encodeURIComponent(last)}` : ""}`));
  source.onopen = () => share({ kind: "live", isLive: true });
  source.onerror = () => {
    share({ kind: "live", isLive: false });
    if (source && source.readyState === EventSource.CLOSED) askAgain(source);
  };
  for (const kind of ["ready", "runs", "refetch", "trouble"])
    source.addEventListener(kind, (event) => {
      share({ ...JSON.parse(event.data), id: event.lastEventId || last });
    });
}

/** Connect anew once the service answers; where it no longer knows who one is, that leads to logging in. */
function askAgain(closed) {
  again = setTimeout(() => get("/me").then(() => closed === source && connect(), () => closed === source && askAgain(closed)), PAUSE);
}

function share(told) {
  channel.postMessage(told);
  tell(told);
}

function tell(told) {
  // Another tab goes on behind what came last, should this one be closed.
  if (told.id) [last, state.isTroubled] = [told.id, told.kind === "trouble"];
  if (told.kind === "live") {
    state.isLive = told.isLive;
    if (told.last) [last, state.isTroubled] = [told.last, told.isTroubled];
  }
  for (const listener of listeners) listener(told);
}

/** Ask again, once a second at most, whenever runs change; returns how to stop. */
export function follow(...asks) {
  const again = sparse(() => asks.forEach((ask) => ask()), 1000);
  const stop = onChange((told) => (told.kind === "runs" || told.kind === "refetch") && again());
  return () => { stop(); again.stop(); };
}

/** Call `ask` at most every `least` milliseconds, and once more if it was wanted meanwhile. */
export function sparse(ask, least = 250) {
  let timer = null;
  let wanted = false;
  const run = () => {
    timer = null;
    if (!wanted) return;
    wanted = false;
    timer = setTimeout(run, least);
    ask();
  };
  const call = () => {
    wanted = true;
    if (!timer) run();
  };
  call.stop = () => clearTimeout(timer);
  return call;
}
