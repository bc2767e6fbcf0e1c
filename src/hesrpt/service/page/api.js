// The requests of the page to the service, and its errors in words.

const ROOT = "api/v1";
const TIMEOUT = 20_000; // milliseconds

/** What the service refused, or why it could not be asked. `status` is 0 without an answer. */
export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Return the address of a part of the service; names may contain any character. */
export function addressOf(path, query = {}) {
  const encoded = path.map(encodeURIComponent).join("/");
  const known = Object.entries(query).filter(([, value]) => value !== "" && value !== null);
  const text = new URLSearchParams(known).toString();
  return `${ROOT}/${encoded}${text && `?${text}`}`;
}

export const api = {
  servers: () => ask("GET", ["servers"]),
  schedule: (points, jobs) => ask("GET", ["schedule"], { query: { points, jobs } }),
  jobs: (query, signal) => ask("GET", ["jobs"], { query, signal }),
  job: (name) => ask("GET", ["jobs", name]),
  items: (name, offset, limit) => ask("GET", ["jobs", name, "items"], { query: { offset, limit } }),
  logs: (name) => ask("GET", ["jobs", name, "logs"], { asText: true }),
  groups: () => ask("GET", ["groups"]),
  addJob: (job, key) => ask("POST", ["jobs"], { body: job, headers: { "Idempotency-Key": key } }),
  changeJob: (name, change) => ask("PATCH", ["jobs", name], { body: change }),
  cancelJob: (name) => ask("DELETE", ["jobs", name]),
  changeAll: (change) => ask("PATCH", ["jobs"], { body: change }),
  changeGroup: (name, change) => ask("PATCH", ["groups", name], { body: change }),
};

/** Return a key that tells the service that two requests are the same one. */
export function createKey() {
  // crypto.randomUUID() exists over HTTPS and on this machine only.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function ask(method, path, { query, body, headers, signal, asText } = {}) {
  const timeout = AbortSignal.timeout(TIMEOUT);
  let answer;
  try {
    answer = await fetch(addressOf(path, query), {
      method,
      headers: body === undefined ? headers : { ...headers, "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error; // by the caller, who knows
    throw new ApiError(0, "The service does not answer. Is it still running?");
  }
  if (!answer.ok) throw new ApiError(answer.status, await describe(answer));
  return asText ? answer.text() : answer.json();
}

async function describe(answer) {
  try {
    const { detail } = await answer.json();
    if (typeof detail === "string") return detail;
  } catch {
    // Something other than the service answered, such as a proxy.
  }
  return `The service answered with the error ${answer.status}.`;
}
