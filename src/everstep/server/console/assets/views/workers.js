// Workers: what each drives, since when, and what no worker takes.

import { get } from "../api.js";
import { html, Link, Problem, Time, useAsked, useEffect } from "../html.js";
import { runAt } from "../route.js";
import { rough } from "../words.js";

export default function Workers() {
  const told = useAsked((signal) => get("/workers", signal), "workers", true);
  const untaken = useAsked((signal) => get("/untaken", signal), "untaken", true);
  useEffect(() => {
    document.title = "Workers · everstep";
    const timer = setInterval(() => { if (!document.hidden) { told.reload(); untaken.reload(); } }, 3000);
    return () => clearInterval(timer);
  }, []);
  const rows = told.data ? told.data.workers : [];
  return html`<div class="pad"><h1>Workers</h1><${Problem} error=${told.error} />
    ${told.data && !rows.length && html`<p class="empty">No worker is alive. Start one with <code>everstep worker FILE.py</code>.</p>`}
    <div class="cards">${rows.map((one) => html`<article class="card" key=${one.id}>
      <div class="row"><strong>${one.host}</strong> <span class="quiet">process ${one.pid}, everstep ${one.release}</span></div>
      <div>${one.driving} of ${one.concurrency} at once${one.is_stopping ? ", is stopping" : ""}${one.is_slowed ? ", is slowed" : ""}</div>
      <div class="quiet">up <${Time} at=${one.started_at} />, seen <${Time} at=${one.seen_at} />${Math.abs(one.skew_seconds || 0) > 1 ? html`<span class="bad">, its clock is ${rough(Math.abs(one.skew_seconds))} ${one.skew_seconds < 0 ? "behind" : "ahead"}</span>` : ""}</div>
      <div>${one.flows.map((flow) => html`<span class="tag">${flow}</span> `)}</div>
      ${one.longest.length > 0 && html`<h3>Drives, the longest first</h3><ul class="samples">${one.longest.map((run) => html`<li><${Link} to=${runAt(run.run_id)}>${run.run_id}<//> <span class="quiet"><${Time} at=${run.since} /></span></li>`)}</ul>`}</article>`)}</div>
    <h2>What no worker takes</h2><${Problem} error=${untaken.error} />
    ${untaken.data && (untaken.data.runs.length ? html`<table><thead><tr><th>Run</th><th>Flow</th><th>Why</th><th>What to do</th></tr></thead><tbody>${untaken.data.runs.map((run) => html`<tr key=${run.run_id}><td><${Link} to=${runAt(run.run_id)}>${run.run_id}<//></td><td>${run.flow}</td><td>${run.text}</td><td>${run.fix}</td></tr>`)}</tbody></table>` : html`<p class="quiet">Nothing: every run that is due is taken.</p>`)}</div>`;
}
