// What runs wait for, as an inbox.

import { get, query } from "../api.js";
import { Badge, html, Link, Problem, useAsked, useEffect } from "../html.js";
import { follow } from "../live.js";
import { ask, here, runAt } from "../route.js";
import { since } from "../words.js";
import { Answer } from "./answering.js";

const KINDS = ["approval", "choice", "text", "yes_no", "callback", "signal", "event", "timer", "settle"];

export default function Waits({ me }) {
  const { query: asked } = here;
  const kind = asked.get("kind");
  const flow = asked.get("flow");
  const status = asked.get("status") || "open";
  const after = asked.get("after");
  const told = useAsked((signal) => get(`/waits${query({ kind, flow, status, after, limit: 50 })}`, signal), JSON.stringify([kind, flow, status, after]), true);
  useEffect(() => {
    document.title = "Waits · everstep";
    return follow(told.reload);
  }, []);
  const rows = told.data ? told.data.waits : [];
  return html`<div class="pad"><h1>Waits</h1>
    <div class="chips" role="group" aria-label="Filters">${["open", "settled"].map((one) => html`<button class=${`chip ${status === one ? "on" : ""}`} aria-pressed=${status === one} onClick=${() => ask({ status: one === "open" ? null : one, after: null })}>${one}</button>`)}
      <span class="gap"></span>${KINDS.map((one) => html`<button class=${`chip ${kind === one ? "on" : ""}`} aria-pressed=${kind === one} onClick=${() => ask({ kind: kind === one ? null : one, after: null })}>${one}</button>`)}</div>
    <${Problem} error=${told.error} />
    ${told.data && !rows.length && html`<p class="empty">Nothing ${status === "open" ? "waits" : "was settled"}${kind ? ` of this kind` : ""}.</p>`}
    <div class="cards">${rows.map((wait) => html`<article class="card" key=${wait.id}>
      <div class="row"><${Link} to=${runAt(wait.run_id, null, wait.visit > 1 ? `${wait.node}@${wait.visit}` : wait.node)}><strong>${wait.run_id}</strong> · ${wait.node}<//><span class="push"></span><${Badge} status=${wait.status} /></div>
      <div class="quiet">${wait.flow} · ${wait.kind} · ${wait.status === "open" ? `since ${since(wait.opened_at)}` : `${wait.settled_by} ${wait.settled_at ? since(wait.settled_at) : ""}${wait.act ? ` by ${wait.act.by}${wait.act.comment ? ` “${wait.act.comment}”` : ""}` : ""}`}</div>
      ${wait.status === "open" && html`<${Answer} me=${me} wait=${wait} done=${told.reload} />`}</article>`)}</div>
    <div class="row">${after && html`<button onClick=${() => ask({ after: null })}>Oldest</button>`}${told.data && told.data.next && html`<button onClick=${() => ask({ after: told.data.next })}>Newer</button>`}</div></div>`;
}
