// Calls to the server of `hgclr label`. An answer is kept in the browser until the server has stored it.

import { ServiceError, call, setToken } from "../page/api.js";

const LONGEST_PAUSE = 15; // seconds between two attempts

/** Take the token from the address of the first visit, and remember it. */
export function begin() {
  const address = new URL(location.href);
  const token = address.searchParams.get("token");
  if (token !== null) {
    store("hgclr-label-token", token);
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }
  setToken(token ?? stored("hgclr-label-token"));
}

/** The server of one sitting; `away(error, seconds)` is called before each pause, with nulls once it answers. */
export class Server {
  constructor(away) {
    this.away = away;
    this.retry = null; // ends a pause
    this.box = null; // the name under which an answer is kept
  }

  async begin() {
    const progress = await this.persist(() => call("progress"));
    const { labels } = await this.persist(() => call("taxonomy"));
    this.box = `hgclr-label-answer-${progress.sitting}-${progress.user}`;
    return { progress, labels };
  }

  next(mode, yesNo) {
    return this.persist(() => call(`next?mode=${mode}&yes_no=${yesNo}`));
  }

  /** Take back the last answer. After a lost reply, a second attempt would take back one more. */
  undo() {
    return call("undo", { body: {} });
  }

  /** Return the progress; fails at once if the server is away. */
  progress() {
    return call("progress");
  }

  train(effort) {
    return this.persist(() => call("train", { body: { effort } }));
  }

  /** Send an answer until the server has stored it or refuses it. */
  async answer(answer) {
    let again = answer.again ?? false;
    store(this.box, JSON.stringify(answer));
    const done = await this.persist(() => {
      const body = { ...answer, again };
      again = true; // a lost reply does not tell whether the answer was stored
      return call("answers", { body });
    }).catch((error) => {
      if (error.status !== 401) store(this.box, null); // it would be refused again
      throw error;
    });
    store(this.box, null);
    return done.progress;
  }

  /** Return the answer that an earlier visit could not send, or null. */
  kept() {
    const kept = stored(this.box);
    return kept === null ? null : { ...JSON.parse(kept), again: true };
  }

  /** Repeat a call until the server answers; an error that another attempt would repeat is thrown. */
  async persist(request) {
    for (let seconds = 1; ; seconds = Math.min(2 * seconds, LONGEST_PAUSE)) {
      try {
        const answer = await request();
        this.away(null, null);
        return answer;
      } catch (error) {
        const passing = error.type === "offline" || [429, 503, 504].includes(error.status);
        if (!(error instanceof ServiceError) || !passing) throw error;
        this.away(error, seconds);
        await new Promise((resolve) => {
          this.retry = resolve;
          setTimeout(resolve, seconds * 1000);
        });
        this.retry = null;
      }
    }
  }
}

/** Return a value of the browser's storage; null if it has none or may not be used. */
export function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Store a value; null deletes it. */
export function store(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // Without storage, everything lasts until the page is left.
  }
}
