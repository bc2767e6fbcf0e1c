// Elements of the page. Text from jobs only ever becomes text nodes: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element. Attributes that are functions are listeners; null and false leave one out. */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return an element of an SVG figure. */
export function svgElement(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Return a part of the page of a job, with a heading. */
export function createPanel(title, ...children) {
  const id = `job-${title.toLowerCase()}`;
  const head = element("div", { class: "panel-head" }, element("h2", { id }, title));
  return element("section", { class: "panel", "aria-labelledby": id }, head, ...children);
}

/** Return the element of the page with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Change a text only if it differs, so that screen readers and selections are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set or remove an attribute, only if that changes it. */
export function setAttribute(node, name, value) {
  if (value === null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/**
 * Show exactly these children, in this order; those that are there already keep the focus.
 * With a `fallback`, the focus of one that goes moves to what takes its place, or to the fallback.
 */
export function setChildren(parent, children, fallback = null) {
  const wanted = new Set(children);
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const focusedPlace = [...parent.childNodes].findIndex((child) => child.contains(focused));
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  children.forEach((child, place) => {
    if (parent.childNodes[place] !== child) {
      parent.insertBefore(child, parent.childNodes[place] ?? null);
    }
  });
  if (focused === null || focused === document.activeElement) return;
  const next = children[Math.min(focusedPlace, children.length - 1)] ?? fallback;
  const target = focused.isConnected ? focused : fallback && next;
  target?.focus({ preventScroll: true });
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
