// Breakers that runs share, what stands still for a budget or a breaker, and what is paused.

import { act, at as path, get } from "../api.js";
import { may } from "../roles.js";
import { html, Link, Problem, Time, useAsked, useEffect, useState } from "../html.js";
import { follow } from "../live.js";
import { runAt } from "../route.js";

/** What a wait before a node says that it is for. */
const GUARDS = ["budget", "breaker"];

export default function Guards({ me }) {
  const told = useAsked((signal) => get("/breakers", signal), "breakers", true);
  const pauses = useAsked((signal) => get("/pauses", signal), "pauses", true);
  const limits = useAsked((signal) => get("/limits", signal), "limits", true);
  const asked = useAsked((signal) => get("/waits?kind=approval&limit=1000", signal), "asked", true);
  const rowsAsked = asked.data ? asked.data.waits.filter((one) => GUARDS.includes((one.context || {}).guard)) : [];
  const [error, setError] = useState(null);
  useEffect(() => { document.title = "Guards · everstep"; return follow(told.reload, asked.reload, pauses.reload); }, []);
  const rows = told.data ? Object.entries(told.data.breakers).map(([name, one]) => ({ ...one, name })) : [];
  const doIt = (doing) => doing.then(() => { told.reload(); pauses.reload(); }, setError);
  return html`<div class="pad"><h1>Breakers and budgets</h1><${Problem} error=${told.error || error} />
    ${told.data && !rows.length && html`<p class="empty">No breaker is shared by runs of this store.</p>`}
    ${rows.length > 0 && html`<table><thead><tr><th>Breaker</th><th>State</th><th>Since</th><th>Failures</th><th>Trips</th><th>Why</th><th></th></tr></thead><tbody>${rows.map((one) => html`<tr key=${one.name}><td>${one.name}</td><td class=${one.state === "closed" ? "good" : "bad"}>${one.state}</td><td><${Time} at=${one.since} /></td><td>${one.failures}</td><td>${one.trips}</td><td>${one.reason}</td><td>${may(me, "operator") && one.state !== "closed" && html`<button onClick=${() => doIt(act(path`/breakers/${one.name}/reset`, {}))}>Close it</button>`}</td></tr>`)}</tbody></table>`}
    <h2>Runs that ask whether they may go on</h2><${Problem} error=${asked.error} />
    ${asked.data && (rowsAsked.length ? html`<table><thead><tr><th>Run</th><th>Before</th><th>What is asked</th><th>Since</th></tr></thead><tbody>${rowsAsked.map((one) => html`<tr key=${one.id}><td><${Link} to=${runAt(one.run_id, null, one.node)}>${one.run_id}<//></td><td>${one.node}</td><td>${one.prompt}</td><td><${Time} at=${one.opened_at} /></td></tr>`)}</tbody></table>` : html`<p class="quiet">None: no budget is spent and no breaker of a run is open. What a run has spent is at its top.</p>`)}
    <h2>Limits</h2><${Problem} error=${limits.error} />
    ${limits.data && (limits.data.limits.length ? html`<table><thead><tr><th>Limit</th><th>Of</th><th>Key</th><th>Running</th><th>Started</th><th>Waiting</th><th>Since</th><th>Why</th></tr></thead><tbody>${limits.data.limits.map((one) => html`<tr key=${[one.flow, one.limit, one.key].join()}><td>${one.limit}</td><td>${one.flow ? `flow ${one.flow}` : "calls"}</td><td>${one.key || ""}</td><td>${one.running}${one.most ? ` of ${one.most}` : ""}</td><td>${one.started}${one.rate ? ` of ${one.rate}` : ""}</td><td class=${one.waiting ? "bad" : ""}>${one.waiting || ""}</td><td>${one.since && html`<${Time} at=${one.since} />`}</td><td>${one.why}${one.until ? html` until <${Time} at=${one.until} />` : ""}</td></tr>`)}</tbody></table>` : html`<p class="quiet">No limit is in use. Of a flow, the limits are those that live workers have.</p>`)}
    <h2>Paused</h2><${Problem} error=${pauses.error} />
    ${pauses.data && (pauses.data.pauses.length ? html`<table><thead><tr><th>What</th><th>Since</th><th>By</th><th></th></tr></thead><tbody>${pauses.data.pauses.map((one, k) => html`<tr key=${k}><td>${one.run_id ? html`run <${Link} to=${runAt(one.run_id)}>${one.run_id}<//>` : [one.flow && `flow ${one.flow}`, one.group && `group ${one.group}`].filter(Boolean).join(", ")}</td><td><${Time} at=${one.since} /></td><td>${one.by ? one.by.by || one.by : ""}</td>
      <td>${may(me, "operator") && html`<button onClick=${() => doIt(one.run_id ? act(path`/runs/${one.run_id}/unpause`, {}) : act("/pauses/lift", { flow: one.flow || undefined, group: one.group || undefined }))}>Let it go on</button>`}</td></tr>`)}</tbody></table>` : html`<p class="quiet">Nothing is paused.</p>`)}</div>`;
}
