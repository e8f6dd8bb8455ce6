// Who did what, when, to which run.

import { get, query } from "../api.js";
import { html, Link, Problem, Time, useAsked, useEffect, useState } from "../html.js";
import { ask, here, runAt } from "../route.js";

export default function Audit() {
  const asked = here.query;
  const about = { run_id: asked.get("run_id"), by: asked.get("by"), act: asked.get("act"), limit: 200 };
  const told = useAsked((signal) => get(`/audit${query(about)}`, signal), JSON.stringify(about), true);
  const [said, setSaid] = useState({ run_id: about.run_id || "", by: about.by || "", act: about.act || "" });
  useEffect(() => { document.title = "Audit · everstep"; }, []);
  const rows = told.data ? [...told.data.audit].reverse() : [];
  return html`<div class="pad"><h1>Audit</h1>
    <form class="row" onSubmit=${(event) => { event.preventDefault(); ask(said); }}>
      ${[["run_id", "run"], ["by", "by"], ["act", "act"]].map(([name, label]) => html`<input aria-label=${label} placeholder=${label} value=${said[name]} onInput=${(event) => setSaid({ ...said, [name]: event.target.value })} />`)}<button class="main">Find</button></form>
    <${Problem} error=${told.error} />
    ${told.data && !rows.length && html`<p class="empty">No act like this.</p>`}
    ${rows.length > 0 && html`<div class="scroll"><table><thead><tr><th>When</th><th>Who</th><th>Act</th><th>Run</th><th>Came of it</th><th>Comment</th></tr></thead><tbody>${rows.map((one) => html`<tr key=${one.number}><td><${Time} at=${one.at} /></td><td>${one.by} <span class="quiet">${one.how || ""}</span></td><td>${one.act}</td><td>${one.run_id ? html`<${Link} to=${runAt(one.run_id)}>${one.run_id}<//>` : one.about || ""}</td><td>${one.outcome || one.result || ""} ${one.code || ""}</td><td>${one.comment || ""}</td></tr>`)}</tbody></table></div>`}</div>`;
}
