// The label tree: parents, children and a search. A label is its index in the model's order; -1 is the root above the
// top labels.

const MOST_PATHS = 100; // a label may have very many

/** The label tree from `GET /taxonomy`. */
export class Taxonomy {
  constructor(labels) {
    this.ids = labels.map((label) => label.id);
    this.names = labels.map((label) => label.name);
    this.places = new Map(this.ids.map((id, label) => [id, label]));
    this.parents = labels.map((label) => (label.parent === null ? -1 : this.places.get(label.parent)));
    this.more = labels.map(({ parents = [] }) => parents.slice(1).map((parent) => this.places.get(parent)));
    this.below = new Map([[-1, []]]);
    this.parents.forEach((parent, label) => {
      if (!this.below.has(parent)) this.below.set(parent, []);
      this.below.get(parent).push(label);
    });
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    for (const children of this.below.values()) children.sort((a, b) => compare(this.names[a], this.names[b]));
    // What a search looks through: the names of a label, then its path, then its description.
    this.texts = labels.map(({ id, name, code = "", alt_labels: others = [], description = "" }, label) => {
      const path = this.path(label).map((node) => this.names[node]).join(" › ");
      const kinds = [[name, code, ...others, id], [path], [description]];
      return kinds.flatMap((texts, kind) => texts.map((text) => [fold(text), text, kind]));
    });
  }

  get size() {
    return this.ids.length;
  }

  /** Return the children of a label, sorted by name. */
  children(label) {
    return this.below.get(label) ?? [];
  }

  /** Return the labels from the top label down to a label, itself included. */
  path(label) {
    const path = [];
    for (let node = label; node !== -1; node = this.parents[node]) path.unshift(node);
    return path;
  }

  /** Return the names above a label on each of its paths, the main path first. */
  placesOf(label) {
    const places = [];
    const pending = [[label]];
    while (pending.length && places.length < MOST_PATHS) {
      const path = pending.pop();
      const parents = [this.parents[path[0]], ...this.more[path[0]]].reverse();
      if (parents[0] === -1) places.push(path.slice(0, -1).map((node) => this.names[node]));
      else pending.push(...parents.map((parent) => [parent, ...path]));
    }
    return places;
  }

  /**
   * Return labels of which a text has all words of a query, and that text: the name, the code, an alternative name or
   * the id, or else the path or the description.
   */
  search(query, limit) {
    const words = fold(query).split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const better = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2] || a[3] - b[3];
    const found = this.texts.flatMap((texts, label) => texts
      .filter(([folded]) => words.every((word) => folded.includes(word)))
      .map(([folded, text, kind]) => [kind, rank(folded, words[0]), folded.length, label, text])
      .sort(better)
      .slice(0, 1));
    return found.sort(better).slice(0, limit).map(([, , , label, text]) => ({ label, text }));
  }
}

/** Return a text in lower case without accents. */
function fold(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}

/** Return 0 if a name begins with the word, 1 if one of its words does, 2 otherwise. */
function rank(name, word) {
  const place = name.indexOf(word);
  if (place === 0) return 0;
  return /[\s/_-]/.test(name[place - 1]) ? 1 : 2;
}
