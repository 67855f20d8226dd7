// Elements and texts that the other modules share.

/** Return a new element with attributes; those that are null, undefined or false are left out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  setAttributes(made, attributes);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Set attributes, and remove those that are null, undefined or false. */
export function setAttributes(target, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) target.removeAttribute(name);
    else if (target.getAttribute(name) !== String(value)) target.setAttribute(name, value === true ? "" : value);
  }
}

/** Return the element with an id. */
export function byId(id) {
  return document.getElementById(id);
}

const whole = new Intl.NumberFormat("en");

/** Return a count with its noun: "1 label", "3,100 labels". */
export function count(number, noun) {
  return `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Return a probability in percent; only 0 and 1 themselves are shown as 0 % and 100 %. */
export function percent(probability) {
  if (probability > 0 && probability < 0.005) return "<1 %";
  if (probability < 1 && probability >= 0.995) return ">99 %";
  return `${Math.round(probability * 100)} %`;
}

/** Return a duration with its unit: "40 s", "3 min", "2 h". */
export function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** Return a message with a capital letter and a full stop. */
export function sentence(message) {
  return `${message.charAt(0).toUpperCase()}${message.slice(1).replace(/\.$/, "")}.`;
}

/** Return the reason for a pause, and its length. */
export function delay(seconds, error) {
  const why = error.status === 429 ? "The service is busy." : sentence(error.message);
  return `${why} Trying again in ${duration(seconds)}.`;
}

/** Return all paths of a predicted label, the main one first. */
export function pathsOf(label) {
  return label.paths ?? [label.path];
}

/** Return an element that names a further place of a label in the tree. */
export function alsoUnder(names) {
  return element("div", { class: "quiet also" }, "also under ", element("bdi", {}, names.join(" › ")));
}

/** Return the labels at the ends of their paths. */
export function deepest(labels) {
  const paths = labels.flatMap(pathsOf);
  const inside = new Set(paths.map((path) => JSON.stringify(path.slice(0, -1))));
  return labels.filter((label) => !inside.has(JSON.stringify(label.path)));
}
