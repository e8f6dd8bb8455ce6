// All runs: one query as a box that also takes an id, filters as chips, counts, acts on many, live.

import { act, at, get, query } from "../api.js";
import { may } from "../roles.js";
import { Badge, Dialog, html, Link, Problem, Time, Took, useAsked, useEffect, useRef, useState } from "../html.js";
import { follow } from "../live.js";
import { ask, go, here, runAt } from "../route.js";
import { count, many, STATUSES, tags } from "../words.js";

const ACTS = ["retry", "cancel", "resume", "pause", "tag", "pin", "unpin", "fork", "erase"];
const AGES = [["1h", "last hour"], ["1d", "last day"], ["7d", "last week"]];
const RUN_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$/;

/** The query that the address stands for: what is in the box, and the chips. */
function whereOf(asked) {
  const parts = [];
  const text = asked.get("where");
  if (text) parts.push(`(${text})`);
  if (asked.get("status")) parts.push(asked.getAll("status").map((one) => `status = ${one}`).join(" or "));
  if (asked.get("since")) parts.push(`started > -${asked.get("since")}`);
  return parts.map((part) => (part.includes(" or ") && !part.startsWith("(") ? `(${part})` : part)).join(" and ");
}

export default function Runs({ me }) {
  const asked = here.query;
  const where = whereOf(asked);
  const flow = asked.get("flow");
  const before = asked.get("before");
  const key = JSON.stringify([where, flow, before]);
  // What is in the box alone is sent as it stands, so that an error names the place as it is counted there.
  const sent = asked.get("status") || asked.get("since") ? where : asked.get("where");
  const found = useAsked((signal) => get(`/runs${query({ where: sent, flow, before, limit: 50, labels: me.role === "viewer" ? null : "true" })}`, signal), key);
  const others = flow ? `flow = '${flow}'` : null;
  const counts = useAsked((signal) => get(`/counts${query({ by: "status", where: [asked.get("where") && `(${asked.get("where")})`, asked.get("since") && `started > -${asked.get("since")}`, others].filter(Boolean).join(" and ") })}`, signal), `${asked.get("where")}${asked.get("since")}${flow}`);
  const [picked, setPicked] = useState(new Set());
  const [cursor, setCursor] = useState(-1);
  const now = useRef(-1); // keys come faster than pages are drawn
  const line = useRef();
  const [bulk, setBulk] = useState(null);
  const rows = found.data ? found.data.runs : [];

  useEffect(() => {
    document.title = "Runs · everstep";
    return follow(found.reload, counts.reload);
  }, []);
  const move = (k) => { now.current = k; setCursor(k); };
  useEffect(() => { setPicked(new Set()); move(-1); }, [key]);
  useEffect(() => { if (cursor >= 0 && line.current) line.current.scrollIntoView({ block: "nearest" }); }, [cursor]);
  useEffect(() => {
    const onKey = (event) => {
      if (event.target.closest("input, textarea, select, dialog") || event.metaKey || event.ctrlKey) return;
      const run = rows[now.current];
      if (event.key === "j") move(Math.min(rows.length - 1, now.current + 1));
      else if (event.key === "k") move(Math.max(0, now.current - 1));
      else if (event.key === "Enter" && run && event.target.tagName !== "A" && event.target.tagName !== "BUTTON") go(runAt(run.run_id));
      else if (event.key === "x" && run) pick(run.run_id);
      else if (event.key === "Escape") setPicked(new Set());
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });

  const pick = (id) => setPicked((before_) => {
    const next = new Set(before_);
    if (!next.delete(id)) next.add(id);
    return next;
  });
  const isAll = rows.length > 0 && rows.every((run) => picked.has(run.run_id));

  return html`<div class="pad">
    <h1 class="hidden">Runs</h1>
    <${Search} />
    <div class="chips" role="group" aria-label="Filters">
      ${STATUSES.map((status) => html`<${Chip} name="status" value=${status} label=${html`<${Badge} status=${status} /> ${counts.data ? count(counts.data.runs[status] || 0) : "…"}`} />`)}
      <span class="gap"></span>
      ${AGES.map(([span, label]) => html`<${Chip} name="since" value=${span} label=${label} isOne />`)}
      ${flow && html`<button class="chip on" onClick=${() => ask({ flow: null, before: null })}>flow ${flow} ✕</button>`}
    </div>
    <${Problem} error=${found.error} />
    ${may(me, "operator") && rows.length > 0 && html`<div class="row acts">
      <label class="row"><input type="checkbox" checked=${isAll} onChange=${() => setPicked(isAll ? new Set() : new Set(rows.map((run) => run.run_id)))} /> all of this page</label>
      <span class="quiet">${picked.size ? `${many(picked.size, "run")} selected:` : where || flow ? "all that the query asks for:" : "all runs:"}</span>
      <select aria-label="Act" onChange=${(event) => { if (event.target.value) setBulk(event.target.value); event.target.value = ""; }}>
        <option value="">do …</option>${ACTS.map((name) => html`<option value=${name}>${name}</option>`)}
      </select>
      ${picked.size === 2 && html`<button onClick=${() => go(`/compare${query(Object.fromEntries([...picked].reverse().map((id, k) => ["ab"[k], id])))}`)}>Compare them</button>`}
    </div>`}
    <div class=${`scroll ${found.isLoading && found.data ? "stale" : ""}`}>
    <table class="runs">
      <thead><tr>${may(me, "operator") && html`<th><span class="hidden">selected</span></th>`}<th>Run</th><th>Flow</th><th>Status</th><th>Started</th><th class="right took">Took</th><th class="about">About</th></tr></thead>
      <tbody>${rows.map((run, k) => html`<tr key=${run.run_id} class=${k === cursor ? "at" : ""} ref=${k === cursor ? line : undefined}>
        ${may(me, "operator") && html`<td><input type="checkbox" aria-label=${`select ${run.run_id}`} checked=${picked.has(run.run_id)} onChange=${() => pick(run.run_id)} /></td>`}
        <td><${Link} to=${runAt(run.run_id)}>${run.run_id}<//></td>
        <td><${Link} to=${ofFlow(run.flow)} class="plain" title="Only runs of this flow">${run.flow}<//></td>
        <td><${Badge} status=${run.paused_at && !run.ended_at ? "paused" : run.status} /></td>
        <td><${Time} at=${run.created_at} /></td>
        <td class="right took"><${Took} seconds=${run.seconds} /></td>
        <td class="about"><${About} run=${run} /></td>
      </tr>`)}</tbody>
    </table></div>
    ${found.data && !rows.length && html`<${Nothing} isFiltered=${Boolean(where || flow)} hasMore=${Boolean(found.data.next)} />`}
    <div class="row">
      ${before && html`<button onClick=${() => ask({ before: null })}>Newest</button>`}
      ${found.data && found.data.next && html`<button onClick=${() => ask({ before: found.data.next })}>${rows.length ? "Older" : "Search on"}</button>`}
    </div>
    ${bulk && html`<${Bulk} name=${bulk} where=${picked.size ? ids(picked) : [where, others].filter(Boolean).join(" and ") || EVERY} close=${() => { setBulk(null); setPicked(new Set()); }} />`}
  </div>`;
}

/** What is asked now, of one flow. */
function ofFlow(flow) {
  const asked = new URLSearchParams(here.query);
  asked.delete("before");
  asked.set("flow", flow);
  return `/?${asked}`;
}

/** An act takes a query: this one asks for every run. */
const EVERY = `status in (${STATUSES.join(", ")})`;
const ids = (picked) => `id in (${[...picked].map((id) => `'${id}'`).join(", ")})`;

function About({ run }) {
  const said = [];
  if (run.needs_repair) said.push(html`<span class="bad">needs repair</span>`);
  if (run.is_cancelling) said.push(html`<span class="quiet">is being cancelled</span>`);
  if (run.undoing) said.push(html`<span class="quiet">${run.undoing === "undoing" ? "is being undone" : `undo: ${run.undoing}`}</span>`);
  if (run.parent_run_id) said.push(html`<span class="quiet">fork of <${Link} to=${runAt(run.parent_run_id)}>${run.parent_run_id}<//></span>`);
  if (run.pinned != null) said.push(html`<span class="quiet">pinned</span>`);
  for (const [name, value] of Object.entries(run.tags || {})) said.push(html`<span class="tag">${value ? `${name}=${value}` : name}</span>`);
  for (const [name, value] of Object.entries(run.attributes || {})) said.push(html`<span class="tag soft">${name} ${String(value)}</span>`);
  return said.map((one, k) => html`<span key=${k}>${one} </span>`);
}

function Chip({ name, value, label, isOne }) {
  const is = here.query.getAll(name).includes(value);
  const onClick = () => {
    const now = here.query.getAll(name);
    ask({ [name]: isOne ? (is ? null : value) : is ? now.filter((one) => one !== value) : [...now, value], before: null });
  };
  return html`<button class=${`chip ${is ? "on" : ""}`} aria-pressed=${is} onClick=${onClick}>${label}</button>`;
}

function Search() {
  const [text, setText] = useState(here.query.get("where") || "");
  const [error, setError] = useState(null);
  const shown = here.query.get("where") || "";
  const was = useRef(shown);
  if (was.current !== shown) { was.current = shown; if (text !== shown) setText(shown); }
  const onSubmit = async (event) => {
    event.preventDefault();
    setError(null);
    const said = text.trim();
    if (RUN_ID.test(said)) {
      try {
        const run = await get(at`/runs/${said}`);
        return go(runAt(run.run_id));
      } catch (problem) {
        if (problem.status !== 404) return setError(problem);
        const near = await get(`/runs${query({ where: `id starts_with '${said}'`, limit: 2 })}`).catch(() => null);
        if (near && near.runs.length === 1) return go(runAt(near.runs[0].run_id));
        return near && near.runs.length ? ask({ where: `id starts_with '${said}'`, before: null }) : setError(problem);
      }
    }
    return ask({ where: said, before: null });
  };
  return html`<form class="search" role="search" onSubmit=${onSubmit}>
    <input data-search type="search" aria-label="A run id, or a query" placeholder="A run id, or a query: flow = orders and status = failed and started > -2d"
      value=${text} onInput=${(event) => setText(event.target.value)} spellcheck=${false} autocomplete="off" />
    <button class="main">Find</button>
  </form><${Problem} error=${error} />`;
}

const Nothing = ({ isFiltered, hasMore }) => (hasMore
  ? html`<p class="empty">No run is like this so far: older ones were not looked at.</p>`
  : isFiltered
  ? html`<p class="empty">No run is like this. <button onClick=${() => go("/")}>Show all</button></p>`
  : html`<p class="empty">There are no runs yet. Start one with <code>everstep run FLOW.py</code>, and it appears here.</p>`);

const TAKES = { tag: [["add", "tags to add: vip, team=blue"]], pin: [["reason", "why it is kept"]], cancel: [], retry: [] };

/** An act on many runs: what it would do first, then the run that does it. */
function Bulk({ name, where, close }) {
  const [said, setSaid] = useState({});
  const [comment, setComment] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const extra = name === "tag" ? { add: tags(said.add || "") } : said;
  const body = { act: name, where: where || undefined, ...extra };
  const dry = useAsked(() => (name === "tag" && !Object.keys(extra.add).length ? null : act("/bulk", { ...body, dry_run: true })), JSON.stringify(body));
  const onDo = async () => {
    setBusy(true);
    try {
      const run = await act("/bulk", { ...body, comment: comment || undefined });
      close();
      go(runAt(run.run_id));
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const told = dry.data;
  return html`<${Dialog} title=${`${name} many runs`} close=${close}>
    <p>${where ? html`Runs with <code>${where}</code>` : "All runs of the store"}.</p>
    ${(TAKES[name] || []).map(([field, label]) => html`<label>${label}<input value=${said[field] || ""} onInput=${(event) => setSaid({ ...said, [field]: event.target.value })} /></label>`)}
    <${Problem} error=${dry.error || error} />
    ${told ? html`<${Preview} told=${told} />` : !dry.error && html`<p class="quiet">Counting …</p>`}
    <label>Comment, kept in the audit log<input value=${comment} onInput=${(event) => setComment(event.target.value)} /></label>
    <div class="row"><button class="main" disabled=${!told || !told.to_do || isBusy} onClick=${onDo}>${name} them</button><button onClick=${close}>Leave it</button></div>
  <//>`;
}

function Preview({ told }) {
  const passed = [...Object.entries(told.skipped), ...Object.entries(told.refused)];
  return html`<div>
    <p><strong>${told.is_whole ? "" : "at least "}${many(told.to_do, "run")}</strong> would be acted on, of ${count(told.runs)} that the query finds.</p>
    ${passed.length > 0 && html`<p class="quiet">Passed by: ${passed.map(([why, n]) => `${count(n)} ${why.replaceAll("_", " ")}`).join(", ")}.</p>`}
    ${told.sample.length > 0 && html`<ul class="samples">${told.sample.map((one) => html`<li key=${one.run_id}><${Link} to=${runAt(one.run_id)}>${one.run_id}<//> <${Badge} status=${one.status} /> <span class="quiet">${one.would === "done" ? "" : one.would}${one.why ? `: ${one.why.replaceAll("_", " ")}` : ""}</span></li>`)}</ul>`}
  </div>`;
}
