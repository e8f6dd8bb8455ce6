"""What the folded axis of time is asked in a browser: many random runs, and all that must hold of each."""

ASKED = """
async (module) => {
  const { axis, xOf, timeOf, gapsIn, SHARE, LEAST, BREAK } = await import(module);
  let seed = 20;
  const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
  const wrong = [];
  const say = (what, about) => wrong.length < 5 && wrong.push(`${what}: ${JSON.stringify(about)}`);
  let breaks = 0;
  for (let round = 0; round < 3000; round += 1) {
    const from = 1.7e12 + Math.floor(random() * 1e9);
    const to = from + Math.pow(10, random() * 10);
    const busy = [];
    for (let k = 0; k < random() * 12; k += 1) {
      const a = from + random() * (to - from);
      busy.push([a, Math.min(to, a + Math.pow(random(), 4) * (to - from))]);
    }
    const width = 300 + random() * 1500;
    const the = axis(from, to, busy, width, random() > 0.1);
    breaks += the.breaks.length;
    let last = -1;
    for (let k = 0; k <= 40; k += 1) {
      const t = from + ((to - from) * k) / 40;
      const x = xOf(the, t);
      if (!(x >= last - 1e-6)) say("not monotone", { round, k, x, last });
      if (x < -1e-6 || x > width + 1e-6) say("outside", { round, x, width });
      const back = timeOf(the, x);
      if (Math.abs(back - t) > Math.max(1e-3, (to - from) * 1e-6)) say("not invertible", { round, t, back });
      last = x;
    }
    for (const piece of the.breaks) {
      if (Math.abs(piece.x1 - piece.x0 - BREAK) > 1e-6) say("width of a break", piece);
      const span = piece.t1 - piece.t0;
      if (span <= LEAST * 1000 || span <= SHARE * (to - from)) say("too short", piece);
      const runs = busy.some(([a, b]) => a < piece.t1 - 1e-6 && b > piece.t0 + 1e-6);
      if (runs) say("something ran in it", piece);
    }
    const isAllFolded = the.pieces.every((piece) => piece.isBreak);
    if (!isAllFolded && Math.abs(xOf(the, to) - width) > 1e-3) say("does not reach the end", { round });
  }
  return { wrong, breaks };
}
"""
