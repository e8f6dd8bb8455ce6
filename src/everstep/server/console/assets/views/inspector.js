// What is selected: values before and after, what changed, attempts, logs, what it emitted, its record.

import { at as path, get, query } from "../api.js";
import { sees } from "../roles.js";
import { Badge, html, Link, Problem, Took, useAsked, useEffect, useState } from "../html.js";
import { clock, millis, span } from "../words.js";
import { Answer } from "./acts.js";
import { short } from "../addresses.js";
import { Value } from "./values.js";

const TABS = [["values", "Values"], ["changed", "Changed"], ["attempts", "Attempts"], ["units", "Calls"], ["logs", "Logs"], ["record", "Record"]];

export function Inspector({ me, id, at, step, version, waits, pick, seek, reload }) {
  const told = useAsked((signal) => get(path`/runs/${id}/steps/${step}` + query({ at }), signal), `${id}@${at}/${step}:${version}`, true);
  const [tab, setTab] = useState("values");
  useEffect(() => setTab("values"), [step]);
  const it = told.data;
  if (!it) {
    if (told.error && told.error.status === 404) return html`<h2>${step}</h2><p class="quiet">It has not run${at == null ? " yet" : ` up to checkpoint ${at}`}.</p>`;
    return told.error ? html`<${Problem} error=${told.error} retry=${told.reload} />` : html`<p class="quiet">Loading …</p>`;
  }
  const from = { run: id, at: it.checkpoint };
  const open = waits.find((one) => one.node === it.path && one.visit === it.visit);
  const tabs = TABS.filter(([name]) => name !== "units" || it.units.length > 0);
  return html`
    <div class="row"><h2>${short(it.address)}</h2> <${Badge} status=${it.status} /><span class="push"></span><button class="plain" aria-label="Select nothing" onClick=${() => pick(null)}>✕</button></div>
    <div class="facts quiet">
      ${it.began_at && html`<span>${clock(it.began_at)} </span>`}<${Took} seconds=${it.seconds} />
      ${it.attempts.length > 1 && html`<span>, ${it.attempts.length} attempts</span>`}
      ${it.decision && it.decision.length > 0 && html`<span>, chose ${it.decision.join(", ")}</span>`}
      <span>, <button class="plain" title="Show the run as it was then" onClick=${() => seek(it.checkpoint)}>checkpoint ${it.checkpoint}</button></span>
      ${it.act && html`<span>by ${it.act.by || "unknown"} ${it.act.comment ? `“${it.act.comment}”` : ""}</span>`}
    </div>
    ${it.error && html`<${Failure} error=${it.error} />`}
    ${open && at == null && html`<${Answer} me=${me} wait=${open} done=${reload} />`}
    <div class="tabs" role="tablist">${tabs.map(([name, label]) => html`<button key=${name} role="tab" aria-selected=${tab === name} onClick=${() => setTab(name)}>${label}</button>`)}</div>
    ${tab === "values" && html`<${Both} it=${it} from=${from} me=${me} />`}
    ${tab === "changed" && html`<${Changed} it=${it} from=${from} />`}
    ${tab === "attempts" && html`<${Attempts} it=${it} />`}
    ${tab === "units" && html`<table><thead><tr><th>Call</th><th>Status</th><th>Took</th></tr></thead><tbody>${it.units.map((unit) => html`<tr key=${unit.address}><td><button class="plain" onClick=${() => pick(unit.address)}>${unit.name}</button></td><td><${Badge} status=${unit.status} /></td><td>${span(unit.seconds)}</td></tr>`)}</tbody></table>`}
    ${tab === "logs" && html`<${Logs} id=${id} step=${it.address} me=${me} />`}
    ${tab === "record" && html`<pre>${JSON.stringify(it.record, null, 2)}</pre>`}`;
}

function Failure({ error }) {
  return html`<div class="problem"><strong>${error.type}</strong> ${error.message} ${error.fix ? html`<p>${error.fix}</p>` : null}
    ${error.traceback && html`<details><summary>Traceback</summary><pre>${error.traceback}</pre></details>`}</div>`;
}

function Both({ it, from, me }) {
  if (!sees(me, "reader")) return html`<p class="quiet">Values are not shown to viewers.</p>`;
  const side = (title, values) => html`<h3>${title}</h3>${Object.keys(values).length ? Object.entries(values).map(([name, cut]) => html`<div key=${name}><${Value} cut=${cut} name=${name} from=${{ ...from, name }} /></div>`) : html`<p class="quiet">nothing</p>`}`;
  return html`${side("Took", it.inputs)}${side("Gave", it.outputs)}
    ${it.idempotency_key && html`<h3>Idempotency key</h3><code>${it.idempotency_key}</code>`}
    ${it.spent && Object.keys(it.spent).length > 0 && html`<h3>Spent</h3><p>${Object.entries(it.spent).map(([name, much]) => `${name} ${much}`).join(", ")}</p>`}`;
}

function Changed({ it, from }) {
  const names = Object.keys(it.outputs);
  if (!names.length) return html`<p class="quiet">It changed no value.</p>`;
  return html`<table class="diff"><thead><tr><th>Value</th><th>Before</th><th>After</th></tr></thead><tbody>${names.map((name) => html`<tr key=${name}><td>${name}</td>
    <td class="before">${it.before[name] ? html`<${Value} cut=${it.before[name]} />` : html`<span class="quiet">none</span>`}</td><td class="after"><${Value} cut=${it.outputs[name]} from=${{ ...from, name }} /></td></tr>`)}</tbody></table>`;
}

const Attempts = ({ it }) => html`<table><thead><tr><th>#</th><th>Status</th><th>Began</th><th>Took</th><th>Error</th></tr></thead><tbody>${it.attempts.map((one) => html`<tr key=${one.attempt}>
  <td>${one.attempt}</td><td><${Badge} status=${one.status || "running"} /></td><td>${one.started_at ? clock(one.started_at) : "–"}</td><td>${one.started_at && one.ended_at ? span((millis(one.ended_at) - millis(one.started_at)) / 1000) : "–"}</td><td>${one.error ? `${one.error.type}: ${one.error.message}` : ""}</td></tr>`)}</tbody></table>`;

function Logs({ id, step, me }) {
  const told = useAsked((signal) => (sees(me, "reader") ? get(path`/runs/${`${id}/${step}`}/logs`, signal) : null), `${id}/${step}`);
  if (!sees(me, "reader")) return html`<p class="quiet">Logs are not shown to viewers.</p>`;
  if (!told.data) return html`<${Problem} error=${told.error} />`;
  if (!told.data.logs.length) return html`<p class="quiet">Nothing was kept. A flow with <code>logs=True</code> keeps what its nodes log and print.</p>`;
  return told.data.logs.map((log, k) => html`<div key=${k}><h3>attempt ${log.attempt}</h3><pre>${log.text ?? log.head ?? ""}${log.tail ? `\n…\n${log.tail}` : ""}</pre></div>`);
}
