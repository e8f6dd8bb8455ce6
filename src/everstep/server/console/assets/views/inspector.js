// What is selected: values before and after, what changed, attempts, items, logs, what it emitted, its record.

import { address as placeOf, at as path, get, isFile, query } from "../api.js";
import { sees } from "../roles.js";
import { Badge, html, Problem, Took, useAsked, useEffect, useState } from "../html.js";
import { clock, count, many, millis, span } from "../words.js";
import { Answer } from "./answering.js";
import { plain, short } from "../addresses.js";
import { Value } from "./values.js";

const seconds = (it) => (it.started_at && it.ended_at ? (millis(it.ended_at) - millis(it.started_at)) / 1000 : null);

export function Inspector({ me, id, at, step, version, waits, pick, seek, reload, lanes }) {
  const told = useAsked((signal) => get(path`/runs/${id}/steps/${step}` + query({ at }), signal), `${id}@${at}/${step}`, true, version);
  const [tab, setTab] = useState(null);
  useEffect(() => setTab(null), [step]);
  const it = told.data;
  if (!it) {
    if (told.error && told.error.status === 404) return html`<h2>${step}</h2><p class="quiet">It has not run${at == null ? " yet" : ` up to checkpoint ${at}`}.</p>`;
    return told.error ? html`<${Problem} error=${told.error} retry=${told.reload} />` : html`<p class="quiet">Loading …</p>`;
  }
  const from = { run: id, at: it.checkpoint };
  const open = waits.find((one) => one.node === it.path && one.visit === it.visit);
  const isItem = /#\d+$/.test(it.path);
  const tabs = [["items", "Items", it.items], ["inside", "Inside", isItem], ["values", "Values", true], ["changed", "Changed", true], ["attempts", "Attempts", true], ["units", "Calls", it.units.length], ["logs", "Logs", true], ["emitted", "Emitted", !isFile()], ["record", "Record", true]].filter(([, , is]) => is);
  const shown = tab || tabs[0][0];
  const took = seconds(it);
  const facts = [it.began_at || it.started_at ? clock(it.started_at) : null, took == null ? null : `took ${span(took)}`, it.attempts.length > 1 ? many(it.attempts.length, "attempt") : null, it.decision && it.decision.length ? `chose ${it.decision.join(", ")}` : null, it.items ? `${count(it.items.count)} items, ${count(it.items.failed)} failed` : null].filter(Boolean);
  return html`
    <div class="row"><h2>${short(it.address)}</h2> <${Badge} status=${it.status} /><span class="push"></span><button class="plain" aria-label="Select nothing" onClick=${() => pick(null)}>✕</button></div>
    <div class="facts quiet">${facts.map((one) => html`<span>${one}</span>`)}<span><button class="link" title="Show the run as it was then" onClick=${() => seek(it.checkpoint)}>checkpoint ${it.checkpoint}</button></span></div>
    ${it.act && html`<p>${open ? "Asked" : "Done"} by <strong>${it.act.by || "unknown"}</strong>${it.act.comment ? ` “${it.act.comment}”` : ""} <span class="quiet">(${it.act.how})</span></p>`}
    ${it.error && html`<${Failure} error=${it.error} />`}
    ${open && at == null && html`<${Answer} key=${open.id} me=${me} wait=${open} done=${reload} />`}
    <div class="tabs" role="tablist">${tabs.map(([name, label]) => html`<button key=${name} role="tab" aria-selected=${shown === name} onClick=${() => setTab(name)}>${label}</button>`)}</div>
    ${shown === "values" && html`<${Both} it=${it} from=${from} me=${me} />`}
    ${shown === "changed" && html`<${Changed} it=${it} from=${from} />`}
    ${shown === "attempts" && html`<${Attempts} it=${it} />`}
    ${shown === "units" && html`<table><thead><tr><th>Call</th><th>Status</th><th>Took</th></tr></thead><tbody>${it.units.map((unit) => html`<tr key=${unit.address}><td><button class="link" onClick=${() => pick(unit.address)}>${short(unit.address).split("/").pop()}</button></td><td><${Badge} status=${unit.status} /></td><td>${span(unit.seconds)}</td></tr>`)}</tbody></table>${it.unit_count > it.units.length && html`<p class="quiet">${count(it.unit_count - it.units.length)} more</p>`}`}
    ${shown === "items" && html`<${Items} id=${id} at=${at} it=${it} pick=${pick} lanes=${lanes} />`}
    ${shown === "inside" && html`<${Inside} id=${id} it=${it} pick=${pick} />`}
    ${shown === "logs" && html`<${Logs} id=${id} step=${it.address} me=${me} />`}
    ${shown === "emitted" && html`<${Emitted} id=${id} it=${it} />`}
    ${shown === "record" && html`<pre>${JSON.stringify(it.record, null, 2)}</pre>`}`;
}

