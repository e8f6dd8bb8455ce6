// What can be done to a run, each with what it would do first; who did it is recorded by the service.

import { act, at as path, get, query } from "../api.js";
import { may, sees } from "../roles.js";
import { Badge, Dialog, html, Link, Problem, Time, useAsked, useDoing, useEffect, useRef, useState } from "../html.js";
import { go, runAt } from "../route.js";
import { many, tags } from "../words.js";

const isOver = (run) => Boolean(run.ended_at);
const to = (run, name) => (said) => act(path`/runs/${run.run_id}/` + name, said);
const REOPENS = ["retry", "resume"];

/** What can be done now, by the role that it takes. */
function actsOf(run, at) {
  const over = isOver(run);
  const goOn = (said) => act(path`/runs/${run.run_id}/resume`, { ...said, drive: false });
  return [
    over && !run.undoing && (run.status === "failed" || run.status === "abandoned") && { name: "retry", label: "Retry", does: goOn, says: "It is reopened at what failed, with a fresh retry budget, and is due for a worker. What has finished is not done again." },
    !over && run.needs_repair && { name: "resume", label: "Resume", does: goOn, says: "Workers may take it again, though it was set aside." },
    !over && !run.paused_at && { name: "pause", label: "Pause", does: to(run, "pause"), says: "Nothing new starts within a second. What is under way is recorded, waits take answers, and their times run." },
    !over && run.paused_at && { name: "unpause", label: "Let it go on", does: to(run, "unpause"), says: "It is due for a worker again." },
    { name: "fork", label: at != null ? `Fork from checkpoint ${at} …` : over && run.undoing ? "Begin anew …" : "Fork from its end …", dialog: Fork, at: over && run.undoing ? 1 : null },
    !over && { name: "send", label: "Send a signal …", dialog: Send },
    !over && { name: "cancel", label: "Cancel", isGrave: true, does: to(run, "cancel"), says: "It ends as cancelled. What runs now is recorded first; its open waits close." },
    (run.status !== "completed" && (!run.undoing || run.undoing === "declined")) && { name: "undo", label: "Undo", isGrave: true, does: to(run, "undo"), says: "What it has done is undone, the last step first, by who has its code. It then ends as failed or cancelled, and goes forward no more." },
    run.pinned == null ? { name: "pin", label: "Pin", does: (said) => to(run, "pin")({ ...said, reason: said.comment }), says: "It is kept whole, whatever retention says." }
      : { name: "unpin", label: "Unpin", does: to(run, "unpin"), says: "Retention applies to it again." },
    { name: "tag", label: "Tags …", dialog: Tags },
    over && { name: "erase", label: "Erase", role: "admin", isGrave: true, does: () => act(path`/runs/${run.run_id}`, undefined, "DELETE"), after: () => go("/"), says: "All that is kept of it goes for good: values, steps, logs. What remains is that it was erased, and by whom." },
  ].filter(Boolean);
}

/** The one thing that is most likely wanted. */
export function FirstAct({ me, run, open, pick, reload }) {
  const [asked, setAsked] = useState(null);
  const wait = run.status === "halted" && !run.paused_at && open.find((one) => canAnswer(me, one));
  if (wait) return html`<button class="main" onClick=${() => pick(wait.visit > 1 ? `${wait.node}@${wait.visit}` : wait.node)}>${wait.kind === "settle" ? "Settle" : "Answer"} ${wait.node}</button>`;
  const names = [...REOPENS, "unpause"];
  const first = actsOf(run).find((one) => names.includes(one.name) && may(me, "operator"));
  if (!first) return null;
  return html`<button class="main" onClick=${() => setAsked(first)}>${first.label}</button>${asked && html`<${Confirm} it=${asked} run=${run} close=${() => setAsked(null)} reload=${reload} />`}`;
}

const canAnswer = (me, wait) => wait.kind !== "timer" && may(me, wait.kind === "settle" || wait.listens_for ? "operator" : "approver")
  && !(me.name && wait.voting && wait.voting.left && !wait.voting.left.includes(me.name));

