// Elements and words that the other parts share.

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

/** Return the element of the page with an id. */
export function byId(id) {
  return document.getElementById(id);
}

const whole = new Intl.NumberFormat("en");

/** Return a count with its noun: "1 label", "3,100 labels". */
export function count(number, noun) {
  return `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Return a probability in percent; what is not quite nothing or everything is not rounded to it. */
export function percent(probability) {
  if (probability > 0 && probability < 0.005) return "<1 %";
  if (probability < 1 && probability >= 0.995) return ">99 %";
  return `${Math.round(probability * 100)} %`;
}

/** Return a duration in a few words. */
export function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** Return a message as a sentence. */
export function sentence(message) {
  return `${message.charAt(0).toUpperCase()}${message.slice(1).replace(/\.$/, "")}.`;
}

/** Return why one has to wait, and how long. */
export function delay(seconds, error) {
  const why = error.status === 429 ? "The service is busy." : sentence(error.message);
  return `${why} Trying again in ${duration(seconds)}.`;
}

/** Return the deepest of some labels: those that no other path continues. */
export function deepest(labels) {
  const inside = new Set(labels.map((label) => JSON.stringify(label.path.slice(0, -1))));
  return labels.filter((label) => !inside.has(JSON.stringify(label.path)));
}