/** The name of a value; what a wait keeps has an id in its name that says nothing. */
const said = (name) => name.replace(/^@wait\/[^/]+\/request/, "what it asks");

function Failure({ error }) {
  return html`<div class="problem"><strong>${error.type}</strong> ${error.message} ${error.fix ? html`<p>${error.fix}</p>` : null}
    ${error.traceback && html`<details open><summary>Traceback</summary><pre>${error.traceback}</pre></details>`}</div>`;
}

function Both({ it, from, me }) {
  if (!sees(me, "reader")) return html`<p class="quiet">Values are not shown to viewers.</p>`;
  const side = (title, values) => html`<h3>${title}</h3>${Object.keys(values).length ? Object.entries(values).map(([name, cut]) => html`<div key=${name}><${Value} cut=${cut} name=${said(name)} from=${{ ...from, name: cut.name || name, version: cut.version }} /></div>`) : html`<p class="quiet">nothing</p>`}`;
  return html`${side("Took", it.inputs)}${side("Gave", it.outputs)}
    ${it.idempotency_key && html`<h3>Idempotency key</h3><code>${it.idempotency_key}</code>`}
    ${it.spent && Object.keys(it.spent).length > 0 && html`<h3>Spent</h3><p>${Object.entries(it.spent).map(([name, much]) => `${much} ${name}`).join(", ")}</p>`}`;
}

/** Where two values differ, by path; what is cut is compared as far as it is here. */
function differences(before, after, name) {
  if (before && after && before.children && after.children) {
    const [a, b] = [before, after].map((cut) => new Map(cut.children.map((kid) => [String(kid.key), kid.cut])));
    return [...new Set([...a.keys(), ...b.keys()])].flatMap((key) => differences(a.get(key), b.get(key), `${name}/${key}`));
  }
  const said = (cut) => cut && JSON.stringify([cut.type, cut.value, cut.text, cut.count, cut.state, cut.size]);
  return said(before) === said(after) && !(after && after.children) && !(before && before.children) ? [] : [{ name, before, after }];
}

function Changed({ it, from }) {
  const rows = Object.keys(it.outputs).flatMap((name) => differences(it.before[name], it.outputs[name], name));
  if (!rows.length) return html`<p class="quiet">It changed no value.</p>`;
  const side = (cut, kind) => html`<td class=${cut ? kind : ""}>${cut ? html`<${Value} cut=${cut} />` : html`<span class="quiet">none</span>`}</td>`;
  return html`<table class="diff"><thead><tr><th>Value</th><th>Before</th><th>After</th></tr></thead><tbody>${rows.slice(0, 100).map((row) => html`<tr key=${row.name}><td>${said(row.name)}</td>${side(row.before, "before")}${side(row.after, "after")}</tr>`)}</tbody></table>
    ${rows.length > 100 && html`<p class="quiet">${count(rows.length - 100)} differences more</p>`}`;
}

const Attempts = ({ it }) => html`<table><thead><tr><th>#</th><th>Status</th><th>Began</th><th class="right">Took</th><th>Error</th></tr></thead><tbody>${it.attempts.map((one) => html`<tr key=${one.attempt}>
  <td>${one.attempt}</td><td><${Badge} status=${one.status || "running"} /></td><td class="when">${one.started_at ? clock(one.started_at) : "–"}</td><td class="right"><${Took} seconds=${one.seconds} /></td><td>${one.error ? html`<details><summary>${one.error.type}: ${one.error.message}</summary><pre>${one.error.traceback}</pre></details>` : ""}${one.retry_at ? html`<span class="quiet">the next at ${clock(one.retry_at)}</span>` : ""}</td></tr>`)}</tbody></table>`;

