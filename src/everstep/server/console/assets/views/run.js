// One run: what it is and waits for, the graph, the timeline, and what is selected. One selection (a step) and
// one playhead (a checkpoint) rule all of it, and both are in the address.

import { at as path, get, query } from "../api.js";
import { addressOf, plain, short } from "../addresses.js";
import { sees } from "../roles.js";
import { Badge, html, Link, Problem, Time, useAsked, useEffect, useMemo, useRef, useState } from "../html.js";
import { onChange, sparse } from "../live.js";
import { ask, go, here, runAt, runOf } from "../route.js";
import { count, many, moment, rough, since, span } from "../words.js";
import { Acts, FirstAct, Taken } from "./acts.js";
import { Graph } from "./graph.js";
import { Inspector } from "./inspector.js";
import { Table } from "./table.js";
import { Timeline } from "./timeline.js";
import { Value } from "./values.js";

export default function Run({ me }) {
  const { run: id, at, step } = runOf(here.path);
  const shown = useAsked((signal) => get(path`/runs/${id}`, signal), id, true);
  const place = at == null ? id : `${id}@${at}`;
  const nodes = useAsked((signal) => get(path`/runs/${place}/nodes` + query({ newest: 1000 }), signal), place, true);
  const waits = useAsked((signal) => get(`/waits${query({ run_id: id, limit: 100 })}`, signal), id, true);
  const run = shown.data && shown.data.run_id === id ? shown.data : null;
  const isTable = here.query.get("as") === "table";
  const setTable = (is) => ask({ as: is ? "table" : null }, { replace: true });
  const [version, setVersion] = useState(0);
  const [lanes, setLanes] = useState(null);

  const move = (changes, options) => {
    const next = { at, step, ...changes };
    go(runAt(id, next.at, next.step, here.query), options);
  };
  const pick = (address, options) => move({ step: address && short(address) }, options);
  const seek = (sequence) => move({ at: sequence });

  useEffect(() => { document.title = `${id}${at == null ? "" : `@${at}`} · everstep`; }, [id, at]);
  useEffect(() => {
    const again = sparse(() => { shown.reload(); waits.reload(); nodes.reload(); setVersion((n) => n + 1); });
    const stop = onChange((told) => {
      if (told.kind === "refetch" || (told.kind === "runs" && (!told.runs.length || told.runs.some((one) => one.run_id === id)))) again();
    });
    return () => { stop(); again.stop(); };
  }, [id, at]);

  // A run opens at what a person would look for: the failed step, the wait, what runs now.
  const list = nodes.data ? nodes.data.nodes : null;
  useEffect(() => {
    if (step || !list || !run) return;
    const wanted = { failed: "failed", abandoned: "running", halted: "halted", running: "running" }[run.status];
    const first = wanted && (list.find((one) => one.status === wanted && !list.some((other) => other.status === wanted && other.node.startsWith(`${one.node}/`))) || list.find((one) => one.is_pending));
    if (first) move({ step: addressOf(first) }, { replace: true });
  }, [id, Boolean(list), run && run.status]);

  useEffect(() => {
    const onKey = (event) => {
      if (event.target.closest("input, textarea, select, dialog") || event.metaKey || event.ctrlKey || event.altKey) return;
      if (event.key === "Escape" && at != null) seek(null);
      else if (event.key === "t") setTable(!isTable);
      else if (event.key === "[") seek(Math.max(1, (at ?? (nodes.data ? nodes.data.sequence : 1)) - 1));
      else if (event.key === "]" && at != null) seek(run && at + 1 >= run.checkpoints ? null : at + 1);
      else if ((event.key === "j" || event.key === "k") && list) {
        const now = list.findIndex((one) => one.node === plain(runOf(here.path).step || ""));
        const next = list[Math.min(list.length - 1, Math.max(0, now + (event.key === "j" ? 1 : -1)))];
        if (next) pick(addressOf(next));
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });

  if (!run) return shown.error ? html`<div class="pad"><${Problem} error=${shown.error} /><${Link} to="/">All runs<//></div>` : html`<p class="quiet pad">Loading …</p>`;
  const open = waits.data ? waits.data.waits.filter((one) => one.status === "open") : [];
  const reload = () => { shown.reload(); waits.reload(); nodes.reload(); setVersion((n) => n + 1); };

  return html`
    <${Head} me=${me} run=${run} at=${at} open=${open} list=${list} seek=${seek} pick=${pick} reload=${reload} />
    <${Problem} error=${nodes.error} />
    <div class="panes" data-sequence=${nodes.data && nodes.data.sequence}>
      <section class="pane graph" aria-label="Graph">${isTable || (nodes.error && !list)
    ? html`<${Table} id=${id} place=${place} step=${step} pick=${pick} version=${version} close=${() => setTable(false)} />`
    : html`<${Graph} id=${id} at=${at} nodes=${list} step=${step} pick=${pick} seek=${seek} version=${version} toTable=${() => setTable(true)} />`}
      </section>
      <section class="pane inspector" aria-label="Selected step">${step
    ? html`<${Inspector} me=${me} id=${id} at=${at} step=${step} version=${version} waits=${open} pick=${pick} seek=${seek} reload=${reload} lanes=${lanes} />`
    : html`<${Overview} me=${me} run=${run} nodes=${nodes.data} at=${at} pick=${pick} />`}
      </section>
      <section class="pane timeline" aria-label="Timeline"><${Timeline} id=${id} run=${run} at=${at} step=${step} pick=${pick} seek=${seek} version=${version} tell=${setLanes} /></section>
    </div>`;
}

function Head({ me, run, at, open, list, seek, pick, reload }) {
  const status = run.paused_at && !run.ended_at ? "paused" : run.status;
  const budgets = run.guards ? Object.entries(run.guards.budgets || {}) : [];
  return html`<div class="run-head">
    <div class="row">
      <h1>${run.run_id}</h1>
      <${Badge} status=${status} />
      <span class="push"></span>
      <${FirstAct} me=${me} run=${run} open=${open} pick=${pick} reload=${reload} />
      <${Acts} me=${me} run=${run} at=${at} reload=${reload} />
    </div>
    <div class="facts">
      <span>flow <${Link} to=${`/flows/${encodeURIComponent(run.flow)}`}>${run.flow}<//> ${run.flow_version && html`<span class="quiet">version ${run.flow_version}</span>`}</span>
      <span title=${moment(run.created_at)}>started ${since(run.created_at)}</span>
      <span>${run.ended_at ? `took ${span(run.seconds)}` : `${rough(run.seconds ?? (Date.now() - new Date(run.created_at)) / 1000)} old`}</span>
      <span>${many(run.checkpoints, "checkpoint")}</span>
      <${Taken} run=${run} />
      ${run.parent_run_id && html`<span>fork of <${Link} to=${runAt(run.parent_run_id, run.forked_at)}>${run.parent_run_id}${run.forked_at ? `@${run.forked_at}` : ""}<//> · <${Link} to=${`/compare?a=${encodeURIComponent(run.parent_run_id)}&b=${encodeURIComponent(run.run_id)}`}>compare<//></span>`}
      <${Forks} run=${run} />
      <${Before} run=${run} />
      ${budgets.map(([name, budget]) => html`<${Budget} name=${name} budget=${budget} />`)}
      ${run.needs_repair && html`<span class="bad">needs repair: ${run.needs_repair}</span>`}
      ${run.begins_at && html`<span class="waits">begins <${Time} at=${run.begins_at} /></span>`}
      ${run.ends_at && html`<span>deadline <${Time} at=${run.ends_at} /></span>`}
      ${run.is_cancelling && html`<span class="waits">is being cancelled</span>`}
      ${run.undoing && html`<span class=${run.undoing === "complete" ? "" : "waits"}>${run.undoing === "undoing" ? "is being undone" : `undo: ${run.undoing}`}</span>`}
      ${run.paused_at && !run.ended_at && html`<span>paused <${Time} at=${run.paused_at} />${run.paused_by && run.paused_by.by ? ` by ${run.paused_by.by}${run.paused_by.comment ? ` “${run.paused_by.comment}”` : ""}` : ""}</span>`}
      ${run.pinned != null && html`<span>pinned${run.pinned_by && run.pinned_by.by ? ` by ${run.pinned_by.by}` : ""}: ${run.pinned}</span>`}
      ${run.bulk && html`<span>${run.bulk.act}: ${count(run.bulk.done)} done, ${count(run.bulk.left ?? 0)} left</span>`}
    </div>
    ${open.length > 0 && html`<div class="waits-for">${run.ended_at ? "Still open, though it ended:" : "Waits for"} ${open.slice(0, 3).map((wait, k) => html`${k ? ", " : ""}<button class="plain" onClick=${() => wait.node === "@start" ? go("/waits?kind=timer") : pick(wait.visit > 1 ? `${wait.node}@${wait.visit}` : wait.node)}><strong>${wait.node}</strong></button> <span class="quiet">(${wait.kind}${who(wait)}${wait.due_at ? `, due ${since(wait.due_at)}` : ""})</span>`)}${open.length > 3 ? ` and ${open.length - 3} more` : ""}</div>`}
    ${at != null && html`<div class="not-live" role="status">As it was at checkpoint ${at}, not as it is now. <button onClick=${() => seek(null)}>Back to live (Esc)</button></div>`}
  </div>`;
}

/** Other runs that go on from this one. */
function Forks({ run }) {
  const told = useAsked((signal) => get(`/runs${query({ parent: run.run_id, limit: 4 })}`, signal), run.run_id, true);
  const forks = told.data ? told.data.runs : [];
  return forks.length > 0 && html`<span>forked as ${forks.slice(0, 3).map((one, k) => html`${k ? ", " : ""}<${Link} to=${runAt(one.run_id)}>${one.run_id}<//> · <${Link} to=${`/compare?a=${encodeURIComponent(run.run_id)}&b=${encodeURIComponent(one.run_id)}`}>compare<//>`)}${forks.length > 3 ? " and more" : ""}</span>`;
}

/** The newest run of the flow before this one, to compare it with. */
function Before({ run }) {
  const told = useAsked((signal) => get(`/runs${query({ flow: run.flow, before: run.run_id, limit: 1 })}`, signal), run.run_id, true);
  const one = told.data && told.data.runs[0];
  return one && one.run_id !== run.parent_run_id ? html`<span>the run before: <${Link} to=${runAt(one.run_id)}>${one.run_id}<//> · <${Link} to=${`/compare?a=${encodeURIComponent(one.run_id)}&b=${encodeURIComponent(run.run_id)}`}>compare<//></span>` : null;
}

function who(wait) {
  if (wait.voting && wait.voting.left) return `, ${wait.voting.left.join(" or ")} may decide`;
  if (wait.kind === "settle") return ", anyone with the role operator";
  return { timer: ", a clock", callback: ", another system", signal: `, signal ${wait.listens_for}`, event: `, event ${wait.listens_for}` }[wait.kind] || ", anyone with the role approver";
}

function Budget({ name, budget }) {
  const spent = Number(budget.spent ?? 0);
  const limit = Number(budget.limit ?? 0);
  const share = limit ? Math.min(100, Math.round((100 * spent) / limit)) : 0;
  const ref = useRef();
  useEffect(() => { if (ref.current) ref.current.style.width = `${share}%`; }, [share]);
  return html`<span title=${`${spent} of ${limit} ${name}`}>${name} <span class="bar"><i ref=${ref}></i></span> ${share} %</span>`;
}

/** What is said of a run where no step is selected: its values as they stand. */
function Overview({ me, run, nodes, at, pick }) {
  const acts = nodes ? nodes.acts : [];
  const place = at == null ? run.run_id : `${run.run_id}@${at}`;
  const state = useAsked((signal) => (sees(me, "reader") ? get(path`/runs/${run.run_id}/values` + query({ at }), signal) : null), place, true, run.checkpoints);
  const names = useMemo(() => Object.keys(run.tags || {}), [run.tags]);
  return html`<h2>Overview</h2>
    ${names.length > 0 && html`<p>${names.map((name) => html`<span class="tag">${run.tags[name] ? `${name}=${run.tags[name]}` : name}</span> `)}</p>`}
    ${run.attributes && Object.keys(run.attributes).length > 0 && html`<p>${Object.entries(run.attributes).map(([name, value]) => html`<span class="tag soft">${name} ${String(value)}</span> `)}</p>`}
    <p class="quiet">Select a node or a step to see what it took and gave.</p>
    <${Problem} error=${state.error} />
    ${state.data && html`<h3>Values</h3>${Object.entries(state.data.values).filter(([name]) => !name.startsWith("@")).map(([name, cut]) => html`<div key=${name}><${Value} cut=${cut} name=${name} isOpen=${false} from=${{ run: run.run_id, at: state.data.sequence, name }} /></div>`)}`}
    ${acts.length > 0 && html`<h3>Who did what</h3><ul class="samples">${acts.map((act) => html`<li><strong>${act.by || "unknown"}</strong> <span class="quiet">(${act.how})</span> ${act.trigger === "admission" ? "started it" : act.step ? html`<button class="link" onClick=${() => pick(act.step)}>${short(act.step)}</button>` : act.trigger}${act.comment ? ` “${act.comment}”` : ""} <span class="quiet">checkpoint ${act.checkpoint}</span></li>`)}</ul>`}`;
}
