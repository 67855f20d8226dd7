// The answer to one text while it is made: chosen labels, refused ones, the question of the yes-or-no mode.

/** An answer under construction. Labels are indices into the taxonomy; -1 is the root. */
export class Draft {
  constructor(taxonomy, task) {
    this.taxonomy = taxonomy;
    this.task = task;
    this.started = performance.now();
    this.chosen = [];
    this.refused = new Set();
    this.question = task.question ? taxonomy.places.get(task.question.label) : -1;
  }

  /** Choose a label in place of the others, or `adding` it to them; a label that is added twice is removed. */
  choose(label, adding) {
    if (!adding) this.chosen = [label];
    else if (this.chosen.includes(label)) this.remove(label);
    else {
      const path = this.taxonomy.path(label);
      const apart = (other) => !path.includes(other) && !this.taxonomy.path(other).includes(label);
      this.chosen = [...this.chosen.filter(apart), label];
    }
  }

  remove(label) {
    this.chosen = this.chosen.filter((other) => other !== label);
  }

  /** Replace the last label by its parent; a top label is removed. Returns the parent, or undefined without a label. */
  shorten() {
    const label = this.chosen.at(-1);
    if (label === undefined) return undefined;
    const parent = this.taxonomy.parents[label];
    this.remove(label);
    const covered = this.chosen.some((other) => this.taxonomy.path(other).includes(parent));
    if (parent !== -1 && !covered) this.chosen.push(parent);
    return parent;
  }

  /** Answer the question with no: the next question is one level up. */
  refuse() {
    this.refused.add(this.question);
    this.question = this.taxonomy.parents[this.question];
  }

  isRefused(label) {
    return this.taxonomy.path(label).some((node) => this.refused.has(node));
  }

  /** Return the answer that says yes to the question: what is below the label stays open. */
  confirmed() {
    const partial = this.taxonomy.children(this.question).length > 0;
    return { ...this.finished("labels"), labels: [this.taxonomy.ids[this.question]], partial };
  }

  /** Return the answer in the form of a request. */
  finished(kind) {
    const { ids } = this.taxonomy;
    const inside = new Set(this.chosen.flatMap((label) => this.taxonomy.path(label)));
    const refused = [...this.refused].filter((label) => !inside.has(label));
    return {
      document: this.task.document,
      kind,
      labels: kind === "labels" ? this.chosen.map((label) => ids[label]) : [],
      refused: kind === "labels" ? refused.map((label) => ids[label]) : [],
      partial: false,
      note: "",
      model: this.task.model,
      milliseconds: Math.round(performance.now() - this.started),
    };
  }
}

/** Return the options of a task, five at most: other people's answers, then the model's suggestions. */
export function optionsOf(task, taxonomy) {
  const options = new Map();
  const optionOf = (id) => {
    if (!options.has(id)) options.set(id, { label: taxonomy.places.get(id), words: [], people: [] });
    return options.get(id);
  };
  for (const { user, labels } of task.others ?? []) for (const id of labels) optionOf(id).people.push(user);
  for (const { label, probability, words } of task.suggestions) Object.assign(optionOf(label), { probability, words });
  return [...options.values()].slice(0, 5);
}
