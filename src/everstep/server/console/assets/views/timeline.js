// When everything ran: a lane for each node, waits hatched, commits as ticks, crashes and takeovers as lines.

import { at as path, get, query } from "../api.js";
import { axis, ticks, timeOf, xOf } from "../axis.js";
import { html, Problem, useAsked, useEffect, useMemo, useRef, useState } from "../html.js";
import { clock, count, millis, rough, span, tick } from "../words.js";
import { plain, short, shownOf } from "../addresses.js";

const LANE = 22;
const TOP = 30;
const MOST_LANES = 60;
/** How wide the names of the lanes are: of a narrow window a third at most. */
const namesOf = (width) => Math.min(170, Math.round(width / 3.6));
/** A little more than a letter of the axis takes. */
const LETTER = 6;
const GRAVE = ["crash", "takeover", "interrupted"];

export function Timeline({ id, run, at, step, pick, seek, version, tell }) {
  const ref = useRef();
  const [width, setWidth] = useState(900);
  const [isUnfolded, setUnfolded] = useState(false);
  const [view, setView] = useState(null);
  const [drag, setDrag] = useState(null);
  const [first, setFirst] = useState(0);
  const isLong = run.checkpoints > 300;
  const asked = query({ since: isLong && view && new Date(view[0]).toISOString(), until: isLong && view && new Date(view[1] + 1).toISOString(), most: 240 });
  const told = useAsked((signal) => get(path`/runs/${id}/timeline` + asked, signal), `${id}${asked}`, true, version);

  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(320, Math.floor(entry.contentRect.width))));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const onKey = (event) => event.key === "f" && !event.ctrlKey && !event.metaKey && !event.target.closest("input, textarea, select, dialog") && setUnfolded((is) => !is);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  const it = told.data;
  const names = namesOf(width);
  useEffect(() => { if (it && !view) tell(it.lanes); }, [it, view]);
  const the = useMemo(() => it && axisOf(it, width - names - 12, !isUnfolded, view), [it, width, isUnfolded, view]);
  const body = () => {
    if (!it) return told.error ? html`<${Problem} error=${told.error} retry=${told.reload} />` : html`<p class="quiet pad">Loading …</p>`;
    const picked = step ? shownOf(step, new Set(it.lanes.map((one) => plain(one.node)))) : null;
    const lanes = it.lanes.slice(first, first + MOST_LANES);
    const high = TOP + lanes.length * LANE + 8;
    const x = (t) => names + xOf(the, millis(t));
    const placeOf = (event) => event.clientX - ref.current.getBoundingClientRect().left - names;
    const onSeek = (place) => {
      const t = timeOf(the, place);
      let found = null;
      for (const one of it.commits) if (millis(one.at) <= t) found = one.sequence;
      seek(found === null ? (it.commits[0] ? it.commits[0].sequence : null) : found >= run.checkpoints && run.ended_at ? null : found);
    };
    const zoom = (by) => {
      const head = at != null && it.commits.find((one) => one.sequence >= at);
      const middle = head ? millis(head.at) : (the.from + the.to) / 2;
      const half = ((the.to - the.from) * by) / 2;
      const from = Math.max(millis(it.began_at), middle - half);
      const to = Math.min(millis(it.until), middle + half);
      setView(by > 1 && from <= millis(it.began_at) && to >= millis(it.until) ? null : [from, to]);
    };
    const onDown = (event) => { if (!event.button && placeOf(event) >= 0) setDrag([placeOf(event), placeOf(event)]); };
    const onMoving = (event) => drag && setDrag([drag[0], placeOf(event)]);
    const onUp = () => {
      if (!drag) return;
      const [a, b] = [...drag].sort((one, two) => one - two);
      setDrag(null);
      if (b - a > 8) setView([timeOf(the, a), timeOf(the, b)]);
      else onSeek(a);
    };
    const head = at != null && it.commits.find((one) => one.sequence >= at);
    return html`
      <div class="pane-tools">
        <button aria-pressed=${isUnfolded} onClick=${() => setUnfolded(!isUnfolded)}>${isUnfolded ? "Fold" : "Unfold"} what stood still (f)</button>
        <button aria-label="Zoom in" title="Zoom in; or drag over a stretch" onClick=${() => zoom(0.5)}>+</button><button aria-label="Zoom out" disabled=${!view} onClick=${() => zoom(2)}>−</button>
        ${view && html`<button onClick=${() => setView(null)}>All of it</button>`}
        <span class="quiet">${clock(the.from)} to ${it.is_live && !view ? "now" : clock(the.to, the.from)}, ${span((the.to - the.from) / 1000)}</span>
        ${it.left_out && it.left_out.checkpoints_before ? html`<span class="quiet">${count(it.left_out.checkpoints_before)} checkpoints before are not shown</span>` : null}
        ${it.lanes.length > MOST_LANES && html`<span>lanes ${first + 1} to ${first + lanes.length} of ${it.lanes.length}
          <button aria-label="Lanes before" disabled=${!first} onClick=${() => setFirst(Math.max(0, first - MOST_LANES))}>↑</button><button aria-label="Lanes after" disabled=${first + MOST_LANES >= it.lanes.length} onClick=${() => setFirst(first + MOST_LANES)}>↓</button></span>`}
      </div>
      <svg class="lanes" role="group" aria-label="Timeline" width=${width} height=${high} onPointerDown=${onDown} onPointerMove=${onMoving} onPointerUp=${onUp} onPointerLeave=${() => setDrag(null)}>
        <defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="6" /></pattern>
          <clipPath id="inside"><rect x=${names} y="0" width=${the.width + 4} height=${high} /></clipPath></defs>
        ${the.breaks.map((piece) => html`<g key=${piece.t0}><rect class="gap-band" x=${names + piece.x0} y="0" width=${piece.x1 - piece.x0} height=${high} /><title>nothing ran for ${span((piece.t1 - piece.t0) / 1000)}</title></g>`)}
        ${labels(the, it).map((one) => html`<text key=${one.x} class=${`small ${one.isBreak ? "strong" : ""}`} x=${names + one.x} y="10" text-anchor=${one.isBreak ? "middle" : "start"}>${one.text}</text>`)}
        ${lanes.map((lane, k) => html`<${Lane} key=${lane.node} lane=${lane} y=${TOP + k * LANE} width=${width} names=${names} x=${x} picked=${picked} step=${step} pick=${pick} until=${it.until} />`)}
        <g clip-path="url(#inside)">
          ${commitsOf(it, x).map((place) => html`<line key=${place} class="commit" x1=${place} x2=${place} y1=${TOP - 9} y2=${TOP - 3} />`)}
          ${it.marks.filter((mark) => mark.kind !== "start").map((mark, k) => html`<g key=${k}><line class=${`mark ${GRAVE.includes(mark.kind) ? "grave" : ""}`} x1=${x(mark.at)} x2=${x(mark.at)} y1="14" y2=${high} /><text class="small" x=${x(mark.at) + (x(mark.at) > width - 150 ? -4 : 4)} y="21" text-anchor=${x(mark.at) > width - 150 ? "end" : "start"}>${markText(mark)}</text><title>${`${markText(mark)} at ${clock(mark.at)}${mark.text ? `: ${mark.text}` : ""}`}</title></g>`)}
          ${head && html`<line class="playhead" x1=${x(head.at)} x2=${x(head.at)} y1="12" y2=${high} />`}
        </g>
        ${drag && Math.abs(drag[1] - drag[0]) > 8 && html`<rect class="drag" x=${names + Math.max(0, Math.min(...drag))} y="0" width=${Math.abs(drag[1] - drag[0])} height=${high} />`}
      </svg>`;
  };
  return html`<div ref=${ref}>${body()}</div>`;
}