/** All of them, behind a button. */
export function Acts({ me, run, at, reload }) {
  const [asked, setAsked] = useState(null);
  const [isOpen, setOpen] = useState(false);
  const ref = useRef();
  const acts = actsOf(run, at).filter((one) => may(me, one.role || "operator"));
  useEffect(() => {
    if (!isOpen) return undefined;
    const away = (event) => { if (event.key === "Escape" || (event.type === "click" && !ref.current.contains(event.target))) setOpen(false); };
    addEventListener("click", away);
    addEventListener("keydown", away);
    return () => { removeEventListener("click", away); removeEventListener("keydown", away); };
  }, [isOpen]);
  if (!acts.length) return null;
  const Asked = asked && (asked.dialog || Confirm);
  return html`<div class="menu" ref=${ref}><button aria-expanded=${isOpen} aria-haspopup="true" onClick=${() => setOpen(!isOpen)}>Acts ▾</button>
    ${isOpen && html`<ul>${acts.map((one) => html`<li><button class=${one.isGrave ? "plain bad" : "plain"} onClick=${() => { setOpen(false); setAsked(one); }}>${one.label}</button></li>`)}</ul>`}
    ${asked && html`<${Asked} me=${me} it=${asked} run=${run} at=${at ?? asked.at} close=${() => setAsked(null)} reload=${reload} />`}</div>`;
}

function Confirm({ me, it, run, close, reload }) {
  const [comment, setComment] = useState("");
  const { error, isBusy, doIt } = useDoing(reload, close, it.after);
  const would = useAsked(() => act("/bulk", { act: it.name, where: `id = '${run.run_id}'`, dry_run: true, ...(it.name === "pin" ? { reason: "dry run" } : {}) }), it.name);
  const verdict = would.data && would.data.sample[0];
  const isRefused = verdict && verdict.would === "refused";
  const onSubmit = (event) => { event.preventDefault(); doIt(() => it.does({ comment: comment || undefined })); };
  return html`<${Dialog} title=${`${it.label}: ${run.run_id}`} close=${close}><form onSubmit=${onSubmit}>
    <p>${it.says}</p>
    ${isRefused && html`<p class="problem">It would be refused: ${verdict.why.replaceAll("_", " ")}.</p>`}
    ${REOPENS.includes(it.name) && html`<${Explained} run=${run} />`}
    ${it.name === "cancel" && html`<${Stops} run=${run} />`}
    ${it.name === "erase" && html`<${Goes} run=${run} />`}
    <label>Comment, kept in the audit log<input value=${comment} onInput=${(event) => setComment(event.target.value)} /></label>
    <${Problem} error=${error} />
    <div class="row"><button class=${it.isGrave ? "danger" : "main"} disabled=${isBusy || isRefused}>${it.label}</button><button type="button" onClick=${close}>Leave it</button></div></form><//>`;
}

/** What going on would do: asked of the code where it is, else told by the nodes alone. */
export function Explained({ run }) {
  const told = useAsked((signal) => get(path`/runs/${run.run_id}/explain`, signal), run.run_id);
  const nodes = useAsked((signal) => get(path`/runs/${run.run_id}/nodes`, signal), run.run_id);
  if (!told.data && !told.error) return html`<p class="quiet">Asking a worker what it would do …</p>`;
  const it = told.data;
  const again = it ? [...it.starts, ...it.pending].map((one) => ({ node: one.path, said: `${one.attempt > 1 ? `attempt ${one.attempt}` : ""}${one.may_repeat ? " may repeat what it did to the world" : ""}` }))
    : nodes.data ? nodes.data.nodes.filter((one) => one.is_pending && one.status !== "halted").map((one) => ({ node: one.node, said: "" })) : [];
  const kept = it ? it.recorded.length : nodes.data ? nodes.data.nodes.filter((one) => one.status === "completed").length : 0;
  return html`<div class="note"><strong>It would begin with</strong><ul>${again.map((one) => html`<li>${one.node} <span class="quiet">${one.said}</span></li>`)}</ul>
    <p>${many(kept, "node")} that finished ${kept === 1 ? "is" : "are"} not done again.</p>
    ${it && it.missing.length > 0 && html`<p class="bad">It would not start: ${it.missing.join("; ")}</p>`}
    ${it && it.can_lose && html`<p class="quiet">${it.can_lose}</p>`}
    ${it && it.compat && it.compat.reason && html`<p class="bad">${it.compat.reason} ${it.compat.fix}</p>`}
    ${it && it.untaken && html`<p class="bad">${it.untaken.text} ${it.untaken.fix}</p>`}
    ${told.error && html`<p class="quiet">${told.error.message} ${told.error.fix}</p>`}</div>`;
}

function Stops({ run }) {
  const nodes = useAsked((signal) => get(path`/runs/${run.run_id}/nodes`, signal), run.run_id);
  const named = (status) => (nodes.data ? nodes.data.nodes.filter((one) => one.status === status).map((one) => one.node) : []);
  const [runs, waits] = [named("running"), named("halted")];
  return html`<p>${runs.length ? `Now runs ${runs.join(", ")}. ` : "Nothing of it runs now. "}${waits.length ? `${many(waits.length, "wait")} would close: ${waits.join(", ")}.` : ""}</p>`;
}

