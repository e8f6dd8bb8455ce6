// The answer of a wait: a form made from what it asks for.

import { act, at as path } from "../api.js";
import { may } from "../roles.js";
import { html, Problem, useDoing, useState } from "../html.js";
import { since } from "../words.js";

export function Answer({ me, wait, done }) {
  const { error, isBusy, doIt } = useDoing(done, () => {});
  const send = (answer) => doIt(() => act(path`/waits/${wait.id}/answer`, answer));
  const mayNot = refusal(me, wait);
  return html`<form class="note" onSubmit=${(event) => event.preventDefault()}><strong>${wait.prompt || `Waits: ${wait.kind}`}</strong>
    <p class="quiet">Open since ${since(wait.opened_at)}${wait.due_at ? `, its time is over ${since(wait.due_at)}` : ""}.</p>
    ${wait.voting && html`<${Votes} it=${wait.voting} />`}
    ${wait.context != null && html`<details open><summary>What it is about</summary><pre>${typeof wait.context === "string" ? wait.context : JSON.stringify(wait.context, null, 2)}</pre></details>`}
    ${mayNot ? html`<p class="quiet">${mayNot}</p>` : html`<${Fields} me=${me} wait=${wait} send=${send} doIt=${doIt} isBusy=${isBusy} />`}
    <${Problem} error=${error} /></form>`;
}

const roleFor = (wait) => (wait.kind === "settle" || wait.listens_for ? "operator" : "approver");

function refusal(me, wait) {
  if (!me.acts) return "This console only looks.";
  if (!may(me, roleFor(wait))) return `To answer takes the role ${roleFor(wait)}.`;
  const { left } = wait.voting || {};
  return me.name && left && !left.includes(me.name) ? `It is not for ${me.name} to decide.` : null;
}

function Votes({ it }) {
  return html`<p>${it.quorum > 1 ? `${it.quorum} must approve. ` : ""}${it.votes.map((one) => html`<span class=${one.approved === false ? "bad" : "good"}>${one.approved === false ? "✗" : "✓"} ${one.by}${one.comment ? ` “${one.comment}”` : ""} </span>`)}
    <span class="quiet">${it.left ? `${it.left.join(", ")} may still vote.` : "Anyone with a name may vote."}${it.not_by.length ? ` Not ${it.not_by.join(", ")}.` : ""}</span></p>`;
}

function Fields({ me, wait, send, doIt, isBusy }) {
  const [said, setSaid] = useState({});
  const set = (name, value) => setSaid({ ...said, [name]: value });
  if (wait.kind === "settle") return html`<${Settle} wait=${wait} doIt=${doIt} isBusy=${isBusy} />`;
  if (wait.listens_for) return html`<${Said} wait=${wait} doIt=${doIt} isBusy=${isBusy} />`;
  if (wait.kind === "timer") return html`<button disabled=${isBusy} onClick=${() => send(undefined)}>Let it fire now</button>`;
  if (wait.kind === "approval") return html`<label>Comment<input value=${said.comment || ""} onInput=${(event) => set("comment", event.target.value)} /></label>
    <div class="row"><button class="main" disabled=${isBusy} onClick=${() => send({ approved: true, comment: said.comment || "" })}>Approve</button><button class="danger" disabled=${isBusy} onClick=${() => send({ approved: false, comment: said.comment || "" })}>Reject</button></div>`;
  if (wait.options) return html`<div class="row">${wait.options.map((one) => html`<button disabled=${isBusy} onClick=${() => send(one)}>${typeof one === "string" ? one : JSON.stringify(one)}</button>`)}</div>`;
  const all = wait.schema || {};
  const schema = meant(all, all);
  if (schema.type === "object" && schema.properties) {
    const names = Object.keys(schema.properties);
    const needed = schema.required || [];
    const answer = Object.fromEntries(names.filter((name) => said[name] !== undefined && (said[name] !== "" || needed.includes(name))).map((name) => [name, said[name]]));
    const lacks = needed.filter((name) => !(name in answer) && meant(schema.properties[name], all).type !== "boolean");
    return html`${names.map((name) => html`<${Field} key=${name} name=${name} schema=${meant(schema.properties[name], all)} required=${needed.includes(name)} set=${(value) => set(name, value)} />`)}
      <button class="main" disabled=${isBusy || lacks.length > 0} onClick=${() => send({ ...Object.fromEntries(needed.filter((name) => meant(schema.properties[name], all).type === "boolean").map((name) => [name, false])), ...answer })}>Answer</button>
      ${lacks.length > 0 && html` <span class="quiet">${lacks.join(", ")} must be said</span>`}`;
  }
  return html`<${Field} name="Answer" schema=${schema} required set=${(value) => set("answer", value)} /><button class="main" disabled=${isBusy || said.answer === undefined} onClick=${() => send(said.answer)}>Answer</button>`;
}

