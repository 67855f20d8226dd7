// What the service says of a text, by label.

const LIKELY = 60; // labels that are drawn above the slider
const UNLIKELY = 0.02; // below this they would lie on one another

/** Return the probability of every label, from the service's map of ids; an empty list where there is no such map. */
export function allProbabilities(taxonomy, byId) {
  return byId ? taxonomy.ids.map((id) => byId[id]) : [];
}

/** Return a prediction with labels as numbers; see `rowsToShow`. */
export function readResult(taxonomy, prediction, probabilities) {
  const map = (labels) => new Map(labels.map((label) => [taxonomy.places.get(label.id), label.probability]));
  return {
    given: map(prediction.labels),
    abstained: map(prediction.abstained ?? []),
    probabilities,
    likely: likely(probabilities),
  };
}

function likely(probabilities) {
  const labels = [];
  probabilities.forEach((probability, label) => {
    if (probability >= UNLIKELY) labels.push(label);
  });
  return labels.sort((a, b) => probabilities[b] - probabilities[a]).slice(0, LIKELY);
}
