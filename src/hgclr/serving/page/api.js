// Calls to the service, with retries while it is busy. Addresses are relative to the page, which may be below a path.

const ATTEMPTS = 4; // failures to connect before giving up

let token = null; // sent with every call, if there is one

/** Send a token with all further calls. */
export const setToken = (value) => (token = value);

/** An error answer of the service, or a failure to reach it. */
export class ServiceError extends Error {
  constructor(message, { type = "internal", status = 0, retryAfter = null } = {}) {
    super(message);
    this.name = "ServiceError";
    Object.assign(this, { type, status, retryAfter });
  }
}

export const getModel = (options) => call("model", options);
export const getTaxonomy = (options) => call("taxonomy", options);
export const predict = (body, options) => call("predict", { ...options, body });
export const convert = (blob, options) => call("workbook", { ...options, blob });
export const explain = (body, options) => call("explain", { ...options, body });

/**
 * Repeat a call while the service is busy or not ready, after the time in Retry-After. Without any answer, give up
 * after `ATTEMPTS` attempts with growing pauses. `waiting(seconds, error)` is called before every pause.
 */
export async function withRetries(request, { signal, waiting = () => {} } = {}) {
  for (let failures = 0; ; ) {
    try {
      return await request();
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      const busy = error.status === 429 || error.status === 503;
      const lost = error.type === "offline" || error.status === 504;
      if (lost) failures += 1;
      if (!busy && !(lost && failures < ATTEMPTS)) throw error;
      const seconds = error.retryAfter ?? (busy ? 1 : 2 ** (failures - 1));
      waiting(seconds, error);
      await pause(seconds * (1 + Math.random() / 4), signal); // so that clients do not retry in step
    }
  }
}

/** Send a body as JSON, or a blob, which is answered with a blob. An answer without content is null. */
export async function call(path, { body, blob, signal } = {}) {
  const content = blob ?? (body === undefined ? undefined : JSON.stringify(body));
  const headers = { Accept: blob ? "*/*" : "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (content !== undefined) headers["Content-Type"] = blob ? blob.type : "application/json";
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), {
      method: content === undefined ? "GET" : "POST",
      body: content,
      headers,
      signal,
    });
    if (blob && response.ok) return await response.blob();
    if (response.status === 204) return null;
    const answer = await response.json();
    if (response.ok) return answer;
    throw refusal(response, answer?.error);
  } catch (error) {
    if (error instanceof ServiceError || error.name === "AbortError") throw error;
    if (error instanceof SyntaxError) throw refusal(response); // such as a proxy's HTML page
    throw new ServiceError("The service does not answer.", { type: "offline" });
  }
}

function refusal(response, error) {
  const seconds = Number.parseFloat(response.headers.get("Retry-After") ?? "");
  return new ServiceError(error?.message ?? `The service answered with status ${response.status}.`, {
    type: error?.type ?? "internal",
    status: response.status,
    retryAfter: Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0), 60) : null,
  });
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("cancelled", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}
