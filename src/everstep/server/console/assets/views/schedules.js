// Schedules: what starts runs by the clock, when next, and how far each has come.

import { act, at as path, get } from "../api.js";
import { may } from "../roles.js";
import { html, Link, Problem, Time, useAsked, useEffect, useState } from "../html.js";
import { follow } from "../live.js";
import { here, runAt } from "../route.js";

const COUNTS = ["started", "skipped", "missed", "pending", "refused"];

export default function Schedules({ me }) {
  const before = here.query.get("before");
  const told = useAsked((signal) => get(before ? path`/schedules?before=${before}` : "/schedules", signal), `schedules ${before}`, true);
  const [error, setError] = useState(null);
  useEffect(() => { document.title = "Schedules · everstep"; return follow(told.reload); }, []);
  const rows = told.data ? told.data.schedules : [];
  const press = (one, what) => html`<button onClick=${() => act(path`/schedules/${one.schedule_id}/${what}`, {}).then(() => { setError(null); told.reload(); }, setError)}>${what === "run" ? "Run now" : what === "pause" ? "Pause" : "Let it go on"}</button> `;
  return html`<div class="pad"><h1>Schedules</h1><${Problem} error=${told.error || error} />
    ${told.data && !rows.length && html`<p class="empty">Nothing is started by the clock. Make one with <code>everstep schedule create</code>.</p>`}
    ${rows.length > 0 && html`<table><thead><tr><th>Schedule</th><th>Flow</th><th>When</th><th>Next</th><th>Last</th><th>Runs</th><th>Overlap</th><th></th></tr></thead><tbody>${rows.map((one) => html`<tr key=${one.schedule_id}><td><${Link} to=${runAt(one.schedule_id)}>${one.schedule_id}<//></td><td>${one.flow}</td><td>${one.every ? `every ${one.every}` : `${one.cron} ${one.zone}`}</td>
      <td>${one.paused ? html`<span class="bad">paused</span>` : one.next ? html`<${Time} at=${one.next} />` : one.status}</td><td>${one.last && html`<${Time} at=${one.last} /> <${Link} to=${runAt(one.last_run)}>run<//>`}</td>
      <td title=${one.said}>${COUNTS.filter((name) => one[name]).map((name) => html`<span class=${name === "missed" || name === "refused" ? "bad" : ""}>${one[name]} ${name} </span>`)}</td><td>${one.overlap}</td>
      <td>${may(me, "operator") && html`${press(one, one.paused ? "unpause" : "pause")}${press(one, "run")}`}</td></tr>`)}</tbody></table>`}
    ${told.data && told.data.next && html`<${Link} to=${`/schedules?before=${encodeURIComponent(told.data.next)}`}>More<//>`}</div>`;
}
