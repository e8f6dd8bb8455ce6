// The time axis of a run: long stretches in which nothing ran are folded to a fixed width.
//
// Pure: a monotone map from time to place, and back. Stretches of weeks would squash everything else.

/** A stretch that is longer than this share of the whole, and than so many seconds, is folded. */
export const SHARE = 0.05;
export const LEAST = 10;
/** How wide a folded stretch is. */
export const BREAK = 24;

/**
 * Return the axis over `[from, to]` (milliseconds) of `width` pixels. `busy` are stretches `[from, to]` in which
 * something ran; `folds` says whether what lies between may be folded.
 */
export function axis(from, to, busy, width, folds = true) {
  const span = Math.max(0.001, to - from);
  const gaps = folds ? gapsIn(from, to, busy).filter(([a, b]) => b - a > SHARE * span && b - a > LEAST * 1000) : [];
  const most = Math.floor((width * 0.6) / BREAK);
  const kept = gaps.length > most ? [...gaps].sort((a, b) => b[1] - b[0] - (a[1] - a[0])).slice(0, most).sort((a, b) => a[0] - b[0]) : gaps;
  const folded = kept.reduce((sum, [a, b]) => sum + b - a, 0);
  const room = Math.max(1, width - kept.length * BREAK);
  const scale = room / Math.max(0.001, span - folded);
  // Pieces from left to right, each linear: times t0..t1 lie at x0..x1.
  const pieces = [];
  let t = from;
  let x = 0;
  for (const [a, b] of kept) {
    if (a > t) { pieces.push({ t0: t, t1: a, x0: x, x1: x + (a - t) * scale }); x += (a - t) * scale; }
    pieces.push({ t0: a, t1: b, x0: x, x1: x + BREAK, isBreak: true });
    x += BREAK;
    t = b;
  }
  if (to > t || !pieces.length) pieces.push({ t0: t, t1: Math.max(to, t + 0.001), x0: x, x1: width });
  // Where all is folded, less than the whole width is used.
  return { from, to, width: pieces[pieces.length - 1].x1, pieces, breaks: pieces.filter((piece) => piece.isBreak) };
}

/** The stretches between those in which something ran. */
export function gapsIn(from, to, busy) {
  const sorted = busy.map(([a, b]) => [Math.max(from, a), Math.min(to, b)]).filter(([a, b]) => b >= a).sort((p, q) => p[0] - q[0]);
  const gaps = [];
  let reached = from;
  for (const [a, b] of sorted) {
    if (a > reached) gaps.push([reached, a]);
    reached = Math.max(reached, b);
  }
  if (to > reached) gaps.push([reached, to]);
  return gaps;
}

/** Where a time lies. */
export function xOf(the, t) {
  const { pieces } = the;
  if (t <= pieces[0].t0) return 0;
  for (const piece of pieces) if (t <= piece.t1) return piece.x0 + ((t - piece.t0) / (piece.t1 - piece.t0)) * (piece.x1 - piece.x0);
  return the.width;
}

/** Which time lies at a place. */
export function timeOf(the, x) {
  const { pieces } = the;
  if (x <= 0) return pieces[0].t0;
  for (const piece of pieces) if (x <= piece.x1) return piece.t0 + ((x - piece.x0) / (piece.x1 - piece.x0)) * (piece.t1 - piece.t0);
  return pieces[pieces.length - 1].t1;
}

const STEPS = [0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];

/** Times to write below the axis, apart enough to be read, none inside what is folded. */
export function ticks(the, apart = 90) {
  const found = [];
  for (const piece of the.pieces.filter((one) => !one.isBreak)) {
    const perPixel = (piece.t1 - piece.t0) / Math.max(1, piece.x1 - piece.x0);
    const step = (STEPS.find((one) => one * 1000 >= perPixel * apart) ?? 2592000) * 1000;
    const begin = step < 10000 ? the.from + Math.ceil((piece.t0 - the.from) / step) * step : Math.ceil(piece.t0 / step) * step;
    for (let t = begin; t <= piece.t1; t += step) {
      const x = xOf(the, t);
      if (!found.length || x - found[found.length - 1].x >= apart) found.push({ t, x, from: piece.t0, span: piece.t1 - piece.t0, isFirst: !found.length || found[found.length - 1].from !== piece.t0 });
    }
  }
  return found;
}