/** The items of a map in groups: those that failed first, then the slowest. Of now the timeline has them already. */
function Items({ id, at, it, pick, lanes }) {
  const told = useAsked((signal) => (at == null ? null : get(path`/runs/${id}/timeline` + query({ at, most: 240 }), signal)), `${id}@${at}`);
  const [number, setNumber] = useState("");
  const known = at == null ? lanes : told.data && told.data.lanes;
  const lane = known && known.find((one) => one.node === plain(it.path));
  const onSubmit = (event) => { event.preventDefault(); if (number !== "") pick(`${it.address}#${number}`); };
  return html`<form class="row" onSubmit=${onSubmit}><input type="number" min="0" max=${it.items.count - 1} aria-label="Item" placeholder="item" value=${number} onInput=${(event) => setNumber(event.target.value)} /><button>Show it</button><span class="quiet">of ${count(it.items.count)}; those that failed first, then the slowest</span></form>
    <${Problem} error=${told.error} />
    ${lane && html`<table><thead><tr><th>Item</th><th>Status</th><th class="right">Took</th><th>Like it</th></tr></thead><tbody>${lane.buckets.map((one, k) => html`<tr key=${k}><td><button class="link" onClick=${() => pick(one.first_item)}>${one.first_item.slice(one.first_item.lastIndexOf("#"))}</button></td><td><${Badge} status=${one.status} /></td><td class="right">${one.slowest ? span(one.slowest) : "–"}</td><td class="quiet">${one.count > 1 ? `${count(one.count - 1)} more, as fast or faster` : ""}</td></tr>`)}</tbody></table>`}`;
}

/** What ran for one item. */
function Inside({ id, it, pick }) {
  const told = useAsked((signal) => get(path`/runs/${`${id}/${it.address}`}/steps` + query({ limit: 100 }), signal), `${id}/${it.address}`);
  const rows = told.data ? told.data.steps.filter((one) => one.address && one.address !== it.address) : [];
  useEffect(() => { if (rows.length === 1) pick(rows[0].address, { replace: true }); }, [rows.length]);
  return html`<${Problem} error=${told.error} />${told.data && html`<table><thead><tr><th>Step</th><th>Status</th><th>Took</th></tr></thead><tbody>${rows.map((one) => html`<tr><td><button class="link" onClick=${() => pick(one.address)}>${short(one.address).split("/").slice(1).join("/")}</button></td><td><${Badge} status=${one.status} /></td><td><${Took} seconds=${one.seconds} /></td></tr>`)}</tbody></table>`}`;
}

function Logs({ id, step, me }) {
  const told = useAsked((signal) => (sees(me, "reader") ? get(path`/runs/${`${id}/${step}`}/logs`, signal) : null), `${id}/${step}`);
  const [wanted, setWanted] = useState("");
  if (!sees(me, "reader")) return html`<p class="quiet">Logs are not shown to viewers.</p>`;
  if (!told.data) return html`<${Problem} error=${told.error} />`;
  if (!told.data.logs.length) return html`<p class="quiet">Nothing was kept. A flow with <code>logs=True</code> keeps what its nodes log and print.</p>`;
  const lines = (text) => text.split("\n").filter((line) => line.toLowerCase().includes(wanted.toLowerCase())).join("\n");
  return html`<input type="search" aria-label="Search the logs" placeholder="part of a line" value=${wanted} onInput=${(event) => setWanted(event.target.value)} />
    ${told.data.logs.map((log, k) => html`<div key=${k}><h3>attempt ${log.attempt}</h3><pre>${lines(`${log.text ?? log.head ?? ""}${log.tail ? `\n…\n${log.tail}` : ""}`)}</pre></div>`)}`;
}

const MOST = 500;

/** What the node emits while one looks, and what of it is kept beside the store; a connection for as long as this is shown. */
function Emitted({ id, it }) {
  const [rows, setRows] = useState([]);
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    const source = new EventSource(placeOf(path`/runs/${id}/events`));
    let found = [];
    let timer = null;
    const show = () => { timer = null; setRows(found); };
    source.addEventListener("emitted", (event) => {
      const said = JSON.parse(event.data);
      if (said.node !== it.path || said.visit !== it.visit) return;
      found = [...found, said].slice(-MOST);
      timer = timer || setTimeout(show, 250);
    });
    source.addEventListener("run_ended", () => { source.close(); setOver(true); });
    return () => { source.close(); clearTimeout(timer); };
  }, [id, it.path, it.visit]);
  if (!rows.length) return html`<p class="quiet">${isOver ? "Nothing of what it emitted is kept." : "Nothing yet."} What a node emits with <code>ctx.emit</code> is shown while it runs; a flow with <code>streams=True</code> keeps it for a while.</p>`;
  return html`<pre>${rows.map((one) => { const { channel, name, ...rest } = one.data; return `${clock(one.at)} ${channel || name || ""} ${JSON.stringify(rest)}\n`; })}</pre>`;
}
