// The public HTTP API of the service; there is no other way to anything.

let top = "";
let by = "";

/** Who acts, where the service does not know better. */
export function actAs(name) {
  by = name;
}

export function begin(prefix) {
  top = prefix;
}

export class ApiError extends Error {
  constructor(status, told) {
    super(told.message || `the service answered ${status}`);
    this.status = status;
    this.code = told.code || "";
    this.fix = told.fix || "";
  }
}

async function asked(path, options) {
  let response;
  try {
    response = await fetch(top + path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "unreachable", message: "The service does not answer.", fix: "It may be restarting; this page goes on by itself." });
  }
  if (response.status === 401) {
    location.href = `${top}/ui/login`;
    throw new ApiError(401, { message: "Log in again." });
  }
  const isJson = (response.headers.get("content-type") || "").startsWith("application/json");
  const told = isJson ? await response.json() : { message: await response.text() };
  if (!response.ok) throw new ApiError(response.status, told);
  return told;
}

/** Answers that a file brings with it, by their paths; there is no service then. */
let kept = null;
let pictures = {};

export function keep(answers, images) {
  kept = answers;
  pictures = images;
}

/** An image that a file brings with it. */
export const pictureOf = (cut) => pictures[cut.image];

/** Whether there is no service to be asked. */
export const isFile = () => kept !== null;

/** Look at something. */
export const get = (path, signal) => (kept ? keptOf(path) : asked(path, { signal, headers: { Accept: "application/json" } }));

async function keptOf(path) {
  const now = path.replace(/([?&])at=\d+&?/, "$1").replace(/[?&]$/, "");
  const found = kept[path] ?? kept[now];
  if (found === undefined) throw new ApiError(404, { code: "file.cut", message: "This is not in the file.", fix: "The console shows it, on the store of the run." });
  return found;
}

/** Do something. Only a page of ours can send the header. */
export const act = (path, body, method = "POST") => asked(path, {
  method,
  headers: { "Content-Type": "application/json", Accept: "application/json", "Everstep-Console": "1", ...(by ? { "Everstep-By": encodeURIComponent(by) } : {}) },
  body: body === undefined ? undefined : JSON.stringify(body),
});

/** A path with its parts encoded: at`/runs/${run}/nodes`. */
export const at = (parts, ...names) => parts.reduce((text, part, k) => text + encodeURIComponent(names[k - 1]) + part);

/** What stands behind the question mark; what is empty is left out. */
export function query(asked) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(asked))
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== undefined && one !== false && one !== "") said.append(name, one);
  const text = said.toString();
  return text ? `?${text}` : "";
}

/** The address of something that is no JSON, for a link or an image. */
export const address = (path) => top + path;