function Goes({ run }) {
  const forks = useAsked((signal) => get(`/runs${query({ parent: run.run_id, limit: 10 })}`, signal), run.run_id);
  return html`<p>${many(run.checkpoints, "checkpoint")} would go. ${forks.data && forks.data.runs.length ? `${many(forks.data.runs.length, "fork")} of it stay: ${forks.data.runs.map((one) => one.run_id).join(", ")}.` : ""}</p>`;
}

/** Who drives a run that is due, or why no worker takes it. */
export function Taken({ run }) {
  const isWaiting = run.status === "running" && !run.is_driven && !run.paused_at;
  const told = useAsked((signal) => (isWaiting ? get("/untaken?limit=1000", signal) : null), `${run.run_id}${isWaiting}`, true, run.checkpoints);
  if (run.is_driven) return html`<span>driven by ${run.driver ? html`process ${run.driver.pid} on ${run.driver.host} <span class="quiet"><${Time} at=${run.driver.since} /></span>` : "a live process"}</span>`;
  if (!isWaiting) return null;
  const why = told.data && told.data.runs.find((one) => one.run_id === run.run_id);
  return why ? html`<span class="bad">${why.text} ${why.fix}</span>` : html`<span class="bad">no live worker drives it${told.data ? ": it is due, and one takes it next" : ""}</span>`;
}

function Send({ me, run, close, reload }) {
  const waiting = useAsked((signal) => get(`/waits${query({ run_id: run.run_id, kind: "signal" })}`, signal), run.run_id);
  const inbox = useAsked((signal) => (sees(me, "reader") ? get(path`/runs/${run.run_id}/inbox`, signal) : null), run.run_id);
  const names = waiting.data ? [...new Set(waiting.data.waits.map((one) => one.listens_for))] : [];
  const [name, setName] = useState(null);
  const [text, setText] = useState("");
  const [comment, setComment] = useState("");
  const { error, isBusy, doIt } = useDoing(reload, close);
  const value = () => { try { return JSON.parse(text); } catch { return text; } };
  const said = name ?? names[0] ?? "";
  const onSubmit = (event) => { event.preventDefault(); doIt(() => act(path`/runs/${run.run_id}/inbox`, { name: said, value: value(), comment: comment || undefined })); };
  return html`<${Dialog} title=${`Send a signal to ${run.run_id}`} close=${close}><form onSubmit=${onSubmit}>
    <p>${names.includes(said) ? `A wait for ${said} is open: it takes this, and the run is due.` : "It is kept in the run's inbox until the run takes it."}</p>
    ${inbox.data && inbox.data.signals.length > 0 && html`<p class="quiet">Not taken yet: ${inbox.data.signals.map((one) => one.name).join(", ")}.</p>`}
    <label>Name<input required value=${said} onInput=${(event) => setName(event.target.value)} /></label>
    <label>Value, as JSON or text<textarea value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <label>Comment, kept in the audit log<input value=${comment} onInput=${(event) => setComment(event.target.value)} /></label>
    <${Problem} error=${error} /><div class="row"><button class="main" disabled=${isBusy}>Send</button><button type="button" onClick=${close}>Leave it</button></div></form><//>`;
}

function Tags({ run, close, reload }) {
  const before = run.tags || {};
  const [text, setText] = useState(Object.entries(before).map(([name, value]) => (value ? `${name}=${value}` : name)).join(", "));
  const { error, isBusy, doIt } = useDoing(reload, close);
  const wanted = tags(text);
  const added = Object.entries(wanted).filter(([name, value]) => before[name] !== value);
  const gone = Object.keys(before).filter((name) => !(name in wanted));
  const onSubmit = (event) => { event.preventDefault(); doIt(() => act(path`/runs/${run.run_id}/tags`, { add: Object.fromEntries(added), remove: gone })); };
  return html`<${Dialog} title=${`Tags of ${run.run_id}`} close=${close}><form onSubmit=${onSubmit}><label>Tags, with commas between: vip, team=blue<input value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <p class="quiet">${[added.length && `adds ${added.map(([name]) => name).join(", ")}`, gone.length && `takes ${gone.join(", ")} away`].filter(Boolean).join("; ") || "Nothing changes."}</p>
    <${Problem} error=${error} /><div class="row"><button class="main" disabled=${isBusy}>Keep</button><button type="button" onClick=${close}>Leave it</button></div></form><//>`;
}

