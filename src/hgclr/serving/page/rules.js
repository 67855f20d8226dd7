// The decoding rules, each with what it does in a line.

export const RULES = new Map([
  ["threshold", "Every label above its threshold, even without its parent."],
  ["closure", "Every label above its threshold, and all labels on the way to it."],
  ["drop-orphans", "Labels above their threshold whose ancestors all are, too."],
  ["best-path", "The one most probable path; a higher threshold ends it earlier."],
  ["top-k-paths", "The k most probable paths; a higher threshold ends them earlier."],
]);
