// Which rows of the tree are shown. Never all of them: a tree may have tens of thousands of labels. Shown are the
// branches with given labels, those that were looked for, and what was opened by hand.

const STEP = 20; // labels that are added when one asks for more
const NEAREST = 3; // labels that are shown when none is given
const MOST = 200; // given labels that are shown at once, the most probable ones: at a threshold of 0 all are given

/** What was opened and closed by hand, and what was looked for. */
export class Unfolding {
  constructor() {
    this.more = new Map(); // label -> how many of its children are shown beside those that must be
    this.closed = new Set();
    this.pinned = new Set();
  }

  open(label) {
    this.closed.delete(label);
    this.more.set(label, this.more.get(label) || STEP);
  }

  close(label) {
    this.more.delete(label);
    this.closed.add(label);
  }

  showMore(label) {
    this.more.set(label, (this.more.get(label) ?? 0) + STEP);
  }

  pin(label, taxonomy) {
    this.pinned.add(label);
    for (const above of taxonomy.path(label)) this.closed.delete(above);
  }
}

/**
 * Return the rows to show, in order.
 *
 * `result` is null as long as there is no text; else `given` and `abstained` are maps from labels to probabilities and
 * `probabilities` holds one for every label, or none where there are too many of them to be asked for.
 */
export function rowsToShow(taxonomy, result, unfolding) {
  const needed = new Set();
  for (const seed of [...unfolding.pinned, ...(result ? lit(result) : [])]) {
    for (let label = seed; label !== -1 && !needed.has(label); label = taxonomy.parents[label]) needed.add(label);
  }
  const order = result
    ? (a, b) => (result.probabilities[b] ?? 0) - (result.probabilities[a] ?? 0) || a - b
    : () => 0; // by name already
  const rows = [];
  const walk = (parent, level) => {
    const children = taxonomy.children(parent);
    const extra = unfolding.more.get(parent) ?? (parent === -1 && !result ? STEP : 0);
    const [first, others] = [children.filter((child) => needed.has(child)), []];
    if (extra) others.push(...children.filter((child) => !needed.has(child)).sort(order).slice(0, extra));
    const shown = [...first, ...others].sort(order);
    const hidden = children.length - shown.length;
    shown.forEach((label, place) => {
      const below = taxonomy.children(label);
      const wanted = unfolding.more.has(label) || below.some((child) => needed.has(child));
      const expanded = below.length ? wanted && !unfolding.closed.has(label) : undefined;
      rows.push({ key: `l${label}`, label, level, expanded, size: shown.length + (hidden > 0), place: place + 1 });
      if (expanded) walk(label, level + 1);
    });
    if (hidden > 0) {
      rows.push({ key: `m${parent}`, parent, level, hidden, size: shown.length + 1, place: shown.length + 1 });
    }
  };
  walk(-1, 1);
  return rows;
}

/** Return the labels whose branches are shown: those that are given or abstained; if there are none, the nearest. */
function lit({ given, abstained, probabilities }) {
  const labels = [...given, ...abstained];
  if (!labels.length) return nearest(probabilities);
  if (labels.length > MOST) labels.sort(([, a], [, b]) => b - a);
  return labels.slice(0, MOST).map(([label]) => label);
}

/** Return the few most probable labels. */
function nearest(probabilities) {
  const best = [];
  probabilities.forEach((probability, label) => {
    if (best.length < NEAREST || probability > probabilities[best.at(-1)]) {
      best.push(label);
      best.sort((a, b) => probabilities[b] - probabilities[a]);
      best.length = Math.min(best.length, NEAREST);
    }
  });
  return best;
}
