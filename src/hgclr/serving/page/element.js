// Make elements. Children that are strings become text, never markup: label names are data.

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