const markText = (mark) => `${mark.kind}${mark.worker ? ` by ${mark.worker}` : mark.by ? ` by ${mark.by}` : ""}`;

/** What is written above the lanes, breaks first: nothing over another, nothing over the edge. */
function labels(the, it) {
  const found = the.breaks.map((piece) => ({ x: (piece.x0 + piece.x1) / 2, text: rough((piece.t1 - piece.t0) / 1000), isBreak: true })).map((one) => ({ ...one, a: one.x - (one.text.length * LETTER) / 2, b: one.x + (one.text.length * LETTER) / 2 }));
  for (const one of ticks(the)) {
    const text = tick(one, millis(it.began_at));
    const mine = { x: one.x, text, a: one.x, b: one.x + text.length * LETTER };
    if (mine.b <= the.width + 10 && !found.some((other) => mine.a < other.b + 4 && mine.b > other.a - 4)) found.push(mine);
  }
  return found;
}

/** What something ran in, for the folding of the rest; a wait is no work, and may be folded. */
function axisOf(it, width, folds, view) {
  const busy = [];
  for (const lane of it.lanes) {
    for (const one of lane.segments) if (one.kind !== "wait") busy.push([millis(one.from), millis(one.to ?? it.until)]);
    for (const one of lane.buckets) busy.push([millis(one.from), millis(one.to ?? it.until)]);
  }
  for (const one of it.marks) busy.push([millis(one.at), millis(one.at)]);
  const [from, to] = view || [millis(it.began_at), millis(it.until)];
  const made = axis(from, to, busy.filter(([a, b]) => b >= from && a <= to), width, folds);
  // Of a run that does nothing but wait there is nothing to unsquash.
  return made.pieces.every((piece) => piece.isBreak || piece.t1 - piece.t0 < 1) ? axis(from, to, [], width, false) : made;
}

