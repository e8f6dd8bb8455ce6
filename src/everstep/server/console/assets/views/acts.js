// What can be done to a run, each with what it would do first; who did it is recorded by the service.

import { act, at as path, get, query } from "../api.js";
import { may } from "../roles.js";
import { Dialog, html, Link, Problem, useAsked, useEffect, useState } from "../html.js";
import { go, runAt } from "../route.js";
import { since, tags } from "../words.js";

const isOver = (run) => Boolean(run.ended_at);

/** What can be done now, by the role that it takes. */
function actsOf(run, at) {
  const over = isOver(run);
  return [
    run.status === "failed" || run.status === "abandoned" ? { name: "retry", label: "Retry", role: "operator", does: () => act(path`/runs/${run.run_id}/resume`, {}), says: "The run is reopened at what failed, with a fresh retry budget, and is due for a worker. Steps that have finished do not run again." } : null,
    !over && run.status === "running" && !run.is_driven && !run.paused_at ? { name: "resume", label: "Resume", role: "operator", does: () => act(path`/runs/${run.run_id}/resume`, {}), says: "The run is due for a worker, which goes on behind the last step that was committed." } : null,
    !over && !run.paused_at ? { name: "pause", label: "Pause", role: "operator", does: () => act(path`/runs/${run.run_id}/pause`, {}), says: "Nothing new starts within a second. What is under way is recorded, waits take answers, and their times run." } : null,
    !over && run.paused_at ? { name: "unpause", label: "Let it go on", role: "operator", does: () => act(path`/runs/${run.run_id}/unpause`, {}), says: "The run is due for a worker again." } : null,
    { name: "fork", label: at == null ? "Fork from its end …" : `Fork from checkpoint ${at} …`, role: "operator", dialog: Fork },
    !over ? { name: "send", label: "Send a signal …", role: "operator", dialog: Send } : null,
    !over ? { name: "cancel", label: "Cancel", role: "operator", isGrave: true, does: (said) => act(path`/runs/${run.run_id}/cancel`, said), says: "The run ends as cancelled. What runs now is recorded first; its open waits close." } : null,
    run.pinned == null ? { name: "pin", label: "Pin", role: "operator", does: (said) => act(path`/runs/${run.run_id}/pin`, { reason: said.comment || undefined }), says: "The run is kept whole, whatever retention says." } : { name: "unpin", label: "Unpin", role: "operator", does: () => act(path`/runs/${run.run_id}/unpin`, {}), says: "Retention applies to the run again." },
    { name: "tag", label: "Tags …", role: "operator", dialog: Tags },
    over ? { name: "erase", label: "Erase", role: "admin", isGrave: true, does: () => act(path`/runs/${run.run_id}`, undefined, "DELETE"), after: () => go("/"), says: "All that is kept of the run goes for good: values, steps, logs. What remains is that it was erased, and by whom." } : null,
  ].filter(Boolean);
}

/** The one thing that is most likely wanted. */
export function FirstAct({ me, run, open, pick, reload }) {
  const [asked, setAsked] = useState(null);
  const wait = run.status === "halted" && open.find((one) => one.kind !== "timer");
  if (wait && may(me, "approver")) return html`<button class="main" onClick=${() => pick(wait.visit > 1 ? `${wait.node}@${wait.visit}` : wait.node)}>Answer ${wait.node}</button>`;
  const names = ["retry", "unpause", "resume"];
  const first = actsOf(run).find((one) => names.includes(one.name) && may(me, one.role));
  if (!first) return null;
  return html`<button class="main" onClick=${() => setAsked(first)}>${first.label}</button>${asked && html`<${Confirm} it=${asked} run=${run} close=${() => setAsked(null)} reload=${reload} />`}`;
}

export function Acts({ me, run, at, reload }) {
  const [asked, setAsked] = useState(null);
  const acts = actsOf(run, at).filter((one) => may(me, one.role));
  if (!acts.length) return null;
  const Asked = asked && asked.dialog;
  return html`<select aria-label="Acts" onChange=${(event) => { setAsked(acts.find((one) => one.name === event.target.value) || null); event.target.value = ""; }}>
      <option value="">Acts …</option>${acts.map((one) => html`<option value=${one.name}>${one.label}</option>`)}</select>
    ${asked && (Asked ? html`<${Asked} run=${run} at=${at} close=${() => setAsked(null)} reload=${reload} />` : html`<${Confirm} it=${asked} run=${run} close=${() => setAsked(null)} reload=${reload} />`)}`;
}

