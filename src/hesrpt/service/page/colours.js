// Which colour a job has in the areas and in the list: the same for as long as it is shown.

const SLOTS = 8; // the variables --job-1 to --job-8 of the style sheet

const slots = new Map(); // slot by name of the job

/** Give these jobs colours; jobs that have one keep it. */
export function assignColours(names) {
  for (const name of [...slots.keys()]) if (!names.includes(name)) slots.delete(name);
  const used = new Set(slots.values());
  for (const name of names) {
    if (slots.has(name)) continue;
    const free = Array.from({ length: SLOTS }, (_, place) => place + 1).find((n) => !used.has(n));
    slots.set(name, free ?? SLOTS);
    used.add(free);
  }
}

/** Return the colour of a job, or that of all other jobs. */
export function colourOf(name) {
  return `var(--job-${slots.get(name) ?? "other"})`;
}

/** Return whether a job has a colour of its own. */
export function hasColour(name) {
  return slots.has(name);
}
