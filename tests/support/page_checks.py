"""What cannot be read or hit on a page: functions for the browser."""

from __future__ import annotations

#: Finds text whose contrast with the colour behind it is below 4.5, as WCAG counts it.
FIND_PALE_TEXT = """
() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const linearise = c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => {
    const [red, green, blue] = [r, g, b].map(channel => linearise(channel / 255));
    return .2126 * red + .7152 * green + .0722 * blue;
  };
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const left_out = ":disabled, .visually-hidden, .skip, option";
  return [...document.querySelectorAll("body *:not(svg *)")].filter(node => {
    const hasText = [...node.childNodes].some(n => n.nodeType == 3 && n.textContent.trim());
    if (!hasText || !node.checkVisibility() || node.closest(left_out)) return false;
    const [one, other] = [parse(getComputedStyle(node).color), behind(node)].map(light);
    return (Math.max(one, other) + .05) / (Math.min(one, other) + .05) < 4.5;
  }).map(node => node.className + ": " + node.textContent.slice(0, 40));
}
"""

#: Finds controls that a finger cannot hit, and text that is too small to read.
FIND_SMALL_PARTS = """
() => {
  const isShown = node => node.checkVisibility() && !node.closest(".visually-hidden, .skip");
  const isSmall = node => {
    const { width, height } = node.getBoundingClientRect();
    return Math.min(width, height) < 28;
  };
  const controls = document.querySelectorAll("button, input:not([type=range]), select");
  const texts = [...document.querySelectorAll("main *:not(svg *)")].filter(node =>
    parseFloat(getComputedStyle(node).fontSize) < 11.9 &&
    [...node.childNodes].some(n => n.nodeType == 3 && n.textContent.trim()));
  return [...[...controls].filter(node => isSmall(node) && !node.closest("thead")), ...texts]
    .filter(isShown).map(node => node.outerHTML.slice(0, 80));
}
"""
