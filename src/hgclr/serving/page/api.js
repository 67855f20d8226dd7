// The service: its calls, its errors, and patience when it is busy. Addresses are relative to the page's own, so that
// it also works below a path of a larger site.

const ATTEMPTS = 4; // without an answer, before giving up

/** An error answer of the service, or no answer. */
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
export const explain = (body, options) => call("explain", { ...options, body });

/**
 * Make a call again as long as the service is busy or not ready, after the time that it asks for. Where there is no
 * answer at all, give up after a few attempts, each later than the one before.
 *
 * `waiting(seconds, error)` is called before every pause.
 */
export async function patiently(request, { signal, waiting = () => {} } = {}) {
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
      await pause(seconds * (1 + Math.random() / 4), signal); // not all clients at the same moment
    }
  }
}

async function call(path, { body, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), {
      method: body === undefined ? "GET" : "POST",
      body: body === undefined ? undefined : JSON.stringify(body),
      headers,
      signal,
    });
    const answer = await response.json();
    if (response.ok) return answer;
    throw refusal(response, answer?.error);
  } catch (error) {
    if (error instanceof ServiceError || error.name === "AbortError") throw error;
    if (error instanceof SyntaxError) throw refusal(response); // a proxy that answers in HTML, for one
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