// A fork: from the playhead, with some values edited, and what would run again because of that.

const parsed = (text) => { try { return { value: JSON.parse(text) }; } catch { return null; } };

function Fork({ run, at, close, reload }) {
  const [edits, setEdits] = useState({});
  const [again, setAgain] = useState(false);
  const [comment, setComment] = useState("");
  const { error, isBusy, doIt } = useDoing(reload, close, (told) => go(runAt(told.run_id)));
  const state = useAsked((signal) => get(path`/runs/${run.run_id}/state` + query({ at }), signal), `${run.run_id}@${at}`);
  const first = useAsked((signal) => get(path`/runs/${run.run_id}/state?at=1`, signal), run.run_id);
  const isInput = (name) => Boolean(first.data && name in first.data.values);
  const names = Object.keys(edits);
  const asked = { at, input: names.filter(isInput), state: names.filter((name) => !isInput(name)), choose_again: again ? "true" : null };
  const would = useAsked((signal) => get(path`/runs/${run.run_id}/fork` + query(asked), signal), JSON.stringify([asked, Boolean(first.data)]), true);
  const wrong = names.filter((name) => !parsed(edits[name]));
  const part = (which) => Object.fromEntries(names.filter((name) => isInput(name) === which).map((name) => [name, parsed(edits[name]).value]));
  const onSubmit = (event) => {
    event.preventDefault();
    doIt(() => act(path`/runs/${run.run_id}/fork`, { at: at ?? undefined, inputs: part(true), state: part(false), choose_again: again || undefined, comment: comment || undefined }));
  };
  const values = state.data ? Object.entries(state.data.values) : [];
  const edit = (name, value) => setEdits({ ...edits, [name]: value });
  const leave = (name) => setEdits(Object.fromEntries(Object.entries(edits).filter(([one]) => one !== name)));
  return html`<${Dialog} title=${`Fork ${run.run_id} from ${at == null ? "where it stands" : `checkpoint ${at}`}`} close=${close}><form onSubmit=${onSubmit}>
    <p>A new run goes on from there; ${run.run_id} stays as it is.</p>
    <${Would} told=${would} />
    <${Problem} error=${state.error} />
    <h3>Edited values</h3>
    ${names.map((name) => html`<label key=${name}>${name} <button type="button" class="plain" onClick=${() => leave(name)}>as it was</button>
      <textarea aria-label=${name} value=${edits[name]} onInput=${(event) => edit(name, event.target.value)} spellcheck=${false}></textarea>${wrong.includes(name) && html`<span class="bad">This is not JSON yet.</span>`}</label>`)}
    <select aria-label="Edit a value" value="" onChange=${(event) => { const name = event.target.value; if (name) edit(name, JSON.stringify(state.data.values[name], null, 2) ?? "null"); event.target.value = ""; }}>
      <option value="">edit a value …</option>${values.filter(([name]) => !(name in edits) && !name.startsWith("@")).map(([name]) => html`<option value=${name}>${name}${isInput(name) ? ", an input" : ""}</option>`)}</select>
    <label class="row"><input type="checkbox" checked=${again} onChange=${() => setAgain(!again)} /> gates that nothing has acted on yet choose again</label>
    <label>Comment, kept in the audit log<input value=${comment} onInput=${(event) => setComment(event.target.value)} /></label>
    <${Problem} error=${error} />
    <div class="row"><button class="main" disabled=${isBusy || wrong.length > 0}>Fork</button><button type="button" onClick=${close}>Leave it</button></div></form><//>`;
}

function Would({ told }) {
  if (!told.data) return html`<${Problem} error=${told.error} />`;
  const it = told.data;
  const effects = it.again.filter((one) => one.had_key);
  return html`<div class="note"><${Problem} error=${told.error} />
    <p><strong>It would begin with</strong> ${it.starts.length ? it.starts.join(", ") : "nothing: all is done"}. ${many(it.kept, "node")} ${it.kept === 1 ? "keeps" : "keep"} what was written.</p>
    ${it.again.length > 0 && html`<p>Once more: ${it.again.map((one) => one.node).join(", ")}.</p>`}
    ${effects.length > 0 && html`<p class="bad">${effects.map((one) => one.node).join(", ")} may do again what was done to the world: a fork has idempotency keys of its own.</p>`}
    ${it.asks.length > 0 && html`<p>Asks once more: ${it.asks.join(", ")}.</p>`}</div>`;
}