/** What a schema means: what it points to, and of a choice with null the other one. */
function meant(schema, all) {
  if (schema.$ref) return { ...meant(schema.$ref.slice(2).split("/").reduce((found, part) => (found || {})[part], all) || {}, all), ...("default" in schema ? { default: schema.default } : {}) };
  const others = (schema.anyOf || []).filter((one) => one.type !== "null");
  if (others.length === 1) return { ...meant(others[0], all), default: schema.default };
  return Array.isArray(schema.type) ? { ...schema, type: schema.type.find((one) => one !== "null") } : schema;
}

function Settle({ wait, doIt, isBusy }) {
  const [text, setText] = useState("");
  const settle = (said) => doIt(() => act(path`/runs/${wait.run_id}/settle`, { step: wait.node, ...said }));
  const value = () => { try { return JSON.parse(text); } catch { return text; } };
  if (wait.node.endsWith("!undo")) return html`<p>It could not be undone. Say how to go on:</p>
    <div class="row"><button class="main" disabled=${isBusy} onClick=${() => settle({ rerun: true })}>Try again</button>
      <button disabled=${isBusy} onClick=${() => settle({ done: null })}>It was done by hand</button></div>
    <label>Why it is left as it is<textarea value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <div class="row"><button disabled=${isBusy || !text} onClick=${() => settle({ skip: text })}>Skip it</button></div>`;
  return html`<p>Look where it would have happened, by its key. Then say what became of it:</p>
    <label>It happened. What it would have returned, as JSON or text<textarea value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <div class="row"><button class="main" disabled=${isBusy || !text} onClick=${() => settle({ done: value() })}>It happened</button>
      <button disabled=${isBusy} onClick=${() => settle({ rerun: true })}>It did not: call it again</button></div>`;
}

/** What settles a wait that listens: a signal to this run, or an event to all that wait for it. */
function Said({ wait, doIt, isBusy }) {
  const [text, setText] = useState("");
  const value = () => { try { return JSON.parse(text); } catch { return text || null; } };
  const isSignal = wait.kind === "signal";
  const send = () => doIt(() => (isSignal ? act(path`/runs/${wait.run_id}/inbox`, { name: wait.listens_for, value: value() }) : act(path`/events/${wait.listens_for}`, { value: value() })));
  return html`<label>${isSignal ? "Signal" : "Event"} ${wait.listens_for}, as JSON or text<textarea value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <button class="main" disabled=${isBusy} onClick=${send}>${isSignal ? "Send it" : "Publish it, to all that wait for it"}</button>`;
}

function Field({ name, schema, required, set }) {
  const [text, setText] = useState(schema.default == null || typeof schema.default === "object" ? "" : String(schema.default));
  const label = html`${schema.title && schema.title !== name ? schema.title : name}${required ? "" : html` <span class="quiet">(may be left out)</span>`}${schema.description ? html` <span class="quiet">${schema.description}</span>` : ""}`;
  if (schema.enum) return html`<label>${label}<select required=${required} onChange=${(event) => set(schema.enum[event.target.selectedIndex - 1])}><option></option>${schema.enum.map((one) => html`<option>${String(one)}</option>`)}</select></label>`;
  if (schema.type === "boolean") return html`<label class="row"><input type="checkbox" onChange=${(event) => set(event.target.checked)} /> ${label}</label>`;
  const isNumber = schema.type === "integer" || schema.type === "number";
  const onInput = (event) => {
    const said = event.target.value;
    setText(said);
    if (isNumber) set(said === "" ? undefined : Number(said));
    else if (schema.type === "string") set(said);
    else { try { set(JSON.parse(said)); } catch { set(said); } }
  };
  return html`<label>${label}
    ${isNumber ? html`<input type="number" step=${schema.type === "integer" ? 1 : "any"} min=${schema.minimum} max=${schema.maximum} required=${required} value=${text} onInput=${onInput} />`
    : schema.type === "string" ? html`<input type=${schema.format === "date" ? "date" : "text"} required=${required} value=${text} onInput=${onInput} />`
      : html`<textarea required=${required} value=${text} onInput=${onInput}></textarea>`}</label>`;
}
