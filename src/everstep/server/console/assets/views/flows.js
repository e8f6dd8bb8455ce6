// Flows: how many runs each has, in which versions, and who takes them.

import { get } from "../api.js";
import { Badge, html, Link, Problem, useAsked, useEffect } from "../html.js";
import { follow } from "../live.js";
import { byStatus, count } from "../words.js";

export default function Flows() {
  const told = useAsked((signal) => get("/flows", signal), "flows", true);
  useEffect(() => { document.title = "Flows · everstep"; return follow(told.reload); }, []);
  const rows = told.data ? told.data.flows : [];
  return html`<div class="pad"><h1>Flows</h1><${Problem} error=${told.error} />
    ${told.data && !rows.length && html`<p class="empty">No flow has a run here yet.</p>`}
    ${rows.length > 0 && html`<table><thead><tr><th>Flow</th><th>Runs</th><th>Versions</th><th>Workers</th></tr></thead><tbody>${rows.map((one) => html`<tr key=${one.flow}><td><${Link} to=${`/flows/${encodeURIComponent(one.flow)}`}>${one.flow}<//></td>
      <td>${byStatus(one.runs).map(([status, n]) => html`<${Link} class="plain whole" to=${`/?flow=${encodeURIComponent(one.flow)}&status=${status}`}><${Badge} status=${status} /> ${count(n)}<//> `)}</td>
      <td>${Object.entries(one.versions || {}).map(([version, n]) => html`<span class="tag">${version}: ${count(n)}</span> `)}</td><td>${one.workers || html`<span class="quiet">none</span>`}</td></tr>`)}</tbody></table>`}</div>`;
}