function useDoing(reload, close, after) {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const doIt = async (doing) => {
    setBusy(true);
    setError(null);
    try {
      const told = await doing();
      close();
      reload();
      if (after) after(told);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return { error, isBusy, doIt };
}

function Confirm({ it, run, close, reload }) {
  const [comment, setComment] = useState("");
  const { error, isBusy, doIt } = useDoing(reload, close, it.after);
  const onSubmit = (event) => { event.preventDefault(); doIt(() => it.does({ comment: comment || undefined })); };
  return html`<${Dialog} title=${`${it.label}: ${run.run_id}`} close=${close}><form onSubmit=${onSubmit}>
    <p>${it.says}</p>
    ${(it.name === "retry" || it.name === "resume") && html`<${WhoTakes} run=${run} />`}
    <label>Comment, kept in the audit log<input value=${comment} onInput=${(event) => setComment(event.target.value)} /></label>
    <${Problem} error=${error} />
    <div class="row"><button class=${it.isGrave ? "danger" : "main"} disabled=${isBusy}>${it.label}</button><button type="button" onClick=${close}>Leave it</button></div></form><//>`;
}

/** Which workers can take a run, before it is marked as due. */
function WhoTakes({ run }) {
  const told = useAsked((signal) => get("/workers", signal), "workers");
  if (!told.data) return html`<${Problem} error=${told.error} />`;
  const able = told.data.workers.filter((one) => one.flows.includes(run.flow) && !one.is_stopping);
  return able.length
    ? html`<p class="quiet">${able.length === 1 ? "A worker takes" : `${able.length} workers take`} runs of ${run.flow}: ${able.slice(0, 3).map((one) => `${one.host} (${one.pid})`).join(", ")}.</p>`
    : html`<p class="problem">No live worker takes runs of ${run.flow}: it waits until one is started with <code>everstep worker --flow FILE.py</code>.</p>`;
}

function Fork({ run, at, close, reload }) {
  const [text, setText] = useState("{}");
  const [again, setAgain] = useState(false);
  const [comment, setComment] = useState("");
  const { error, isBusy, doIt } = useDoing(reload, close, (told) => go(runAt(told.run_id)));
  const state = useAsked((signal) => get(path`/runs/${run.run_id}/state` + query({ at }), signal), `${run.run_id}@${at}`);
  let inputs = null;
  try { inputs = JSON.parse(text || "{}"); } catch { inputs = null; }
  const onSubmit = (event) => {
    event.preventDefault();
    doIt(() => act(path`/runs/${run.run_id}/fork`, { at: at ?? undefined, inputs, choose_again: again || undefined, comment: comment || undefined }));
  };
  return html`<${Dialog} title=${`Fork ${run.run_id} from ${at == null ? "where it stands" : `checkpoint ${at}`}`} close=${close}><form onSubmit=${onSubmit}>
    <p>A new run goes on from there; ${run.run_id} stays as it is. What finished before is not done again. Waits that were open are opened anew.</p>
    ${state.data && html`<details><summary>Values there</summary><pre>${JSON.stringify(state.data.values, null, 2).slice(0, 3000)}</pre></details>`}
    <label>Values to begin with instead, as JSON<textarea value=${text} onInput=${(event) => setText(event.target.value)} spellcheck=${false}></textarea></label>
    ${inputs === null && html`<p class="bad">This is not JSON yet.</p>`}
    <label class="row"><input type="checkbox" checked=${again} onChange=${() => setAgain(!again)} /> gates that nothing has acted on yet choose again</label>
    <label>Comment<input value=${comment} onInput=${(event) => setComment(event.target.value)} /></label>
    <${Problem} error=${error} />
    <div class="row"><button class="main" disabled=${isBusy || inputs === null}>Fork</button><button type="button" onClick=${close}>Leave it</button></div></form><//>`;
}

function Send({ run, close, reload }) {
  const [name, setName] = useState("");
  const [text, setText] = useState("");
  const { error, isBusy, doIt } = useDoing(reload, close);
  const value = () => { try { return JSON.parse(text); } catch { return text; } };
  const onSubmit = (event) => { event.preventDefault(); doIt(() => act(path`/runs/${run.run_id}/inbox`, { name, value: value() })); };
  return html`<${Dialog} title=${`Send a signal to ${run.run_id}`} close=${close}><form onSubmit=${onSubmit}>
    <p>It is kept in the run's inbox until the run takes it.</p>
    <label>Name<input required value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    <label>Value, as JSON or text<textarea value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <${Problem} error=${error} /><div class="row"><button class="main" disabled=${isBusy}>Send</button><button type="button" onClick=${close}>Leave it</button></div></form><//>`;
}

function Tags({ run, close, reload }) {
  const now = Object.entries(run.tags || {}).map(([name, value]) => (value ? `${name}=${value}` : name));
  const [text, setText] = useState(now.join(", "));
  const { error, isBusy, doIt } = useDoing(reload, close);
  const onSubmit = (event) => {
    event.preventDefault();
    const wanted = tags(text);
    const added = Object.entries(wanted).filter(([name, value]) => (run.tags || {})[name] !== value);
    doIt(() => act(path`/runs/${run.run_id}/tags`, { add: Object.fromEntries(added), remove: Object.keys(run.tags || {}).filter((name) => !(name in wanted)) }));
  };
  return html`<${Dialog} title=${`Tags of ${run.run_id}`} close=${close}><form onSubmit=${onSubmit}><label>Tags, with commas between: vip, team=blue<input value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <${Problem} error=${error} /><div class="row"><button class="main" disabled=${isBusy}>Keep</button><button type="button" onClick=${close}>Leave it</button></div></form><//>`;
}

/** A form for the answer of a wait, made from what it asks for. */
export function Answer({ me, wait, done }) {
  const [said, setSaid] = useState({});
  const { error, isBusy, doIt } = useDoing(done, () => {});
  const send = (answer) => doIt(() => act(path`/waits/${wait.id}/answer`, answer));
  const open = html`<p class="quiet">Open since ${since(wait.opened_at)}${wait.due_at ? `, its time is over ${since(wait.due_at)}` : ""}${wait.voting && wait.voting.left > 1 ? `, ${wait.voting.left} more must agree` : ""}.</p>`;
  if (!may(me, "approver")) return html`<div class="note"><strong>Waits: ${wait.kind}</strong>${open}<p class="quiet">To answer takes the role approver.</p></div>`;
  const onSubmit = (event) => { event.preventDefault(); };
  return html`<form class="note" onSubmit=${onSubmit}><strong>${wait.prompt || `Waits: ${wait.kind}`}</strong>${open}
    ${wait.context != null && html`<details open><summary>What it is about</summary><pre>${typeof wait.context === "string" ? wait.context : JSON.stringify(wait.context, null, 2)}</pre></details>`}
    <${Fields} wait=${wait} said=${said} setSaid=${setSaid} send=${send} isBusy=${isBusy} />
    <${Problem} error=${error} /></form>`;
}

function Fields({ wait, said, setSaid, send, isBusy }) {
  const set = (name, value) => setSaid({ ...said, [name]: value });
  if (wait.kind === "timer") return html`<button disabled=${isBusy} onClick=${() => send(undefined)}>Let it fire now</button>`;
  if (wait.kind === "approval") return html`<label>Comment<input value=${said.comment || ""} onInput=${(event) => set("comment", event.target.value)} /></label>
    <div class="row"><button class="main" disabled=${isBusy} onClick=${() => send({ approved: true, comment: said.comment || "" })}>Approve</button><button class="danger" disabled=${isBusy} onClick=${() => send({ approved: false, comment: said.comment || "" })}>Reject</button></div>`;
  if (wait.options) return html`<div class="row">${wait.options.map((one) => html`<button disabled=${isBusy} onClick=${() => send(one)}>${typeof one === "string" ? one : JSON.stringify(one)}</button>`)}</div>`;
  const schema = wait.schema || {};
  if (schema.type === "object" && schema.properties) {
    const names = Object.keys(schema.properties);
    return html`${names.map((name) => html`<${Field} key=${name} name=${name} schema=${schema.properties[name]} required=${(schema.required || []).includes(name)} value=${said[name]} set=${(value) => set(name, value)} />`)}
      <button class="main" disabled=${isBusy} onClick=${() => send(Object.fromEntries(names.filter((name) => said[name] !== undefined && said[name] !== "").map((name) => [name, said[name]])))}>Answer</button>`;
  }
  return html`<${Field} name="Answer" schema=${schema} required value=${said.answer} set=${(value) => set("answer", value)} /><button class="main" disabled=${isBusy || said.answer === undefined} onClick=${() => send(said.answer)}>Answer</button>`;
}

function Field({ name, schema, required, value, set }) {
  const [text, setText] = useState(value === undefined ? "" : String(value));
  const type = Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;
  useEffect(() => { if (type === "boolean" && value === undefined) set(false); }, []);
  if (schema.enum) return html`<label>${name}<select required=${required} onChange=${(event) => set(schema.enum[event.target.selectedIndex - 1])}><option></option>${schema.enum.map((one) => html`<option>${String(one)}</option>`)}</select></label>`;
  if (type === "boolean") return html`<label class="row"><input type="checkbox" checked=${Boolean(value)} onChange=${(event) => set(event.target.checked)} /> ${name}</label>`;
  const onInput = (event) => {
    setText(event.target.value);
    const said = event.target.value;
    if (type === "integer" || type === "number") set(said === "" ? undefined : Number(said));
    else if (type === "string") set(said);
    else { try { set(JSON.parse(said)); } catch { set(said); } }
  };
  return html`<label>${name}${required ? "" : html` <span class="quiet">(may be left out)</span>`}
    ${type === "number" || type === "integer" ? html`<input type="number" step=${type === "integer" ? 1 : "any"} required=${required} value=${text} onInput=${onInput} />`
    : type === "string" ? html`<input type=${schema.format === "date" ? "date" : "text"} required=${required} value=${text} onInput=${onInput} />`
      : html`<textarea required=${required} value=${text} onInput=${onInput}></textarea>`}</label>`;
}