/** Commits that stand apart by a pixel or more. */
const commitsOf = (it, x) => [...new Set(it.commits.map((one) => Math.round(x(one.at))))];

function Lane({ lane, y, width, names, x, picked, step, pick, until }) {
  const isPicked = picked === plain(lane.node);
  const depth = lane.node.split("/").length - 1;
  const name = lane.node.split("/").pop();
  const most = Math.max(6, Math.floor((names - 6 - depth * 10) / 7.4));
  const go = (event, address) => { event.stopPropagation(); pick(address); };
  const hold = (event) => event.stopPropagation();
  const newest = lane.segments.length ? lane.segments[lane.segments.length - 1].address : lane.node;
  const strip = lane.buckets.length ? stripOf(lane, x, until) : [];
  return html`<g>
    ${isPicked && html`<rect class="picked-lane" x="0" y=${y} width=${width} height=${LANE} />`}
    <line class="lane-line" x1="0" x2=${width} y1=${y + LANE} y2=${y + LANE} />
    <text class="lane-name node" x=${6 + depth * 10} y=${y + 15} tabindex="0" role="button" onPointerDown=${hold} onClick=${(event) => go(event, newest)} onKeyDown=${(event) => event.key === "Enter" && go(event, newest)}>${name.length > most ? `${name.slice(0, most - 1)}…` : name}${lane.visits > 1 ? ` ×${lane.visits}` : ""}<title>${lane.node}</title></text>
    <g clip-path="url(#inside)">
    ${strip.map((one, k) => html`<rect key=${`b${k}`} class=${`seg bucket ${one.bucket.status} ${isPicked && `${step}/`.startsWith(`${short(one.bucket.first_item)}/`) ? "picked" : ""}`} fill-opacity=${one.shade} x=${one.left} y=${y + 4} width=${one.wide} height=${LANE - 8} onPointerDown=${hold} onClick=${(event) => go(event, one.bucket.first_item)}>
      <title>${`${count(one.bucket.count)} items ${one.bucket.status}${one.bucket.slowest ? `, the slowest, ${one.bucket.first_item}, took ${span(one.bucket.slowest)}` : ""}`}</title></rect>`)}
    ${!strip.length && lane.segments.map((one, k) => {
    const left = x(one.from);
    const wide = Math.max(2, x(one.to ?? until) - left);
    const status = one.kind === "wait" ? "halted" : one.kind === "retry_pause" ? "pause" : one.status === "retrying" ? "failed" : one.status || "running";
    return html`<rect key=${k} class=${`seg ${status} ${short(one.address) === step ? "picked" : ""}`} x=${left} y=${y + 4} width=${wide} height=${LANE - 8} rx="2" onPointerDown=${hold} onClick=${(event) => go(event, one.address)}>
        <title>${`${one.address}: ${one.kind.replace("_", " ")}${one.attempt > 1 ? `, attempt ${one.attempt}` : ""}, ${one.status || "under way"}${one.count > 1 ? `, ${one.count} together` : ""}, ${one.to ? span((millis(one.to) - millis(one.from)) / 1000) : "goes on"}`}</title></rect>`;
  })}</g>
  </g>`;
}

/** The items of a map as a strip over the time that it took: by how many, failed first, then the slowest; the slower the darker. */
function stripOf(lane, x, until) {
  const from = Math.min(...lane.buckets.map((one) => x(one.from)), ...lane.segments.map((one) => x(one.from)));
  const to = Math.max(from + 20, ...lane.buckets.map((one) => x(one.to ?? until)));
  const all = lane.buckets.reduce((sum, one) => sum + one.count, 0);
  const most = Math.max(...lane.buckets.map((one) => one.slowest));
  let left = from;
  return lane.buckets.map((bucket) => {
    const wide = Math.max(bucket.status === "failed" ? 4 : 1, ((to - from) * bucket.count) / all);
    const one = { bucket, left, wide, shade: most && bucket.status !== "failed" ? 0.35 + (0.65 * bucket.slowest) / most : 1 };
    left += wide;
    return one;
  });
}
